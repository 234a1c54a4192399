"""Which ClusterIPs become addresses and which routes, and that a change is never larger than it has to be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.dataplane.interface_plan import (
    InterfacePlan,
    Present,
    Stray,
    apply_plan,
    plan,
    plan_change,
    with_routes_over_lo,
)
from nodeagent.model.addresses import Family

VIPS = st.sampled_from(
    [*(f"10.96.0.{n}" for n in range(1, 12)), *(f"fd00::{n}" for n in range(1, 6)), "fd00::/64", "fd01::/112"]
)
SOME_VIPS = st.frozensets(VIPS)
LIMITS = st.integers(min_value=0, max_value=5)
PRESENT = st.builds(
    Present,
    addresses=SOME_VIPS,
    routes=SOME_VIPS,
    over_lo=st.frozensets(st.sampled_from([f"10.96.0.{n}" for n in range(12)])),
)


def of(*vips: str) -> frozenset[str]:
    return frozenset(vips)


@pytest.mark.parametrize(
    ("desired", "present", "expected"),
    [
        pytest.param(of(), Present(), InterfacePlan(), id="nothing wanted, nothing there"),
        pytest.param(
            of("fd00::/64", "fd00::", "fd00::a"),
            Present(routes=of("fd00::a", "fd00::1:1", "fd00::1:2")),
            InterfacePlan(("fd00::",), ("fd00::/64",), remove_routes=("fd00::1:1", "fd00::1:2")),
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
def test_what_is_gained_and_lost_is_the_difference(desired: frozenset[str], present: Present, limit: int) -> None:
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


@given(SOME_VIPS, PRESENT, LIMITS)
def test_exactly_the_ipv4_ones_have_a_route_over_lo_besides(
    desired: frozenset[str], present: Present, limit: int
) -> None:
    change = with_routes_over_lo(plan(desired, present, limits=dict.fromkeys(Family, limit)), present)

    after = apply_plan(present, change)
    assert after.vips == desired
    assert after.over_lo == {vip for vip in desired if "." in vip}
    assert with_routes_over_lo(plan(desired, after, limits=dict.fromkeys(Family, limit)), after).empty


@given(SOME_VIPS, SOME_VIPS, SOME_VIPS, LIMITS)
def test_a_change_is_the_plan_for_its_result(
    start: frozenset[str], add: frozenset[str], remove: frozenset[str], limit: int
) -> None:
    present = apply_plan(Present(), plan(start, Present(), limits=dict.fromkeys(Family, limit)))

    assert plan_change(present, add, remove, limits=dict.fromkeys(Family, limit)) == plan(
        (start - remove) | add, present, limits=dict.fromkeys(Family, limit)
    )
