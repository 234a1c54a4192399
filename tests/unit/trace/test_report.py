"""The first line of a trace: what becomes of the connection, and why."""

from fractions import Fraction
from typing import Any

import pytest

from nodeagent.dataplane.nft import schema
from nodeagent.dataplane.nft.chain import PodDetection, ProgramOptions
from nodeagent.dataplane.nft.desired import DesiredImage, classes_in, timeouts_in
from nodeagent.dataplane.nft.image import empty_image
from nodeagent.dataplane.nft.program import build_program
from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.frontend import Backend, Frontend, FrontendKind, NodeState, Route, Scope, ServiceState, Unserved
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.trace.journey import End, Node, journeys
from nodeagent.trace.others import OtherTable
from nodeagent.trace.own_table import OwnTable
from nodeagent.trace.question import Question
from nodeagent.trace.report import Connections, Report, TrackedFlow

from .conftest import NODE, Routes
from .test_others_walk import DROP, match, payload, table

KEY = ObjectKey("default", "web")
NAME = ServicePortName(KEY, "http", Protocol.TCP)
VIP, EXTERNAL = "10.96.0.10", "198.51.100.2"
PODS = (Backend("10.244.1.10", 8080, local=True), Backend("10.244.1.11", 8080, local=True))
FAR = (Backend("10.244.2.10", 8080, local=False),)


def frontend(route: Route, kind: FrontendKind = FrontendKind.CLUSTER_IP, **more: Any) -> Frontend:
    address = VIP if kind is FrontendKind.CLUSTER_IP else EXTERNAL
    return Frontend(kind, Family.IPV4, address, Protocol.TCP, 80, NAME, route, **more)


def node_with(*frontends: Frontend, others: tuple[OtherTable, ...] = ()) -> Node:
    """A node that holds these, as a first pass would program them."""
    desired = DesiredImage(Family.IPV4)
    state = ServiceState(KEY, cluster_ips=(VIP,), frontends=frontends)
    desired.update({KEY: state}, empty_image(schema.DATA_SETS))
    desired.set_node(NodeState(("10.96.0.0/16",), ("10.244.0.0/16",), ()))
    options = ProgramOptions(PodDetection.CIDR)
    program = build_program(Family.IPV4, options, classes_in(desired.image), timeouts_in(desired.image))
    specs = {spec.name: spec for spec in schema.set_specs(counters=True)}
    own = OwnTable(Family.IPV4, program, specs, {**desired.image, schema.AFFINITY: {}}, {})
    return Node(own, others, frozenset(NODE.values()))


def report(node: Node, source: str = "10.244.1.5", to: str = VIP, port: int = 80, **more: Any) -> Report:
    asked = Question(source, to, port, more.pop("protocol", Protocol.TCP))
    routes = more.pop("routes", Routes())
    return Report(asked, node, journeys(asked, node, routes), **more)


def test_one_of_its_endpoints() -> None:
    told = report(node_with(frontend(Route(PODS))))
    assert told.verdict == "arrives: 10.244.1.5 -> 10.96.0.10:80/TCP, default/web:http: one of 2 endpoints"
    assert told.arrives
    assert {one.endpoint for one in told.found} == {("10.244.1.10", 8080), ("10.244.1.11", 8080)}
    assert {one.probability for one in told.found} == {Fraction(1, 2)}
    assert {one.route.interface for one in told.found if one.route} == {"cni0"}


def test_a_service_without_endpoints_is_named() -> None:
    told = report(node_with(frontend(Route(()))))
    assert told.verdict.startswith("refused: 10.244.1.5 -> 10.96.0.10:80/TCP: default/web:http has no endpoints; see")
    assert not told.arrives


def test_a_port_that_a_cluster_ip_has_not() -> None:
    assert "is a ClusterIP that serves nothing" in report(node_with(frontend(Route(PODS))), port=81).verdict


def test_an_address_that_nobody_has() -> None:
    assert "belongs to no Service" in report(node_with(frontend(Route(PODS))), to="10.96.0.77").verdict


def test_policy_local_without_a_local_endpoint_is_named() -> None:
    nowhere = Route((), Scope.LOCAL, Unserved.DROP)
    external = frontend(nowhere, FrontendKind.LOAD_BALANCER, short_circuit=Route(FAR))
    node = node_with(external)
    outside = report(node, "203.0.113.9", EXTERNAL)
    assert outside.verdict.startswith("dropped: ")
    assert "has no endpoint on this node, and its externalTrafficPolicy is Local" in outside.verdict
    inside = report(node, "10.244.1.5", EXTERNAL)
    assert inside.arrives
    assert any("the list for pods and node" in line for line in inside.lines())


def test_a_source_range_is_named() -> None:
    guarded = frontend(Route(PODS), FrontendKind.LOAD_BALANCER, allowed_sources=("203.0.113.0/24",))
    node = node_with(guarded)
    assert (
        "203.0.114.9 is in none of the source ranges of default/web:http"
        in report(node, "203.0.114.9", EXTERNAL).verdict
    )
    assert report(node, "203.0.113.9", EXTERNAL).arrives


def test_a_firewall_is_named_with_its_rule() -> None:
    guard = table([match(payload("ip", "daddr"), "10.244.1.10"), DROP])
    told = report(node_with(frontend(Route(PODS[:1])), others=(guard,)))
    assert "forward: inet guard, chain f: the first rule; change that rule" in told.verdict
    half = report(node_with(frontend(Route(PODS)), others=(guard,)))
    assert half.verdict.startswith("fails in 1/2 of all cases, dropped then: ")
    assert not half.arrives


def test_a_missing_route_is_named_with_the_endpoint_it_is_missing_for() -> None:
    routes = Routes(frozenset({"10.244.2.10"}))
    told = report(node_with(frontend(Route(FAR))), routes=routes)
    assert told.verdict.startswith("unreachable: ")
    assert "no route to 10.244.2.10; add one" in told.verdict


def test_no_table_is_named() -> None:
    told = report(Node(None, (), frozenset(NODE.values())))
    assert "there is no table nodeagent" in told.verdict


def test_a_server_of_the_node_that_does_not_listen() -> None:
    hosted = Backend(NODE[Family.IPV4], 9100, local=True)
    told = report(node_with(frontend(Route((hosted,)))), routes=Routes(listening=False))
    assert "no program of this node listens on 192.168.0.2:9100/TCP" in told.verdict
    assert report(node_with(frontend(Route((hosted,))))).arrives


def test_a_full_connection_table_comes_before_all_else() -> None:
    told = report(node_with(frontend(Route(PODS))), connections=Connections(100, 100))
    assert told.verdict.startswith("dropped: ")
    assert "the connection table is full (100 of 100 entries); raise net.netfilter.nf_conntrack_max" in told.verdict
    assert report(node_with(frontend(Route(PODS))), connections=Connections(99, 100)).arrives


def test_a_stale_flow_is_named_with_what_removes_it() -> None:
    current = TrackedFlow("10.244.1.5", 4000, ("10.244.1.10", 8080))
    stale = TrackedFlow("10.244.1.5", 4001, ("10.244.1.99", 8080))
    node = node_with(frontend(Route(PODS)))
    told = report(node, connections=Connections(2, 100, (current, stale)))
    assert told.verdict.startswith("stale: ")
    assert "10.244.1.5:4001 still goes to 10.244.1.99:8080" in told.verdict
    assert "conntrack -D -p udp -s 10.244.1.5 --sport 4001" in told.verdict
    assert report(node, connections=Connections(1, 100, (current,))).arrives


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("10.244.1.5", "no: the endpoint sees the client's own address"),
        ("203.0.113.9", "yes: to a ClusterIP, and the client is no pod"),
        (NODE[Family.IPV4], "yes: to a ClusterIP, and this node is the client"),
        ("10.244.1.10", "yes: client and endpoint are the same (@hairpin)"),
    ],
)
def test_why_the_source_is_rewritten(source: str, why: str) -> None:
    told = report(node_with(frontend(Route(PODS[:1]))), source)
    assert told.document()["outcomes"][0]["why"] == why


def test_the_document_begins_with_the_verdict() -> None:
    told = report(node_with(frontend(Route(PODS))))
    assert next(iter(told.document().items())) == ("verdict", told.verdict)
    assert [one["end"] for one in told.document()["outcomes"]] == [End.ARRIVED.value] * 2


def test_rules_that_did_not_apply_are_told_when_asked_for() -> None:
    told = report(node_with(frontend(Route(PODS))), port=81)
    assert not any("not in @frontends" in line for line in told.lines())
    assert any("not in @frontends" in line for line in told.lines(everything=True))
