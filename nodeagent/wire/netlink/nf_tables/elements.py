"""Packs elements of sets and maps for the kernel (pure); `element_reading` reads them.

A key in an interval set is first ‖ last, both inclusive; values are empty in sets. A comment follows the value.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from struct import Struct

from nodeagent.wire.netlink.framing import (
    ATTRIBUTE,
    attribute,
    nested,
    string,
)
from nodeagent.wire.netlink.netfilter import u32, u64
from nodeagent.wire.netlink.nf_tables.expressions import Code, verdict_value
from nodeagent.wire.netlink.uapi import nf_tables as uapi
from nodeagent.wire.netlink.uapi.netlink import NLA_F_NESTED
from nodeagent.wire.netlink.uapi.nf_tables import (
    NFTA_COUNTER_BYTES,
    NFTA_COUNTER_PACKETS,
    NFTA_EXPR_DATA,
    NFTA_EXPR_NAME,
    NFTA_SET_ELEM_EXPR,
)

MAX_LIST_BYTES = 65000
"""Of elements in one message: an attribute's length field has 16 bits."""

_HEAD = ATTRIBUTE.size
_COMMENT_HEAD = Struct("=HHBB")
"""Length and type of the attribute, then the type and the length of libnftnl's part in it."""


@dataclass(frozen=True, slots=True)
class ElementForm:
    """The properties of a set that decide the form of its elements. Lengths in bytes.

    concatenated: keys have several fields. commented: user data is a comment. counted: a counter is in each element.
    timeout_milliseconds: of an element without a timeout of its own.
    """

    key_length: int
    value_length: int = 0
    is_map: bool = False
    interval: bool = False
    concatenated: bool = False
    commented: bool = False
    counted: bool = False
    timeout_milliseconds: int = 0

    @property
    def in_halves(self) -> bool:
        """Whether a range is two elements, its first key and the one after its last."""
        return self.interval and not self.concatenated


def pack_elements(
    form: ElementForm, elements: Mapping[bytes, bytes], counts: Mapping[bytes, tuple[int, int]] | None = None
) -> Iterable[bytes]:
    """Returns elements in their netlink form, one entry for each key (an interval's two elements in one entry), packed lazily.

    counts: the initial values of counters, key → (packets, bytes); all others start at zero.
    """
    if form.interval:
        with_values = (_halves(key, _data(value)) for key, value in elements.items())
        return with_values if form.is_map else pack_keys(form, elements)
    if form.commented:
        return _commented(form, elements, counts or {})
    before, between, after = _frame(form.key_length, form.value_length if form.is_map else None)
    if not form.is_map:
        return (before + key + between for key in elements)
    if not counts:
        return (before + key + between + value + after for key, value in elements.items())
    return (
        _element(key, _data(value), _counter_of(*counts[key]))
        if key in counts
        else before + key + between + value + after
        for key, value in elements.items()
    )


def pack_keys(form: ElementForm, keys: Iterable[bytes]) -> list[bytes]:
    """Returns elements without values: for plain sets, and to delete or request elements of any set."""
    if form.in_halves:
        return [_halves(key) for key in keys]
    if form.interval:
        return [_range(key) for key in keys]
    before, between, _ = _frame(form.key_length, None)
    return [before + key + between for key in keys]


def pack_catch_all() -> bytes:
    """Returns the catch-all element, which matches every other key; for a request."""
    return nested(uapi.NFTA_LIST_ELEM, u32(uapi.NFTA_SET_ELEM_FLAGS, uapi.NFT_SET_ELEM_CATCHALL))


def pack_verdicts(elements: Mapping[bytes, str]) -> list[bytes]:
    """Returns elements of a verdict map that go to chains: key → chain."""
    return [
        _element(key, nested(uapi.NFTA_SET_ELEM_DATA, verdict_value(Code.GOTO, chain)))
        for key, chain in elements.items()
    ]


def pack_expiring(elements: Mapping[bytes, tuple[bytes, int, int]]) -> list[bytes]:
    """Returns elements that expire: key → (value, timeout ms, remaining ms)."""
    return [
        _element(
            key,
            _data(value),
            u64(uapi.NFTA_SET_ELEM_TIMEOUT, timeout),
            u64(uapi.NFTA_SET_ELEM_EXPIRATION, remaining),
        )
        for key, (value, timeout, remaining) in elements.items()
    ]


@cache
def _frame(key_length: int, value_length: int | None) -> tuple[bytes, bytes, bytes]:
    """Returns the bytes before the key, between key and value, and after the value of every element of a set (None: it is no map)."""
    key_nest = 2 * _HEAD + (key_length + 3 & ~3)
    data_nest = 0 if value_length is None else 2 * _HEAD + (value_length + 3 & ~3)
    before = (
        ATTRIBUTE.pack(_HEAD + key_nest + data_nest, uapi.NFTA_LIST_ELEM | NLA_F_NESTED)
        + ATTRIBUTE.pack(key_nest, uapi.NFTA_SET_ELEM_KEY | NLA_F_NESTED)
        + ATTRIBUTE.pack(_HEAD + key_length, uapi.NFTA_DATA_VALUE)
    )
    between = b"\0" * (-key_length % 4)
    if value_length is None:
        return before, between, b""
    between += ATTRIBUTE.pack(data_nest, uapi.NFTA_SET_ELEM_DATA | NLA_F_NESTED)
    between += ATTRIBUTE.pack(_HEAD + value_length, uapi.NFTA_DATA_VALUE)
    return before, between, b"\0" * (-value_length % 4)


def _element(key: bytes, *rest: bytes) -> bytes:
    return nested(uapi.NFTA_LIST_ELEM, nested(uapi.NFTA_SET_ELEM_KEY, attribute(uapi.NFTA_DATA_VALUE, key)), *rest)


def _data(value: bytes) -> bytes:
    return nested(uapi.NFTA_SET_ELEM_DATA, attribute(uapi.NFTA_DATA_VALUE, value))


def comment_attribute(text: bytes) -> bytes:
    """Returns the attribute that holds an element's comment, with libnftnl's head of two bytes."""
    with_nul = len(text) + 1
    size = _COMMENT_HEAD.size + with_nul
    head = _COMMENT_HEAD.pack(size, uapi.NFTA_SET_ELEM_USERDATA, uapi.NFTNL_UDATA_SET_ELEM_COMMENT, with_nul)
    return head + text + b"\0" * (1 + -size % 4)


_U64 = 8
_COUNTER_HEAD = nested(
    NFTA_SET_ELEM_EXPR,
    string(NFTA_EXPR_NAME, "counter"),
    nested(NFTA_EXPR_DATA, u64(NFTA_COUNTER_BYTES, 0), u64(NFTA_COUNTER_PACKETS, 0)),
)[: -2 * _U64 - _HEAD]
_PACKETS_HEAD = ATTRIBUTE.pack(_HEAD + _U64, NFTA_COUNTER_PACKETS)


def _counter_of(packets: int, size: int) -> bytes:
    return _COUNTER_HEAD + size.to_bytes(_U64) + _PACKETS_HEAD + packets.to_bytes(_U64)


def _commented(
    form: ElementForm, elements: Mapping[bytes, bytes], counts: Mapping[bytes, tuple[int, int]]
) -> Iterator[bytes]:
    """Yields elements of a map with comments; only the length at the beginning is not the same for all."""
    length = form.value_length
    before, between, after = _frame(form.key_length, length)
    before = before[_HEAD:]
    for key, value in elements.items():
        counter = _counter_of(*counts[key]) if key in counts else b""
        inner = b"".join((before, key, between, value[:length], after, counter, comment_attribute(value[length:])))
        yield ATTRIBUTE.pack(_HEAD + len(inner), uapi.NFTA_LIST_ELEM | NLA_F_NESTED) + inner


def _range(key: bytes) -> bytes:
    half = len(key) // 2
    return _element(key[:half], nested(uapi.NFTA_SET_ELEM_KEY_END, attribute(uapi.NFTA_DATA_VALUE, key[half:])))


def _halves(key: bytes, value: bytes = b"") -> bytes:
    """Returns a range of a lone field: its first element, which has the value, and the one after its last as the end (no end element
    at the end of the address space)."""
    half = len(key) // 2
    first = _element(key[:half], value)
    behind = int.from_bytes(key[half:], "big") + 1
    if behind >> (8 * half):
        return first
    end = u32(uapi.NFTA_SET_ELEM_FLAGS, uapi.NFT_SET_ELEM_INTERVAL_END)
    return first + _element(behind.to_bytes(half, "big"), end)
