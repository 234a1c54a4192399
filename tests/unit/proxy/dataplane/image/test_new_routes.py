"""Which changes of a service need no rendering."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.frontend import Backend, Frontend, FrontendKind, Route, ServiceState
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.model.packed_backends import pack_backends
from nodeagent.proxy.dataplane.image.new_routes import with_new_routes
from nodeagent.proxy.dataplane.program.classes import MAX_BACKENDS

WEB = ObjectKey("default", "web")
V4, V6 = Family.IPV4, Family.IPV6


def route(*numbers: int, local: int = 0) -> Route:
    return Route(pack_backends([Backend(f"10.0.0.{number}", 80, number == local) for number in numbers]))


def frontend(to: Route, family: Family = V4, **fields: Any) -> Frontend:
    address = "10.96.0.1" if family is V4 else "fd00::1"
    name = ServicePortName(WEB, "", Protocol.TCP)
    made = Frontend(FrontendKind.CLUSTER_IP, family, address, Protocol.TCP, 80, name, to)
    return replace(made, **fields)


def state(*frontends: Frontend, cluster_ips: tuple[str, ...] = ("10.96.0.1",)) -> ServiceState:
    return ServiceState(WEB, cluster_ips=cluster_ips, frontends=frontends)


def test_frontends_of_the_family_whose_endpoints_differ() -> None:
    after = state(frontend(route(1, 2)), frontend(route(9), V6))
    assert with_new_routes(state(frontend(route(1)), frontend(Route(()), V6)), after, V4) == [frontend(route(1, 2))]


def test_the_endpoints_on_this_node_may_be_the_same_ones() -> None:
    before, after = state(frontend(route(1, 2, local=2))), state(frontend(route(2, 3, local=2)))
    assert with_new_routes(before, after, V4) == [frontend(route(2, 3, local=2))]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(state(frontend(route(1))), state(frontend(route(2), port=81)), id="port"),
        pytest.param(
            state(frontend(route(1))),
            state(frontend(route(2), service_port=ServicePortName(WEB, "b", Protocol.TCP))),
            id="name",
        ),
        pytest.param(state(frontend(route(1))), state(frontend(route(2)), cluster_ips=()), id="cluster-ip"),
        pytest.param(state(frontend(route(1))), state(frontend(route(1)), frontend(route(1), port=81)), id="one-more"),
        pytest.param(state(frontend(route(1))), state(frontend(route(1), V6)), id="family"),
        pytest.param(state(frontend(Route(()))), state(frontend(route(1))), id="none-before"),
        pytest.param(state(frontend(route(1))), state(frontend(Route(()))), id="none-left"),
        pytest.param(state(frontend(route(1))), state(frontend(route(1, 2, local=2))), id="one-on-this-node"),
        pytest.param(state(frontend(route(1, local=1))), state(frontend(route(1))), id="none-on-this-node"),
    ],
)
def test_services_that_differ_in_more_have_to_be_rendered(before: ServiceState, after: ServiceState) -> None:
    assert with_new_routes(before, after, V4) is None


@pytest.mark.parametrize(
    "fields",
    [{"affinity_seconds": 60}, {"allowed_sources": ()}, {"address": None}, {"short_circuit": route(1)}],
    ids=lambda fields: next(iter(fields)),
)
def test_frontends_with_more_than_one_list_have_to_be_rendered(fields: dict[str, Any]) -> None:
    before, after = (state(frontend(to, **fields)) for to in (route(1), route(1, 2)))
    assert with_new_routes(before, after, V4) is None


def test_more_endpoints_than_slots_have_to_be_rendered() -> None:
    many = [Backend(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 80) for number in range(MAX_BACKENDS + 1)]
    assert with_new_routes(state(frontend(route(1))), state(frontend(Route(pack_backends(many)))), V4) is None
