"""Which services need no rendering when they are new."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.frontend import Backend, Frontend, FrontendKind, Route, ServiceState
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.model.packed_backends import pack_backends
from nodeagent.proxy.dataplane.image.plain_services import plain_service
from nodeagent.proxy.dataplane.image.render import SlotList, render_service
from nodeagent.proxy.dataplane.program.classes import MAX_BACKENDS

WEB = ObjectKey("default", "web")
V4, V6 = Family.IPV4, Family.IPV6


def route(count: int = 2, local: int = 0) -> Route:
    return Route(pack_backends([Backend(f"10.0.{at >> 8}.{at & 255}", 80, at == local) for at in range(1, count + 1)]))


def frontend(to: Route, family: Family = V4, **fields: Any) -> Frontend:
    address = "10.96.0.1" if family is V4 else "fd00::1"
    made = Frontend(
        FrontendKind.CLUSTER_IP, family, address, Protocol.TCP, 80, ServicePortName(WEB, "", Protocol.TCP), to
    )
    return replace(made, **fields)


def state(*frontends: Frontend, cluster_ips: tuple[str, ...] = ("10.96.0.1",)) -> ServiceState:
    return ServiceState(WEB, cluster_ips=cluster_ips, frontends=frontends)


@pytest.mark.parametrize(
    "plain",
    [
        pytest.param(state(frontend(route())), id="one port"),
        pytest.param(state(frontend(route()), frontend(route(3), port=81)), id="two ports"),
        pytest.param(state(frontend(route(local=2))), id="an endpoint on this node"),
        pytest.param(state(frontend(route()), frontend(Route(()), V6)), id="no endpoints in the other family"),
        pytest.param(state(frontend(route()), cluster_ips=()), id="a ClusterIP that is another Service's"),
    ],
)
def test_a_plain_service_has_what_is_rendered(plain: ServiceState) -> None:
    found, rendered = plain_service(plain, V4), render_service(plain, V4)
    assert found is not None
    assert [(name, list(keys)) for name, keys in found.keys.items()] == [
        (name, list(elements)) for name, elements in rendered.elements.items()
    ]
    assert {one.key: one.value for one in found.frontends} == rendered.elements["frontends"]
    lists = {SlotList(one.key, False, False, False): one.backends for one in found.frontends}
    assert lists == rendered.lists


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(state(), id="no port"),
        pytest.param(state(frontend(route(), V6)), id="only in the other family"),
        pytest.param(state(frontend(Route(()))), id="no endpoints"),
        pytest.param(state(frontend(route(MAX_BACKENDS + 1))), id="more endpoints than slots"),
        pytest.param(state(frontend(route(), kind=FrontendKind.EXTERNAL_IP)), id="an external address"),
        pytest.param(state(frontend(route()), frontend(route(), address=None)), id="a node port"),
        pytest.param(state(frontend(route(), short_circuit=route(3))), id="two lists"),
        pytest.param(state(frontend(route(), affinity_seconds=60)), id="affinity"),
        pytest.param(state(frontend(route(), allowed_sources=("10.0.0.0/8",))), id="source ranges"),
        pytest.param(state(frontend(Route((Backend("10.0.0.1", 80), Backend("10.0.0.1", 81))))), id="several ports"),
    ],
)
def test_other_services_are_rendered(other: ServiceState) -> None:
    assert plain_service(other, V4) is None
