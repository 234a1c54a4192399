"""Which tracked UDP flows go and which stay, as flows and service ports."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.model.addresses import Family, Protocol, pack_address
from nodeagent.model.frontend import UdpPort
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.proxy.dataplane.conntrack_stale import UdpLedger, UdpPlace, targets_for
from nodeagent.wire.netlink.conntrack import Flow

NODE = "192.0.2.1"
POD = ("10.244.0.5", 5353)
OTHER_POD = ("10.244.0.6", 5353)


def udp_port(
    *addresses: str,
    name: str = "dns",
    port: int = 53,
    node_port: int = 0,
    serving: tuple[tuple[str, int], ...] = (POD,),
    family: Family = Family.IPV4,
) -> UdpPort:
    service_port = ServicePortName(ObjectKey("default", name), "", Protocol.UDP)
    return UdpPort(service_port, family, addresses, port, node_port, frozenset(serving))


def stale_flows(ports: list[UdpPort], local: set[str], family: Family, tracked: Flow) -> list[Flow]:
    """What goes of a flow when these service ports change."""
    ledger = UdpLedger()
    for changed in ports:
        ledger.note(changed)
    return [tracked] if targets_for(ledger.changed, ledger, family, local).is_stale(tracked) else []


def flow(to: tuple[str, int], answered_by: tuple[str, int]) -> Flow:
    return Flow(pack_address(to[0]), to[1], pack_address(answered_by[0]), answered_by[1], memoryview(b""))


@pytest.mark.parametrize(
    ("ports", "tracked", "stale"),
    [
        pytest.param([udp_port("10.96.0.1")], flow(("10.96.0.1", 53), POD), False, id="to an endpoint that serves"),
        pytest.param(
            [udp_port("10.96.0.1")], flow(("10.96.0.1", 53), OTHER_POD), True, id="to an endpoint that is gone"
        ),
        pytest.param(
            [udp_port("10.96.0.1")], flow(("10.96.0.1", 53), (POD[0], 53)), True, id="to the former target port"
        ),
        pytest.param(
            [udp_port("10.96.0.1")],
            flow(("10.96.0.1", 53), ("10.96.0.1", 53)),
            True,
            id="to the service itself, from before there was a rule",
        ),
        pytest.param(
            [udp_port("10.96.0.1", serving=())], flow(("10.96.0.1", 53), POD), True, id="of a service without endpoints"
        ),
        pytest.param([udp_port("10.96.0.1")], flow(("10.96.0.1", 54), OTHER_POD), False, id="to another port"),
        pytest.param([udp_port("10.96.0.1")], flow(("10.96.0.2", 53), OTHER_POD), False, id="to another address"),
        pytest.param(
            [udp_port("10.96.0.1", "203.0.113.1")],
            flow(("203.0.113.1", 53), OTHER_POD),
            True,
            id="to an external address",
        ),
        pytest.param(
            [udp_port("10.96.0.1", node_port=30053)], flow((NODE, 30053), OTHER_POD), True, id="to a node port here"
        ),
        pytest.param(
            [udp_port("10.96.0.1", node_port=30053)], flow((NODE, 30053), POD), False, id="to a node port, served"
        ),
        pytest.param(
            [udp_port("10.96.0.1", node_port=30053)],
            flow(("198.51.100.7", 30053), ("198.51.100.7", 30053)),
            False,
            id="to the same port of another host",
        ),
        pytest.param(
            [udp_port(NODE, port=30053, name="a"), udp_port(name="b", node_port=30053, serving=(OTHER_POD,))],
            flow((NODE, 30053), POD),
            False,
            id="to an external address that is the node's, which wins over a node port",
        ),
        pytest.param(
            [udp_port("10.96.0.1", name="old", serving=()), udp_port("10.96.0.1", name="new")],
            flow(("10.96.0.1", 53), POD),
            False,
            id="to an address that a deleted service left to another",
        ),
        pytest.param(
            [udp_port("10.96.0.1", name="new"), udp_port("10.96.0.1", name="old", serving=())],
            flow(("10.96.0.1", 53), POD),
            False,
            id="the same in the other order",
        ),
        pytest.param(
            [udp_port("10.96.0.1", name="new"), udp_port("10.96.0.1", name="old", serving=())],
            flow(("10.96.0.1", 53), OTHER_POD),
            True,
            id="to the deleted service's endpoint at a reused address",
        ),
        pytest.param([], flow(("10.96.0.1", 53), OTHER_POD), False, id="of nobody, nothing having changed"),
    ],
)
def test_a_flow(ports: list[UdpPort], tracked: Flow, stale: bool) -> None:
    assert stale_flows(ports, {NODE, "10.96.0.9"}, Family.IPV4, tracked) == ([tracked] if stale else [])


def test_families_are_separate() -> None:
    six = udp_port("fd00::1", family=Family.IPV6, serving=(("fd00:1::5", 53),))
    tracked = flow(("fd00::1", 53), ("fd00:1::6", 53))

    assert stale_flows([six], set(), Family.IPV6, tracked) == [tracked]
    assert stale_flows([six], set(), Family.IPV4, tracked) == []


def place(address: str | None, port: int = 53) -> UdpPlace:
    return UdpPlace(Family.IPV4, None if address is None else pack_address(address), port)


@pytest.mark.parametrize(
    ("first", "then", "changed"),
    [
        pytest.param(udp_port("10.96.0.1"), udp_port("10.96.0.1"), set(), id="the same again"),
        pytest.param(
            udp_port("10.96.0.1"),
            udp_port("10.96.0.1", serving=(OTHER_POD,)),
            {place("10.96.0.1")},
            id="other endpoints",
        ),
        pytest.param(
            udp_port("10.96.0.1"),
            udp_port("10.96.0.2"),
            {place("10.96.0.1"), place("10.96.0.2")},
            id="another address, the old one is looked at too",
        ),
        pytest.param(
            udp_port("10.96.0.1", node_port=30053),
            udp_port(serving=()),
            {place("10.96.0.1"), place(None, 30053)},
            id="deleted, its places not named",
        ),
    ],
)
def test_a_change_of_a_port_marks_the_changed_places(first: UdpPort, then: UdpPort, changed: set[UdpPlace]) -> None:
    ledger = UdpLedger()
    ledger.note(first)
    ledger.take_changed()

    ledger.note(then)

    assert ledger.changed == changed


def test_an_unchanged_external_address_shields_its_port_from_a_changed_node_port() -> None:
    ledger = UdpLedger()
    ledger.note(udp_port(NODE, name="external", port=30053))
    ledger.take_changed()

    ledger.note(udp_port(name="node port", node_port=30053, serving=(OTHER_POD,)))

    targets = targets_for(ledger.changed, ledger, Family.IPV4, [NODE, "192.0.2.2"])
    assert not targets.is_stale(flow((NODE, 30053), POD))
    assert targets.is_stale(flow(("192.0.2.2", 30053), POD))


def test_a_late_word_of_a_deletion_does_not_hurt_the_successor() -> None:
    ledger = UdpLedger()
    ledger.note(udp_port("10.96.0.1", name="old", serving=(OTHER_POD,)))
    ledger.note(udp_port("10.96.0.1", name="new"))
    ledger.take_changed()

    ledger.note(udp_port("10.96.0.1", name="old", serving=()))

    targets = targets_for(ledger.changed, ledger, Family.IPV4, [])
    assert not targets.is_stale(flow(("10.96.0.1", 53), POD))
    assert targets.is_stale(flow(("10.96.0.1", 53), OTHER_POD))


def test_where_a_table_was_wrong_every_place_of_its_family_is_looked_at() -> None:
    ledger = UdpLedger()
    ledger.note(udp_port("10.96.0.1", node_port=30053))
    ledger.note(udp_port("10.96.0.2", name="gone"))
    ledger.note(udp_port("10.96.0.2", name="gone", serving=()))
    ledger.take_changed()

    ledger.mark_family(Family.IPV6)
    assert not ledger.changed
    ledger.mark_family(Family.IPV4)
    assert ledger.changed == {place("10.96.0.1"), place(None, 30053)}


def test_places_put_back_are_looked_at_again() -> None:
    ledger = UdpLedger()
    ledger.note(udp_port("10.96.0.1"))
    taken = ledger.take_changed()
    assert ledger.changed == frozenset()

    ledger.put_back(taken)

    assert ledger.changed == {place("10.96.0.1")}


PORTS = st.builds(
    lambda addresses, name, node_port, serving: udp_port(
        *sorted(addresses), name=name, node_port=node_port, serving=tuple(serving)
    ),
    addresses=st.frozensets(st.sampled_from(["10.96.0.1", "10.96.0.2", NODE])),
    name=st.sampled_from(["a", "b", "c"]),
    node_port=st.sampled_from([0, 30053]),
    serving=st.frozensets(st.sampled_from([POD, OTHER_POD])),
)


@given(st.lists(PORTS, max_size=12))
def test_only_the_last_word_about_each_service_port_counts(history: list[UdpPort]) -> None:
    """Only the last state of the ports decides who serves a place, not the order of changes."""
    one_by_one, last_only = UdpLedger(), UdpLedger()
    for noted in history:
        one_by_one.note(noted)
    for noted in {noted.service_port: noted for noted in history}.values():
        last_only.note(noted)

    for changed in one_by_one.changed:
        assert one_by_one.serving(changed) == last_only.serving(changed)
    assert last_only.changed <= one_by_one.changed


@given(st.lists(PORTS, max_size=6), st.sampled_from([POD, OTHER_POD]), st.sampled_from(["10.96.0.1", NODE]))
def test_a_flow_to_an_endpoint_of_the_places_owner_is_never_stale(
    ports: list[UdpPort], endpoint: tuple[str, int], address: str
) -> None:
    last = {noted.service_port: noted for noted in ports}.values()
    owned = any(address in noted.addresses and endpoint in noted.serving for noted in last)
    tracked = flow((address, 53), endpoint)

    assert not (owned and stale_flows(ports, {NODE}, Family.IPV4, tracked))
