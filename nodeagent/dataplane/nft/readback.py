"""The table as the kernel has it → the same values that rendering and the program make (pure parsers over dumps)."""

import struct
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nodeagent.dataplane.nft import schema
from nodeagent.dataplane.nft.chain import Chain, ChainType, Hook
from nodeagent.dataplane.nft.image import Elements
from nodeagent.dataplane.nft.schema import AFFINITY_DEFAULT_TIMEOUT_SECONDS, SetSpec
from nodeagent.model.addresses import Family
from nodeagent.netlink.framing import HEADER, attribute, attribute_map, attributes, string, text_of
from nodeagent.netlink.netfilter import GENMSG_LENGTH
from nodeagent.netlink.nf_tables.expressions import Code, OneOf, Rule

TABLE_DORMANT = 0x1
TABLE_OWNER = 0x2
TABLE_PERSIST = 0x4
_INTERVAL_END = 1
_LENGTH = struct.Struct("=H")
_CHAIN_TYPES = frozenset(kind.value for kind in ChainType)
_BROAD_REGISTERS = {1: 8, 2: 12, 3: 16, 4: 20}


@dataclass(frozen=True, slots=True)
class TableHeader:
    """The table object itself: its flags, its comment, the handle that changes when it is made anew, and the netlink
    port of the living process that owns it (0: nobody does)."""

    flags: int
    comment: str
    handle: int
    owner: int = 0


def parse_table(data: memoryview) -> TableHeader:
    """Of a GETTABLE reply."""
    fields = attribute_map(data)
    comment = ""
    user_data = bytes(fields.get(6, b""))
    if len(user_data) > 2 and user_data[0] == 0:
        comment = user_data[2 : 2 + user_data[1]].rstrip(b"\0").decode(errors="replace")

    def number(kind: int) -> int:
        return int.from_bytes(fields.get(kind, b"\0"), "big")

    return TableHeader(number(2), comment, number(4), number(7))


@dataclass(frozen=True, slots=True)
class SetHeader:
    """A set as the kernel describes it, as far as it matters to us; `count` is None on kernels that do not tell."""

    name: str
    flags: int
    key_type: int
    key_length: int
    data_type: int
    data_length: int
    counter: bool
    count: int | None

    def matches(self, spec: SetSpec, family: Family) -> bool:
        """Whether this is the set that `spec` asks for."""
        return (
            self.flags == spec.flags
            and self.key_type == spec.key_type(family)
            and self.key_length == spec.key_length(family)
            and self.data_type == spec.data_type(family)
            and self.data_length == spec.data_length(family)
            and self.counter == spec.counter
        )


def parse_set(data: memoryview) -> SetHeader:
    """Of a GETSET reply."""
    fields = attribute_map(data)

    def number(kind: int) -> int:
        return int.from_bytes(fields.get(kind, b"\0"), "big")

    count = number(20) if 20 in fields else None
    return SetHeader(text_of(fields[2]), number(3), number(4), number(5), number(6), number(7), 17 in fields, count)


@dataclass(slots=True)
class ElementDump:
    """Elements of one set, collected message by message.

    A dump of a growing hash set can repeat some elements and miss as many others, without any error, so it counts:
    `duplicates` must be 0, and the number of elements the set's count, for the dump to be believed.
    """

    elements: Elements = field(default_factory=dict)
    duplicates: int = 0
    counters: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    expirations: dict[bytes, tuple[int, int]] = field(default_factory=dict)


def collect_elements(spec: SetSpec, messages: Iterable[memoryview]) -> ElementDump:
    """Every element of a set in image form; verdict maps have the chain's name as value.

    Counters as key → (packets, bytes); expirations as key → (timeout, remaining) in milliseconds.
    """
    dump = ElementDump()
    starts: list[bytes] = []
    ends: list[bytes] = []
    lone_interval = spec.interval and len(spec.key) == 1
    for message in messages:
        body = attribute_map(message).get(3)
        if body is None:
            continue
        for _, element in attributes(body):
            parts = attribute_map(element)
            key = bytes(parts[1][4:]) if 1 in parts else b""
            if lone_interval:
                is_end = 3 in parts and int.from_bytes(parts[3], "big") & _INTERVAL_END
                (ends if is_end else starts).append(key)
                continue
            if spec.interval:
                key += bytes(parts[10][4:]) if 10 in parts else key
            if key in dump.elements:
                dump.duplicates += 1
            dump.elements[key] = _value(parts) + _comment(parts) if spec.commented else _value(parts)
            if 7 in parts:
                dump.counters[key] = _counter(parts[7])
            if 5 in parts:
                # Dumped only where it is not the set's own; the kernel takes no expiration without a timeout back.
                timeout = int.from_bytes(parts[4], "big") if 4 in parts else AFFINITY_DEFAULT_TIMEOUT_SECONDS * 1000
                dump.expirations[key] = (timeout, int.from_bytes(parts[5], "big"))
    if lone_interval:
        dump.elements = _join_intervals(starts, ends)
        dump.duplicates = len(starts) - len(set(starts))
    return dump


def _value(parts: Mapping[int, memoryview]) -> bytes:
    data = parts.get(2)
    if data is None:
        return b""
    inner = attribute_map(data)
    if 1 in inner:
        return bytes(inner[1])
    verdict = attribute_map(inner[2])
    return bytes(verdict.get(2, b"")).rstrip(b"\0")


def _comment(parts: Mapping[int, memoryview]) -> bytes:
    """An element's user data is its comment only: type 0, length, text, NUL (libnftnl's NFTNL_UDATA_SET_ELEM_COMMENT)."""
    return bytes(parts[6][2:]).rstrip(b"\0") if 6 in parts else b""


def _counter(expression: memoryview) -> tuple[int, int]:
    data = attribute_map(expression).get(2)
    if data is None:
        return (0, 0)
    fields = attribute_map(data)
    return int.from_bytes(fields.get(2, b"\0"), "big"), int.from_bytes(fields.get(1, b"\0"), "big")


def collect_pairs(spec: SetSpec, family: Family, message: memoryview) -> Elements:
    """Keys and values of a map without comments, and nothing else of its elements: eight times as fast.

    An element is its length and type, the heads of the key, the key, the heads of the value, the value.
    """
    elements: Elements = {}
    key_length, value_length = spec.key_length(family), spec.data_length(family)
    key_at = 4 + len(_heads(1, key_length))
    value_at = key_at + key_length + -key_length % 4 + len(_heads(2, value_length))
    body = attribute_map(message).get(3, memoryview(b""))
    offset = 0
    while offset < len(body):
        key, value = offset + key_at, offset + value_at
        elements[bytes(body[key : key + key_length])] = bytes(body[value : value + value_length])
        offset += _LENGTH.unpack_from(body, offset)[0] + 3 & ~3
    return elements


class AnswerShape:
    """The bytes with which the kernel answers when it is asked for one element of a set by its key.

    Parsing a hundred thousand answers costs a second and more; comparing bytes at their place does not.
    """

    def __init__(self, spec: SetSpec, family: Family) -> None:
        self._value_length = spec.data_length(family)
        key_length = spec.key_length(family)
        # Behind the message's two headers: table, set, the heads of list and element (nf_tables_fill_setelem_info).
        self.start = HEADER.size + GENMSG_LENGTH + len(string(1, schema.TABLE) + string(2, spec.name)) + 8
        self.commented = spec.commented
        self.exact = not (spec.commented or spec.counter)
        self._before = _heads(1, key_length)
        self._between = b"\0" * (-key_length % 4) + (_heads(2, self._value_length) if spec.is_map else b"")
        self._after = b"\0" * (-self._value_length % 4)

    def expected(self, elements: Elements) -> list[tuple[bytes, bytes]]:
        """For each element what stands at `start`, and with what the answer ends; between them a counter may be."""
        before, between, after, length = self._before, self._between, self._after, self._value_length
        if not self.commented:
            return [(before + key + between + value + after, b"") for key, value in elements.items()]
        return [
            (before + key + between + value[:length] + after, _comment_attribute(value[length:]))
            for key, value in elements.items()
        ]


def _heads(kind: int, length: int) -> bytes:
    """The heads of an attribute that holds one attribute of so many bytes (the kernel sets no flag of nests here)."""
    return attribute(kind, attribute(1, b"\0" * length))[:8]


def _comment_attribute(comment: bytes) -> bytes:
    return attribute(6, bytes((0, len(comment) + 1)) + comment + b"\0")


def _join_intervals(starts: list[bytes], ends: list[bytes]) -> Elements:
    """first ‖ last of every range: an end element is the first address behind its range."""
    elements: Elements = {}
    remaining = sorted(ends)
    for first in sorted(starts):
        while remaining and remaining[0] <= first:
            remaining.pop(0)
        if remaining:
            last = (int.from_bytes(remaining.pop(0), "big") - 1).to_bytes(len(first), "big")
        else:
            last = b"\xff" * len(first)
        elements[first + last] = b""
    return elements


def parse_chain(data: memoryview) -> tuple[str, str, Hook | None, int]:
    """Table, name, hook and policy (a verdict's number), of a GETCHAIN reply."""
    fields = attribute_map(data)
    table, name = text_of(fields[1]), text_of(fields[3])
    if 4 not in fields:
        return table, name, None, Code.ACCEPT
    hook = attribute_map(fields[4])
    priority = int.from_bytes(hook[2], "big", signed=True)
    number, kind = int.from_bytes(hook[1], "big"), text_of(fields[7])
    policy = int.from_bytes(fields[5], "big") if 5 in fields else Code.ACCEPT
    if kind not in _CHAIN_TYPES:
        return table, name, None, policy  # somebody else's: none of ours has such a type
    return table, name, Hook(number, priority, ChainType(kind)), policy


@dataclass(frozen=True, slots=True)
class KernelRule:
    """A rule as dumped: its chain, and per expression its name and raw data."""

    chain: str
    expressions: tuple[tuple[str, bytes], ...]


def parse_rule(data: memoryview) -> KernelRule:
    """Of a GETRULE reply."""
    fields = attribute_map(data)
    expressions = []
    for _, item in attributes(fields.get(4, memoryview(b""))):
        parts = attribute_map(item)
        expressions.append((text_of(parts[1]), bytes(parts.get(2, b""))))
    return KernelRule(text_of(fields[2]), tuple(expressions))


def same_chains(
    wanted: Iterable[Chain], hooks: Mapping[str, Hook | None], rules: Mapping[str, list[KernelRule]]
) -> bool:
    """Whether the kernel has exactly these chains with exactly these rules."""
    chains = tuple(wanted)
    if {chain.name: chain.hook for chain in chains} != dict(hooks):
        return False
    for chain in chains:
        held = rules.get(chain.name, [])
        if len(held) != len(chain.rules):
            return False
        if not all(_same_rule(want, have) for want, have in zip(chain.rules, held, strict=True)):
            return False
    return True


def _same_rule(wanted: Rule, held: KernelRule) -> bool:
    if [expression.name for expression in wanted] != [name for name, _ in held.expressions]:
        return False
    for expression, (_, data) in zip(wanted, held.expressions, strict=True):
        # An anonymous set has a name of the kernel's making; its constants never differ between programs.
        if isinstance(expression, OneOf):
            if not text_of(attribute_map(memoryview(data))[1]).startswith("__set"):
                return False
            continue
        if not _covers(data, expression.encode(), top=True):
            return False
    return True


def _covers(held: bytes, wanted: bytes, *, top: bool = False) -> bool:
    """Whether every attribute we set is there with our value (the kernel adds defaults of its own)."""
    have = list(attributes(memoryview(held)))
    kernel = dict(have)
    for kind, value in attributes(memoryview(wanted)):
        got = kernel.get(kind)
        if got is None:
            if any(value):
                return False
            continue
        if bytes(got) == bytes(value) or (top and len(value) == 4 and _same_register(value, got)):
            continue
        if not _covers_nested(bytes(got), bytes(value)):
            return False
    return True


def _same_register(ours: memoryview, theirs: memoryview) -> bool:
    """The kernel reports 32-bit registers on a 16-byte boundary under the number of the 128-bit one."""
    number = int.from_bytes(theirs, "big")
    return _BROAD_REGISTERS.get(number, number) == int.from_bytes(ours, "big")


def _covers_nested(held: bytes, wanted: bytes) -> bool:
    if not (_is_nest(held) and _is_nest(wanted)):
        return False
    return _covers(held, wanted)


def _is_nest(data: bytes) -> bool:
    offset = 0
    if len(data) < 4:
        return False
    while offset < len(data):
        length = int.from_bytes(data[offset : offset + 2], sys.byteorder)
        if length < 4 or offset + length > len(data):
            return False
        offset += (length + 3) & ~3
    return True
