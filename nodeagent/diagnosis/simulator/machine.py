"""One packet's registers and metadata, and the effect of each expression on them (pure).

It knows the expressions, but not our chains or sets. Sources: net/netfilter/nft_*.c, one file for each expression.
"""

import sys
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from nodeagent.diagnosis.simulator.packet import Packet, network_header, transport_header
from nodeagent.diagnosis.simulator.spelling import UNKNOWN, Form, RegisterContent, loaded_field, spell, spell_fields
from nodeagent.model.addresses import pack_address, unpack_address
from nodeagent.proxy.dataplane.image.image import TableImage
from nodeagent.proxy.dataplane.program.schema import SetSpec
from nodeagent.wire.netlink.conntrack import state_bit
from nodeagent.wire.netlink.nf_tables import expressions as nft
from nodeagent.wire.netlink.uapi.nf_tables import IP_CT_DIR_ORIGINAL
from nodeagent.wire.netlink.uapi.nfnetlink_conntrack import IP_CT_NEW, IPS_DST_NAT
from nodeagent.wire.netlink.uapi.rtnetlink import RTN_LOCAL, RTN_UNICAST

_REGISTER_BYTES = 16 * 4
_SOME_INTERFACE = 2
_IFNAMSIZ = 16


class RuleEnds(Exception):
    """NFT_BREAK: an expression did not match or had nothing to load. The chain continues with its next rule."""


class RuleUnclear(RuleEnds):
    """An expression that cannot be evaluated here decides whether the rule applies."""


class ChoiceNeeded(Exception):
    """A random number below `among` is needed, and none was chosen yet."""

    def __init__(self, among: int) -> None:
        super().__init__(among)
        self.among = among


@dataclass(frozen=True, slots=True)
class Sets:
    """The data of lookups. verdicts: verdict map → key → chain. local: the node's addresses. sockets: (packed
    address, protocol, port). at_interface: interface → the addresses of the node that it has."""

    specs: Mapping[str, SetSpec]
    image: TableImage
    verdicts: Mapping[str, Mapping[bytes, str]]
    local: Container[str]
    sockets: frozenset[tuple[bytes, int, int]] = frozenset()
    at_interface: Mapping[str, Container[str]] = field(default_factory=dict)


@dataclass(slots=True)
class Machine:
    """The state of a packet between two expressions.
    choices: the random numbers it gets, in order. probability: of these choices. iif, oif: its interfaces as rules of
    the present hook see them; empty for none, or if unknown. words: what the expressions of the current rule did, for
    people. lookups: number of set and map lookups so far."""

    sets: Sets
    packet: Packet
    choices: tuple[int, ...]
    destination: str
    port: int
    priority: int
    status: int = 0
    iif: str = ""
    oif: str = ""
    translated: bool = False
    masqueraded: bool = False
    untracked: bool = False
    rejected: nft.Reject | None = None
    probability: Fraction = Fraction(1)
    learned: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    lookups: int = 0
    _chosen: int = 0
    _registers: bytearray = field(default_factory=lambda: bytearray(_REGISTER_BYTES))
    _fields: dict[int, RegisterContent] = field(default_factory=dict)

    def execute(self, expression: nft.Expression) -> nft.Verdict | None:
        """Returns the verdict if an expression ends the rule, else None. Raises RuleEnds, RuleUnclear, ChoiceNeeded."""
        match expression:
            case (
                nft.Payload()
                | nft.Meta()
                | nft.Ct()
                | nft.FibType()
                | nft.SocketWildcard()
                | nft.Immediate()
                | nft.Random()
            ):
                self._load(expression)
            case nft.Cmp() | nft.Lookup() | nft.OneOf():
                if not self._matches(expression):
                    raise RuleEnds
            case nft.Untracked():
                self.untracked = True
                self.words.append("notrack")
            case nft.FlowOffload(flowtable):
                self.words.append(f"flow add @{flowtable}")
            case nft.MetaSet() | nft.Mask() | nft.UpdateMap():
                self._write(expression)
            case nft.Verdict() | nft.LookupVerdict() | nft.Dnat() | nft.Masquerade() | nft.Reject():
                return self._end(expression)
            case nft.Unreadable(name):
                self.words.append(name if expression.harmless else f"cannot be evaluated: {name}")
                if not expression.harmless:
                    raise RuleUnclear
        return None

    def is_local(self, address: str) -> bool:
        """Returns whether the node has the address."""
        return address in self.sets.local

    def _load(
        self,
        expression: nft.Payload | nft.Meta | nft.Ct | nft.FibType | nft.SocketWildcard | nft.Immediate | nft.Random,
    ) -> None:
        match expression:
            case nft.Payload():
                data = self._header_bytes(expression)
            case nft.Meta(_, key):
                data = self._metadata(key)
            case nft.Ct(_, key):
                data = self._connection(key)
            case nft.FibType(_, source, at_output):
                address = self.packet.source if source else self.destination
                local = address in self.sets.at_interface.get(self.oif, ()) if at_output else self.is_local(address)
                data = nft.native_u32(RTN_LOCAL if local else RTN_UNICAST)
            case nft.SocketWildcard():
                data = self._socket()
            case nft.Immediate(_, data):
                pass
            case nft.Random(_, modulus, offset):
                data = nft.native_u32(self._choose(modulus) + offset)
                self.words.append(f"one of {modulus} at random: {spell(Form.SLOT, data)}")
        self._store(expression.reg, data)
        if not isinstance(expression, nft.Immediate | nft.Random):
            self._fields[expression.reg] = loaded_field(expression)

    def _header_bytes(self, expression: nft.Payload) -> bytes:
        if expression.base is nft.PayloadBase.NETWORK:
            header = network_header(self.packet, self.destination)
        else:
            header = transport_header(self.packet, self.port)
        data = header[expression.offset : expression.offset + expression.length]
        if len(data) < expression.length:
            self.words.append(f"has no {loaded_field(expression).name}")
            raise RuleEnds
        return data

    def _socket(self) -> bytes:
        """Only sockets bound to an address are known; a packet of this node has a socket that is not."""
        if self.packet.iif is None:
            return b"\1"
        if (pack_address(self.destination), self.packet.protocol, self.port) not in self.sets.sockets:
            self.words.append("no socket")
            raise RuleEnds
        return b"\0"

    def _metadata(self, key: nft.MetaKey) -> bytes:
        match key:
            case nft.MetaKey.PRIORITY:
                return nft.native_u32(self.priority)
            case nft.MetaKey.L4PROTO:
                return bytes((self.packet.protocol,))
            case nft.MetaKey.IIF:
                return nft.native_u32(_SOME_INTERFACE if self.iif else 0)
            case nft.MetaKey.NFTRACE:
                return b"\0"
            case nft.MetaKey.IIFNAME:
                return self.iif.encode().ljust(_IFNAMSIZ, b"\0")
            case nft.MetaKey.OIFNAME:
                return self.oif.encode().ljust(_IFNAMSIZ, b"\0")

    def _connection(self, key: nft.CtKey) -> bytes:
        """Returns a value of the original direction: the packet, the first of its connection, as it arrived."""
        match key:
            case nft.CtKey.STATE | nft.CtKey.STATUS:
                return state_bit(IP_CT_NEW) if key is nft.CtKey.STATE else nft.native_u32(self.status)
            case nft.CtKey.DIRECTION:
                return bytes((IP_CT_DIR_ORIGINAL,))
            case nft.CtKey.PROTOCOL:
                return bytes((self.packet.protocol,))
            case nft.CtKey.PROTO_DST:
                return self.packet.destination_port.to_bytes(2, "big")
            case nft.CtKey.SRC_IP | nft.CtKey.SRC_IP6:
                return pack_address(self.packet.source)
            case nft.CtKey.DST_IP | nft.CtKey.DST_IP6:
                return pack_address(self.packet.destination)

    def _choose(self, modulus: int) -> int:
        if self._chosen == len(self.choices):
            raise ChoiceNeeded(modulus)
        number = self.choices[self._chosen]
        self._chosen += 1
        self.probability /= modulus
        return number

    def _matches(self, expression: nft.Cmp | nft.Lookup | nft.OneOf) -> bool:
        match expression:
            case nft.Cmp(reg, data, invert):
                held = self._read(reg, len(data))
                label = self._fields.get(reg, UNKNOWN)
                matched = (held == data) is not invert
                instead = "" if matched else f" (is {label.spell(held)})"
                self.words.append(f"{label.name} {'!=' if invert else '=='} {label.spell(data)}{instead}")
            case nft.OneOf(reg, values, _):
                self.lookups += 1
                held = self._read(reg, len(values[0]))
                label = self._fields.get(reg, UNKNOWN)
                matched = held in values
                among = ", ".join(map(label.spell, values))
                self.words.append(f"{label.name} {label.spell(held)} {'is' if matched else 'is not'} in {{ {among} }}")
            case nft.Lookup():
                matched = self._look_up(expression)
        return matched

    def _look_up(self, expression: nft.Lookup) -> bool:
        self.lookups += 1
        spec = self.sets.specs[expression.set]
        family = self.packet.family
        key = self._read(expression.reg, spec.key_length(family))
        value = self._element(spec, key)
        spelled = spell_fields(spec.key, family, key)
        if value is None or expression.dreg is None:
            self.words.append(f"{spelled} {'not in' if value is None else 'in'} @{spec.name}")
            return (value is None) is expression.invert
        data, comment = value[: spec.data_length(family)], value[spec.data_length(family) :].decode(errors="replace")
        named = f" ({comment})" if comment else ""
        self.words.append(f"{spelled} in @{spec.name}: {spell_fields(spec.data, family, data)}{named}")
        self._store(expression.dreg, data)
        return True

    def _element(self, spec: SetSpec, key: bytes) -> bytes | None:
        """Returns the image's value for the element that contains the key (empty for an element of a set), or None."""
        elements = self.sets.image[spec.name]
        if not spec.interval:
            return self.learned.get(spec.name, {}).get(key, elements.get(key))
        lengths = spec.field_lengths(self.packet.family)
        for element, value in elements.items():
            half = len(element) // 2
            if _within(key, element[:half], element[half:], lengths):
                return value
        return None

    def _write(self, expression: nft.MetaSet | nft.Mask | nft.UpdateMap) -> None:
        match expression:
            case nft.MetaSet(_, nft.MetaKey.NFTRACE):
                self.words.append("meta nftrace set")
            case nft.MetaSet(reg, _):
                data = self._read(reg, 4)
                self.priority = int.from_bytes(data, sys.byteorder)
                self.words.append(f"meta priority set {spell(Form.CLASS, data)}")
            case nft.Mask(reg, mask):
                label = self._fields.get(reg, UNKNOWN)
                held = self._read(reg, len(mask))
                self._store(reg, bytes(have & keep for have, keep in zip(held, mask, strict=True)))
                form = Form.ADDRESS if label.form is Form.ADDRESS else Form.NUMBER
                self._fields[reg] = RegisterContent(f"{label.name} & {spell(form, mask)}", form)
            case nft.UpdateMap():
                self._learn(expression)

    def _learn(self, expression: nft.UpdateMap) -> None:
        """Adds an element. An existing one keeps its value; only its timer restarts."""
        spec, family = self.sets.specs[expression.set], self.packet.family
        key = self._read(expression.key_reg, spec.key_length(family))
        value = self._element(spec, key)
        if value is None:
            value = self._read(expression.data_reg, spec.data_length(family))
        self.learned.setdefault(spec.name, {})[key] = value
        spelled = f"{spell_fields(spec.key, family, key)} : {spell_fields(spec.data, family, value)}"
        self.words.append(f"update @{spec.name} {{ {spelled} timeout {expression.timeout_seconds}s }}")

    def _end(self, expression: nft.Verdict | nft.LookupVerdict | nft.Dnat | nft.Masquerade | nft.Reject) -> nft.Verdict:
        match expression:
            case nft.Verdict(code, chain):
                self.words.append(" ".join(filter(None, (code.name.lower(), chain))))
                return expression
            case nft.LookupVerdict():
                return self._look_up_verdict(expression)
            case nft.Dnat(_, address_reg, port_reg):
                self._translate(address_reg, port_reg)
                return nft.Verdict(nft.Code.ACCEPT)
            case nft.Masquerade():
                self.masqueraded = True
                self.words.append("masquerade")
                return nft.Verdict(nft.Code.ACCEPT)
            case nft.Reject(tcp_reset):
                self.rejected = expression
                self.words.append(f"reject with {'tcp reset' if tcp_reset else 'icmp port-unreachable'}")
                return nft.Verdict(nft.Code.DROP)

    def _look_up_verdict(self, expression: nft.LookupVerdict) -> nft.Verdict:
        self.lookups += 1
        spec, family = self.sets.specs[expression.set], self.packet.family
        key = self._read(expression.reg, spec.key_length(family))
        spelled = spell_fields(spec.key, family, key)
        target = self.sets.verdicts[spec.name].get(key)
        if target is None:
            self.words.append(f"{spelled} not in @{spec.name}")
            raise RuleEnds
        self.words.append(f"{spelled} in @{spec.name}: goto {target}")
        return nft.Verdict(nft.Code.GOTO, target)

    def _translate(self, address_reg: int, port_reg: int | None) -> None:
        """Sets a new destination. The connection counts as translated (IPS_DST_NAT) only if that changes it
        (nf_nat_setup_info)."""
        address = unpack_address(self._read(address_reg, self.packet.family.address_length))
        port = self.port if port_reg is None else int.from_bytes(self._read(port_reg, 2), "big")
        if (address, port) != (self.destination, self.port):
            self.status |= IPS_DST_NAT
        self.destination, self.port, self.translated = address, port, True
        self.words.append(f"dnat to {address} . {port}")

    def _read(self, reg: int, length: int) -> bytes:
        return bytes(self._registers[4 * reg : 4 * reg + length])

    def _store(self, reg: int, data: bytes) -> None:
        """Stores data, padded with zeros to whole registers, like every load of the kernel."""
        padded = data + b"\0" * (-len(data) % 4)
        self._registers[4 * reg : 4 * reg + len(padded)] = padded
        self._fields.pop(reg, None)


def _within(key: bytes, first: bytes, last: bytes, lengths: tuple[int, ...]) -> bool:
    """Returns whether every field of a key is between those of the ends, inclusive."""
    if len(lengths) == 1:
        return first <= key <= last
    offset = 0
    for length in lengths:
        stop = offset + length
        if not first[offset:stop] <= key[offset:stop] <= last[offset:stop]:
            return False
        offset = stop + 3 & ~3
    return True
