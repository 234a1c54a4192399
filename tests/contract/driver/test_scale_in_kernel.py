"""Ten thousand services with ten endpoints each: all of it arrives, is read back whole and adopted without a write."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from nodeagent.model.frontend import ServiceState
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.program import schema

pytestmark = pytest.mark.kernel

SERVICES, ENDPOINTS = 10_000, 10


def test_110_000_elements_load_read_back_and_are_adopted(kernel: Any, service: Callable[..., ServiceState]) -> None:
    def state(number: int, endpoints: int = ENDPOINTS) -> ServiceState:
        pods = (
            f"10.{128 + (at >> 16)}.{at >> 8 & 255}.{at & 255}" for at in range(number * 10, number * 10 + endpoints)
        )
        return service(f"s{number}", f"10.96.{number >> 8}.{number & 255}", *pods)

    states = [state(number) for number in range(SERVICES)]
    first = kernel.start(Ownership.PLAIN)
    began = time.monotonic()
    report = first.sync(*states)
    print(f"{report.touched} elements in {time.monotonic() - began:.2f} s")
    assert report.touched >= SERVICES * (ENDPOINTS + 2)

    image = kernel.image()
    assert len(image[schema.FRONTENDS]) == len(image[schema.CLUSTER_IPS]) == SERVICES
    assert len(image[schema.BACKENDS]) == SERVICES * ENDPOINTS
    assert image == first.driver._desired.image

    generation = kernel.generation()
    second = kernel.start(Ownership.PLAIN)
    began = time.monotonic()
    assert second.sync(*states).messages == 0
    print(f"adopted in {time.monotonic() - began:.2f} s")
    assert kernel.generation() == generation

    began = time.monotonic()
    report = second.sync(state(77, ENDPOINTS - 1))
    print(f"one endpoint less in {(time.monotonic() - began) * 1000:.1f} ms")
    assert report.touched == 2
    assert len(kernel.elements(schema.BACKENDS)) == SERVICES * ENDPOINTS - 1
