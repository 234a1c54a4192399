"""Endpoints are spread over slices with as few writes as will do."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.apiserver.controllers.backends import Port
from nodeagent.apiserver.controllers.slice_plan import MOST_PER_SLICE, SlicePlan, plan_slices

PORTS = (Port("http", "TCP", 8080),)
OTHER = (Port("http", "TCP", 9090),)


def endpoint(number: int, *, ready: bool = True) -> Any:
    return {
        "addresses": [f"10.244.{number // 250}.{number % 250 + 1}"],
        "conditions": {"ready": ready},
        "targetRef": {"uid": f"uid-{number}"},
    }


def existing(name: str, endpoints: Sequence[Any], ports: Any = PORTS, family: str = "IPv4") -> Any:
    return {
        "metadata": {"name": name},
        "addressType": family,
        "endpoints": list(endpoints) or None,
        "ports": [port.document() for port in ports] or None,
    }


def test_a_service_without_endpoints_has_one_empty_slice_per_family() -> None:
    plan = plan_slices([], {}, ["IPv4", "IPv6"])
    assert [(c["addressType"], c["endpoints"], c["ports"]) for c in plan.create] == [
        ("IPv4", None, None),
        ("IPv6", None, None),
    ]
    assert plan_slices([existing("s", [], ())], {}, ["IPv4"]) == SlicePlan()


def test_the_empty_slice_is_used_for_the_first_endpoints() -> None:
    plan = plan_slices([existing("s", [], ())], {("IPv4", PORTS): [endpoint(1)]}, ["IPv4"])
    assert (list(plan.update), plan.create, plan.delete) == (["s"], [], [])


def test_a_changed_endpoint_costs_one_slice() -> None:
    first = [endpoint(n) for n in range(100)]
    second = [endpoint(n) for n in range(100, 150)]
    wanted = [*first, *second]
    wanted[120] = endpoint(120, ready=False)
    plan = plan_slices([existing("a", first), existing("b", second)], {("IPv4", PORTS): wanted}, ["IPv4"])
    assert (list(plan.update), plan.create, plan.delete) == (["b"], [], [])


def test_a_slice_whose_endpoints_are_gone_goes_and_the_last_one_stays_empty() -> None:
    slices = [existing("a", [endpoint(1)]), existing("b", [endpoint(2)], OTHER)]
    plan = plan_slices(slices, {("IPv4", PORTS): [endpoint(1)]}, ["IPv4"])
    assert (plan.update, plan.create, plan.delete) == ({}, [], ["b"])
    plan = plan_slices(slices[:1], {}, ["IPv4"])
    assert plan.update == {"a": {"addressType": "IPv4", "endpoints": None, "ports": None}}


def carry_out(slices: list[Any], plan: SlicePlan, counter: list[int]) -> list[Any]:
    kept = [found for found in slices if found["metadata"]["name"] not in plan.delete]
    after = [{**found, **plan.update.get(found["metadata"]["name"], {})} for found in kept]
    for contents in plan.create:
        counter[0] += 1
        after.append({"metadata": {"name": f"new-{counter[0]}"}, **contents})
    return after


@given(states=st.lists(st.sets(st.integers(0, 260), max_size=250), min_size=1, max_size=4), split=st.integers(0, 260))
def test_any_sequence_of_states_ends_in_exactly_the_wanted_endpoints(states: list[set[int]], split: int) -> None:
    slices: list[Any] = []
    counter = [0]
    for state in states:
        desired: dict[Any, list[Any]] = {}
        for number in sorted(state):
            desired.setdefault(("IPv4", PORTS if number < split else OTHER), []).append(endpoint(number))
        slices = carry_out(slices, plan_slices(slices, desired, ["IPv4"]), counter)
        found = [(e["targetRef"]["uid"], s["ports"][0]["port"]) for s in slices for e in s["endpoints"] or []]
        assert sorted(found) == sorted((f"uid-{n}", 8080 if n < split else 9090) for n in state)
        assert all(len(s["endpoints"] or []) <= MOST_PER_SLICE for s in slices)
        assert len(slices) >= 1
        assert plan_slices(slices, desired, ["IPv4"]) == SlicePlan()
