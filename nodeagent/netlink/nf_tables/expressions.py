"""The few nf_tables expressions our rules are made of, as values.

Each one knows its netlink form (attribute numbers of linux/netfilter/nf_tables.h) and nothing else; the packet
interpreter gives the same values their meaning, and read-back compares the kernel's rules with them.

Registers are 0..15, the 32-bit ones. The kernel reports 0, 4, 8 and 12 under their old 128-bit numbers.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum

from nodeagent.netlink.framing import attribute, nested, string
from nodeagent.netlink.netfilter import u8, u32, u64

VERDICT_REGISTER = 0
FIRST_REGISTER = 8


class PayloadBase(IntEnum):
    """Which header an offset counts from."""

    NETWORK = 1
    TRANSPORT = 2


class MetaKey(IntEnum):
    """enum nft_meta_keys."""

    PRIORITY = 2
    IIF = 4
    IIFNAME = 6
    L4PROTO = 16


class CtKey(IntEnum):
    """enum nft_ct_keys."""

    STATUS = 2
    PROTOCOL = 10
    PROTO_DST = 12
    SRC_IP = 19
    DST_IP = 20
    SRC_IP6 = 21
    DST_IP6 = 22


class Code(IntEnum):
    """Verdict codes: netfilter's, and enum nft_verdicts."""

    DROP = 0
    ACCEPT = 1
    JUMP = -3
    GOTO = -4
    RETURN = -5


CT_DIRECTIONLESS = frozenset({CtKey.STATUS, CtKey.PROTOCOL})


def register(index: int) -> int:
    """The netlink number of 32-bit register `index`."""
    return FIRST_REGISTER + index


def data_value(data: bytes) -> bytes:
    """NFTA_DATA_VALUE."""
    return attribute(1, data)


def verdict_value(code: Code, chain: str | None) -> bytes:
    """NFTA_DATA_VERDICT with its code and, for jump and goto, the chain."""
    children = [u32(1, code)]
    if chain is not None:
        children.append(string(2, chain))
    return nested(2, *children)


@dataclass(frozen=True, slots=True)
class Payload:
    """Load `length` bytes at `offset` of a header into a register."""

    reg: int
    base: PayloadBase
    offset: int
    length: int

    name = "payload"

    def encode(self) -> bytes:
        return u32(1, register(self.reg)) + u32(2, self.base) + u32(3, self.offset) + u32(4, self.length)


@dataclass(frozen=True, slots=True)
class Meta:
    """Load packet metadata into a register."""

    reg: int
    key: MetaKey

    name = "meta"

    def encode(self) -> bytes:
        return u32(2, self.key) + u32(1, register(self.reg))


@dataclass(frozen=True, slots=True)
class MetaSet:
    """Write a register to packet metadata."""

    reg: int
    key: MetaKey

    name = "meta"

    def encode(self) -> bytes:
        return u32(2, self.key) + u32(3, register(self.reg))


@dataclass(frozen=True, slots=True)
class Ct:
    """Load conntrack data; per-direction keys are of the original direction."""

    reg: int
    key: CtKey

    name = "ct"

    def encode(self) -> bytes:
        direction = b"" if self.key in CT_DIRECTIONLESS else u8(3, 0)
        return u32(2, self.key) + u32(1, register(self.reg)) + direction


@dataclass(frozen=True, slots=True)
class Cmp:
    """Continue only if the register equals (or, inverted, differs from) `data`."""

    reg: int
    data: bytes
    invert: bool = False

    name = "cmp"

    def encode(self) -> bytes:
        return u32(1, register(self.reg)) + u32(2, int(self.invert)) + nested(3, data_value(self.data))


@dataclass(frozen=True, slots=True)
class Mask:
    """reg = reg & mask (the bitwise expression with a zero xor)."""

    reg: int
    mask: bytes

    name = "bitwise"

    def encode(self) -> bytes:
        here = register(self.reg)
        zero = b"\0" * len(self.mask)
        return (
            u32(1, here)
            + u32(2, here)
            + u32(3, len(self.mask))
            + nested(4, data_value(self.mask))
            + nested(5, data_value(zero))
        )


@dataclass(frozen=True, slots=True)
class Lookup:
    """Continue only if the key is in a set (inverted: is not); with `dreg`, load the map's value."""

    set: str
    reg: int
    dreg: int | None = None
    invert: bool = False

    name = "lookup"

    def encode(self) -> bytes:
        into = b"" if self.dreg is None else u32(3, register(self.dreg))
        return string(1, self.set) + u32(2, register(self.reg)) + into + u32(5, int(self.invert))


@dataclass(frozen=True, slots=True)
class LookupVerdict:
    """Follow the verdict a map has for the key; a miss ends the rule."""

    set: str
    reg: int

    name = "lookup"

    def encode(self) -> bytes:
        return string(1, self.set) + u32(2, register(self.reg)) + u32(3, VERDICT_REGISTER) + u32(5, 0)


@dataclass(frozen=True, slots=True)
class OneOf:
    """Continue only if the register is one of a few constants (an anonymous set of the rule).

    The set's kernel name and id exist only inside a transaction, so encoding needs the id it gave.
    """

    reg: int
    values: tuple[bytes, ...]
    key_type: int

    name = "lookup"

    def encode_with(self, set_id: int) -> bytes:
        return string(1, "__set%d") + u32(2, register(self.reg)) + u32(4, set_id) + u32(5, 0)


@dataclass(frozen=True, slots=True)
class Immediate:
    """Load a constant."""

    reg: int
    data: bytes

    name = "immediate"

    def encode(self) -> bytes:
        return u32(1, register(self.reg)) + nested(2, data_value(self.data))


@dataclass(frozen=True, slots=True)
class Verdict:
    """End the rule with a verdict."""

    code: Code
    chain: str | None = None

    name = "immediate"

    def encode(self) -> bytes:
        return u32(1, VERDICT_REGISTER) + nested(2, verdict_value(self.code, self.chain))


@dataclass(frozen=True, slots=True)
class Random:
    """A uniformly random number below `modulus`, plus `offset` (numgen random)."""

    reg: int
    modulus: int
    offset: int = 0

    name = "numgen"

    def encode(self) -> bytes:
        return u32(1, register(self.reg)) + u32(2, self.modulus) + u32(3, 1) + u32(4, self.offset)


@dataclass(frozen=True, slots=True)
class Dnat:
    """Rewrite the destination to the address and port in registers; ends the evaluation of the hook."""

    family: int
    address_reg: int
    port_reg: int

    name = "nat"

    def encode(self) -> bytes:
        return u32(1, 1) + u32(2, self.family) + u32(3, register(self.address_reg)) + u32(5, register(self.port_reg))


@dataclass(frozen=True, slots=True)
class Masquerade:
    """Rewrite the source to the outgoing interface's address, with a fully random port; ends the evaluation."""

    name = "masq"

    def encode(self) -> bytes:
        return u32(1, 16)


@dataclass(frozen=True, slots=True)
class Reject:
    """Answer with a TCP reset, or with ICMP port unreachable."""

    tcp_reset: bool
    icmp_code: int

    name = "reject"

    def encode(self) -> bytes:
        return u32(1, int(self.tcp_reset)) + u8(2, 0 if self.tcp_reset else self.icmp_code)


@dataclass(frozen=True, slots=True)
class FibType:
    """Load the routing type (RTN_*) of the packet's source or destination address."""

    reg: int
    source: bool

    name = "fib"

    def encode(self) -> bytes:
        return u32(1, register(self.reg)) + u32(2, 3) + u32(3, 1 if self.source else 2)


@dataclass(frozen=True, slots=True)
class UpdateMap:
    """Add or refresh an element of a dynamic map: key and data from registers, with a timeout.

    Refreshing restarts the timer and leaves the data of an existing element as it is (net/netfilter/nft_dynset.c).
    """

    set: str
    key_reg: int
    data_reg: int
    timeout_seconds: int

    name = "dynset"

    def encode(self) -> bytes:
        return (
            string(1, self.set)
            + u32(3, 1)
            + u32(4, register(self.key_reg))
            + u32(5, register(self.data_reg))
            + u64(6, self.timeout_seconds * 1000)
        )


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
    | UpdateMap
)
Rule = tuple[Expression, ...]


def native_u32(value: int) -> bytes:
    """A register's 32-bit content."""
    return struct.pack("=I", value)
