"""Which service has which health check port, and at which addresses it is served."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import HealthCheck, ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.proxy.observe.health_ports import HealthPorts, listening_addresses
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.node_ports import node_port_cidrs


def service(name: str, port: int | None, created: str = "2026-01-01T00:00:00Z", endpoints: int = 1) -> ServiceState:
    check = HealthCheck(port, {Family.IPV4: endpoints}) if port is not None else None
    return ServiceState(ObjectKey("default", name), created, health_check=check)


def ports_of(*services: ServiceState) -> HealthPorts:
    ports = HealthPorts()
    for state in services:
        ports.update({state.key: state})
    return ports


def owner_name(ports: HealthPorts, port: int) -> str | None:
    owner = ports.owner(port)
    return owner.key.name if owner is not None else None


@pytest.mark.parametrize(
    ("services", "winner"),
    [
        pytest.param([service("b", 1), service("a", 1, "2026-01-02T00:00:00Z")], "b", id="the oldest"),
        pytest.param([service("b", 1), service("a", 1)], "a", id="of the same age the first by name"),
        pytest.param([service("a", 1, ""), service("b", 1)], "b", id="without an age last"),
        pytest.param([service("a", 1, ""), service("b", 1, "")], "a", id="none has an age"),
    ],
)
def test_of_several_services_one_has_the_port(services: list[ServiceState], winner: str) -> None:
    for order in (services, services[::-1]):
        ports = ports_of(*order)
        assert owner_name(ports, 1) == winner
        assert {key.name for key in ports.losers(1)} == {state.key.name for state in services} - {winner}


@pytest.mark.parametrize(
    ("change", "touched", "owners"),
    [
        pytest.param(service("a", 1, endpoints=0), {1}, {1: "a"}, id="endpoints went"),
        pytest.param(service("a", 2), {1, 2}, {1: "b", 2: "a"}, id="port changed: the next in line has the old one"),
        pytest.param(service("a", None), {1}, {1: "b"}, id="no health check any more"),
        pytest.param(service("c", None), set(), {1: "a"}, id="a service without a health check"),
        pytest.param(service("c", 3), {3}, {1: "a", 3: "c"}, id="a new one touches only its port"),
    ],
)
def test_an_update_touches_the_ports_it_concerns(
    change: ServiceState, touched: set[int], owners: dict[int, str]
) -> None:
    ports = ports_of(service("a", 1), service("b", 1))
    assert ports.update({change.key: change}) == touched
    assert {port: owner_name(ports, port) for port in ports.ports} == owners


def test_a_service_that_is_gone_leaves_its_port() -> None:
    ports = ports_of(service("a", 1))
    assert ports.update({ObjectKey("default", "a"): None}) == {1}
    assert ports.owner(1) is None
    assert not list(ports.ports)


steps = st.lists(
    st.tuples(
        st.sampled_from("abcd"), st.sampled_from([None, 1, 2]), st.sampled_from(["", "2026-01-01", "2026-01-02"])
    ),
    max_size=20,
)


@given(steps)
def test_only_the_last_state_of_each_service_counts(history: list[tuple[str, int | None, str]]) -> None:
    states = [service(name, port, created) for name, port, created in history]
    last = {state.key: state for state in states}
    lived, fresh = ports_of(*states), ports_of(*last.values())
    for port in (1, 2):
        assert lived.owner(port) == fresh.owner(port)
        assert lived.losers(port) == fresh.losers(port)


ALL_IPV4 = (
    "0.0.0.0/2",
    "64.0.0.0/3",
    "96.0.0.0/4",
    "112.0.0.0/5",
    "120.0.0.0/6",
    "124.0.0.0/7",
    "126.0.0.0/8",
    "128.0.0.0/1",
)
NODE = ("127.0.0.1", "192.0.2.10", "192.0.2.9", "198.51.100.4", "::1", "2001:db8::1", "fe80::1")


@pytest.mark.parametrize(
    ("family", "cidrs", "addresses"),
    [
        pytest.param(Family.IPV4, ALL_IPV4, ("0.0.0.0",), id="everywhere but loopback is the wildcard"),
        pytest.param(Family.IPV4, ("192.0.2.0/24",), ("192.0.2.9", "192.0.2.10"), id="the node's addresses in a range"),
        pytest.param(Family.IPV4, ("198.51.100.4/32",), ("198.51.100.4",), id="primary"),
        pytest.param(Family.IPV4, ("203.0.113.0/24",), (), id="a range in which the node has no address"),
        pytest.param(Family.IPV4, (), (), id="no node ports in this family"),
        pytest.param(Family.IPV6, ALL_IPV4, (), id="the other family's ranges"),
        pytest.param(Family.IPV6, ("2001:db8::/32", "fe80::/10"), ("2001:db8::1",), id="not link-local"),
        pytest.param(Family.IPV6, ("2001:db8::1/128",), ("2001:db8::1",), id="IPv6 primary"),
    ],
)  # fmt: skip
def test_health_check_ports_are_served_where_node_ports_are(
    family: Family, cidrs: tuple[str, ...], addresses: tuple[str, ...]
) -> None:
    assert listening_addresses(family, cidrs, NODE) == addresses


def test_the_ranges_that_translation_makes_of_all_are_the_wildcard() -> None:
    """Both families, as `nodePortAddresses: all` comes out of the translation."""
    cidrs = node_port_cidrs(["all"], Context(node_name="n1"), [])
    assert listening_addresses(Family.IPV4, cidrs, ()) == ("0.0.0.0",)
    assert listening_addresses(Family.IPV6, cidrs, ()) == ("::",)
