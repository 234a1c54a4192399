"""A packet's way as the status page draws it."""

import pytest

from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.frontend import Backend, Frontend, FrontendKind, Route, Scope, Unserved
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.proxy.observe.status_page.packet_ways import MOST_BACKENDS, packet_path

HERE, THERE = Backend("10.244.1.1", 80, local=True), Backend("10.244.2.1", 80)


def frontend(kind: FrontendKind, route: Route, **more: object) -> Frontend:
    address = None if kind is FrontendKind.NODE_PORT else "10.96.0.1"
    name = ServicePortName(ObjectKey("default", "web"), "http", Protocol.TCP)
    return Frontend(kind, Family.IPV4, address, Protocol.TCP, 80, name, route, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "places"),
    [
        pytest.param(
            frontend(FrontendKind.CLUSTER_IP, Route((HERE, THERE))),
            ["frontends", "pick-2", "backends", "postrouting"],
            id="plain",
        ),
        pytest.param(frontend(FrontendKind.CLUSTER_IP, Route(())), ["frontends", "refuse"], id="nobody serves"),
        pytest.param(
            frontend(FrontendKind.EXTERNAL_IP, Route((), Scope.LOCAL, Unserved.DROP), short_circuit=Route((THERE,))),
            ["frontends", "by-source", "discard"],
            id="nobody here",
        ),
        pytest.param(
            frontend(FrontendKind.NODE_PORT, Route((HERE,)), affinity_seconds=60),
            ["to-node", "nodeports", "affinity", "sticky-1", "nodeport-backends", "postrouting"],
            id="node port with affinity",
        ),
        pytest.param(
            frontend(FrontendKind.LOAD_BALANCER, Route((HERE,)), allowed_sources=("192.0.2.0/24",)),
            ["frontends", "guarded", "pick-1", "backends", "postrouting"],
            id="source ranges",
        ),
    ],
)
def test_the_chains_in_their_order(found: Frontend, places: list[str]) -> None:
    assert [step.where for step in packet_path(found, None).steps][1:] == places


def test_of_thousands_of_endpoints_some_are_named() -> None:
    backends = tuple(Backend(f"10.0.{number >> 8}.{number & 255}", 80) for number in range(5000))
    way = packet_path(frontend(FrontendKind.CLUSTER_IP, Route(backends)), 3)
    assert (len(way.endpoints), way.count, way.connections) == (MOST_BACKENDS, 5000, 3)
