"""Chains of others, as libnftables lists them, and what they do to a packet."""

from collections.abc import Callable
from typing import Any

import pytest

from nodeagent.diagnosis.trace.others import OtherRule, OtherTable, read_table
from nodeagent.diagnosis.trace.others_walk import is_done, pass_other_chain
from nodeagent.diagnosis.trace.traveller import Traveller
from nodeagent.model.addresses import Family, Protocol
from nodeagent.proxy.dataplane.program.chain import ChainType, Hook, HookNumber
from nodeagent.wire.netlink.nf_tables.expressions import Code
from nodeagent.wire.netlink.nf_tables.rule_reading import Extension

Make = Callable[..., Traveller]
DROP, ACCEPT = {"drop": None}, {"accept": None}


def payload(protocol: str, field: str) -> dict[str, Any]:
    return {"payload": {"protocol": protocol, "field": field}}


def meta(key: str) -> dict[str, Any]:
    return {"meta": {"key": key}}


def ct(key: str) -> dict[str, Any]:
    return {"ct": {"key": key}}


def match(left: Any, right: Any, op: str = "==") -> dict[str, Any]:
    return {"match": {"op": op, "left": left, "right": right}}


def table(*rules: list[Any], policy: str = "accept", kind: str = "filter", **more: Any) -> OtherTable:
    """`inet guard` with a base chain `f` of these rules; more: other chains (lists of rules) and sets (tuples)."""
    chain = {"name": "f", "hook": "forward", "prio": 0, "type": kind, "policy": policy}
    listed: list[dict[str, Any]] = [{"chain": chain}]
    listed += [{"rule": {"chain": "f", "handle": number, "expr": rule}} for number, rule in enumerate(rules, 1)]
    for name, held in more.items():
        if isinstance(held, tuple):
            listed.append({"set": {"name": name, "elem": list(held)}})
        else:
            listed.append({"chain": {"name": name}})
            listed += [{"rule": {"chain": name, "handle": 90 + n, "expr": rule}} for n, rule in enumerate(held)]
    return read_table("inet guard", listed, {("f", 1): "the first rule"}, {})


def passed(others: OtherTable, traveller: Traveller) -> Code:
    traveller.hook = "forward"
    return pass_other_chain(others, others.chains["f"], traveller)


@pytest.mark.parametrize(
    "condition",
    [
        match(payload("ip", "daddr"), "10.244.1.10"),
        match(payload("ip", "daddr"), {"prefix": {"addr": "10.244.0.0", "len": 16}}),
        match(payload("ip", "daddr"), {"set": ["10.9.9.9", {"prefix": {"addr": "10.244.1.0", "len": 24}}]}),
        match(payload("ip", "daddr"), {"range": ["10.244.1.1", "10.244.1.99"]}),
        match(payload("ip", "saddr"), "10.244.1.6", "!="),
        match(payload("tcp", "dport"), 8080),
        match(payload("th", "dport"), {"set": [80, {"range": [8000, 9000]}]}),
        match(payload("tcp", "dport"), "@open"),
        match(payload("tcp", "dport"), 8000, ">"),
        match(
            {"concat": [payload("ip", "daddr"), payload("tcp", "dport")]}, {"set": [{"concat": ["10.244.1.10", 8080]}]}
        ),
        match({"&": [payload("tcp", "flags"), {"|": ["syn", "ack"]}]}, "syn"),
        match(payload("tcp", "flags"), ["syn", "rst"], "in"),
        match({"&": [payload("tcp", "flags"), ["syn", "ack"]]}, "syn"),
        match({"&": [payload("tcp", "flags"), ["syn", "ack"]]}, ["syn", "ack"], "!="),
        match(payload("tcp", "sport"), {"range": [1024, 65535]}),
        match(payload("tcp", "sport"), 1023, ">"),
        match(payload("tcp", "sport"), {"set": [80, {"range": [1, 1023]}]}, "!="),
        match(meta("l4proto"), {"set": ["tcp", "udp"]}),
        match(meta("l4proto"), "tcp"),
        match(meta("nfproto"), "ipv4"),
        match(meta("iifname"), "cni*"),
        match(meta("oifname"), {"set": ["eth0", "eth1"]}),
        match(meta("mark"), 0x4000, "!="),
        match({"&": [meta("mark"), 0x8]}, 0x8),
        match(ct("state"), "new", "in"),
        match(ct("state"), ["established", "new"], "in"),
        match(ct("status"), "dnat", "!="),
        match({"fib": {"result": "type", "flags": ["daddr"]}}, "unicast"),
        match({"fib": {"result": "oif", "flags": ["saddr", "iif"]}}, True),
    ],
    ids=repr,
)
def test_a_condition_that_holds_ends_it_and_its_contrary_does_not(traveller: Make, condition: dict[str, Any]) -> None:
    assert passed(table([condition, DROP], open=(8080,)), traveller(mark=8)) is Code.DROP
    body = condition["match"]
    contrary = {"==": "!=", "!=": "==", ">": "<=", "in": ""}[body["op"]]
    if contrary:
        denied = {"match": {**body, "op": contrary}}
        assert passed(table([denied, DROP], open=(8080,)), traveller(mark=8)) is Code.ACCEPT


@pytest.mark.parametrize(
    "condition",
    [
        match(payload("udp", "dport"), 8080),
        match(payload("ip6", "daddr"), "fd00::1"),
        match(ct("state"), ["established", "related"], "in"),
        match(meta("iifname"), "eth0"),
        match(payload("icmp", "type"), "echo-request"),
    ],
    ids=repr,
)
def test_a_condition_that_does_not_hold_lets_it_through(traveller: Make, condition: dict[str, Any]) -> None:
    assert passed(table([condition, DROP]), traveller()) is Code.ACCEPT


def test_a_policy_that_ended_the_packet_is_reported(traveller: Make) -> None:
    packet = traveller()
    assert passed(table(policy="drop"), packet) is Code.DROP
    (decision,) = packet.decisions
    assert (decision.place, decision.effect) == ("inet guard f", "dropped by the chain's policy")


def test_jumps_come_back_and_gotos_do_not(traveller: Make) -> None:
    jumps = table([{"jump": {"target": "side"}}], [DROP], side=[[{"return": None}]])
    goes = table([{"goto": {"target": "side"}}], [DROP], side=[[{"counter": {}}]])
    assert passed(jumps, traveller()) is Code.DROP
    assert passed(goes, traveller()) is Code.ACCEPT


def test_a_verdict_map_is_followed(traveller: Make) -> None:
    pairs = {"set": [["tcp", {"jump": {"target": "side"}}], ["udp", {"accept": None}]]}
    others = table([{"vmap": {"key": meta("l4proto"), "data": pairs}}], side=[[DROP]])
    assert passed(others, traveller()) is Code.DROP
    assert passed(others, traveller(protocol=Protocol.UDP)) is Code.ACCEPT


def test_a_translation_is_seen_once(traveller: Make) -> None:
    others = table([{"dnat": {"addr": "10.244.1.99", "port": 81}}], kind="nat")
    packet = traveller()
    assert passed(others, packet) is Code.ACCEPT
    assert (packet.machine.destination, packet.machine.port, packet.machine.translated) == ("10.244.1.99", 81, True)
    again = Hook(HookNumber.PREROUTING, -100, ChainType.NAT)
    assert is_done(others.chains["f"].__class__("t", "c", (), again), packet)


def test_an_untracked_packet_passes_no_nat_chain(traveller: Make) -> None:
    packet = traveller()
    assert passed(table([{"notrack": None}]), packet) is Code.ACCEPT
    assert is_done(table(kind="nat").chains["f"], packet)
    assert not is_done(table().chains["f"], packet)


def early(*rules: list[Any]) -> OtherTable:
    """A chain that packets pass before connection tracking."""
    header = {"name": "f", "hook": "prerouting", "prio": -300, "type": "filter", "policy": "accept"}
    listed = [{"rule": {"chain": "f", "handle": 1, "expr": rule}} for rule in rules]
    return read_table("inet guard", [{"chain": header}, *listed], {}, {})


OF_A_CONNECTION = ("direction", "status", "mark", "zone", "l3proto", "id", "expiration")


@pytest.mark.parametrize("key", OF_A_CONNECTION)
def test_a_rule_about_the_connection_does_not_match_without_a_connection(traveller: Make, key: str) -> None:
    about = [match(ct(key), 77, "!="), DROP]
    for others in (table([{"notrack": None}], about), early(about), early([zone_of(5)], about)):
        packet = traveller()
        assert passed(others, packet) is Code.ACCEPT
        assert not any(decision.unclear for decision in packet.decisions), packet.decisions


def zone_of(number: int) -> dict[str, Any]:
    return {"mangle": {"key": {"ct": {"key": "zone"}}, "value": number}}


@pytest.mark.parametrize(
    ("others", "state"),
    [
        pytest.param(table, "new", id="tracked"),
        pytest.param(early, "invalid", id="before tracking"),
        pytest.param(lambda *rules: early([zone_of(5)], *rules), "new", id="before tracking, with a zone"),
        pytest.param(lambda *rules: table([{"notrack": None}], *rules), "untracked", id="not tracked"),
    ],
)
def test_the_state_of_a_packet(traveller: Make, others: Callable[..., OtherTable], state: str) -> None:
    for asked in ("invalid", "established", "related", "new", "untracked"):
        found = passed(others([match(ct("state"), asked, "in"), DROP]), traveller())
        assert (found is Code.DROP) is (asked == state), asked


@pytest.mark.parametrize(
    "unknown",
    [
        match(meta("skuid"), 1000),
        {"limit": {"rate": 3, "per": "minute"}},
        match(payload("tcp", "sport"), 1024),
        match(payload("tcp", "dport"), "@missing"),
        {"xt": {"type": "match", "name": "geoip"}},
        {"quota": {"val": 5}},
    ],
    ids=repr,
)
def test_rules_that_cannot_be_evaluated_are_skipped_and_named(traveller: Make, unknown: dict[str, Any]) -> None:
    packet = traveller()
    assert passed(table([unknown, DROP]), packet) is Code.ACCEPT
    (decision,) = packet.decisions
    assert decision.unclear
    assert not decision.applied
    assert "cannot be evaluated" in decision.text
    assert decision.text.startswith("the first rule")


def test_rules_that_decide_nothing_leave_no_decision(traveller: Make) -> None:
    packet = traveller()
    assert passed(table([{"limit": {"rate": 3}}, {"log": None}]), packet) is Code.ACCEPT
    assert packet.decisions == []


def iptables(call: Extension, *, target: bool = False) -> OtherTable:
    kind = {"xt": {"type": "target" if target else "match", "name": call.name}}
    rule = OtherRule(1, (kind,) if target else (kind, DROP), "a rule of iptables", (call,))
    chain = table().chains["f"]
    return OtherTable("ip filter", (Family.IPV4,), {"f": type(chain)("ip filter", "f", (rule,), chain.hook)})


@pytest.mark.parametrize(
    ("name", "revision", "data", "held"),
    [
        ("comment", 0, b"closed".ljust(256, b"\0"), True),
        ("tcp", 0, bytes.fromhex("0000ffff901f901f") + bytes(4), True),
        ("tcp", 0, bytes.fromhex("0000ffff01000200") + bytes(4), False),
        ("udp", 0, bytes.fromhex("0000ffff901f901f") + bytes(1), False),
        ("multiport", 1, bytes.fromhex("0102bb01901f") + bytes(26) + bytes(15) + b"\0", True),
        ("multiport", 1, bytes.fromhex("0102401f2823") + bytes(26) + b"\1" + bytes(14) + b"\0", True),
        ("mark", 1, bytes.fromhex("0800000008000000") + b"\0", True),
        ("addrtype", 1, bytes.fromhex("0000040000000000"), False),
        ("addrtype", 1, bytes.fromhex("0000040002000000"), True),
    ],
)
def test_extensions_of_iptables_are_read_from_their_bytes(
    traveller: Make, name: str, revision: int, data: bytes, held: bool
) -> None:
    packet = traveller(mark=8)
    assert (passed(iptables(Extension(name, revision, data)), packet) is Code.DROP) is held


def test_too_few_bytes_are_not_guessed(traveller: Make) -> None:
    packet = traveller()
    assert passed(iptables(Extension("tcp", 0, b"\0")), packet) is Code.ACCEPT
    assert packet.decisions[0].unclear


@pytest.mark.parametrize(
    ("name", "stops"), [("NFQUEUE", True), ("SYNPROXY", True), ("TARPIT", True), ("NETMAP", False), ("TTL", None)]
)
def test_a_target_that_is_not_known_may_stop_it(traveller: Make, name: str, stops: bool | None) -> None:
    packet = traveller()
    assert passed(iptables(Extension(name, 0, bytes(8)), target=True), packet) is Code.ACCEPT
    assert [step.may_stop for step in packet.decisions] == ([] if stops is None else [stops])


def test_a_refusal_behind_what_cannot_be_evaluated_may_stop_it(traveller: Make) -> None:
    packet = traveller()
    refuse = {"xt": {"type": "target", "name": "REJECT"}}
    assert passed(table([{"xt": {"type": "match", "name": "connlimit"}}, refuse]), packet) is Code.ACCEPT
    assert packet.decisions[0].may_stop


def test_a_refusal_of_iptables_ends_it(traveller: Make) -> None:
    packet = traveller()
    assert passed(iptables(Extension("REJECT", 0, bytes(4)), target=True), packet) is Code.DROP
    assert packet.rejected
