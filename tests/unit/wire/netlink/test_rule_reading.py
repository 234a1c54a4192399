"""Every rule that we write is read back as what it was."""

import itertools

import pytest

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from nodeagent.proxy.dataplane.program.classes import PickClass
from nodeagent.proxy.dataplane.program.program import build_program
from nodeagent.wire.netlink.framing import attribute, string
from nodeagent.wire.netlink.netfilter import u32
from nodeagent.wire.netlink.nf_tables.expressions import Cmp, OneOf, Payload, PayloadBase, Reject, Unreadable
from nodeagent.wire.netlink.nf_tables.rule_reading import Extension, read_expression, read_extensions
from nodeagent.wire.netlink.nf_tables.ruleset_objects import KernelExpression, KernelRule
from nodeagent.wire.netlink.uapi import nf_tables as uapi

EVERY_KIND = [PickClass(2, *flags) for flags in itertools.product((False, True), repeat=3)]
OPTIONS = [
    ProgramOptions(PodDetection.CIDR),
    ProgramOptions(PodDetection.INTERFACE_PREFIX, "veth"),
    ProgramOptions(masquerade_all=True),
    ProgramOptions(names=True),
    ProgramOptions(flowtable=True),
]


@pytest.mark.parametrize("options", OPTIONS, ids=repr)
@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
def test_every_expression_of_the_program_is_read_as_it_was_written(family: Family, options: ProgramOptions) -> None:
    seen = set()
    for chain in build_program(family, options, EVERY_KIND, [60]).chains:
        for expression in itertools.chain(*chain.rules):
            seen.add(type(expression))
            if isinstance(expression, OneOf):
                held = KernelExpression(
                    "lookup", string(uapi.NFTA_LOOKUP_SET, "__set7") + u32(uapi.NFTA_LOOKUP_SREG, expression.reg + 8)
                )
                assert read_expression(held, {"__set7": expression.values}) == OneOf(
                    expression.reg, expression.values, 0
                )
            else:
                read = read_expression(KernelExpression(expression.name, expression.encode()), {})
                # A reset has no code of ICMP, whatever the expression says.
                assert read == expression or read == Reject(tcp_reset=True, icmp_code=0)
                assert type(read) is type(expression)
                assert not isinstance(read, OneOf)
                assert read.encode() == expression.encode()
    assert len(seen) > 12


def test_a_register_on_a_broad_boundary_is_known_by_its_old_number() -> None:
    wanted = Payload(4, PayloadBase.TRANSPORT, 2, 2)
    data = wanted.encode().replace(u32(uapi.NFTA_PAYLOAD_DREG, 12), u32(uapi.NFTA_PAYLOAD_DREG, uapi.NFT_REG_2))
    assert read_expression(KernelExpression("payload", data), {}) == wanted


@pytest.mark.parametrize(
    "held",
    [
        KernelExpression("synproxy", b"\x08\x00\x01\x00\x00\x00\x00\x01"),
        KernelExpression("payload", b""),
        KernelExpression("meta", u32(uapi.NFTA_META_KEY, 999) + u32(uapi.NFTA_META_DREG, 8)),
        KernelExpression("cmp", Cmp(0, b"\0").encode().replace(u32(uapi.NFTA_CMP_OP, 0), u32(uapi.NFTA_CMP_OP, 3))),
    ],
    ids=["another expression", "no data", "another key", "another comparison"],
)
def test_foreign_expressions_are_recognised(held: KernelExpression) -> None:
    assert read_expression(held, {}) == Unreadable(held.name, held.data)


def test_extensions_of_iptables_are_found_in_order() -> None:
    def call(name: str, data: bytes) -> bytes:
        return string(uapi.NFTA_MATCH_NAME, name) + u32(uapi.NFTA_MATCH_REV, 3) + attribute(uapi.NFTA_MATCH_INFO, data)

    rule = KernelRule(
        "FORWARD",
        (
            KernelExpression("match", call("conntrack", b"abcd")),
            KernelExpression("counter", b""),
            KernelExpression("target", call("REJECT", b"efgh")),
        ),
    )
    assert read_extensions(rule) == (Extension("conntrack", 3, b"abcd"), Extension("REJECT", 3, b"efgh"))
