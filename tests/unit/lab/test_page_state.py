"""What the page of a lab shows, from what was looked at."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.lab.page.page_state import (
    MOST_TALKS,
    FaultPeriod,
    NodeLook,
    Point,
    ServiceLook,
    ServiceState,
    Talk,
    Tracked,
    answers_by_pod,
    fault_periods_at,
    most_tracked,
    node_state,
    point_of,
    rate,
    service_states,
    talks_of,
    together,
)
from nodeagent.lab.supervisor_messages import LoadSample, ServicePath, WaySample

CALLER = ServicePath("caller-1", "pod", "ClusterIP", "10.96.0.9", 80)
CLIENT = ServicePath("client", "outside", "NodePort", "2001:db8::b", 30080)


def sample(at: float, names: dict[str, int], failed: int = 0, latencies: dict[int, int] | None = None) -> LoadSample:
    failures = {"timeout": failed} if failed else {}
    ways = (WaySample(CALLER, names, failures, latencies or {}, 0.0), WaySample(CLIENT, {}, {}, {}, 0.0))
    return LoadSample(at, at - 100.0, ways, at)


def test_a_way_is_what_came_of_it_since_the_last_look() -> None:
    earlier = sample(110.0, {"echo-1-1": 10, "echo-2-1": 5}, 2, {400: 15})
    later = sample(112.0, {"echo-1-1": 14, "echo-2-1": 5, "echo-3-1": 1}, 5, {400: 15, 2000: 5})
    talk, idle = talks_of(later, earlier)
    assert talk == Talk(
        "caller-1", "pod", "ClusterIP", "10.96.0.9:80", 2.5, 1.5, 0.002, {"echo-1-1": 2.0, "echo-3-1": 0.5}
    )
    assert (idle.address, idle.answered, idle.median) == ("[2001:db8::b]:30080", 0.0, None)


def test_the_first_look_at_a_load_counts_from_its_beginning() -> None:
    talk, _ = talks_of(sample(110.0, {"echo-1-1": 20}), None)
    assert talk.answered == 2.0


def test_two_loads_on_one_way_are_one_line() -> None:
    one, _ = talks_of(sample(110.0, {"echo-1-1": 20}, 10, {100: 20}), None)
    both = together([one, one])
    assert len(both) == 1
    assert (both[0].answered, both[0].failed, both[0].pods) == (4.0, 2.0, {"echo-1-1": 4.0})
    assert answers_by_pod(both) == {"echo-1-1": 4.0}


def test_of_too_many_ways_the_busiest_are_shown_and_in_the_same_order_every_time() -> None:
    talks = [Talk(f"c{n:03}", "pod", "ClusterIP", "10.96.0.9:80", float(n), 0.0, None, {}) for n in range(300)]
    shown = together(talks)
    assert [one.client for one in shown] == [f"c{n:03}" for n in range(300 - MOST_TALKS, 300)]


@given(st.floats(0, 1e9), st.floats(0, 1e9), st.floats(0, 1e6))
def test_a_rate_is_never_negative_and_never_infinite(later: float, earlier: float, seconds: float) -> None:
    assert 0.0 <= rate(later, earlier, seconds) < float("inf") or seconds < 1e-3


def test_all_ways_together_are_a_point_of_the_curve() -> None:
    earlier, later = sample(110.0, {"a": 10}, 0, {400: 10}), sample(112.0, {"a": 20}, 4, {400: 18, 9000: 2})
    assert point_of(112.0, [(later, earlier), (later, earlier)]) == Point(112.0, 10.0, 4.0, 0.0004, 0.009)
    assert point_of(112.0, []) == Point(112.0, 0.0, 0.0, None, None)


def look(at: float, connections: int | None, agent: str = "running") -> NodeLook:
    services = {"default/echo": ServiceLook("10.96.0.9:80", 4, connections, "ok")} if connections is not None else None
    return NodeLook(at, agent, 1, connections is not None, services)


@pytest.mark.parametrize(
    ("now", "before", "expected"),
    [
        pytest.param(look(12.0, 130), look(10.0, 100), 15.0, id="counted"),
        pytest.param(look(12.0, 5), look(10.0, 100), 0.0, id="counters started again"),
        pytest.param(look(12.0, 130), None, None, id="the first look"),
        pytest.param(look(12.0, None, "stopped"), look(10.0, 100), None, id="nobody answers"),
        pytest.param(look(12.0, 130), look(10.0, None), None, id="nobody answered before"),
    ],
)
def test_a_node_tells_what_its_counters_counted(now: NodeLook, before: NodeLook | None, expected: float | None) -> None:
    found = node_state("node-1", ("192.168.0.11",), (now, before), cut=True, pods={"echo-1-1": 2.0})
    assert (found.connections, found.agent, found.cut, found.pods) == (expected, now.agent, True, {"echo-1-1": 2.0})


def test_a_service_has_its_endpoints_on_each_node_and_the_connections_of_all() -> None:
    looks = [(look(12.0, 130), look(10.0, 100)), (look(12.0, None), None), (look(12.0, 10), look(10.0, 0))]
    assert service_states(looks) == (ServiceState("default/echo", "10.96.0.9:80", (4, None, 4), 20.0),)


def test_a_fault_begins_and_ends_when_it_is_seen_to() -> None:
    first = fault_periods_at(1.0, [], ["link of node-1 cut"])
    second = fault_periods_at(2.0, first, ["link of node-1 cut", "API server down"])
    third = fault_periods_at(3.0, second, ["API server down"])
    again = fault_periods_at(4.0, third, ["API server down", "link of node-1 cut"])
    assert third == [FaultPeriod("link of node-1 cut", 1.0, 3.0), FaultPeriod("API server down", 2.0)]
    assert again == [*third, FaultPeriod("link of node-1 cut", 4.0)]


def test_tracked_connections_are_shown_most_first() -> None:
    one, two = Tracked("node-1", "a", "b", "c", 3), Tracked("node-1", "a", "b", "d", 7)
    assert most_tracked([one, two]) == (two, one)
