"""The few nf_tables expressions that our rules use, as values.

Each one knows its netlink form (attribute numbers of linux/netfilter/nf_tables.h) and nothing else; the packet
interpreter gives the same values their meaning, and read-back compares the kernel's rules with them.

Registers are 0..15, the 32-bit ones. The kernel reports 0, 4, 8 and 12 under their old 128-bit numbers.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum

from nodeagent.wire.netlink.framing import attribute, nested, string
from nodeagent.wire.netlink.netfilter import u8, u32, u64
from nodeagent.wire.netlink.uapi import nf_tables as uapi


class PayloadBase(IntEnum):
    """Which header an offset counts from."""

    NETWORK = uapi.NFT_PAYLOAD_NETWORK_HEADER
    TRANSPORT = uapi.NFT_PAYLOAD_TRANSPORT_HEADER


class MetaKey(IntEnum):
    """enum nft_meta_keys."""

    PRIORITY = uapi.NFT_META_PRIORITY
    IIF = uapi.NFT_META_IIF
    IIFNAME = uapi.NFT_META_IIFNAME
    OIFNAME = uapi.NFT_META_OIFNAME
    NFTRACE = uapi.NFT_META_NFTRACE
    L4PROTO = uapi.NFT_META_L4PROTO


class CtKey(IntEnum):
    """enum nft_ct_keys."""

    STATE = uapi.NFT_CT_STATE
    DIRECTION = uapi.NFT_CT_DIRECTION
    STATUS = uapi.NFT_CT_STATUS
    PROTOCOL = uapi.NFT_CT_PROTOCOL
    PROTO_DST = uapi.NFT_CT_PROTO_DST
    SRC_IP = uapi.NFT_CT_SRC_IP
    DST_IP = uapi.NFT_CT_DST_IP
    SRC_IP6 = uapi.NFT_CT_SRC_IP6
    DST_IP6 = uapi.NFT_CT_DST_IP6


class Code(IntEnum):
    """Verdict codes: netfilter's, and enum nft_verdicts."""

    DROP = uapi.NF_DROP
    ACCEPT = uapi.NF_ACCEPT
    JUMP = uapi.NFT_JUMP
    GOTO = uapi.NFT_GOTO
    RETURN = uapi.NFT_RETURN


ANONYMOUS_SET = "__set%d"
"""The name of a set that is part of a rule; the kernel inserts a number."""
CT_DIRECTIONLESS = frozenset({CtKey.STATE, CtKey.DIRECTION, CtKey.STATUS, CtKey.PROTOCOL})


def register(index: int) -> int:
    """Returns the netlink number of 32-bit register `index`."""
    return uapi.NFT_REG32_00 + index


def data_value(data: bytes) -> bytes:
    """Returns NFTA_DATA_VALUE."""
    return attribute(uapi.NFTA_DATA_VALUE, data)


def _looked_up(name: str, index: int) -> bytes:
    return string(uapi.NFTA_LOOKUP_SET, name) + u32(uapi.NFTA_LOOKUP_SREG, register(index))


def verdict_value(code: Code, chain: str | None) -> bytes:
    """Returns NFTA_DATA_VERDICT with its code and, for jump and goto, the chain."""
    children = [u32(uapi.NFTA_VERDICT_CODE, code)]
    if chain is not None:
        children.append(string(uapi.NFTA_VERDICT_CHAIN, chain))
    return nested(uapi.NFTA_DATA_VERDICT, *children)


@dataclass(frozen=True, slots=True)
class Payload:
    """Loads `length` bytes at `offset` of a header into a register."""

    reg: int
    base: PayloadBase
    offset: int
    length: int

    name = "payload"

    def encode(self) -> bytes:
        return (
            u32(uapi.NFTA_PAYLOAD_DREG, register(self.reg))
            + u32(uapi.NFTA_PAYLOAD_BASE, self.base)
            + u32(uapi.NFTA_PAYLOAD_OFFSET, self.offset)
            + u32(uapi.NFTA_PAYLOAD_LEN, self.length)
        )


@dataclass(frozen=True, slots=True)
class Meta:
    """Loads packet metadata into a register."""

    reg: int
    key: MetaKey

    name = "meta"

    def encode(self) -> bytes:
        return u32(uapi.NFTA_META_KEY, self.key) + u32(uapi.NFTA_META_DREG, register(self.reg))


@dataclass(frozen=True, slots=True)
class MetaSet:
    """Writes a register to packet metadata."""

    reg: int
    key: MetaKey

    name = "meta"

    def encode(self) -> bytes:
        return u32(uapi.NFTA_META_KEY, self.key) + u32(uapi.NFTA_META_SREG, register(self.reg))


@dataclass(frozen=True, slots=True)
class Ct:
    """Loads conntrack data; per-direction keys are of the original direction."""

    reg: int
    key: CtKey

    name = "ct"

    def encode(self) -> bytes:
        direction = b"" if self.key in CT_DIRECTIONLESS else u8(uapi.NFTA_CT_DIRECTION, uapi.IP_CT_DIR_ORIGINAL)
        return u32(uapi.NFTA_CT_KEY, self.key) + u32(uapi.NFTA_CT_DREG, register(self.reg)) + direction


@dataclass(frozen=True, slots=True)
class Cmp:
    """Continues only if the register equals (or, inverted, differs from) `data`."""

    reg: int
    data: bytes
    invert: bool = False

    name = "cmp"

    def encode(self) -> bytes:
        return (
            u32(uapi.NFTA_CMP_SREG, register(self.reg))
            + u32(uapi.NFTA_CMP_OP, uapi.NFT_CMP_NEQ if self.invert else uapi.NFT_CMP_EQ)
            + nested(uapi.NFTA_CMP_DATA, data_value(self.data))
        )


@dataclass(frozen=True, slots=True)
class Mask:
    """Sets reg = reg & mask (the bitwise expression with a zero xor)."""

    reg: int
    mask: bytes

    name = "bitwise"

    def encode(self) -> bytes:
        here = register(self.reg)
        zero = b"\0" * len(self.mask)
        return (
            u32(uapi.NFTA_BITWISE_SREG, here)
            + u32(uapi.NFTA_BITWISE_DREG, here)
            + u32(uapi.NFTA_BITWISE_LEN, len(self.mask))
            + nested(uapi.NFTA_BITWISE_MASK, data_value(self.mask))
            + nested(uapi.NFTA_BITWISE_XOR, data_value(zero))
        )


@dataclass(frozen=True, slots=True)
class Lookup:
    """Continues only if the key is in a set (inverted: is not); with `dreg`, loads the map's value."""

    set: str
    reg: int
    dreg: int | None = None
    invert: bool = False

    name = "lookup"

    def encode(self) -> bytes:
        into = b"" if self.dreg is None else u32(uapi.NFTA_LOOKUP_DREG, register(self.dreg))
        flags = u32(uapi.NFTA_LOOKUP_FLAGS, uapi.NFT_LOOKUP_F_INV if self.invert else 0)
        return _looked_up(self.set, self.reg) + into + flags


@dataclass(frozen=True, slots=True)
class LookupVerdict:
    """Follows the verdict that a map has for the key; a miss ends the rule."""

    set: str
    reg: int

    name = "lookup"

    def encode(self) -> bytes:
        into = u32(uapi.NFTA_LOOKUP_DREG, uapi.NFT_REG_VERDICT)
        return _looked_up(self.set, self.reg) + into + u32(uapi.NFTA_LOOKUP_FLAGS, 0)


@dataclass(frozen=True, slots=True)
class OneOf:
    """Continues only if the register is one of a few constants (an anonymous set of the rule).

    The set's kernel name and id exist only inside a transaction, so encoding needs the id from there.
    """

    reg: int
    values: tuple[bytes, ...]
    key_type: int

    name = "lookup"

    def encode_with(self, set_id: int) -> bytes:
        by_id = u32(uapi.NFTA_LOOKUP_SET_ID, set_id)
        return _looked_up(ANONYMOUS_SET, self.reg) + by_id + u32(uapi.NFTA_LOOKUP_FLAGS, 0)


@dataclass(frozen=True, slots=True)
class Immediate:
    """Loads a constant."""

    reg: int
    data: bytes

    name = "immediate"

    def encode(self) -> bytes:
        return u32(uapi.NFTA_IMMEDIATE_DREG, register(self.reg)) + nested(
            uapi.NFTA_IMMEDIATE_DATA, data_value(self.data)
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """Ends the rule with a verdict."""

    code: Code
    chain: str | None = None

    name = "immediate"

    def encode(self) -> bytes:
        verdict = nested(uapi.NFTA_IMMEDIATE_DATA, verdict_value(self.code, self.chain))
        return u32(uapi.NFTA_IMMEDIATE_DREG, uapi.NFT_REG_VERDICT) + verdict


@dataclass(frozen=True, slots=True)
class Random:
    """Loads a uniformly random number below `modulus`, plus `offset` (numgen random)."""

    reg: int
    modulus: int
    offset: int = 0

    name = "numgen"

    def encode(self) -> bytes:
        return (
            u32(uapi.NFTA_NG_DREG, register(self.reg))
            + u32(uapi.NFTA_NG_MODULUS, self.modulus)
            + u32(uapi.NFTA_NG_TYPE, uapi.NFT_NG_RANDOM)
            + u32(uapi.NFTA_NG_OFFSET, self.offset)
        )


@dataclass(frozen=True, slots=True)
class Dnat:
    """Rewrites the destination to the address and port in registers (None: the port stays); ends the evaluation of the hook."""

    family: int
    address_reg: int
    port_reg: int | None

    name = "nat"

    def encode(self) -> bytes:
        port = b"" if self.port_reg is None else u32(uapi.NFTA_NAT_REG_PROTO_MIN, register(self.port_reg))
        return (
            u32(uapi.NFTA_NAT_TYPE, uapi.NFT_NAT_DNAT)
            + u32(uapi.NFTA_NAT_FAMILY, self.family)
            + u32(uapi.NFTA_NAT_REG_ADDR_MIN, register(self.address_reg))
            + port
        )


@dataclass(frozen=True, slots=True)
class Masquerade:
    """Rewrites the source to the outgoing interface's address, with a fully random port; ends the evaluation."""

    name = "masq"

    def encode(self) -> bytes:
        return u32(uapi.NFTA_MASQ_FLAGS, uapi.NF_NAT_RANGE_PROTO_RANDOM_FULLY)


@dataclass(frozen=True, slots=True)
class Reject:
    """Answers with a TCP reset, or with ICMP port unreachable."""

    tcp_reset: bool
    icmp_code: int

    name = "reject"

    def encode(self) -> bytes:
        kind = uapi.NFT_REJECT_TCP_RST if self.tcp_reset else uapi.NFT_REJECT_ICMP_UNREACH
        code = 0 if self.tcp_reset else self.icmp_code
        return u32(uapi.NFTA_REJECT_TYPE, kind) + u8(uapi.NFTA_REJECT_ICMP_CODE, code)


@dataclass(frozen=True, slots=True)
class FibType:
    """Loads the routing type (RTN_*) of the source or destination address; at_output: only the output interface has local addresses."""

    reg: int
    source: bool
    at_output: bool = False

    name = "fib"

    def encode(self) -> bytes:
        address = uapi.NFTA_FIB_F_SADDR if self.source else uapi.NFTA_FIB_F_DADDR
        kind = u32(uapi.NFTA_FIB_RESULT, uapi.NFT_FIB_RESULT_ADDRTYPE)
        flags = u32(uapi.NFTA_FIB_FLAGS, address | (uapi.NFTA_FIB_F_OIF if self.at_output else 0))
        return u32(uapi.NFTA_FIB_DREG, register(self.reg)) + kind + flags


@dataclass(frozen=True, slots=True)
class SocketWildcard:
    """Loads whether the socket that would receive the packet is bound to no address; without such a socket the
    rule ends (net/netfilter/nft_socket.c)."""

    reg: int

    name = "socket"

    def encode(self) -> bytes:
        return u32(uapi.NFTA_SOCKET_KEY, uapi.NFT_SOCKET_WILDCARD) + u32(uapi.NFTA_SOCKET_DREG, register(self.reg))


@dataclass(frozen=True, slots=True)
class Untracked:
    """Exempts the packet from connection tracking, and with it from translation (notrack)."""

    name = "notrack"

    def encode(self) -> bytes:
        return b""


@dataclass(frozen=True, slots=True)
class FlowOffload:
    """Adds the connection to a flowtable, if it is in none and can be (flow add; net/netfilter/nft_flow_offload.c)."""

    flowtable: str

    name = "flow_offload"

    def encode(self) -> bytes:
        return string(uapi.NFTA_FLOW_TABLE_NAME, self.flowtable)


@dataclass(frozen=True, slots=True)
class UpdateMap:
    """Adds or refreshes an element of a dynamic map: key and data from registers, with a timeout.

    Refreshing restarts the timer and leaves the data of an existing element unchanged (net/netfilter/nft_dynset.c).
    """

    set: str
    key_reg: int
    data_reg: int
    timeout_seconds: int

    name = "dynset"

    def encode(self) -> bytes:
        return (
            string(uapi.NFTA_DYNSET_SET_NAME, self.set)
            + u32(uapi.NFTA_DYNSET_OP, uapi.NFT_DYNSET_OP_UPDATE)
            + u32(uapi.NFTA_DYNSET_SREG_KEY, register(self.key_reg))
            + u32(uapi.NFTA_DYNSET_SREG_DATA, register(self.data_reg))
            + u64(uapi.NFTA_DYNSET_TIMEOUT, self.timeout_seconds * 1000)
        )


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An expression of the kernel that is not one of the above: its name there and its data."""

    name: str
    data: bytes

    @property
    def harmless(self) -> bool:
        """Whether it decides nothing about the packet."""
        return self.name in _HARMLESS

    def encode(self) -> bytes:
        return self.data


_HARMLESS = frozenset({"counter", "log", "last"})

Expression = (
    Payload
    | Meta
    | MetaSet
    | Ct
    | Cmp
    | Mask
    | Lookup
    | LookupVerdict
    | OneOf
    | Immediate
    | Verdict
    | Random
    | Dnat
    | Masquerade
    | Reject
    | FibType
    | SocketWildcard
    | Untracked
    | FlowOffload
    | UpdateMap
    | Unreadable
)
Rule = tuple[Expression, ...]


def native_u32(value: int) -> bytes:
    """Returns a register's 32-bit content."""
    return struct.pack("=I", value)
