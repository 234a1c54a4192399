"""What an earlier agent left in a table that takes connections to the API server elsewhere."""

from collections.abc import Callable
from typing import Any

import pytest

from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.frontend import ServiceState
from nodeagent.model.protected import Protected
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.driver.release import release_captures
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.errors import NotPermitted
from nodeagent.proxy.dataplane.image.image import frontend_key, node_port_key
from nodeagent.proxy.dataplane.program import schema

ServiceBuilder = Callable[..., ServiceState]

API = {Family.IPV4: "198.51.100.1", Family.IPV6: "2001:db8:100::1"}
CLUSTER_IP = {Family.IPV4: "10.96.0.1", Family.IPV6: "fd00:96::1"}
SOURCES = {Family.IPV4: "192.0.2.0/24", Family.IPV6: "2001:db8:200::/48"}
ENDPOINT = {Family.IPV4: "10.244.1.1", Family.IPV6: "fd00:244:1::1"}


def keys(kernel: Any, name: str, family: Family) -> set[bytes]:
    return set(kernel.elements(name, family))


@pytest.fixture(params=list(Family), ids=lambda family: family.value)
def family(request: pytest.FixtureRequest) -> Family:
    found: Family = request.param
    return found


@pytest.fixture(params=list(Ownership), ids=lambda ownership: ownership.value)
def left(request: pytest.FixtureRequest, kernel: Any, service: ServiceBuilder, family: Family) -> ServiceState:
    """A Service at a ClusterIP, a load balancer's address and a node port, whose agent has died."""
    agent = kernel.start(request.param, family)
    state = service("api", CLUSTER_IP[family], ENDPOINT[family], allowed=(SOURCES[family],), node_port=30080)
    agent.sync(state)
    agent.die()
    return state


def release(kernel: Any, *ways: tuple[str, int], own: tuple[str, ...] = ()) -> None:
    def work() -> None:
        socket = Ruleset()
        try:
            release_captures(socket, Protected(frozenset(ways), frozenset(own)))
        finally:
            socket.close()

    kernel.run(work)


def test_the_capture_goes_and_all_else_stays(
    kernel: Any, left: ServiceState, family: Family, caplog: pytest.LogCaptureFixture
) -> None:
    before = keys(kernel, schema.FRONTENDS, family)
    release(kernel, (API[family], 80))
    assert before - keys(kernel, schema.FRONTENDS, family) == {frontend_key(API[family], Protocol.TCP, 80)}
    assert "the way to the API server: its element was removed" in caplog.text
    assert keys(kernel, schema.NODEPORTS, family) == {node_port_key(Protocol.TCP, 30080)}


def test_a_cluster_ip_a_neighbour_and_a_node_port_elsewhere_are_no_captures(
    kernel: Any, left: ServiceState, family: Family
) -> None:
    before = kernel.generation()
    release(kernel, (CLUSTER_IP[family], 80), (API[family], 81), ("192.0.2.77", 30080), own=(API[family],))
    assert kernel.generation() == before, "nothing is written"


def test_a_node_port_of_this_node_is_a_capture(kernel: Any, left: ServiceState, family: Family) -> None:
    release(kernel, (API[family], 30080), own=(API[family],))
    assert keys(kernel, schema.NODEPORTS, family) == set()


def test_the_next_agent_adopts_what_is_left_and_brings_it_to_what_is_wanted(
    kernel: Any, left: ServiceState, family: Family
) -> None:
    release(kernel, (API[family], 80))
    kernel.start(Ownership.PLAIN, family).sync(left)
    assert frontend_key(API[family], Protocol.TCP, 80) in keys(kernel, schema.FRONTENDS, family)


def test_without_a_table_there_is_nothing_to_do(kernel: Any) -> None:
    release(kernel, ("198.51.100.1", 80), ("2001:db8:100::1", 80))


def test_a_table_whose_owner_lives_is_left_alone(kernel: Any, service: ServiceBuilder) -> None:
    agent = kernel.start(Ownership.OWNED)
    agent.sync(service("api", "10.96.0.1", "10.244.1.1", allowed=("192.0.2.0/24",)))
    with pytest.raises(NotPermitted, match="owned by another process"):
        release(kernel, ("198.51.100.1", 80))
