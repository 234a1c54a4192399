"""Whether connections to Services get through: what a daemon of the node answers is no Service."""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest

from nodeagent.diagnosis.trace.routes import Leg, RouteOutcome
from nodeagent.diagnosis.trace.routes import Route as Route_
from nodeagent.diagnosis.trace.sampled_ways import ways_to_places, ways_to_services
from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.frontend import Backend, Frontend, FrontendKind, Route

from .conftest import NODE, Routes
from .test_others_walk import match, payload
from .test_report import NAME, PODS, VIP, frontend, hooked, node_with

OTHER_VIP, NODE_ADDRESS = "10.96.0.11", NODE[Family.IPV4]
NOTRACK: list[Any] = [match(payload("ip", "daddr"), VIP), {"notrack": None}]


@dataclass
class LocalVips(Routes):
    """As on a node: ClusterIPs are local to it."""

    local: frozenset[str] = field(default_factory=lambda: frozenset({VIP}))

    def route(self, leg: Leg) -> Route_:
        return Route_(RouteOutcome.HERE, "lo") if leg.destination in self.local else super().route(leg)


def test_a_service_that_is_translated_is_reached() -> None:
    found = ways_to_services(node_with(frontend(Route(PODS))), LocalVips())
    assert [(way.asked, way.stopped) for way in found] == [(1, ()), (1, ())]


@pytest.mark.parametrize("listening", [True, False], ids=["a daemon answers", "nobody answers"])
def test_a_connection_that_others_exclude_from_tracking_does_not_reach_the_service(listening: bool) -> None:
    """A hook of the node's own packets; those of pods are translated."""
    guard = hooked(NOTRACK, hook="output", prio=-300)
    (way,) = ways_to_services(node_with(frontend(Route(PODS)), others=(guard,)), LocalVips(listening=listening))
    assert way.closed
    (stopped,) = way.stopped
    assert stopped.reason.why.startswith(
        "default/web:http is not used, because the packet is not tracked: output: inet guard, chain f"
    )
    assert stopped.reason.cure.startswith("change that rule")
    assert stopped.certain is not listening


MANY = tuple(Backend(f"192.0.2.{number}", 8080, local=False) for number in range(1, 21))


@pytest.mark.parametrize("count", [8, 9, 20])
def test_of_many_endpoints_some_are_followed(count: int) -> None:
    """A range that leads nowhere is found however many endpoints there are; what was left out is counted."""
    node = node_with(frontend(Route(MANY[:count])))
    blocked = LocalVips(blocked=frozenset(one.address for one in MANY))
    (way,) = ways_to_services(node, blocked)
    assert way.closed
    assert [one.share for one in way.stopped] == [1]
    assert way.left_out == count - 8
    (right,) = ways_to_services(node, LocalVips())
    assert (right.asked, right.stopped, right.left_out) == (1, (), count - 8)


def test_the_share_of_the_cases_that_fail() -> None:
    node = node_with(frontend(Route(MANY[:3])))
    (way,) = ways_to_services(node, LocalVips(blocked=frozenset({MANY[1].address})))
    assert [one.share for one in way.stopped] == [Fraction(1, 3)]


def test_a_rule_that_forwards_nothing_is_a_fault_though_servers_of_the_node_itself_are_reached() -> None:
    """Control: where it lets one of two pods through, it may be there for that."""
    hosted = Frontend(
        FrontendKind.CLUSTER_IP, Family.IPV4, OTHER_VIP, Protocol.TCP, 80, NAME, Route((Backend(NODE_ADDRESS, 80),))
    )
    routes = LocalVips(local=frozenset({VIP, OTHER_VIP}))
    for rule, is_fault in (
        ([{"drop": None}], True),
        ([match(payload("ip", "daddr"), PODS[1].address), {"drop": None}], False),
    ):
        guard = hooked(rule, hook="forward", prio=0)
        of_pods = ways_to_services(node_with(frontend(Route(PODS)), hosted, others=(guard,)), routes)[1]
        assert (of_pods.asked, [str(one.question.destination) for one in of_pods.stopped]) == (2, [VIP])
        assert of_pods.is_fault(of_pods.stopped[0]) is is_fault


@pytest.mark.parametrize("gateway", ["192.168.0.1", "192.168.0.2", ""])
def test_a_pod_of_this_node_that_is_routed_away(gateway: str) -> None:
    """Control: by its own interface, or by way of an address of the node itself, as Cilium has it."""

    class Astray(LocalVips):
        def route(self, leg: Leg) -> Route_:
            away = leg.destination == PODS[0].address
            return Route_(RouteOutcome.OUT, "eth0", gateway) if away else super().route(leg)

    found = ways_to_services(node_with(frontend(Route(PODS[:1]))), Astray(local=frozenset({VIP})))[0]
    assert bool(found.stopped) is (gateway == "192.168.0.1")
    if found.stopped:
        assert found.is_fault(found.stopped[0])
        assert found.stopped[0].reason.why == (
            "10.244.1.10 is on this node, and the route to it leads out by eth0 via 192.168.0.1: its own interface or "
            "route is gone"
        )


STRANGERS = ("10.244.1.20", "10.244.1.21", "10.244.1.22", "10.244.1.23")


@pytest.mark.parametrize(("barred", "asked"), [(0, 0), (1, 1), (2, 2), (3, 0), (4, 0)])
def test_a_rule_that_stops_only_one_pod_does_not_concern_services(barred: int, asked: int) -> None:
    """Of three pods the first one counts from which connections get through."""
    guard = hooked(*([match(payload("ip", "saddr"), pod), {"drop": None}] for pod in STRANGERS[:barred]))
    node = node_with(frontend(Route(PODS)), others=(guard,))
    of_pods = ways_to_places([(VIP, Protocol.TCP, 80)], node, LocalVips(), STRANGERS)[1]
    assert of_pods.client == f"pods of this node (asked for {STRANGERS[asked]})"
    assert bool(of_pods.stopped) is (barred > 2)
