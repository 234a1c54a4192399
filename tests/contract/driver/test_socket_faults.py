"""A socket that fails at any one call of a pass leaves a table that the next pass puts right, and is never waited for."""

import errno
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from nodeagent.model.frontend import ServiceState
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.errors import DataplaneError
from nodeagent.proxy.dataplane.image.image import TableImage
from tests.harness.socket_faults import CALLS, ERRORS, STEP, failing_once

pytestmark = pytest.mark.kernel

MakeService = Callable[..., ServiceState]


@pytest.mark.parametrize("number", ERRORS, ids=lambda number: errno.errorcode[number])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("ownership", Ownership, ids=lambda ownership: ownership.value)
def test_the_next_pass_puts_right_what_a_failed_one_left(
    kernel: Any, service: MakeService, call: str, number: int, ownership: Ownership
) -> None:
    """Both at the first pass of an agent, which reads the table, and at a later one, which trusts what it wrote."""
    states = [service("web", "10.96.0.10", *endpoints) for endpoints in (("10.244.1.1",), ("10.244.2.2", "10.244.2.3"))]
    images = []
    for state in states:
        agent = kernel.start(ownership)
        agent.sync(state)
        images.append(kernel.image())
        agent.die()

    def passes(at: int, *, later: bool) -> bool:
        agent = kernel.start(ownership)
        if later:
            agent.sync(states[0])
        with failing_once(call, at, number) as failed, suppress(DataplaneError, OSError):
            agent.sync(states[1])
        agent.sync(states[1])
        assert keys_of(kernel.image()) == keys_of(images[1])
        agent.sync(states[0])
        assert keys_of(kernel.image()) == keys_of(images[0])
        agent.die()
        return failed()

    for later in (False, True):
        at = 0
        while passes(at, later=later):
            at += STEP
        assert at > 0, "it asks the kernel"


def keys_of(image: TableImage) -> dict[str, set[bytes]]:
    return {name: set(found) for name, found in image.items()}
