"""The first line of a trace: what becomes of the connection, and why."""

from fractions import Fraction
from typing import Any

import msgspec
import pytest

from nodeagent.diagnosis.trace.connections import Attempt, Connections, SilentEndpoint, TrackedFlow, silent_endpoints
from nodeagent.diagnosis.trace.journey import End, Node, journeys
from nodeagent.diagnosis.trace.others import OtherTable, read_table
from nodeagent.diagnosis.trace.own_table import OwnTable
from nodeagent.diagnosis.trace.question import Question
from nodeagent.diagnosis.trace.report import Report
from nodeagent.diagnosis.trace.routes import Between, Leg, RouteOutcome
from nodeagent.diagnosis.trace.routes import Route as Route_
from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.frontend import Backend, Frontend, FrontendKind, NodeState, Route, Scope, ServiceState, Unserved
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.proxy.dataplane.image.desired import DesiredImage
from nodeagent.proxy.dataplane.image.image import classes_in, empty_image, timeouts_in
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import Chain, PodDetection, Program, ProgramOptions
from nodeagent.proxy.dataplane.program.program import build_program
from nodeagent.proxy.dataplane.source_ports import PORTS, PortShortage

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
    reported = report(node_with(frontend(Route(PODS))))
    assert reported.verdict == "arrives: 10.244.1.5 -> 10.96.0.10:80/TCP, default/web:http: one of 2 endpoints"
    assert reported.arrives
    assert {one.endpoint for one in reported.found} == {("10.244.1.10", 8080), ("10.244.1.11", 8080)}
    assert {one.probability for one in reported.found} == {Fraction(1, 2)}
    assert {one.route.interface for one in reported.found if one.route} == {"cni0"}


def test_a_service_without_endpoints_is_named() -> None:
    reported = report(node_with(frontend(Route(()))))
    assert reported.verdict.startswith(
        "refused: 10.244.1.5 -> 10.96.0.10:80/TCP, because default/web:http has no endpoints; see"
    )
    assert not reported.arrives


def test_a_port_that_a_cluster_ip_does_not_have() -> None:
    node = node_with(frontend(Route(PODS)))
    reported = report(node, port=81).verdict
    assert "is a ClusterIP that serves nothing at 10.96.0.10:81/TCP; use a port it has: 80/TCP" in reported
    assert "at 10.96.0.10:80/UDP; use a port it has: 80/TCP" in report(node, protocol=Protocol.UDP).verdict


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
    reported = report(node_with(frontend(Route(PODS[:1])), others=(guard,)))
    assert "forward: inet guard, chain f: the first rule; change that rule" in reported.verdict
    half = report(node_with(frontend(Route(PODS)), others=(guard,)))
    assert half.verdict.startswith("fails in 1/2 of all cases (dropped): ")
    assert not half.arrives


def test_a_missing_route_is_named_with_the_endpoint_it_is_missing_for() -> None:
    routes = Routes(frozenset({"10.244.2.10"}))
    reported = report(node_with(frontend(Route(FAR))), routes=routes)
    assert reported.verdict.startswith("unreachable: ")
    assert "no route to 10.244.2.10; add one" in reported.verdict


def test_no_table_is_named() -> None:
    reported = report(Node(None, (), frozenset(NODE.values())))
    assert "there is no table nodeagent" in reported.verdict


def test_a_server_of_the_node_that_does_not_listen() -> None:
    hosted = Backend(NODE[Family.IPV4], 9100, local=True)
    reported = report(node_with(frontend(Route((hosted,)))), routes=Routes(listening=False))
    assert "no program of this node listens on 192.168.0.2:9100/TCP" in reported.verdict
    assert report(node_with(frontend(Route((hosted,))))).arrives


def test_a_full_connection_table_comes_before_all_else() -> None:
    reported = report(node_with(frontend(Route(PODS))), connections=Connections(100, 100))
    assert reported.verdict.startswith("dropped: ")
    assert "the connection table is full (100 of 100 entries); raise net.netfilter.nf_conntrack_max" in reported.verdict
    assert report(node_with(frontend(Route(PODS))), connections=Connections(99, 100)).arrives


def test_a_stale_flow_is_named_with_what_removes_it() -> None:
    current = TrackedFlow("10.244.1.5", 4000, ("10.244.1.10", 8080))
    stale = TrackedFlow("10.244.1.5", 4001, ("10.244.1.99", 8080))
    node = node_with(frontend(Route(PODS)))
    reported = report(node, connections=Connections(2, 100, (current, stale)))
    assert reported.verdict.startswith("stale: ")
    assert "10.244.1.5:4001 still goes to 10.244.1.99:8080" in reported.verdict
    assert "conntrack -D -p udp -s 10.244.1.5 --sport 4001" in reported.verdict
    assert report(node, connections=Connections(1, 100, (current,))).arrives
    untracked = node_with(frontend(Route(PODS)), others=(hooked([{"notrack": None}], prio=-300),))
    assert "stale" not in report(untracked, connections=Connections(2, 100, (stale,))).verdict


SILENT = SilentEndpoint(("10.244.1.10", 8080), 7)
WEIRD = "192.0.2.9"


def test_an_endpoint_that_did_not_answer_is_named_behind_the_verdict() -> None:
    node = node_with(frontend(Route(PODS)))
    reported = report(node, connections=Connections(1, 100, silent=(SILENT,)))
    assert reported.arrives
    assert reported.verdict.endswith(
        "; as far as is known: the last connection of 10.244.1.5, 7 s ago, got no answer from 10.244.1.10:8080: "
        "see the firewall and the routes there"
    )


def test_a_connection_that_hangs_at_an_endpoint_that_is_gone_is_named_with_what_ends_it() -> None:
    node = node_with(frontend(Route(PODS)))
    gone = Connections(1, 100, silent=(SilentEndpoint(("10.244.1.99", 8080), 7),))
    reported = report(node, connections=gone)
    assert reported.arrives
    assert reported.verdict.endswith(
        "; as far as is known: a connection of 10.244.1.5 still goes to 10.244.1.99:8080, where no new connection would go, and got no "
        "answer for 7 s: conntrack -D -p tcp -s 10.244.1.5 -d 10.96.0.10 --dport 80 -r 10.244.1.99"
    )
    nowhere = report(node_with(frontend(Route(()))), connections=gone).verdict
    assert nowhere.startswith("refused: ")
    assert "10.244.1.99" not in nowhere


@pytest.mark.parametrize(
    ("count", "begins", "ends"),
    [
        (PORTS, "fails in 1/2 of all cases (dropped): ", "externalTrafficPolicy: Local"),
        (
            60000,
            "arrives: ",
            "60000 of 64512 source ports of 192.168.0.2 towards 10.244.1.10:8080/TCP are taken, and a connection without a free port is dropped",
        ),
    ],
)
def test_source_ports_that_run_out_matter_to_those_who_need_one(count: int, begins: str, ends: str) -> None:
    crowds = (PortShortage(Protocol.TCP, "192.168.0.2", ("10.244.1.10", 8080), count),)
    node = node_with(frontend(Route(PODS)))
    reported = report(node, "203.0.113.9", connections=Connections(count, 1 << 20, crowds=crowds))
    assert reported.verdict.startswith(begins)
    assert reported.verdict.endswith(ends)
    assert reported.arrives is (count < PORTS)
    own = report(node, "10.244.1.5", connections=Connections(count, 1 << 20, crowds=crowds))
    assert own.arrives
    assert "source ports" not in own.verdict


ONE, OTHER = ("10.244.1.10", 8080), ("10.244.1.11", 8080)


@pytest.mark.parametrize(
    ("attempts", "silent"),
    [
        ([], ()),
        ([(ONE, Attempt(answered=False, ago=5))], (SilentEndpoint(ONE, 5),)),
        ([(ONE, Attempt(answered=False, ago=1))], ()),
        ([(ONE, Attempt(answered=False, ago=9)), (ONE, Attempt(answered=False, ago=4))], (SilentEndpoint(ONE, 4),)),
        ([(ONE, Attempt(answered=False, ago=5)), (ONE, Attempt(answered=True, ago=3))], ()),
        ([(ONE, Attempt(answered=False, ago=5)), (ONE, Attempt(answered=True, ago=8))], (SilentEndpoint(ONE, 5),)),
        ([(ONE, Attempt(answered=False, ago=5)), (OTHER, Attempt(answered=True, ago=3))], (SilentEndpoint(ONE, 5),)),
    ],
)
def test_who_is_silent(attempts: list[tuple[tuple[str, int], Attempt]], silent: tuple[SilentEndpoint, ...]) -> None:
    """Whose latest connection has waited for longer than an answer takes."""
    assert silent_endpoints(attempts) == silent


@pytest.mark.parametrize(("source", "strange"), [(WEIRD, True), (NODE[Family.IPV4], False)])
@pytest.mark.parametrize(("endpoints", "behind"), [(FAR, True), (PODS[:1], False)], ids=["far", "here"])
def test_a_source_that_is_nobodys_here(
    source: str, strange: bool, endpoints: tuple[Backend, ...], behind: bool
) -> None:
    """A pod of this node sends its answers here whatever their address; others send them to that address."""

    class ByRouter(Routes):
        def route(self, leg: Leg) -> Route_:
            far = leg.destination.startswith("10.244.2.")
            return Route_(RouteOutcome.OUT, "eth0", "192.168.0.1") if far else super().route(leg)

    snat = hooked([{"snat": {"addr": source}}], kind="nat", hook="postrouting", prio=100)
    reported = report(node_with(frontend(Route(endpoints)), others=(snat,)), routes=ByRouter())
    assert reported.arrives
    expected = (
        "answers are sent to 192.0.2.9, which is not an address of this node (postrouting: inet guard, chain f: )"
    )
    assert (expected in reported.verdict) is (strange and behind)


def test_an_endpoint_that_is_an_address_of_a_service_is_not_translated_again() -> None:
    balancer = frontend(Route(PODS), FrontendKind.LOAD_BALANCER)
    to_balancer = frontend(Route((Backend(EXTERNAL, 80, local=False),)))
    reported = report(node_with(to_balancer, balancer))
    assert (
        "198.51.100.2:80 is an address of default/web:http itself, and a connection is translated only once"
        in reported.verdict
    )
    to_itself = frontend(Route((Backend(NODE[Family.IPV4], 30080, local=True),)))
    node_port = Frontend(FrontendKind.NODE_PORT, Family.IPV4, None, Protocol.TCP, 30080, NAME, Route(PODS))
    reported = report(node_with(to_itself, node_port), routes=Routes(listening=False))
    assert reported.verdict.startswith("refused: ")
    assert (
        "listens on 192.168.0.2:30080/TCP: that is default/web:http itself, and a connection is "
        "translated only once; write the addresses of pods" in reported.verdict
    )


def test_a_server_that_listens_on_loopback_alone() -> None:
    class OnLoopback(Routes):
        def listens(self, address: str, port: int, protocol: Protocol, *, exactly: bool = False) -> bool:
            return exactly and (address, port) == ("127.0.0.1", 9100)

    hosted = Backend(NODE[Family.IPV4], 9100, local=True)
    reported = report(node_with(frontend(Route((hosted,)))), routes=OnLoopback())
    assert (
        "no program of this node listens on 192.168.0.2:9100/TCP, only on 127.0.0.1; let it listen on "
        "192.168.0.2, or on all addresses" in reported.verdict
    )


def test_an_address_of_a_pod_that_this_node_has_itself() -> None:
    class NotListening(Routes):
        def route(self, leg: Leg) -> Route_:
            return Route_(RouteOutcome.HERE, "lo") if leg.destination == "10.244.1.10" else super().route(leg)

    reported = report(node_with(frontend(Route(PODS[:1]))), routes=NotListening(listening=False))
    assert (
        "10.244.1.10 is an address of this node, and in the ranges of pods; find out which program gave it"
        in reported.verdict
    )


def changed(node: Node, name: str, *, first: bool = True) -> Node:
    """Its table with the last rule of `pick-1`, a drop, in another chain too."""
    own = node.own
    assert own is not None
    rule = own.program.chain("pick-1").rules[-1]
    chains = tuple(
        Chain(one.name, (rule, *one.rules) if first else (*one.rules, rule), one.hook) if one.name == name else one
        for one in own.program.chains
    )
    program = Program(own.family, chains, own.program.verdicts)
    return Node(msgspec.structs.replace(own, program=program), node.others, node.local)


@pytest.mark.parametrize("name", ["prerouting", "pick-1"])
def test_a_rule_in_our_table_that_is_not_the_agents(name: str) -> None:
    reported = report(changed(node_with(frontend(Route(PODS[:1]))), name))
    assert reported.verdict.startswith("dropped: ")
    assert (
        f"prerouting: ip nodeagent, chain {name}: drop (the agent has no such rule: another program changed"
        in reported.verdict
    )
    assert report(changed(node_with(frontend(Route(PODS[:1]))), name, first=False)).arrives


def test_elements_that_are_gone() -> None:
    node = node_with(frontend(Route(PODS[:1])))
    own = node.own
    assert own is not None
    empty = msgspec.structs.replace(own, image={**own.image, schema.BACKENDS: {}})
    assert "elements of default/web:http are missing: chain pick-1" in report(Node(empty, (), node.local)).verdict
    verdicts = {**own.program.verdicts, schema.DISPATCH: {}}
    lost = msgspec.structs.replace(own, program=Program(own.family, own.program.chains, verdicts))
    reported = report(Node(lost, (), node.local)).verdict
    assert "default/web:http is not used: ip nodeagent has lost what leads to its endpoints (map dispatch)" in reported


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("10.244.1.5", "no: the endpoint sees the client's own address"),
        ("203.0.113.9", "yes: to a ClusterIP, and the client is not a pod"),
        (NODE[Family.IPV4], "yes: to a ClusterIP, and the client is not a pod"),
        ("10.244.1.10", "yes: client and endpoint are the same (@hairpin)"),
    ],
)
def test_why_the_source_is_rewritten(source: str, why: str) -> None:
    reported = report(node_with(frontend(Route(PODS[:1]))), source)
    assert reported.document()["outcomes"][0]["why"] == why


def test_the_document_begins_with_the_verdict() -> None:
    reported = report(node_with(frontend(Route(PODS))))
    assert next(iter(reported.document().items())) == ("verdict", reported.verdict)
    assert [one["end"] for one in reported.document()["outcomes"]] == [End.ARRIVED.value] * 2


def test_rules_that_did_not_apply_are_shown_on_request() -> None:
    reported = report(node_with(frontend(Route(PODS))), port=81)
    assert not any("not in @frontends" in line for line in reported.lines())
    assert any("not in @frontends" in line for line in reported.lines(everything=True))


@pytest.mark.parametrize(
    ("source", "client"), [("10.244.1.10", "the client itself"), ("10.244.1.5", "both behind cni0")]
)
def test_a_translation_whose_answers_do_not_come_back_this_way(source: str, client: str) -> None:
    """Somebody publishes a pod and leaves the source as it is."""
    published = [match(payload("tcp", "dport"), 8181), {"dnat": {"addr": "10.244.1.10", "port": 8080}}]
    node = Node(None, (hooked(published, kind="nat"),), frozenset(NODE.values()))
    reported = report(node, source, NODE[Family.IPV4], port=8181, routes=Routes(way_between=Between.PAST))
    assert reported.verdict.startswith("one way: ")
    assert client in reported.verdict
    assert "rewrite its source" in reported.verdict
    assert not reported.arrives
    hidden = [match(payload("ip", "daddr"), "10.244.1.10"), {"masquerade": None}]
    node = Node(None, (hooked(published, kind="nat"), hooked(hidden, kind="nat", hook="postrouting")), node.local)
    assert report(node, source, NODE[Family.IPV4], port=8181, routes=Routes(way_between=Between.PAST)).arrives


def test_an_answer_that_a_bridge_carries_past_the_rules() -> None:
    reported = report(node_with(frontend(Route(PODS[:1]))), routes=Routes(way_between=Between.BRIDGED))
    assert reported.verdict.startswith("one way: ")
    assert "are both behind the bridge cni0, which carries the answer past the rules" in reported.verdict
    assert reported.verdict.endswith("; modprobe br_netfilter; sysctl -w net.bridge.bridge-nf-call-iptables=1")
    assert report(node_with(frontend(Route(PODS[:1])))).arrives


def test_a_bridge_that_gives_nothing_back_matters_to_a_pod_that_is_its_own_endpoint() -> None:
    routes = Routes(one_way_ports=frozenset({"10.244.1.10"}))
    node = node_with(frontend(Route(PODS)))
    reported = report(node, "10.244.1.10", routes=routes).verdict
    assert reported.startswith("fails in 1/2 of all cases (dropped): ")
    assert "to 10.244.1.10: no hairpin" in reported
    assert report(node, routes=routes).arrives


def test_a_host_that_a_bridge_keeps_apart_by_vlans_gets_nothing_and_sends_nothing() -> None:
    node = node_with(frontend(Route(PODS)))
    reported = report(node, "203.0.113.9", routes=Routes(other_vlans=frozenset({"10.244.1.10"}))).verdict
    assert reported.startswith("fails in 1/2 of all cases (dropped): ")
    assert "to 10.244.1.10: 10.244.1.10 is in another VLAN" in reported
    reported = report(node, "10.244.1.5", routes=Routes(other_vlans=frozenset({"10.244.1.5"}))).verdict
    assert (reported[:9], reported[-37:]) == ("dropped: ", "10.244.1.5 is in another VLAN; add it")
    assert report(node, "203.0.113.9").arrives


def test_packets_of_a_service_that_are_not_tracked_leave_untranslated() -> None:
    untracked = hooked([match(payload("tcp", "dport"), 80), {"notrack": None}], prio=-300)
    balancer = frontend(Route(PODS), FrontendKind.LOAD_BALANCER)
    reported = report(node_with(balancer, others=(untracked,)), "203.0.113.9", EXTERNAL)
    assert reported.verdict.startswith("untranslated: ")
    assert (
        "default/web:http is not used, because the packet is not tracked: prerouting: inet guard, chain f"
        in reported.verdict
    )
    assert not reported.arrives
    assert report(node_with(balancer), "203.0.113.9", EXTERNAL).arrives


def hooked(*rules: list[Any], kind: str = "filter", hook: str = "prerouting", prio: int = -100) -> OtherTable:
    """`inet guard` with a chain `f` at a hook."""
    chain = {"name": "f", "hook": hook, "prio": prio, "type": kind, "policy": "accept"}
    listed = [{"chain": chain}, *({"rule": {"chain": "f", "handle": n, "expr": rule}} for n, rule in enumerate(rules))]
    return read_table("inet guard", listed, {}, {})


def test_a_packet_of_the_node_is_routed_again_only_where_it_is_marked() -> None:
    """A route for the mark that leads nowhere comes before a chain of a higher priority that drops it."""

    class Marked(Routes):
        def route(self, leg: Leg) -> Route_:
            return Route_(RouteOutcome.NOWHERE, reason="by its mark") if leg.mark == 7 else super().route(leg)

    mark = {"mangle": {"key": {"meta": {"key": "mark"}}, "value": 7}}
    listed = [
        {"chain": {"name": "m", "hook": "output", "prio": -150, "type": "route"}},
        {"rule": {"chain": "m", "handle": 1, "expr": [mark]}},
        {"chain": {"name": "d", "hook": "output", "prio": 0, "type": "filter"}},
        {"rule": {"chain": "d", "handle": 2, "expr": [DROP]}},
    ]
    node = node_with(frontend(Route(PODS[:1])), others=(read_table("inet marks", listed, {}, {}),))
    reported = report(node, NODE[Family.IPV4], routes=Marked())
    assert reported.verdict.startswith("unreachable: ")
    assert "by its mark" in reported.verdict
    assert report(node, NODE[Family.IPV4]).verdict.startswith("dropped: ")
