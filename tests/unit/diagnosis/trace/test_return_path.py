"""The way of an answer: the hooks and zones it meets, and what keeps it from the client."""

from collections.abc import Sequence
from typing import Any

import pytest

from nodeagent.diagnosis.trace.others import OtherTable, read_table
from nodeagent.diagnosis.trace.report import Report
from nodeagent.diagnosis.trace.routes import Leg, Route, RouteOutcome
from nodeagent.diagnosis.trace.xtables import ZoneOf, zone
from nodeagent.model.frontend import Backend
from nodeagent.model.frontend import Route as Endpoints
from nodeagent.wire.netlink.nf_tables.rule_reading import Extension

from .conftest import NODE, Routes
from .test_others_walk import ACCEPT, DROP, ct, match, meta, payload
from .test_report import FAR, PODS, frontend, node_with, report

POD, CLIENT, OUTSIDE = "10.244.1.10", "10.244.1.5", "203.0.113.9"
HERE = Backend(next(iter(NODE.values())), 9100, local=True)
LIMIT = {"limit": {"rate": 3, "per": "minute"}}


def chain(*rules: Sequence[Any], hook: str = "forward", prio: int = 0, policy: str = "accept") -> OtherTable:
    header = {"name": "f", "hook": hook, "prio": prio, "type": "filter", "policy": policy}
    listed = [{"rule": {"chain": "f", "handle": number, "expr": list(one)}} for number, one in enumerate(rules, 1)]
    return read_table("inet guard", [{"chain": header}, *listed], {("f", 1): "the first rule"}, {})


def zoned(number: int, *conditions: Any, direction: str = "") -> Sequence[Any]:
    key = {"key": "zone"} | ({"dir": direction} if direction else {})
    return (*conditions, {"mangle": {"key": {"ct": key}, "value": number}})


def reported(
    *others: OtherTable, source: str = CLIENT, endpoints: Sequence[Backend] = PODS[:1], routes: Routes | None = None
) -> Report:
    return report(node_with(frontend(Endpoints(tuple(endpoints))), others=others), source, routes=routes or Routes())


def from_pod(*more: Any) -> Sequence[Any]:
    return (match(payload("ip", "saddr"), POD), *more)


STATELESS = [
    pytest.param(chain(from_pod(match(payload("tcp", "sport"), 8080), DROP)), id="port"),
    pytest.param(chain(from_pod(match(payload("ip", "daddr"), CLIENT), DROP)), id="client"),
    pytest.param(chain(from_pod(match(ct("state"), ["established"], "in"), DROP)), id="state"),
    pytest.param(chain(from_pod(match(ct("direction"), "reply"), DROP)), id="direction"),
    pytest.param(
        chain(from_pod(match(payload("tcp", "dport"), {"range": [1024, 65535]}), DROP)), id="any client's port"
    ),
    pytest.param(chain(from_pod(DROP), hook="prerouting", prio=-150), id="prerouting"),
    pytest.param(chain(from_pod(DROP), hook="postrouting"), id="postrouting"),
    pytest.param(chain((match(payload("tcp", "dport"), 8080), ACCEPT), policy="drop"), id="policy"),
]


@pytest.mark.parametrize("rules", STATELESS)
def test_an_answer_that_a_rule_stops(rules: OtherTable) -> None:
    found = reported(rules)
    assert found.verdict.startswith(
        f"one way: {CLIENT} -> 10.96.0.10:80/TCP, because the answer of {POD}:8080 is stopped: "
    )
    assert "inet guard, chain f" in found.verdict
    assert not found.arrives


LET_THROUGH = [
    pytest.param(chain((match(ct("state"), ["established"], "in"), ACCEPT), (match(payload("tcp", "dport"), 8080), ACCEPT),
                       policy="drop"), id="established"),
    pytest.param(chain((match(payload("tcp", "dport"), 9090), DROP)), id="a server's port"),
    pytest.param(chain((match(meta("iifname"), "eth0"), DROP)), id="another interface"),
    pytest.param(chain((match({"&": [payload("tcp", "flags"), {"|": ["syn", "ack"]}]}, "syn"),
                        match(payload("ip", "saddr"), POD), DROP)), id="what asks"),
    pytest.param(chain(from_pod(DROP), hook="input"), id="input of what is forwarded"),
]  # fmt: skip


@pytest.mark.parametrize("rules", LET_THROUGH)
def test_an_answer_that_comes_through(rules: OtherTable) -> None:
    assert reported(rules).arrives


def test_a_rule_that_cannot_be_evaluated_leaves_it_open() -> None:
    found = reported(chain((match(payload("tcp", "dport"), 8080), ACCEPT), from_pod(LIMIT, ACCEPT), policy="drop"))
    assert found.arrives
    document = found.document()["outcomes"][0]["answer"]
    assert document["end"] == "unclear"
    assert next(step["evaluated"] for step in document["decisions"]) is False


def test_a_rule_that_may_stop_it_is_named_behind_the_verdict() -> None:
    found = reported(chain(from_pod(LIMIT, DROP)))
    assert found.arrives
    assert (
        "; as far as is known: forward: inet guard, chain f: the first rule (cannot be evaluated: limit)"
        in found.verdict
    )
    assert "as far as is known" not in reported(chain(from_pod(LIMIT, ACCEPT))).verdict


def raw(*rules: Sequence[Any], hook: str = "prerouting", prio: int = -300) -> OtherTable:
    return chain(*rules, hook=hook, prio=prio)


ASKED, ANSWERED = match(payload("ip", "saddr"), CLIENT), match(payload("ip", "saddr"), POD)
ZONES = [
    pytest.param(raw(zoned(5, ASKED)), False, id="the request alone"),
    pytest.param(raw(zoned(5, ANSWERED)), False, id="the answer alone"),
    pytest.param(raw(zoned(5)), True, id="both"),
    pytest.param(raw(zoned(5, ASKED), zoned(6, ANSWERED)), False, id="two"),
    pytest.param(raw(zoned(5, ASKED, direction="original")), True, id="of requests"),
    pytest.param(raw(zoned(5, ASKED, direction="reply")), False, id="of replies"),
    pytest.param(raw(zoned(5, ASKED, direction="reply"), zoned(5, ANSWERED)), True, id="of replies, and of the answer"),
    pytest.param(raw(zoned(5, ASKED), prio=-150), True, id="too late"),
    pytest.param(raw(zoned(5, ASKED), hook="output"), True, id="of what this node sends"),
    pytest.param(raw(zoned(5), zoned(6, ANSWERED)), True, id="the first counts"),
    pytest.param(raw(zoned(0, ASKED), zoned(5)), False, id="also the usual one"),
    pytest.param(raw(zoned(5), (ANSWERED, {"notrack": None})), True, id="and what is not tracked afterwards is"),
    pytest.param(raw(({"notrack": None},), zoned(5)), True, id="what was not tracked is again"),
]


@pytest.mark.parametrize(("rules", "arrives"), ZONES)
def test_an_answer_is_translated_back_in_the_zone_of_its_connection(rules: OtherTable, arrives: bool) -> None:
    found = reported(rules)
    assert found.arrives is arrives
    assert ("is not translated back: it is in zone " in found.verdict) is not arrives


def test_an_answer_that_is_not_tracked() -> None:
    found = reported(raw((ANSWERED, {"notrack": None})))
    assert (
        f"the answer of {POD}:8080 is not translated back, because it is not tracked: prerouting: inet guard"
        in found.verdict
    )


class OneWay(Routes):
    """Nothing leads from an endpoint to the client."""

    def route(self, leg: Leg) -> Route:
        if leg.source in (POD, HERE.address):
            return Route(RouteOutcome.REJECTED, reason="forwarding is off on cni0", cure="turn it on")
        return super().route(leg)


@pytest.mark.parametrize(("endpoint", "source"), [(PODS[0], CLIENT), (HERE, OUTSIDE)])
def test_an_answer_without_a_way(endpoint: Backend, source: str) -> None:
    found = reported(endpoints=[endpoint], source=source, routes=OneWay())
    assert f"does not come back: to {source}: forwarding is off on cni0; turn it on" in found.verdict
    assert reported(endpoints=[endpoint], source=source).arrives


BY_SERVER = match(payload("tcp", "sport"), HERE.port)
BY_SERVICE, FROM_ITSELF = match(payload("tcp", "sport"), 80), match(meta("iifname"), "lo")


class Sourced(Routes):
    """The node's own packets have its address."""

    def route(self, leg: Leg) -> Route:
        found = super().route(leg)
        own = not leg.interface and not leg.source
        return Route(found.way, found.interface, found.gateway, HERE.address) if own else found


def test_the_answer_to_what_was_rewritten_and_to_the_node_itself() -> None:
    """Up to where the translation is undone it is for the node's own address; the node's own comes in."""
    far = match(payload("ip", "saddr"), FAR[0].address)
    early = raw((far, match(payload("ip", "daddr"), OUTSIDE), DROP), prio=-150)
    late = raw((far, match(payload("ip", "daddr"), OUTSIDE), DROP), prio=-50)
    assert reported(early, source=OUTSIDE, endpoints=FAR, routes=Sourced()).arrives
    assert not reported(late, source=OUTSIDE, endpoints=FAR, routes=Sourced()).arrives
    node = next(iter(NODE.values()))
    assert reported(chain((far, DROP)), source=node, endpoints=FAR).arrives
    assert not reported(chain((far, DROP), hook="input"), source=node, endpoints=FAR).arrives


@pytest.mark.parametrize(
    ("source", "endpoints", "hook"),
    [(OUTSIDE, FAR, "postrouting"), (next(iter(NODE.values())), FAR, "input"), (OUTSIDE, [HERE], "postrouting")],
    ids=["forwarded", "to the node itself", "of the node's server"],
)
def test_at_the_end_of_its_last_hook_an_answer_is_the_services(
    source: str, endpoints: Sequence[Backend], hook: str
) -> None:
    by_server = match(payload("tcp", "sport"), endpoints[0].port)
    for rule, before, behind in ((by_server, False, True), (BY_SERVICE, True, False)):
        for priority, arrives in ((100, before), (101, behind)):
            found = reported(chain((rule, DROP), hook=hook, prio=priority), source=source, endpoints=endpoints)
            assert found.arrives is arrives, (priority, found.verdict)


def test_an_answer_of_a_server_on_this_node_leaves_by_output() -> None:
    sent = chain((match(payload("tcp", "sport"), HERE.port), DROP), hook="output")
    assert "is stopped: output: inet guard" in reported(sent, source=OUTSIDE, endpoints=[HERE]).verdict
    assert reported(chain((match(payload("tcp", "sport"), HERE.port), DROP)), source=OUTSIDE, endpoints=[HERE]).arrives


BETWEEN_TWO_OF_THE_NODE = [
    pytest.param(
        raw(zoned(6, match(payload("tcp", "dport"), 80)), hook="output"), "in zone 0 of", id="zone of requests"
    ),
    pytest.param(raw((BY_SERVER, {"notrack": None}), hook="output"), "not tracked: output", id="not tracked"),
    pytest.param(chain((BY_SERVER, DROP), hook="postrouting"), "stopped: postrouting", id="postrouting"),
    pytest.param(chain((BY_SERVER, DROP), hook="postrouting", prio=101), "", id="behind the translation, by server"),
    pytest.param(chain((BY_SERVICE, DROP), hook="postrouting", prio=101), "postrouting", id="behind the translation"),
    pytest.param(chain((FROM_ITSELF, BY_SERVICE, DROP), hook="prerouting"), "prerouting", id="prerouting"),
    pytest.param(chain((FROM_ITSELF, BY_SERVICE, DROP), hook="input"), "stopped: input", id="input"),
    pytest.param(chain((FROM_ITSELF, BY_SERVER, DROP), hook="prerouting"), "", id="prerouting, by server"),
    pytest.param(chain((FROM_ITSELF, BY_SERVER, DROP), hook="input"), "", id="input, by server"),
    pytest.param(chain((BY_SERVER, DROP)), "", id="forward"),
    pytest.param(raw(zoned(6), hook="output"), "", id="a zone of all"),
    pytest.param(raw(zoned(6)), "", id="a zone for what comes in"),
    pytest.param(raw(({"notrack": None},)), "", id="what comes in is not tracked"),
]


@pytest.mark.parametrize(("rules", "why"), BETWEEN_TWO_OF_THE_NODE)
def test_between_two_programs_of_the_node_an_answer_leaves_and_comes_in(rules: OtherTable, why: str) -> None:
    found = reported(rules, source=next(iter(NODE.values())), endpoints=[HERE], routes=Sourced())
    assert found.arrives is not bool(why), found.verdict
    assert why in found.verdict


@pytest.mark.parametrize(
    ("data", "found"),
    [
        ("0000 0500", ZoneOf(5, "")),
        ("0400 0500", ZoneOf(5, "original")),
        ("0800 0500", ZoneOf(5, "reply")),
        ("0100 0000", None),
        ("0000 0000", None),
    ],
)
def test_the_zone_of_a_target_of_iptables(data: str, found: ZoneOf | None) -> None:
    assert zone(Extension("CT", 2, bytes.fromhex(data) + bytes(24))) == found


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        pytest.param(
            raw(zoned(7, ASKED, direction="reply")), "gets another source port: it is in zone 0", id="of replies"
        ),
        pytest.param(
            raw(zoned(7, ASKED, direction="reply"), zoned(7, ANSWERED)), "", id="of replies, and of the answer"
        ),
        pytest.param(raw(zoned(7, ASKED)), "", id="of the connection"),
    ],
)
def test_an_answer_that_is_no_longer_of_its_connection_gets_a_port_of_its_own(rules: OtherTable, why: str) -> None:
    """Also where nothing is translated."""
    found = report(node_with(frontend(Endpoints(PODS)), others=(rules,)), CLIENT, to=POD, port=8080)
    assert found.arrives is not bool(why), found.verdict
    assert why in found.verdict
