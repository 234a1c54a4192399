"""Register contents, keys and rules as `nft list table` writes them, for people who follow a packet (pure)."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

from nodeagent.model.addresses import Family, unpack_address
from nodeagent.proxy.dataplane.program.schema import FieldType
from nodeagent.wire.netlink.nf_tables import expressions as nft

_PROTOCOLS = {1: "icmp", 6: "tcp", 17: "udp", 58: "ipv6-icmp", 132: "sctp"}
_ROUTE_TYPES = {1: "unicast", 2: "local"}
_IFNAMSIZ = 16


@dataclass(frozen=True, slots=True)
class Step:
    """A rule that a packet met. rule: its number in the chain, from 1; 0 for the chain itself.

    applied: whether the whole rule did; if not, `text` ends with what did not match. unclear: the rule has an
    expression that cannot be evaluated; it was skipped.
    """

    chain: str
    rule: int
    text: str
    applied: bool = True
    unclear: bool = False

    def __str__(self) -> str:
        mark = " " if self.applied else "✗"
        return f"{mark} {self.chain} {self.rule or ''}: {self.text}"


class Form(Enum):
    """The form of a register's content."""

    ADDRESS = "address"
    PROTOCOL = "protocol"
    PORT = "port"
    CLASS = "class"
    SLOT = "slot"
    IPV4_START = "start of an IPv4 address"
    IPV6_START = "start of an IPv6 address"
    ROUTE_TYPE = "route type"
    NAME = "name"
    NUMBER = "number"


_OF_KIND = {
    FieldType.ADDRESS: Form.ADDRESS,
    FieldType.PROTOCOL: Form.PROTOCOL,
    FieldType.PORT: Form.PORT,
    FieldType.CLASS: Form.CLASS,
    FieldType.SLOT: Form.SLOT,
}
_CT_NAMES = {
    nft.CtKey.STATE: "ct state",
    nft.CtKey.DIRECTION: "ct direction",
    nft.CtKey.STATUS: "ct status",
    nft.CtKey.PROTOCOL: "ct original protocol",
    nft.CtKey.PROTO_DST: "ct original proto-dst",
    nft.CtKey.SRC_IP: "ct original ip saddr",
    nft.CtKey.DST_IP: "ct original ip daddr",
    nft.CtKey.SRC_IP6: "ct original ip6 saddr",
    nft.CtKey.DST_IP6: "ct original ip6 daddr",
}
_CT_FORMS = {
    nft.CtKey.STATE: Form.NUMBER,
    nft.CtKey.DIRECTION: Form.NUMBER,
    nft.CtKey.STATUS: Form.NUMBER,
    nft.CtKey.PROTOCOL: Form.PROTOCOL,
    nft.CtKey.PROTO_DST: Form.PORT,
}
_META = {
    nft.MetaKey.PRIORITY: ("meta priority", Form.CLASS),
    nft.MetaKey.IIF: ("iif", Form.NUMBER),
    nft.MetaKey.IIFNAME: ("iifname", Form.NAME),
    nft.MetaKey.OIFNAME: ("oifname", Form.NAME),
    nft.MetaKey.NFTRACE: ("meta nftrace", Form.NUMBER),
    nft.MetaKey.L4PROTO: ("meta l4proto", Form.PROTOCOL),
}
_PAYLOAD = {
    (nft.PayloadBase.NETWORK, 12, 4): ("ip saddr", Form.ADDRESS),
    (nft.PayloadBase.NETWORK, 16, 4): ("ip daddr", Form.ADDRESS),
    (nft.PayloadBase.NETWORK, 8, 16): ("ip6 saddr", Form.ADDRESS),
    (nft.PayloadBase.NETWORK, 24, 16): ("ip6 daddr", Form.ADDRESS),
    (nft.PayloadBase.TRANSPORT, 0, 2): ("th sport", Form.PORT),
    (nft.PayloadBase.TRANSPORT, 2, 2): ("th dport", Form.PORT),
    (nft.PayloadBase.TRANSPORT, 13, 1): ("tcp flags", Form.NUMBER),
    # Loads for a comparison with a CIDR; one byte at 8 is the TTL of IPv4.
    **{(nft.PayloadBase.NETWORK, 12, length): ("ip saddr", Form.IPV4_START) for length in range(1, 4)},
    **{(nft.PayloadBase.NETWORK, 8, length): ("ip6 saddr", Form.IPV6_START) for length in range(2, 16)},
}


@dataclass(frozen=True, slots=True)
class RegisterContent:
    """The content with which a register was loaded."""

    name: str
    form: Form = Form.NUMBER

    def spell(self, data: bytes) -> str:
        """Returns data of this form as nft writes it."""
        return spell(self.form, data)


UNKNOWN = RegisterContent("?")


def loaded_field(expression: nft.Payload | nft.Meta | nft.Ct | nft.FibType | nft.SocketWildcard) -> RegisterContent:
    """Returns what an expression loads, by nft's name."""
    match expression:
        case nft.Payload(_, base, offset, length):
            name, form = _PAYLOAD.get((base, offset, length), (f"@{base.name.lower()},{offset},{length}", Form.NUMBER))
            return RegisterContent(name, form)
        case nft.Meta(_, key):
            return RegisterContent(*_META[key])
        case nft.Ct(_, key):
            return RegisterContent(_CT_NAMES[key], _CT_FORMS.get(key, Form.ADDRESS))
        case nft.FibType(_, source, at_output):
            name = f"fib {'saddr' if source else 'daddr'}{' . oif' if at_output else ''} type"
            return RegisterContent(name, Form.ROUTE_TYPE)
        case nft.SocketWildcard():
            return RegisterContent("socket wildcard")


def spell(form: Form, data: bytes) -> str:
    """Returns data as text: `10.96.0.10`, `10.244.0.0/16`, `tcp`, `80`, `0:3`, `local`, `cni0`, `0x4`."""
    return _SPELLERS[form](data)


def _spell_native(names: Mapping[int, str], data: bytes) -> str:
    number = int.from_bytes(data, sys.byteorder)
    return names.get(number, str(number))


def _spell_start(whole: int, data: bytes) -> str:
    """Returns the CIDR of all addresses that begin with these bytes. whole: bytes of an address."""
    return f"{unpack_address(data.ljust(whole, bytes(1)))}/{8 * len(data)}"


def _spell_name(data: bytes) -> str:
    """Returns an interface name; a prefix is shorter than the kernel's 16 bytes."""
    text = data.rstrip(b"\0").decode(errors="replace")
    return f'"{text}"' if len(data) == _IFNAMSIZ else f'"{text}*"'


_SPELLERS: dict[Form, Callable[[bytes], str]] = {
    Form.ADDRESS: unpack_address,
    Form.PROTOCOL: partial(_spell_native, _PROTOCOLS),
    Form.PORT: lambda data: str(int.from_bytes(data[:2], "big")),
    Form.CLASS: lambda data: spell_class(int.from_bytes(data, sys.byteorder)),
    Form.IPV4_START: partial(_spell_start, 4),
    Form.IPV6_START: partial(_spell_start, 16),
    Form.SLOT: partial(_spell_native, {}),
    Form.ROUTE_TYPE: partial(_spell_native, _ROUTE_TYPES),
    Form.NAME: _spell_name,
    Form.NUMBER: lambda data: hex(int.from_bytes(data, sys.byteorder)),
}


def spell_class(number: int) -> str:
    """Returns a class as tc and nft write it: `major:minor` in hexadecimal; 0 is `none`."""
    return f"{number >> 16:x}:{number & 0xFFFF:x}" if number else "none"


def spell_fields(kinds: Sequence[FieldType], family: Family, data: bytes) -> str:
    """Returns a key or value of a set, with ` . ` between its fields."""
    parts = []
    offset = 0
    for kind in kinds:
        length = family.address_length if kind is FieldType.ADDRESS else kind.value[1]
        parts.append(spell(_OF_KIND[kind], data[offset : offset + length]))
        offset += length + 3 & ~3
    return " . ".join(parts)
