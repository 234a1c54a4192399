"""Reads elements of sets and maps from the kernel's messages, in the forms of `elements` (pure)."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from nodeagent.wire.netlink.framing import (
    ATTRIBUTE,
    HEADER,
    MalformedMessageError,
    attribute,
    attribute_map,
    attributes,
    reader,
    string,
)
from nodeagent.wire.netlink.netfilter import GENMSG_LENGTH, number
from nodeagent.wire.netlink.nf_tables.elements import ElementForm, comment_attribute
from nodeagent.wire.netlink.nf_tables.ruleset_objects import named_set
from nodeagent.wire.netlink.uapi import nf_tables as uapi
from nodeagent.wire.netlink.uapi.netlink import NLA_TYPE_MASK
from nodeagent.wire.netlink.uapi.nf_tables import (
    NFT_SET_ELEM_INTERVAL_END,
    NFTA_COUNTER_BYTES,
    NFTA_COUNTER_PACKETS,
    NFTA_DATA_VALUE,
    NFTA_DATA_VERDICT,
    NFTA_EXPR_DATA,
    NFTA_EXPR_NAME,
    NFTA_SET_ELEM_DATA,
    NFTA_SET_ELEM_EXPIRATION,
    NFTA_SET_ELEM_EXPR,
    NFTA_SET_ELEM_FLAGS,
    NFTA_SET_ELEM_KEY,
    NFTA_SET_ELEM_KEY_END,
    NFTA_SET_ELEM_LIST_ELEMENTS,
    NFTA_SET_ELEM_TIMEOUT,
    NFTA_SET_ELEM_USERDATA,
    NFTA_VERDICT_CHAIN,
)

_LENGTH = struct.Struct("=H")
_HEAD = ATTRIBUTE.size
_USER_DATA_HEAD = 2
_USER_DATA_KIND = ATTRIBUTE.pack(0, NFTA_SET_ELEM_USERDATA)[_LENGTH.size :]


@dataclass(slots=True)
class ElementDump:
    """Elements of one set, collected message by message; verdict maps have the chain's name as value.

    A dump of a growing hash set can repeat some elements and miss as many others, without any error. So the dump is complete
    only if `duplicates` is 0, and the number of elements is the set's count.
    A catch-all element (nft's `*`) is in neither: the kernel does not count it (nft_add_set_elem).
    counters: key → (packets, bytes). expirations: key → (timeout, remaining) in milliseconds.
    """

    elements: dict[bytes, bytes] = field(default_factory=dict)
    duplicates: int = 0
    counters: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    expirations: dict[bytes, tuple[int, int]] = field(default_factory=dict)


@reader
def read_elements(form: ElementForm, messages: Iterable[memoryview]) -> ElementDump:
    """Returns every element in messages of one set."""
    dump = ElementDump()
    values: dict[bytes, bytes] = {}
    ends: list[bytes] = []
    in_halves = form.in_halves
    plain = not (form.interval or form.commented or form.counted)
    counted = form.counted and form.is_map and not form.interval
    for message in messages:
        body = attribute_map(message).get(NFTA_SET_ELEM_LIST_ELEMENTS)
        if body is None or (plain and _add_plain(form, body, dump)) or (counted and _add_counted(form, body, dump)):
            continue
        for _, element in attributes(body):
            parts = attribute_map(element)
            if _is_catch_all(parts):
                continue
            key = bytes(parts[NFTA_SET_ELEM_KEY][_HEAD:]) if NFTA_SET_ELEM_KEY in parts else b""
            if in_halves:
                if _is_end(parts):
                    ends.append(key)
                else:
                    dump.duplicates += key in values
                    values[key] = _value(parts)
                continue
            if form.interval:
                last = parts.get(NFTA_SET_ELEM_KEY_END)
                key += key if last is None else bytes(last[_HEAD:])
            if key in dump.elements:
                dump.duplicates += 1
            dump.elements[key] = _value(parts) + _comment_text(parts) if form.commented else _value(parts)
            if NFTA_SET_ELEM_EXPR in parts:
                dump.counters[key] = _counter(parts[NFTA_SET_ELEM_EXPR])
            if NFTA_SET_ELEM_EXPIRATION in parts:
                dump.expirations[key] = _expiration(form, parts)
    if in_halves:
        dump.elements = _join_halves(values, ends)
    return dump


@reader
def read_counters(
    form: ElementForm, head: bytes, messages: Iterable[memoryview | bytes]
) -> dict[bytes, tuple[int, int]]:
    """Returns key → (packets, bytes) of the elements with a counter; the fast way of `read_counts`.

    head: the bytes with which messages about elements of this set begin (`named_set`). A message with a single element, as the
    kernel sends to report or to answer for each, is read by the places of its bytes.
    """
    counters: dict[bytes, tuple[int, int]] = {}
    shape, start = _counted_shape(form), len(head)
    least = start + _HEAD + shape.size
    for message in messages:
        if len(message) >= least and message[:start] == head:
            all_length, _ = ATTRIBUTE.unpack_from(message, start)
            length, key, _, heads, size, packets_head, packets = shape.unpack_from(message, start + _HEAD)
            is_single = all_length == _HEAD + (length + 3 & ~3) and length >= shape.size
            if is_single and heads == _COUNTER_HEADS and packets_head == _PACKETS_HEAD:
                counters[key] = (int.from_bytes(packets), int.from_bytes(size))
                continue
        counters |= _counters_in(form, memoryview(message))
    return counters


def _counters_in(form: ElementForm, message: memoryview) -> dict[bytes, tuple[int, int]]:
    found = _counted_elements(form, _list_of(message))
    if found is None:
        return read_elements(form, (message,)).counters
    return {key: (int.from_bytes(packets), int.from_bytes(size)) for key, _, packets, size, _ in found}


def _counted_elements(form: ElementForm, body: memoryview) -> list[tuple[bytes, bytes, bytes, bytes, bytes]] | None:
    """Returns key, value, packets, bytes and comment of each element of a map with counters, in a seventh of the time that parsing takes;
    None if one has another form.

    What the kernel puts before the comment has one length for all elements of a set. A kernel that aligns 64-bit attributes has another
    form.
    """
    shape, data = _counted_shape(form), bytes(body)
    found = []
    offset, end = 0, len(data)
    while offset < end:
        if end < offset + shape.size:
            return None
        length, key, value, heads, size, packets_head, packets = shape.unpack_from(data, offset)
        if heads != _COUNTER_HEADS or packets_head != _PACKETS_HEAD or length < shape.size:
            return None
        comment = data[offset + shape.size : offset + length]
        if comment:
            if comment[_LENGTH.size : _HEAD] != _USER_DATA_KIND:
                return None
            comment = comment[_HEAD + _USER_DATA_HEAD :].rstrip(b"\0")
        found.append((key, value, packets, size, comment))
        offset += length + 3 & ~3
    return found


def _add_counted(form: ElementForm, body: memoryview, dump: ElementDump) -> bool:
    """Adds elements of a map that have a counter, and may have a comment. Returns False, without a change, if one has another part."""
    found = _counted_elements(form, body)
    if found is None:
        return False
    known = len(dump.elements)
    dump.elements.update([(key, value + comment) for key, value, _, _, comment in found])
    dump.counters.update([(key, (int.from_bytes(packets), int.from_bytes(size))) for key, _, packets, size, _ in found])
    dump.duplicates += len(found) - (len(dump.elements) - known)
    return True


def _list_of(message: memoryview) -> memoryview:
    """Returns the elements in a message, behind the names of table and set; empty if it has none."""
    offset = 0
    while offset + _HEAD <= len(message):
        length, kind = ATTRIBUTE.unpack_from(message, offset)
        if kind & NLA_TYPE_MASK == NFTA_SET_ELEM_LIST_ELEMENTS:
            return message[offset + _HEAD : offset + length]
        offset += max(_HEAD, length + 3 & ~3)
    return message[:0]


def _add_plain(form: ElementForm, body: memoryview, dump: ElementDump) -> bool:
    """Adds elements that are nothing but a key, and a value in a map: in a tenth of the time. Returns False, without a change, if any
    has another part."""
    shape, before, between = _plain_shape(form)
    if len(body) % shape.size:
        return False
    if not body:
        return True
    heads, keys, middles, values = zip(*shape.iter_unpack(body), strict=True)
    if heads.count(before) != len(keys) or middles.count(between) != len(keys):
        return False
    known = len(dump.elements)
    dump.elements.update(zip(keys, values, strict=True))
    dump.duplicates += len(keys) - (len(dump.elements) - known)
    return True


@cache
def _plain_shape(form: ElementForm) -> tuple[struct.Struct, bytes, bytes]:
    """Returns the layout of such an element (what is before its key, the key, what is before its value, the value), and the bytes
    before key and value."""
    before, after_key = _heads(uapi.NFTA_SET_ELEM_KEY, form.key_length), b"\0" * (-form.key_length % 4)
    between = after_key + (_heads(uapi.NFTA_SET_ELEM_DATA, form.value_length) if form.is_map else b"")
    behind = -form.value_length % 4
    size = _HEAD + len(before) + form.key_length + len(between) + form.value_length + behind
    before = ATTRIBUTE.pack(size, uapi.NFTA_LIST_ELEM) + before
    shape = struct.Struct(f"={len(before)}s{form.key_length}s{len(between)}s{form.value_length}s{behind}x")
    return shape, before, between


def _is_end(parts: Mapping[int, memoryview]) -> bool:
    flags = parts.get(NFTA_SET_ELEM_FLAGS)
    return flags is not None and bool(number(flags) & NFT_SET_ELEM_INTERVAL_END)


def _is_catch_all(parts: Mapping[int, memoryview]) -> bool:
    return NFTA_SET_ELEM_KEY not in parts and bool(
        number(parts.get(NFTA_SET_ELEM_FLAGS, b"")) & uapi.NFT_SET_ELEM_CATCHALL
    )


def _value(parts: Mapping[int, memoryview]) -> bytes:
    data = parts.get(NFTA_SET_ELEM_DATA)
    if data is None:
        return b""
    inner = attribute_map(data)
    if NFTA_DATA_VALUE in inner:
        return bytes(inner[NFTA_DATA_VALUE])
    verdict = attribute_map(inner[NFTA_DATA_VERDICT])
    return bytes(verdict.get(NFTA_VERDICT_CHAIN, b"")).rstrip(b"\0")


def _comment_text(parts: Mapping[int, memoryview]) -> bytes:
    """Returns the comment: an element's user data is nothing else."""
    found = parts.get(NFTA_SET_ELEM_USERDATA)
    return b"" if found is None else bytes(found[_USER_DATA_HEAD:]).rstrip(b"\0")


def _counter(expression: memoryview) -> tuple[int, int]:
    data = attribute_map(expression).get(NFTA_EXPR_DATA)
    if data is None:
        return (0, 0)
    fields = attribute_map(data)
    return number(fields.get(NFTA_COUNTER_PACKETS, b"")), number(fields.get(NFTA_COUNTER_BYTES, b""))


def _expiration(form: ElementForm, parts: Mapping[int, memoryview]) -> tuple[int, int]:
    """Returns (timeout, remaining) in ms. The kernel leaves out a timeout that is the set's own, but requires it when
    the element is written back."""
    timeout = parts.get(NFTA_SET_ELEM_TIMEOUT)
    remaining = number(parts[NFTA_SET_ELEM_EXPIRATION])
    return form.timeout_milliseconds if timeout is None else number(timeout), remaining


def _join_halves(values: Mapping[bytes, bytes], ends: list[bytes]) -> dict[bytes, bytes]:
    """Returns first ‖ last of every range, and its value: an end element is the first address after its range. values: by the first."""
    elements: dict[bytes, bytes] = {}
    remaining = sorted(ends)
    for first in sorted(values):
        while remaining and remaining[0] <= first:
            remaining.pop(0)
        if remaining:
            last = (int.from_bytes(remaining.pop(0), "big") - 1).to_bytes(len(first), "big")
        else:
            last = b"\xff" * len(first)
        elements[first + last] = values[first]
    return elements


@reader
def read_pairs(form: ElementForm, message: memoryview) -> dict[bytes, bytes]:
    """Returns keys and values of a map without comments, and nothing else of its elements: eight times as fast as `read_elements`.

    An element is its length and type, the heads of the key, the key, the heads of the value, the value.
    """
    elements: dict[bytes, bytes] = {}
    key_length, value_length = form.key_length, form.value_length
    key_at = _HEAD + len(_heads(uapi.NFTA_SET_ELEM_KEY, key_length))
    value_at = key_at + key_length + -key_length % 4 + len(_heads(uapi.NFTA_SET_ELEM_DATA, value_length))
    body = attribute_map(message).get(uapi.NFTA_SET_ELEM_LIST_ELEMENTS, memoryview(b""))
    offset = 0
    while offset < len(body):
        key, value = offset + key_at, offset + value_at
        length = _LENGTH.unpack_from(body, offset)[0]
        if length < value_at + value_length or offset + length > len(body):
            raise MalformedMessageError("read_pairs")
        elements[bytes(body[key : key + key_length])] = bytes(body[value : value + value_length])
        offset += length + 3 & ~3
    return elements


@reader
def read_counts(form: ElementForm, message: memoryview) -> dict[bytes, tuple[int, bytes]]:
    """Returns, for elements with a counter, key → (packets, comment), or the value if elements have no comments."""
    found = _counted_elements(form, _list_of(message))
    if found is None:
        return _counts_of(form, read_elements(form, (message,)))
    return {
        key: (int.from_bytes(packets), comment if form.commented else value)
        for key, value, packets, _, comment in found
    }


def _counts_of(form: ElementForm, dump: ElementDump) -> dict[bytes, tuple[int, bytes]]:
    start = form.value_length if form.commented else 0
    return {key: (dump.counters.get(key, (0, 0))[0], value[start:]) for key, value in dump.elements.items()}


@cache
def _counted_shape(form: ElementForm) -> struct.Struct:
    """Returns the layout of an element: its length, key, value, the bytes before the counter's bytes, these, those before its packets, and
    these."""
    before_key = len(_heads(uapi.NFTA_SET_ELEM_KEY, form.key_length)) + _HEAD - _LENGTH.size
    behind_key, behind_value = -form.key_length % 4 + 2 * _HEAD, -form.value_length % 4
    return struct.Struct(
        f"=H{before_key}x{form.key_length}s{behind_key}x{form.value_length}s{behind_value}x"
        f"{len(_COUNTER_HEADS)}s8s{len(_PACKETS_HEAD)}s8s"
    )


class AnswerShape:
    """The bytes with which the kernel answers a request for one element of a set by its key.

    Parsing a hundred thousand answers costs more than a second; comparing bytes at fixed positions does not.
    """

    def __init__(self, form: ElementForm, table: str, name: str) -> None:
        self._value_length = form.value_length
        # Behind the message's two headers: table, set, the heads of list and element (nf_tables_fill_setelem_info).
        self.start = HEADER.size + GENMSG_LENGTH + len(named_set(table, name)) + 2 * _HEAD
        self.commented = form.commented
        self.exact = not (form.commented or form.counted)
        self._before = _heads(uapi.NFTA_SET_ELEM_KEY, form.key_length)
        self._between = b"\0" * (-form.key_length % 4)
        if form.is_map:
            self._between += _heads(uapi.NFTA_SET_ELEM_DATA, self._value_length)
        self._after = b"\0" * (-self._value_length % 4)
        counter = f"{len(_COUNTER_HEADS)}s8s{len(_PACKETS_HEAD)}s8s" if form.counted else ""
        self._row = struct.Struct(
            f"={self.start}x{len(self._before)}s{form.key_length}s{len(self._between)}s"
            f"{self._value_length}s{len(self._after)}x{counter}"
        )
        head = len(self._before) + form.key_length + len(self._between)
        self._plain_row = struct.Struct(f"={self.start}x{head}s{self._value_length}s{len(self._after)}x")
        self._heads = [self._before, self._between, *([_COUNTER_HEADS, _PACKETS_HEAD] if form.counted else [])]
        self.size = self._row.size
        """Of a whole answer, without a comment."""

    def read(self, answers: memoryview) -> ElementDump | None:
        """Returns the elements in answers of this size side by side, at least one: in a fifth of the time of `read_elements`. None if
        they are not of this shape."""
        before, keys, between, values, *counter = zip(*self._row.iter_unpack(answers), strict=True)
        found = [before, between, *counter[::2]]
        if any(column.count(head) != len(keys) for column, head in zip(found, self._heads, strict=True)):
            return None
        dump = ElementDump(dict(zip(keys, values, strict=True)))
        if counter:
            _, sizes, _, packets = counter
            numbers = zip(map(int.from_bytes, packets), map(int.from_bytes, sizes), strict=True)
            dump.counters = dict(zip(keys, numbers, strict=True))
        dump.duplicates = len(keys) - len(dump.elements)
        return dump

    def values(self, answers: memoryview, keys: Sequence[bytes]) -> list[bytes] | None:
        """Returns the values in answers of this size, without counters, which were asked for by these keys; None if they are not of this
        shape, or have other keys. It makes no objects for the keys, which the caller has."""
        if not self.exact:
            return None
        before, between = self._before, self._between
        heads, values = zip(*self._plain_row.iter_unpack(answers), strict=True)
        return list(values) if list(heads) == [before + key + between for key in keys] else None

    def expected(self, elements: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
        """Returns for each element the bytes at `start`, and the last bytes of the answer; a counter may be between them."""
        before, between, after, length = self._before, self._between, self._after, self._value_length
        if not self.commented:
            return [(before + key + between + value + after, b"") for key, value in elements.items()]
        return [
            (before + key + between + value[:length] + after, comment_attribute(value[length:]))
            for key, value in elements.items()
        ]


def _heads(kind: int, length: int) -> bytes:
    """Returns the heads of an attribute that holds one attribute of this many bytes (the kernel sets no nested flag here)."""
    return attribute(kind, attribute(uapi.NFTA_DATA_VALUE, b"\0" * length))[: 2 * _HEAD]


_COUNTED = attribute(NFTA_COUNTER_BYTES, bytes(8)) + attribute(NFTA_COUNTER_PACKETS, bytes(8))
_PACKETS_HEAD = attribute(NFTA_COUNTER_PACKETS, bytes(8))[:_HEAD]
_COUNTER_HEADS = attribute(NFTA_SET_ELEM_EXPR, string(NFTA_EXPR_NAME, "counter") + attribute(NFTA_EXPR_DATA, _COUNTED))[
    : -len(_COUNTED) + _HEAD
]
"""The bytes that the kernel puts before the number of bytes (nft_expr_dump, nft_counter_do_dump)."""
