"""The interpreter does with each expression, verdict and hook what the kernel does."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from nodeagent.diagnosis.simulator.interpreter import Interpreter
from nodeagent.diagnosis.simulator.packet import ICMP, RST, SCTP, TCP, UDP, Fate, Outcome, Packet
from nodeagent.model.addresses import Family, pack_address
from nodeagent.proxy.dataplane.program.chain import Chain, Hook, HookNumber
from nodeagent.proxy.dataplane.program.schema import FieldType, SetSpec
from nodeagent.wire.netlink.nf_tables.expressions import (
    Cmp,
    Code,
    Ct,
    CtKey,
    Dnat,
    Expression,
    FibType,
    FlowOffload,
    Immediate,
    Lookup,
    LookupVerdict,
    Mask,
    Masquerade,
    Meta,
    MetaKey,
    MetaSet,
    OneOf,
    Payload,
    PayloadBase,
    Random,
    Reject,
    Rule,
    SocketWildcard,
    Unreadable,
    Untracked,
    UpdateMap,
    Verdict,
    native_u32,
)

BuildTable = Callable[..., Interpreter]

PREROUTING, INPUT, OUTPUT, POSTROUTING = (
    HookNumber.PREROUTING,
    HookNumber.INPUT,
    HookNumber.OUTPUT,
    HookNumber.POSTROUTING,
)

NET, TRANSPORT = PayloadBase.NETWORK, PayloadBase.TRANSPORT
DROP = Verdict(Code.DROP)
ACCEPT = Verdict(Code.ACCEPT)
WEB = Packet("203.0.113.2", "10.96.0.10", TCP, 80)
WEB6 = Packet("2001:db8::2", "fd00:10:96::10", TCP, 80)
PORT_80 = (80).to_bytes(2, "big")
SADDR, DADDR = Payload(0, NET, 12, 4), Payload(0, NET, 16, 4)
DPORT = Payload(0, TRANSPORT, 2, 2)


def to(address: str, port: int) -> Rule:
    """dnat to a constant"""
    words = len(pack_address(address)) // 4
    load = (Immediate(0, pack_address(address)), Immediate(words, port.to_bytes(2, "big")))
    return (*load, Dnat(2 if words == 1 else 10, 0, words))


def only(table: Interpreter, packet: Packet = WEB) -> Outcome:
    (outcome,) = table.outcomes(packet)
    assert outcome.probability == 1
    return outcome


def fate(table: Interpreter, packet: Packet = WEB) -> Fate:
    return only(table, packet).fate


LOADS = [
    pytest.param(WEB, SADDR, pack_address("203.0.113.2"), id="ip saddr"),
    pytest.param(WEB, DADDR, pack_address("10.96.0.10"), id="ip daddr"),
    pytest.param(WEB6, Payload(0, NET, 8, 16), pack_address("2001:db8::2"), id="ip6 saddr"),
    pytest.param(WEB6, Payload(0, NET, 24, 16), pack_address("fd00:10:96::10"), id="ip6 daddr"),
    pytest.param(WEB, Payload(0, NET, 9, 1), b"\x06", id="ip protocol"),
    pytest.param(WEB6, Payload(0, NET, 6, 1), b"\x06", id="ip6 nexthdr"),
    pytest.param(WEB, DPORT, PORT_80, id="tcp dport"),
    pytest.param(Packet("1.1.1.1", "2.2.2.2", UDP, 53), DPORT, b"\0\x35", id="udp dport"),
    pytest.param(Packet("1.1.1.1", "2.2.2.2", SCTP, 9), DPORT, b"\0\x09", id="sctp dport"),
    pytest.param(WEB, Payload(0, TRANSPORT, 0, 2), (40000).to_bytes(2, "big"), id="th sport"),
    pytest.param(Packet("1.1.1.1", "2.2.2.2", tcp_flags=RST), Payload(0, TRANSPORT, 13, 1), b"\x04", id="tcp flags"),
    pytest.param(Packet("1.1.1.1", "2.2.2.2", ICMP[Family.IPV4]), Payload(0, TRANSPORT, 0, 1), b"\x08", id="icmp type"),
    pytest.param(Packet("::1", "::2", ICMP[Family.IPV6]), Payload(0, TRANSPORT, 0, 1), b"\x80", id="icmpv6 type"),
    pytest.param(WEB, Meta(0, MetaKey.L4PROTO), b"\x06", id="meta l4proto"),
    pytest.param(WEB, Meta(0, MetaKey.L4PROTO), b"\x06\0\0\0", id="a byte is followed by zeros"),
    pytest.param(WEB, DPORT, PORT_80 + b"\0\0", id="two bytes are followed by zeros"),
    pytest.param(WEB, Meta(0, MetaKey.IIFNAME), b"eth0".ljust(16, b"\0"), id="iifname"),
    pytest.param(WEB, Meta(0, MetaKey.IIFNAME), b"eth", id="iifname by prefix"),
    pytest.param(Packet("1.1.1.1", "2.2.2.2", priority=7), Meta(0, MetaKey.PRIORITY), native_u32(7), id="priority"),
    pytest.param(WEB, Ct(0, CtKey.SRC_IP), pack_address("203.0.113.2"), id="ct original saddr"),
    pytest.param(WEB6, Ct(0, CtKey.DST_IP6), pack_address("fd00:10:96::10"), id="ct original daddr"),
    pytest.param(WEB, Ct(0, CtKey.PROTOCOL), b"\x06", id="ct protocol"),
    pytest.param(WEB, Ct(0, CtKey.PROTO_DST), PORT_80, id="ct original proto-dst"),
    pytest.param(WEB, Ct(0, CtKey.STATUS), native_u32(0), id="ct status of a new connection"),
    pytest.param(WEB, FibType(0, source=False), native_u32(1), id="fib type of somebody else's address"),
    pytest.param(WEB, Immediate(0, b"\x01\x02"), b"\x01\x02\0\0", id="constant"),
]


@pytest.mark.parametrize(("packet", "load", "expected"), LOADS)
def test_a_load_puts_the_packets_data_into_the_register(
    table: BuildTable, packet: Packet, load: Expression, expected: bytes
) -> None:
    family = packet.family
    assert fate(table((load, Cmp(0, expected), DROP), family=family), packet) is Fate.DROPPED
    assert fate(table((load, Cmp(0, expected, invert=True), DROP), family=family), packet) is Fate.UNTOUCHED


def test_a_short_load_leaves_nothing_of_what_was_in_its_register_before(table: BuildTable) -> None:
    rule: Rule = (Immediate(0, b"\xff" * 4), Meta(0, MetaKey.L4PROTO), Cmp(0, b"\x06\0\0\0"), DROP)
    assert fate(table(rule)) is Fate.DROPPED


def test_a_load_beyond_the_end_of_the_packet_ends_the_rule(table: BuildTable) -> None:
    beyond: Rule = (Payload(0, TRANSPORT, 13, 1), DROP)
    assert fate(table(beyond), Packet("1.1.1.1", "2.2.2.2", UDP, 53)) is Fate.UNTOUCHED
    assert fate(table((DPORT, DROP)), Packet("1.1.1.1", "2.2.2.2", 47)) is Fate.UNTOUCHED


def test_a_packet_of_the_node_itself_has_no_input_interface(table: BuildTable) -> None:
    rule: Rule = (Meta(0, MetaKey.IIFNAME), Cmp(0, b"\0" * 16), DROP)
    assert fate(table(rule, hook=OUTPUT), Packet("1.1.1.1", "2.2.2.2", iif=None)) is Fate.DROPPED
    assert fate(table(rule)) is Fate.UNTOUCHED


@pytest.mark.parametrize(("mask", "left"), [(b"\x04", b"\x04"), (b"\x02", b"\0")])
def test_a_mask_keeps_the_bits_that_both_have(table: BuildTable, mask: bytes, left: bytes) -> None:
    rule: Rule = (Immediate(0, b"\x14"), Mask(0, mask), Cmp(0, left), DROP)
    assert fate(table(rule)) is Fate.DROPPED


def test_one_of_a_few_constants(table: BuildTable) -> None:
    rule: Rule = (Meta(0, MetaKey.L4PROTO), OneOf(0, (b"\x06", b"\x11"), 12), DROP)
    fates = [fate(table(rule), Packet("1.1.1.1", "2.2.2.2", protocol, 1)) for protocol in (TCP, UDP, SCTP)]
    assert fates == [Fate.DROPPED, Fate.DROPPED, Fate.UNTOUCHED]


SERVICES = SetSpec("services", (FieldType.ADDRESS, FieldType.PROTOCOL, FieldType.PORT))
SERVICE_KEY: Rule = (DADDR, Meta(1, MetaKey.L4PROTO), Payload(2, TRANSPORT, 2, 2))
WEB_KEY = pack_address("10.96.0.10") + b"\x06\0\0\0" + PORT_80 + b"\0\0"


@pytest.mark.parametrize("invert", [False, True], ids=["in", "not in"])
@pytest.mark.parametrize(
    ("packet", "inside"),
    [
        pytest.param(WEB, True, id="the element"),
        pytest.param(Packet("203.0.113.2", "10.96.0.11", TCP, 80), False, id="another address"),
        pytest.param(Packet("203.0.113.2", "10.96.0.10", UDP, 80), False, id="another protocol"),
        pytest.param(Packet("203.0.113.2", "10.96.0.10", TCP, 81), False, id="another port"),
    ],
)
def test_a_concatenation_is_in_a_set_when_all_fields_are_equal(
    table: BuildTable, packet: Packet, inside: bool, invert: bool
) -> None:
    rule: Rule = (*SERVICE_KEY, Lookup("services", 0, invert=invert), DROP)
    interpreter = table(rule, specs=(SERVICES,), image={"services": {WEB_KEY: b""}})
    assert (fate(interpreter, packet) is Fate.DROPPED) is (inside is not invert)


def interval(first: str, last: str) -> bytes:
    return pack_address(first) + pack_address(last)


@pytest.mark.parametrize(
    ("source", "inside"),
    [
        pytest.param("9.255.255.255", False, id="before"),
        pytest.param("10.0.0.0", True, id="first"),
        pytest.param("10.128.7.1", True, id="between"),
        pytest.param("10.255.255.255", True, id="last"),
        pytest.param("11.0.0.0", False, id="behind"),
        pytest.param("255.255.255.255", True, id="to the end of the space"),
    ],
)
def test_an_interval_holds_both_its_ends(table: BuildTable, source: str, inside: bool) -> None:
    spec = SetSpec("pods", (FieldType.ADDRESS,), interval=True)
    image = {"pods": {interval("10.0.0.0", "10.255.255.255"): b"", interval("240.0.0.0", "255.255.255.255"): b""}}
    interpreter = table((SADDR, Lookup("pods", 0), DROP), specs=(spec,), image=image)
    assert (fate(interpreter, Packet(source, "10.96.0.10")) is Fate.DROPPED) is inside


ALLOWED = SetSpec("allowed", (FieldType.ADDRESS, FieldType.PROTOCOL, FieldType.PORT, FieldType.ADDRESS), interval=True)


@pytest.mark.parametrize(
    ("packet", "inside"),
    [
        pytest.param(Packet("203.0.113.0", "10.96.0.10", TCP, 80), True, id="range field at its first"),
        pytest.param(Packet("203.0.113.255", "10.96.0.10", TCP, 80), True, id="range field at its last"),
        pytest.param(Packet("203.0.114.0", "10.96.0.10", TCP, 80), False, id="range field behind"),
        pytest.param(Packet("203.0.113.7", "10.96.0.11", TCP, 80), False, id="exact field larger"),
        pytest.param(Packet("203.0.113.7", "10.96.0.9", TCP, 80), False, id="exact field smaller"),
        pytest.param(Packet("203.0.113.7", "10.96.0.10", UDP, 80), False, id="exact protocol differs"),
        pytest.param(Packet("203.0.113.7", "10.96.0.10", TCP, 8), False, id="exact port differs"),
    ],
)
def test_a_concatenated_interval_is_compared_field_by_field(table: BuildTable, packet: Packet, inside: bool) -> None:
    element = WEB_KEY + pack_address("203.0.113.0") + WEB_KEY + pack_address("203.0.113.255")
    rule: Rule = (*SERVICE_KEY, Payload(3, NET, 12, 4), Lookup("allowed", 0), DROP)
    interpreter = table(rule, specs=(ALLOWED,), image={"allowed": {element: b""}})
    assert (fate(interpreter, packet) is Fate.DROPPED) is inside


BACKENDS = SetSpec("backends", (FieldType.PORT,), (FieldType.ADDRESS, FieldType.PORT))
BACKEND = pack_address("10.244.1.7") + (8080).to_bytes(2, "big") + b"\0\0"


def test_a_maps_value_is_loaded_and_a_miss_ends_the_rule(table: BuildTable) -> None:
    rule: Rule = (DPORT, Lookup("backends", 0, dreg=0), Dnat(2, 0, 1))
    interpreter = table(rule, specs=(BACKENDS,), image={"backends": {PORT_80: BACKEND}})
    assert only(interpreter).endpoint == ("10.244.1.7", 8080)
    assert fate(interpreter, Packet("203.0.113.2", "10.96.0.10", TCP, 81)) is Fate.UNTOUCHED


def test_the_comment_behind_a_value_is_shown_and_not_loaded(table: BuildTable) -> None:
    spec = SetSpec("classes", (FieldType.PORT,), (FieldType.CLASS,), commented=True)
    image = {"classes": {PORT_80: native_u32(3) + b"default/web:http"}}
    rule: Rule = (Immediate(1, b"\0" * 4), DPORT, Lookup("classes", 0, dreg=0), Cmp(1, b"\0" * 4), DROP)
    outcome = only(table(rule, specs=(spec,), image=image))
    assert outcome.fate is Fate.DROPPED
    assert "80 in @classes: 0:3 (default/web:http)" in outcome.trace[0].text


def test_dnat_works_for_ipv6(table: BuildTable) -> None:
    outcome = only(table(to("fd00:244::7", 8080), family=Family.IPV6), WEB6)
    assert (outcome.fate, outcome.destination, outcome.port) == (Fate.TRANSLATED, "fd00:244::7", 8080)


DISPATCH = SetSpec("dispatch", (FieldType.CLASS,), (FieldType.VERDICT,))


def test_a_verdict_map_leads_to_a_chain_and_a_miss_ends_the_rule(table: BuildTable) -> None:
    follow: Rule = (Meta(0, MetaKey.PRIORITY), LookupVerdict("dispatch", 0))
    interpreter = table(
        follow,
        to("10.244.1.1", 1),
        chains={"discard": ((DROP,),)},
        specs=(DISPATCH,),
        verdicts={"dispatch": {native_u32(5): "discard"}},
    )
    assert fate(interpreter, Packet("1.1.1.1", "2.2.2.2", priority=5)) is Fate.DROPPED
    assert only(interpreter, Packet("1.1.1.1", "2.2.2.2", priority=6)).endpoint == ("10.244.1.1", 1)


def test_metadata_can_be_written_and_leaves_with_the_packet(table: BuildTable) -> None:
    outcome = only(table((Immediate(0, native_u32(0x10003)), MetaSet(0, MetaKey.PRIORITY))))
    assert (outcome.fate, outcome.priority) == (Fate.UNTOUCHED, 0x10003)


def test_every_random_number_is_followed_with_its_probability(table: BuildTable) -> None:
    rule: Rule = (Random(0, 3, offset=0x8000), MetaSet(0, MetaKey.PRIORITY))
    outcomes = table(rule).outcomes(WEB)
    assert [(outcome.priority, outcome.probability) for outcome in outcomes] == [
        (0x8000, Fraction(1, 3)),
        (0x8001, Fraction(1, 3)),
        (0x8002, Fraction(1, 3)),
    ]


def test_two_random_numbers_multiply(table: BuildTable) -> None:
    second: Rule = (Random(0, 2), Cmp(0, native_u32(1)), Random(1, 5), MetaSet(1, MetaKey.PRIORITY))
    outcomes = table(second).outcomes(WEB)
    assert sorted(outcome.probability for outcome in outcomes) == [*[Fraction(1, 10)] * 5, Fraction(1, 2)]
    assert sum(outcome.probability for outcome in outcomes) == 1


@pytest.mark.parametrize(
    ("packet", "tcp_reset", "expected"),
    [
        pytest.param(WEB, True, (Fate.REFUSED, True), id="a reset for TCP"),
        pytest.param(WEB, False, (Fate.REFUSED, False), id="ICMP for TCP"),
        pytest.param(Packet("1.1.1.1", "2.2.2.2", UDP, 53), False, (Fate.REFUSED, False), id="ICMP for UDP"),
        pytest.param(Packet("1.1.1.1", "2.2.2.2", UDP, 53), True, (Fate.DROPPED, True), id="no reset for UDP"),
        pytest.param(Packet("1.1.1.1", "2.2.2.2", tcp_flags=RST), True, (Fate.DROPPED, True), id="none for a reset"),
    ],
)
def test_a_rejected_packet_is_dropped_and_mostly_answered(
    table: BuildTable, packet: Packet, tcp_reset: bool, expected: tuple[Fate, bool]
) -> None:
    outcome = only(table((Reject(tcp_reset=tcp_reset, icmp_code=3),)), packet)
    assert (outcome.fate, outcome.reset) == expected


CLIENTS = SetSpec("clients", (FieldType.ADDRESS, FieldType.PROTOCOL), (FieldType.ADDRESS, FieldType.PORT), dynamic=True)
LEARN: Rule = (SADDR, Meta(1, MetaKey.L4PROTO), Payload(2, NET, 16, 4), Payload(3, TRANSPORT, 2, 2))


@pytest.mark.parametrize(
    "held",
    [
        pytest.param(None, id="a new client"),
        pytest.param(BACKEND, id="a known client keeps its endpoint"),
    ],
)
def test_an_update_adds_an_element_and_leaves_the_value_of_one_that_is_there(
    table: BuildTable, held: bytes | None
) -> None:
    key = pack_address("203.0.113.2") + b"\x06\0\0\0"
    image = {"clients": {} if held is None else {key: held}}
    outcome = only(table((*LEARN, UpdateMap("clients", 0, 2, 60)), specs=(CLIENTS,), image=image))
    here = pack_address("10.96.0.10") + PORT_80 + b"\0\0"
    assert outcome.learned == {"clients": {key: held or here}}


def test_a_later_rule_finds_what_an_earlier_one_learned(table: BuildTable) -> None:
    rules: tuple[Rule, ...] = ((*LEARN, UpdateMap("clients", 0, 2, 60)), (SADDR, Meta(1, MetaKey.L4PROTO)))
    again: Rule = (*rules[1], Lookup("clients", 0, dreg=0), DROP)
    assert fate(table(rules[0], again, specs=(CLIENTS,), image={"clients": {}})) is Fate.DROPPED


class TestVerdicts:
    """What follows a verdict: nft_do_chain."""

    def test_a_rule_that_does_not_match_is_passed_over(self, table: BuildTable) -> None:
        assert fate(table((DPORT, Cmp(0, b"\0\x01"), DROP), (DPORT, Cmp(0, PORT_80), DROP))) is Fate.DROPPED

    def test_accept_ends_the_hook(self, table: BuildTable) -> None:
        assert fate(table((ACCEPT,), (DROP,))) is Fate.UNTOUCHED

    def test_after_a_jump_the_chain_goes_on(self, table: BuildTable) -> None:
        assert fate(table((Verdict(Code.JUMP, "other"),), (DROP,), chains={"other": ()})) is Fate.DROPPED

    def test_after_a_goto_it_does_not(self, table: BuildTable) -> None:
        assert fate(table((Verdict(Code.GOTO, "other"),), (DROP,), chains={"other": ()})) is Fate.UNTOUCHED

    def test_a_goto_inside_a_jump_comes_back_behind_the_jump(self, table: BuildTable) -> None:
        chains = {"first": ((Verdict(Code.GOTO, "second"),), (DROP,)), "second": ()}
        interpreter = table((Verdict(Code.JUMP, "first"),), to("10.244.1.1", 1), chains=chains)
        assert only(interpreter).endpoint == ("10.244.1.1", 1)

    def test_return_ends_a_chain_and_in_the_base_chain_all_of_it(self, table: BuildTable) -> None:
        back: Rule = (Verdict(Code.RETURN),)
        assert fate(table((Verdict(Code.JUMP, "c"),), (DROP,), chains={"c": (back, (ACCEPT,))})) is Fate.DROPPED
        assert fate(table(back, (DROP,))) is Fate.UNTOUCHED

    def test_nested_jumps_come_back_in_order(self, table: BuildTable) -> None:
        chains = {"a": ((Verdict(Code.JUMP, "b"),), to("10.244.1.1", 1)), "b": ((DPORT, Cmp(0, b"\0\x01"), DROP),)}
        assert only(table((Verdict(Code.JUMP, "a"),), (DROP,), chains=chains)).endpoint == ("10.244.1.1", 1)

    def test_a_program_the_kernel_would_not_take_is_an_error(self, table: BuildTable) -> None:
        with pytest.raises(ValueError, match="more than 16 nested jumps"):
            table((Verdict(Code.JUMP, "c"),), chains={"c": ((Verdict(Code.JUMP, "c"),),)}).outcomes(WEB)
        with pytest.raises(KeyError):
            table((Verdict(Code.JUMP, "nowhere"),)).outcomes(WEB)

    def test_the_packet_ends_at_the_first_translation(self, table: BuildTable) -> None:
        assert only(table(to("10.244.1.1", 1), to("10.244.1.2", 2))).endpoint == ("10.244.1.1", 1)


TRANSLATED: Rule = (Ct(0, CtKey.STATUS), Mask(0, native_u32(0x20)), Cmp(0, native_u32(0), invert=True))


class TestHooks:
    """Which chains a packet meets, and what they see of it."""

    @pytest.mark.parametrize(
        ("iif", "local", "met"),
        [
            pytest.param("eth0", False, [PREROUTING, POSTROUTING], id="forwarded"),
            pytest.param("eth0", True, [PREROUTING, INPUT], id="delivered"),
            pytest.param(None, False, [OUTPUT, POSTROUTING], id="sent"),
            pytest.param(None, True, [OUTPUT, POSTROUTING], id="sent to itself"),
        ],
    )
    def test_the_way_depends_on_where_it_comes_from_and_goes_to(
        self, table: BuildTable, iif: str | None, local: bool, met: list[int]
    ) -> None:
        passing: tuple[Rule, ...] = ((Immediate(0, b"\0"),),)
        hooks = (PREROUTING, INPUT, OUTPUT, POSTROUTING)
        chains = tuple(Chain(str(hook), passing, Hook(hook, 0)) for hook in hooks)
        interpreter = table(hook=99, base_chains=chains, local=("10.96.0.10",) if local else ())
        outcome = only(interpreter, Packet("203.0.113.2", "10.96.0.10", iif=iif))
        assert [int(step.chain) for step in outcome.trace] == met
        assert outcome.delivered_here is local

    def test_chains_of_a_hook_run_by_priority_and_a_drop_ends_them(self, table: BuildTable) -> None:
        early = Chain("early", ((DROP,),), Hook(PREROUTING, -200))
        assert [step.chain for step in only(table(to("10.244.1.1", 1), base_chains=(early,))).trace] == ["early"]

    def test_routing_and_later_chains_see_the_new_destination_and_conntrack_the_old_one(
        self, table: BuildTable
    ) -> None:
        new: Rule = (DADDR, Cmp(0, pack_address("10.244.1.1")), DPORT, Cmp(0, (8080).to_bytes(2, "big")))
        old: Rule = (Ct(0, CtKey.DST_IP), Cmp(0, pack_address("10.96.0.10")), Ct(0, CtKey.PROTO_DST), Cmp(0, PORT_80))
        after = Chain("after", ((*TRANSLATED, *new, *old, Masquerade()),), Hook(INPUT, 0))
        outcome = only(table(to("10.244.1.1", 8080), base_chains=(after,), local=("10.244.1.1",)))
        assert (outcome.fate, outcome.masqueraded, outcome.delivered_here) == (Fate.TRANSLATED, True, True)

    def test_a_destination_that_stays_the_same_is_no_translation_to_conntrack(self, table: BuildTable) -> None:
        after = Chain("after", ((*TRANSLATED, Masquerade()),), Hook(POSTROUTING, 0))
        outcome = only(table(to("10.96.0.10", 80), base_chains=(after,)))
        assert (outcome.fate, outcome.masqueraded) == (Fate.TRANSLATED, False)

    def test_a_dropped_packet_meets_no_further_hook(self, table: BuildTable) -> None:
        after = Chain("after", ((Masquerade(),),), Hook(POSTROUTING, 0))
        outcome = only(table((DROP,), base_chains=(after,)))
        assert (outcome.fate, outcome.masqueraded, len(outcome.trace)) == (Fate.DROPPED, False, 1)


def test_the_trace_tells_every_rule_in_nfts_words(table: BuildTable) -> None:
    rules: tuple[Rule, ...] = (
        (Meta(0, MetaKey.IIFNAME), Cmp(0, b"cni"), DROP),
        (Payload(0, NET, 12, 2), Cmp(0, pack_address("10.244.0.0")[:2]), DROP),
        (SADDR, Mask(0, pack_address("255.240.0.0")), Cmp(0, pack_address("10.240.0.0")), DROP),
        (DPORT, Lookup("backends", 0, dreg=0), Dnat(2, 0, 1)),
    )
    outcome = only(table(*rules, specs=(BACKENDS,), image={"backends": {PORT_80: BACKEND}}))
    assert [str(step) for step in outcome.trace] == [
        '✗ base 1: iifname == "cni*" (is "eth*")',
        "✗ base 2: ip saddr == 10.244.0.0/16 (is 203.0.0.0/16)",
        "✗ base 3: ip saddr & 255.240.0.0 == 10.240.0.0 (is 203.0.0.0)",
        "  base 4: 80 in @backends: 10.244.1.7 . 8080, dnat to 10.244.1.7 . 8080",
    ]


def test_no_expression_is_unknown(table: BuildTable) -> None:
    kinds: Any = Expression
    used = [load.values[1] for load in LOADS]
    more = (Cmp, MetaSet, Mask, Lookup, LookupVerdict, OneOf, Verdict, Random, Dnat, Masquerade, Reject, UpdateMap)
    of_options = (SocketWildcard, Untracked, FlowOffload)
    assert {type(expression) for expression in used} | {*more, *of_options, Unreadable} == set(kinds.__args__)
