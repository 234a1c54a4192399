"""Where the service interface differs from what is wanted of it."""

import pytest

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.interface_deviation import (
    RIGHT,
    AddressDeviation,
    InterfaceFound,
    address_deviations,
    interface_state,
)
from nodeagent.proxy.dataplane.interface_plan import ADDRESS_LIMITS, Present, Stray, apply_plan, plan
from nodeagent.proxy.dataplane.interface_sources import with_sources
from nodeagent.wire.netlink.rtnetlink import Link

OURS = Link(7, "nodeagent0", "dummy", True, False, False, "nodeagent", 0)
SOURCES = {Family.IPV4: "192.0.2.11", Family.IPV6: "2001:db8::b"}
WANTED = {"10.96.0.2": "default/a", "10.96.0.10": "default/b", "fd00::2": "default/a"}


def found(
    *addresses: str,
    routes: tuple[str, ...] = (),
    strays: tuple[Stray, ...] = (),
    over_lo: tuple[str, ...] = ("10.96.0.2", "10.96.0.10"),
) -> InterfaceFound:
    by_source = {SOURCES[Family.IPV4]: frozenset(over_lo)} if over_lo else {}
    sourced = {SOURCES[Family.IPV6]: six} if (six := frozenset(route for route in routes if ":" in route)) else {}
    present = Present(frozenset(addresses), frozenset(routes), frozenset(strays), by_source, sourced)
    return InterfaceFound(OURS, None, present, ipv6=True, sources=SOURCES)


def test_a_programmed_interface_has_no_deviation() -> None:
    limit = ADDRESS_LIMITS[Family.IPV4]
    for number in (0, 1, limit, limit + 9):
        wanted = {f"10.96.{one >> 8}.{one & 255}": "default/a" for one in range(1, number + 1)} | {"fd00::2": ""}
        present = apply_plan(Present(), with_sources(plan(frozenset(wanted), Present()), Present(), SOURCES))
        assert address_deviations(wanted, InterfaceFound(OURS, None, present, ipv6=True, sources=SOURCES)) == []


def test_both_forms_are_right_and_missing_or_foreign_parts_are_reported() -> None:
    assert address_deviations(WANTED, found("10.96.0.2", "10.96.0.10", routes=("fd00::2",))) == []
    assert address_deviations(WANTED, found("10.96.0.2", routes=("10.96.0.10", "fd00::2"))) == []
    stray = Stray("192.0.2.1", 24)
    assert address_deviations(WANTED, found("10.96.0.10", "10.96.0.1", routes=("fd00::3",), strays=(stray,))) == [
        AddressDeviation("10.96.0.1", None, "address"),
        AddressDeviation(
            "10.96.0.2", "address and route over lo from 192.0.2.11", "route over lo from 192.0.2.11", "default/a"
        ),
        AddressDeviation("fd00::2", "route from 2001:db8::b", None, "default/a"),
        AddressDeviation("fd00::3", None, "route from 2001:db8::b"),
        AddressDeviation("192.0.2.1/24", None, "address"),
    ]


def test_a_missing_route_over_lo_is_reported() -> None:
    right = found("10.96.0.2", "10.96.0.10", routes=("fd00::2",), over_lo=("10.96.0.2", "10.96.0.77"))
    assert address_deviations(WANTED, right) == [
        AddressDeviation("10.96.0.10", "address and route over lo from 192.0.2.11", "address", "default/b"),
        AddressDeviation("10.96.0.77", None, "route over lo from 192.0.2.11"),
    ]
    without = found("10.96.0.2", routes=("10.96.0.10", "fd00::2"), over_lo=())
    assert address_deviations(WANTED, without._replace(lo=False)) == []
    assert len(address_deviations(WANTED, without)) == 2


def test_a_source_other_than_the_nodes_is_reported() -> None:
    moved = found("10.96.0.2", "10.96.0.10", routes=("fd00::2",))._replace(
        sources={Family.IPV4: "192.0.2.12", Family.IPV6: ""}
    )
    assert address_deviations(WANTED, moved)[1:] == [
        AddressDeviation(
            "10.96.0.10",
            "address and route over lo from 192.0.2.12",
            "address and route over lo from 192.0.2.11",
            "default/b",
        ),
        AddressDeviation("fd00::2", "route", "route from 2001:db8::b", "default/a"),
    ]
    assert address_deviations(WANTED, moved._replace(sources=None)) == []


def test_ipv6_is_not_missed_where_the_interface_may_not_carry_it() -> None:
    without = found("10.96.0.2", "10.96.0.10")._replace(ipv6=False)
    assert address_deviations(WANTED, without) == []
    assert len(address_deviations(WANTED, without._replace(ipv6=True))) == 1


@pytest.mark.parametrize(
    ("link", "objection", "state"),
    [
        (OURS, None, RIGHT),
        (None, None, "is not there"),
        (OURS._replace(up=False, resolves=True), None, "is down, answers ARP and neighbour discovery"),
        (OURS._replace(alias=""), None, "lacks the alias nodeagent"),
        (OURS._replace(kind="veth"), "is of kind veth", "is not the agent's: it is of kind veth"),
    ],
)
def test_the_interface_itself(link: Link | None, objection: str | None, state: str) -> None:
    assert interface_state(InterfaceFound(link, objection, Present(), ipv6=True)) == state
