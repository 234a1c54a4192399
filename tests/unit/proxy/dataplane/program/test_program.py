"""The rules themselves: what depends on the options, and what must hold for each of them."""

import itertools

import pytest

from nodeagent.diagnosis.simulator.interpreter import Interpreter
from nodeagent.diagnosis.simulator.packet import ICMP, RST, TCP, UDP, Fate, Outcome, Packet
from nodeagent.model.addresses import Family, Protocol, pack_address
from nodeagent.proxy.dataplane.image.blocks import cluster_ip_block
from nodeagent.proxy.dataplane.image.image import empty_image, endpoint_value, frontend_key, node_port_key, packed_class
from nodeagent.proxy.dataplane.image.render import slot_keys
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import PodDetection, Program, ProgramOptions
from nodeagent.proxy.dataplane.program.classes import PickClass
from nodeagent.proxy.dataplane.program.program import build_program
from nodeagent.proxy.dataplane.program.schema import set_specs
from nodeagent.wire.netlink.nf_tables.expressions import (
    Code,
    Lookup,
    LookupVerdict,
    Masquerade,
    MetaKey,
    MetaSet,
    Reject,
    UpdateMap,
    Verdict,
)

SPECS = {spec.name: spec for spec in set_specs(counters=True)}
DETECTIONS = [
    pytest.param(ProgramOptions(), id="no pods known"),
    pytest.param(ProgramOptions(PodDetection.CIDR), id="pods by CIDR"),
    pytest.param(ProgramOptions(PodDetection.INTERFACE, "cni0"), id="pods by bridge"),
    pytest.param(ProgramOptions(PodDetection.INTERFACE_PREFIX, "veth"), id="pods by interface prefix"),
    pytest.param(ProgramOptions(PodDetection.CIDR, masquerade_all=True), id="masquerade all"),
    pytest.param(ProgramOptions(names=True), id="with names"),
    pytest.param(ProgramOptions(flowtable=True), id="offloading"),
]
EVERY_KIND = [PickClass(2, *flags) for flags in itertools.product((False, True), repeat=3)]
FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)


def program(family: Family, options: ProgramOptions) -> Program:
    return build_program(family, options, EVERY_KIND, [60, 10800])


@FAMILIES
@pytest.mark.parametrize("options", DETECTIONS)
class TestEveryProgram:
    def test_every_jump_leads_to_an_existing_chain(self, family: Family, options: ProgramOptions) -> None:
        made = program(family, options)
        names = [chain.name for chain in made.chains]
        targets = {e.chain for c in made.chains for r in c.rules for e in r if isinstance(e, Verdict) and e.chain}
        led = {chain for elements in made.verdicts.values() for chain in elements.values()}
        assert len(names) == len(set(names))
        assert targets | led <= set(names)

    def test_sets_are_those_of_the_schema(self, family: Family, options: ProgramOptions) -> None:
        used = {
            e.set
            for c in program(family, options).chains
            for r in c.rules
            for e in r
            if isinstance(e, Lookup | LookupVerdict | UpdateMap)
        }
        pods = set() if options.pod_detection is PodDetection.CIDR else {schema.POD_CIDRS}
        names = set() if options.names else {schema.DNS_UNTRACKED, schema.DNS_TRACKED, schema.DNS_REPLIES}
        blocks = {schema.CLUSTER_IP_ONLY_BLOCKS} if options.masquerade_all else set()
        pings = set() if family is Family.IPV6 else {schema.PING_ANSWERS}
        assert used == set(SPECS) - pods - names - blocks - pings

    def test_a_verdict_ends_its_rule(self, family: Family, options: ProgramOptions) -> None:
        for chain in program(family, options).chains:
            for rule in chain.rules:
                assert not any(isinstance(e, Verdict | LookupVerdict | Masquerade) for e in rule[:-1]), chain.name

    def test_only_the_priority_is_ever_written(self, family: Family, options: ProgramOptions) -> None:
        """No mark of the packet or the connection is touched."""
        written = {e.key for c in program(family, options).chains for r in c.rules for e in r if isinstance(e, MetaSet)}
        assert written == {MetaKey.PRIORITY}

    def test_masquerade_happens_after_the_scratch_field_is_cleared(
        self, family: Family, options: ProgramOptions
    ) -> None:
        """Masquerading ends the evaluation of the hook, so nothing behind it could clear it."""
        made = program(family, options)
        rules = made.chain("from-local-policy").rules
        cleared = next(n for n, r in enumerate(rules) if any(isinstance(e, MetaSet) for e in r))
        assert all(n > cleared for n, r in enumerate(rules) if any(isinstance(e, Masquerade) for e in r))

    def test_every_chain_that_a_class_leads_to_ends_in_a_verdict(self, family: Family, options: ProgramOptions) -> None:
        """A commit between two lookups makes the second one miss; the packet must not go on untranslated."""
        made = program(family, options)
        for name in made.verdicts[schema.DISPATCH].values():
            last = made.chain(name).rules[-1]
            assert last == (Verdict(Code.DROP),) or isinstance(last[0], Reject), name

    def test_the_same_options_and_classes_make_the_same_program(self, family: Family, options: ProgramOptions) -> None:
        again = build_program(family, options, reversed(EVERY_KIND), (10800, 60, 60))
        assert again == program(family, options)


VIP = {Family.IPV4: "10.96.0.10", Family.IPV6: "fd00:96::10"}
CLIENT = {Family.IPV4: "203.0.113.2", Family.IPV6: "2001:db8::2"}
MAPS = {False: (schema.FRONTENDS, schema.BACKENDS), True: (schema.NODEPORTS, schema.NODEPORT_BACKENDS)}
"""Of addresses and of node ports: class, endpoints."""


def only(family: Family, packet: Packet, *, class_number: int | None = None) -> Outcome:
    """What a table with one ClusterIP does, whose port 80 has the given class."""
    image = {**empty_image(schema.DATA_SETS), schema.AFFINITY: {}}
    image[schema.CLUSTER_IPS] = {pack_address(VIP[family]): b""}
    image[schema.CLUSTER_IP_BLOCKS] = {cluster_ip_block(pack_address(VIP[family])): b""}
    if class_number is not None:
        image[schema.FRONTENDS] = {frontend_key(VIP[family], Protocol.TCP, 80): packed_class(class_number)}
    options = ProgramOptions()
    (outcome,) = Interpreter(program(family, options), SPECS, image, [VIP[family]]).outcomes(packet)
    return outcome


@FAMILIES
@pytest.mark.parametrize(
    ("protocol", "port", "fate", "reset"),
    [
        pytest.param(TCP, 80, Fate.REFUSED, True, id="a TCP port without endpoints"),
        pytest.param(TCP, 22, Fate.REFUSED, True, id="a TCP port that is none of the service's"),
        pytest.param(UDP, 80, Fate.REFUSED, False, id="a UDP port that is none of the service's"),
        pytest.param(47, 0, Fate.REFUSED, False, id="a protocol without ports"),
        pytest.param(0, 0, Fate.UNTOUCHED, False, id="ping"),
    ],
)
def test_a_port_that_a_cluster_ip_does_not_serve_is_refused(
    family: Family, protocol: int, port: int, fate: Fate, reset: bool
) -> None:
    """Else the node's own daemons would answer on it."""
    packet = Packet(CLIENT[family], VIP[family], protocol or ICMP[family], port)
    outcome = only(family, packet, class_number=0xFFFE)
    assert (outcome.fate, outcome.reset) == (fate, reset)


@FAMILIES
def test_a_discarded_packet_is_dropped_without_an_answer(family: Family) -> None:
    assert only(family, Packet(CLIENT[family], VIP[family], TCP, 80), class_number=0xFFFF).fate is Fate.DROPPED


@FAMILIES
def test_our_own_reset_to_an_address_of_ours_gets_out_with_a_clear_scratch_field(family: Family) -> None:
    """A node's connection to its own ClusterIP comes from that address; refusing the refusal would make it wait."""
    reset = Packet(VIP[family], VIP[family], TCP, 80, iif=None, tcp_flags=RST)
    outcome = only(family, reset, class_number=0xFFFE)
    assert (outcome.fate, outcome.priority) == (Fate.UNTOUCHED, 0)


@FAMILIES
def test_a_packet_for_nobody_keeps_the_priority_its_sender_gave_it(family: Family) -> None:
    elsewhere = Packet(VIP[family], CLIENT[family], TCP, 80, iif=None, priority=6)
    assert only(family, elsewhere).priority == 6


@FAMILIES
@pytest.mark.parametrize("kind", [kind for kind in EVERY_KIND if not kind.sticky], ids=lambda kind: kind.chain)
@pytest.mark.parametrize("affinity", [(), (60,)], ids=["no affinity anywhere", "affinity elsewhere"])
def test_a_translated_packet_goes_on_with_a_clear_scratch_field(
    family: Family, kind: PickClass, affinity: tuple[int, ...]
) -> None:
    """Whatever its sender had set, and without a look behind the translation."""
    made = build_program(family, ProgramOptions(), [kind], affinity)
    key = node_port_key(Protocol.TCP, 80) if kind.node_port else frontend_key(VIP[family], Protocol.TCP, 80)
    classes, endpoints = MAPS[kind.node_port]
    image = {
        **empty_image(schema.DATA_SETS),
        schema.AFFINITY: {},
        schema.NODEPORT_ADDRESSES: {pack_address(VIP[family]) * 2: b""} if kind.node_port else {},
        classes: {key: packed_class(kind.number)},
        endpoints: {key + slot: endpoint_value(CLIENT[family], 8080) for slot in slot_keys(kind)},
    }
    packet = Packet(VIP[family], VIP[family], TCP, 80, priority=6)
    outcomes = Interpreter(made, SPECS, image, [VIP[family]]).outcomes(packet)
    assert {(outcome.fate, outcome.priority) for outcome in outcomes} == {(Fate.TRANSLATED, 0)}


@FAMILIES
@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("affinity", [False, True])
def test_base_chains_are_where_translation_belongs(family: Family, names: bool, affinity: bool) -> None:
    """Before dstnat (-100) and srcnat (100), where others translate; in filter chains what others must not prevent. A hook that
    nobody needs is not there: each costs every packet."""
    chains = build_program(family, ProgramOptions(names=names), EVERY_KIND, [60] if affinity else []).chains
    hooks = {c.name: (c.hook.type.value, c.hook.number, c.hook.priority) for c in chains if c.hook}
    before_tracking = {"prerouting-names": ("filter", 0, -300), "output-names": ("filter", 3, -300)}
    behind = {"prerouting-translated": ("filter", 0, -99), "output-translated": ("filter", 3, -99)}
    assert hooks == (before_tracking if names else {}) | (behind if affinity else {}) | {
        "prerouting": ("nat", 0, -105),
        "prerouting-unclaimed": ("nat", 0, 1000),
        "output": ("nat", 3, -105),
        "output-unclaimed": ("nat", 3, 1000),
        "postrouting": ("nat", 4, 95),
    }


def test_a_chain_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(KeyError):
        program(Family.IPV4, ProgramOptions()).chain("nowhere")
    assert program(Family.IPV4, ProgramOptions()).chain("discard").rules == ((Verdict(Code.DROP),),)
