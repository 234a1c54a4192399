"""Which ClusterIPs become addresses and which routes, and that a change is never larger than it has to be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.interface_plan import (
    InterfacePlan,
    Present,
    Stray,
    apply_plan,
    by_source,
    plan,
    plan_change,
)
from nodeagent.proxy.dataplane.interface_sources import preferred_source, with_sources
from nodeagent.wire.netlink.local_routes import LocalRoute

VIPS = st.sampled_from(
    [*(f"10.96.0.{n}" for n in range(1, 12)), *(f"fd00::{n}" for n in range(1, 6)), "fd00::/64", "fd01::/112"]
)
SOME_VIPS = st.frozensets(VIPS)
LIMITS = st.integers(min_value=0, max_value=5)
SOURCE = st.sampled_from(["", "192.0.2.11", "192.0.2.12"])
SOURCE6 = st.sampled_from(["", "2001:db8::b", "2001:db8::c"])
SOURCES = st.fixed_dictionaries({Family.IPV4: SOURCE, Family.IPV6: SOURCE6})


@st.composite
def presents(draw: st.DrawFn) -> Present:
    """Of one IPv6 route there is one, of routes over lo one with each source."""
    routes = draw(SOME_VIPS)
    given6 = {route: draw(SOURCE6) for route in sorted(routes) if ":" in route}
    return Present(
        draw(SOME_VIPS),
        routes,
        over_lo=draw(st.dictionaries(SOURCE, st.frozensets(OVER_LO, min_size=1))),
        sourced=by_source(LocalRoute(route, source) for route, source in given6.items() if source),
    )


OVER_LO = st.sampled_from([f"10.96.0.{n}" for n in range(12)])
PRESENT = presents()


def of(*vips: str) -> frozenset[str]:
    return frozenset(vips)


@pytest.mark.parametrize(
    ("desired", "present", "expected"),
    [
        pytest.param(of(), Present(), InterfacePlan(), id="nothing wanted, nothing there"),
        pytest.param(
            of("fd00::/64", "fd00::", "fd00::a"),
            Present(routes=of("fd00::a", "fd00::1:1", "fd00::1:2")),
            InterfacePlan(
                add_addresses=("fd00::",), add_routes=("fd00::/64",), remove_routes=("fd00::1:1", "fd00::1:2")
            ),
            id="a range in place of addresses in it",
        ),
        pytest.param(
            of("10.96.0.10", "10.96.0.9", "10.96.0.2"),
            Present(),
            InterfacePlan(add_addresses=("10.96.0.2", "10.96.0.9"), add_routes=("10.96.0.10",)),
            id="the numerically first are addresses, the rest routes",
        ),
        pytest.param(
            of("10.96.0.1", "10.96.0.2", "fd00::1", "fd00::2", "fd00::3"),
            Present(),
            InterfacePlan(add_addresses=("10.96.0.1", "10.96.0.2", "fd00::1", "fd00::2"), add_routes=("fd00::3",)),
            id="each family has its own limit",
        ),
        pytest.param(
            of("10.96.0.1", "10.96.0.8", "10.96.0.9"),
            Present(addresses=of("10.96.0.8", "10.96.0.9")),
            InterfacePlan(add_routes=("10.96.0.1",)),
            id="an earlier number does not push out what is there",
        ),
        pytest.param(
            of("10.96.0.1", "10.96.0.3", "10.96.0.4"),
            Present(addresses=of("10.96.0.1", "10.96.0.2"), routes=of("10.96.0.3")),
            InterfacePlan(add_addresses=("10.96.0.4",), remove_addresses=("10.96.0.2",)),
            id="a place that becomes free goes to a new one, a route stays a route",
        ),
        pytest.param(
            of("10.96.0.1", "10.96.0.2", "10.96.0.3"),
            Present(addresses=of("10.96.0.1", "10.96.0.2", "10.96.0.3")),
            InterfacePlan(),
            id="more addresses than the limit, from a time of another limit, stay",
        ),
        pytest.param(
            of("10.96.0.3", "10.96.0.4"),
            Present(addresses=of("10.96.0.1", "10.96.0.2"), routes=of("10.96.0.3", "10.96.0.4")),
            InterfacePlan(
                add_addresses=("10.96.0.3",),
                redundant_routes=("10.96.0.3",),
                remove_addresses=("10.96.0.1", "10.96.0.2"),
            ),
            id="a route becomes an address before the last IPv4 address goes",
        ),
        pytest.param(
            of("fd00::3"),
            Present(addresses=of("fd00::1", "fd00::2"), routes=of("fd00::3")),
            InterfacePlan(remove_addresses=("fd00::1", "fd00::2")),
            id="IPv6 routes outlive the last address",
        ),
        pytest.param(
            of("10.96.0.1"),
            Present(addresses=of("10.96.0.1"), routes=of("10.96.0.1")),
            InterfacePlan(redundant_routes=("10.96.0.1",)),
            id="a route to what is an address too is superfluous",
        ),
        pytest.param(
            of("10.96.0.1"),
            Present(addresses=of("10.96.0.1"), strays=frozenset({Stray("192.0.2.1", 24)})),
            InterfacePlan(remove_strays=(Stray("192.0.2.1", 24),)),
            id="an address that is no host address goes",
        ),
    ],
)
def test_plan(desired: frozenset[str], present: Present, expected: InterfacePlan) -> None:
    assert plan(desired, present, limits=dict.fromkeys(Family, 2)) == expected


@given(SOME_VIPS, PRESENT, LIMITS)
def test_a_carried_out_plan_leaves_exactly_the_desired_and_nothing_more_to_do(
    desired: frozenset[str], present: Present, limit: int
) -> None:
    after = apply_plan(present, plan(desired, present, limits=dict.fromkeys(Family, limit)))

    assert after.vips == desired
    assert not after.addresses & after.routes
    assert plan(desired, after, limits=dict.fromkeys(Family, limit)).empty


@given(SOME_VIPS, PRESENT, LIMITS)
def test_the_plan_adds_and_removes_the_difference(desired: frozenset[str], present: Present, limit: int) -> None:
    change = plan(desired, present, limits=dict.fromkeys(Family, limit))

    assert change.gained == desired - present.vips
    assert change.lost == present.vips - desired


@given(SOME_VIPS, PRESENT, LIMITS)
def test_ipv4_routes_are_never_left_without_an_ipv4_address_that_was_there(
    desired: frozenset[str], present: Present, limit: int
) -> None:
    change = plan(desired, present, limits=dict.fromkeys(Family, limit))
    after = apply_plan(present, change)

    lost_an_address = any("." in address for address in change.remove_addresses)
    has_routes = any("." in route for route in after.routes)
    assert not (lost_an_address and has_routes) or any("." in address for address in after.addresses)


@given(SOME_VIPS, PRESENT, LIMITS, SOURCES)
def test_only_ipv4_addresses_also_have_a_route_over_lo_and_all_have_the_source(
    desired: frozenset[str], present: Present, limit: int, sources: dict[Family, str]
) -> None:
    limits = dict.fromkeys(Family, limit)
    change = with_sources(plan(desired, present, limits=limits), present, sources)

    after = apply_plan(present, change)
    assert after.vips == desired
    four = {vip for vip in desired if "." in vip}
    assert after.over_lo == ({sources[Family.IPV4]: four} if four else {})
    six = {route for route in after.routes if ":" in route and sources[Family.IPV6]}
    assert after.sourced == ({sources[Family.IPV6]: six} if six else {})
    assert with_sources(plan(desired, after, limits=limits), after, sources).empty


@given(SOME_VIPS, PRESENT, LIMITS)
def test_where_the_source_is_not_known_what_stays_keeps_its_own(
    desired: frozenset[str], present: Present, limit: int
) -> None:
    desired &= present.vips
    change = with_sources(plan(desired, present, limits=dict.fromkeys(Family, limit)), present, None)

    after = apply_plan(present, change)
    assert after.over_lo == {source: to & desired for source, to in present.over_lo.items() if to & desired}
    assert not change.sourced


@pytest.mark.parametrize("lo", [True, False], ids=["lo is up", "lo is down"])
@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(
            "192.0.2.11",
            "192.0.2.12",
            InterfacePlan(
                add_over_lo=("10.96.0.1",),
                source="192.0.2.12",
                remove_over_lo=(LocalRoute("10.96.0.1", "192.0.2.11"),),
            ),
            id="another address: first the new route, then the old one goes",
        ),
        pytest.param(
            "",
            "192.0.2.11",
            InterfacePlan(
                doubled_over_lo=(LocalRoute("10.96.0.1", ""),),
                add_over_lo=("10.96.0.1",),
                source="192.0.2.11",
            ),
            id="the first one: the route without, as earlier versions made it, goes first",
        ),
        pytest.param(
            "192.0.2.11",
            "",
            InterfacePlan(
                add_over_lo=("10.96.0.1",),
                remove_over_lo=(LocalRoute("10.96.0.1", "192.0.2.11"),),
            ),
            id="none any more",
        ),
    ],
)
def test_another_source_of_a_route_over_lo(before: str, after: str, expected: InterfacePlan, *, lo: bool) -> None:
    present = Present(addresses=of("10.96.0.1"), over_lo={before: of("10.96.0.1")})
    change = with_sources(InterfacePlan(), present, {Family.IPV4: after}, lo=lo)
    assert change == (expected if lo else expected._replace(add_over_lo=(), doubled_over_lo=()))


@pytest.mark.parametrize(
    ("known", "usable", "towards_others", "expected"),
    [
        pytest.param(("192.0.2.11",), {"192.0.2.11", "192.0.2.12"}, "192.0.2.12", "192.0.2.11", id="as it is known"),
        pytest.param(("192.0.2.1", "192.0.2.11"), {"192.0.2.11"}, "", "192.0.2.11", id="the first it has"),
        pytest.param(("198.51.100.1",), {"192.0.2.12"}, "192.0.2.12", "192.0.2.12", id="known by one it has not"),
        pytest.param((), {"192.0.2.12"}, "192.0.2.12", "192.0.2.12", id="known by none"),
        pytest.param((), {"192.0.2.12"}, "", "", id="no way to others"),
        pytest.param((), {"192.0.2.12"}, "10.96.0.1", "", id="a source that is not the node's"),
    ],
)
def test_the_source_of_the_node(known: tuple[str, ...], usable: set[str], towards_others: str, expected: str) -> None:
    assert preferred_source(known, usable, towards_others) == expected


@given(SOME_VIPS, SOME_VIPS, SOME_VIPS, LIMITS)
def test_a_change_is_the_plan_for_its_result(
    start: frozenset[str], add: frozenset[str], remove: frozenset[str], limit: int
) -> None:
    present = apply_plan(Present(), plan(start, Present(), limits=dict.fromkeys(Family, limit)))

    assert plan_change(present, add, remove, limits=dict.fromkeys(Family, limit)) == plan(
        (start - remove) | add, present, limits=dict.fromkeys(Family, limit)
    )
