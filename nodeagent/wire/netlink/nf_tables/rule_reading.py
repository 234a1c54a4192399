"""Reads rules that the kernel dumps into the expressions from which they were made (pure).

Any other expression becomes `Unreadable`, so a rule that others changed is still shown, but not treated as evaluated.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from nodeagent.wire.netlink.framing import attribute_map, reader, text_of
from nodeagent.wire.netlink.netfilter import number
from nodeagent.wire.netlink.nf_tables import expressions as nft
from nodeagent.wire.netlink.nf_tables.comparison import BROAD_REGISTERS
from nodeagent.wire.netlink.nf_tables.ruleset_objects import KernelExpression, KernelRule
from nodeagent.wire.netlink.uapi import nf_tables as uapi


class Extension(NamedTuple):
    """An extension of iptables in a rule: its name, its revision, and its data as iptables gave it to the kernel."""

    name: str
    revision: int
    data: bytes


def read_extensions(rule: KernelRule) -> tuple[Extension, ...]:
    """Returns the matches and targets of iptables in a rule, in order."""
    return tuple(
        Extension(
            text_of(fields.get(uapi.NFTA_MATCH_NAME, _NOTHING)),
            number(fields.get(uapi.NFTA_MATCH_REV, b"")),
            bytes(fields.get(uapi.NFTA_MATCH_INFO, b"")),
        )
        for held in rule.expressions
        if held.name in ("match", "target")
        for fields in (attribute_map(memoryview(held.data)),)
    )


Fields = dict[int, memoryview]
Anonymous = Mapping[str, tuple[bytes, ...]]
_SIGN = 1 << 31
_OPERATORS = {uapi.NFT_CMP_EQ: False, uapi.NFT_CMP_NEQ: True}
_NOTHING = memoryview(b"")


def read_rule_expressions(rule: KernelRule, anonymous: Anonymous) -> nft.Rule:
    """Returns the expressions of a rule. anonymous: the keys of the sets that are part of rules, by the kernel's names."""
    return tuple(read_expression(expression, anonymous) for expression in rule.expressions)


def read_expression(held: KernelExpression, anonymous: Anonymous) -> nft.Expression:
    """Returns one expression; `Unreadable` if it is not one of ours."""
    try:
        return _read(held, attribute_map(memoryview(held.data)), anonymous)
    except (OSError, ValueError):
        return nft.Unreadable(held.name, held.data)


@reader
def _read(held: KernelExpression, fields: Fields, anonymous: Anonymous) -> nft.Expression:
    if held.name == "lookup":
        return _lookup(fields, anonymous)
    return _READERS[held.name](fields)


def _register(value: memoryview) -> int:
    reported = number(value)
    return BROAD_REGISTERS.get(reported, reported) - uapi.NFT_REG32_00


def _value(data: memoryview) -> bytes:
    return bytes(attribute_map(data)[uapi.NFTA_DATA_VALUE])


def _ct(fields: Fields) -> nft.Expression:
    key = nft.CtKey(number(fields[uapi.NFTA_CT_KEY]))
    if key not in nft.CT_DIRECTIONLESS and number(fields[uapi.NFTA_CT_DIRECTION]) != uapi.IP_CT_DIR_ORIGINAL:
        raise ValueError("of the other direction")
    return nft.Ct(_register(fields[uapi.NFTA_CT_DREG]), key)


def _mask(fields: Fields) -> nft.Expression:
    reg, into = _register(fields[uapi.NFTA_BITWISE_SREG]), _register(fields[uapi.NFTA_BITWISE_DREG])
    if reg != into or any(_value(fields[uapi.NFTA_BITWISE_XOR])):
        raise ValueError("more than a mask")
    return nft.Mask(reg, _value(fields[uapi.NFTA_BITWISE_MASK]))


def _lookup(fields: Fields, anonymous: Anonymous) -> nft.Expression:
    name, reg = text_of(fields[uapi.NFTA_LOOKUP_SET]), _register(fields[uapi.NFTA_LOOKUP_SREG])
    invert = bool(number(fields.get(uapi.NFTA_LOOKUP_FLAGS, b"")) & uapi.NFT_LOOKUP_F_INV)
    if name in anonymous and not invert:
        return nft.OneOf(reg, anonymous[name], 0)
    into = fields.get(uapi.NFTA_LOOKUP_DREG)
    if into is not None and number(into) == uapi.NFT_REG_VERDICT:
        return nft.LookupVerdict(name, reg)
    return nft.Lookup(name, reg, None if into is None else _register(into), invert)


def _immediate(fields: Fields) -> nft.Expression:
    data = attribute_map(fields[uapi.NFTA_IMMEDIATE_DATA])
    if number(fields[uapi.NFTA_IMMEDIATE_DREG]) != uapi.NFT_REG_VERDICT:
        return nft.Immediate(_register(fields[uapi.NFTA_IMMEDIATE_DREG]), bytes(data[uapi.NFTA_DATA_VALUE]))
    verdict = attribute_map(data[uapi.NFTA_DATA_VERDICT])
    code = number(verdict[uapi.NFTA_VERDICT_CODE])
    chain = text_of(verdict.get(uapi.NFTA_VERDICT_CHAIN, _NOTHING))
    return nft.Verdict(nft.Code(code - 2 * _SIGN if code & _SIGN else code), chain or None)


def _fib(fields: Fields) -> nft.Expression:
    flags = number(fields[uapi.NFTA_FIB_FLAGS])
    known = {uapi.NFTA_FIB_F_SADDR: True, uapi.NFTA_FIB_F_DADDR: False}
    if number(fields[uapi.NFTA_FIB_RESULT]) != uapi.NFT_FIB_RESULT_ADDRTYPE:
        raise ValueError("not the type of an address")
    source = known[flags & ~uapi.NFTA_FIB_F_OIF]
    return nft.FibType(_register(fields[uapi.NFTA_FIB_DREG]), source, at_output=bool(flags & uapi.NFTA_FIB_F_OIF))


def _payload(fields: Fields) -> nft.Expression:
    base = nft.PayloadBase(number(fields[uapi.NFTA_PAYLOAD_BASE]))
    offset, length = number(fields[uapi.NFTA_PAYLOAD_OFFSET]), number(fields[uapi.NFTA_PAYLOAD_LEN])
    return nft.Payload(_register(fields[uapi.NFTA_PAYLOAD_DREG]), base, offset, length)


def _meta(fields: Fields) -> nft.Expression:
    key = nft.MetaKey(number(fields[uapi.NFTA_META_KEY]))
    if uapi.NFTA_META_SREG in fields:
        return nft.MetaSet(_register(fields[uapi.NFTA_META_SREG]), key)
    return nft.Meta(_register(fields[uapi.NFTA_META_DREG]), key)


def _compare(fields: Fields) -> nft.Expression:
    invert = _OPERATORS[number(fields[uapi.NFTA_CMP_OP])]
    return nft.Cmp(_register(fields[uapi.NFTA_CMP_SREG]), _value(fields[uapi.NFTA_CMP_DATA]), invert)


def _random(fields: Fields) -> nft.Expression:
    if number(fields[uapi.NFTA_NG_TYPE]) != uapi.NFT_NG_RANDOM:
        raise ValueError("counted, not random")
    modulus, offset = number(fields[uapi.NFTA_NG_MODULUS]), number(fields.get(uapi.NFTA_NG_OFFSET, b""))
    return nft.Random(_register(fields[uapi.NFTA_NG_DREG]), modulus, offset)


def _dnat(fields: Fields) -> nft.Expression:
    if number(fields[uapi.NFTA_NAT_TYPE]) != uapi.NFT_NAT_DNAT:
        raise ValueError("of the source")
    port = fields.get(uapi.NFTA_NAT_REG_PROTO_MIN)
    address = _register(fields[uapi.NFTA_NAT_REG_ADDR_MIN])
    return nft.Dnat(number(fields[uapi.NFTA_NAT_FAMILY]), address, None if port is None else _register(port))


def _masquerade(fields: Fields) -> nft.Expression:  # noqa: ARG001 - its flags choose a port
    return nft.Masquerade()


def _reject(fields: Fields) -> nft.Expression:
    by_reset = number(fields[uapi.NFTA_REJECT_TYPE]) == uapi.NFT_REJECT_TCP_RST
    return nft.Reject(tcp_reset=by_reset, icmp_code=number(fields.get(uapi.NFTA_REJECT_ICMP_CODE, b"")))


def _socket(fields: Fields) -> nft.Expression:
    if number(fields[uapi.NFTA_SOCKET_KEY]) != uapi.NFT_SOCKET_WILDCARD:
        raise ValueError("not whether it is bound")
    return nft.SocketWildcard(_register(fields[uapi.NFTA_SOCKET_DREG]))


def _untracked(fields: Fields) -> nft.Expression:  # noqa: ARG001 - it has none
    return nft.Untracked()


def _flow_offload(fields: Fields) -> nft.Expression:
    return nft.FlowOffload(text_of(fields[uapi.NFTA_FLOW_TABLE_NAME]))


def _update(fields: Fields) -> nft.Expression:
    if number(fields[uapi.NFTA_DYNSET_OP]) != uapi.NFT_DYNSET_OP_UPDATE:
        raise ValueError("not an update")
    key, data = fields[uapi.NFTA_DYNSET_SREG_KEY], fields[uapi.NFTA_DYNSET_SREG_DATA]
    seconds = number(fields.get(uapi.NFTA_DYNSET_TIMEOUT, b"")) // 1000
    return nft.UpdateMap(text_of(fields[uapi.NFTA_DYNSET_SET_NAME]), _register(key), _register(data), seconds)


_READERS: dict[str, Callable[[Fields], nft.Expression]] = {
    "payload": _payload,
    "meta": _meta,
    "ct": _ct,
    "cmp": _compare,
    "bitwise": _mask,
    "immediate": _immediate,
    "numgen": _random,
    "nat": _dnat,
    "masq": _masquerade,
    "reject": _reject,
    "fib": _fib,
    "socket": _socket,
    "notrack": _untracked,
    "flow_offload": _flow_offload,
    "dynset": _update,
}
