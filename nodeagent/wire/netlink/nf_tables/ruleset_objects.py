"""Packs and reads tables, chains, rules and sets of a ruleset (pure)."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from nodeagent.wire.netlink.framing import attribute, attribute_map, attributes, nested, reader, string, text_of
from nodeagent.wire.netlink.netfilter import GENMSG_LENGTH, number, u32, u64
from nodeagent.wire.netlink.nf_tables.expressions import Code
from nodeagent.wire.netlink.nf_tables.user_data import comment_in, pack_comment
from nodeagent.wire.netlink.uapi import nf_tables as uapi

_NOTHING = memoryview(b"")


def pack_table(name: str, flags: int | None = None, comment: str = "") -> bytes:
    """Packs a table; with the name only, a reference to one."""
    body = string(uapi.NFTA_TABLE_NAME, name)
    if flags is not None:
        body += u32(uapi.NFTA_TABLE_FLAGS, flags)
    if comment:
        body += attribute(uapi.NFTA_TABLE_USERDATA, pack_comment(uapi.NFTNL_UDATA_TABLE_COMMENT, comment.encode()))
    return body


@dataclass(frozen=True, slots=True)
class TableHeader:
    """The table object itself: its flags, its comment, the handle that changes when it is rebuilt, and the netlink
    port of the living process that owns it (0: no process)."""

    flags: int
    comment: str
    handle: int
    owner: int = 0


def read_table(data: memoryview) -> TableHeader:
    """Reads a table's message."""
    fields = attribute_map(data)
    return TableHeader(
        number(fields.get(uapi.NFTA_TABLE_FLAGS, b"")),
        comment_in(fields.get(uapi.NFTA_TABLE_USERDATA, b""), uapi.NFTNL_UDATA_TABLE_COMMENT),
        number(fields.get(uapi.NFTA_TABLE_HANDLE, b"")),
        number(fields.get(uapi.NFTA_TABLE_OWNER, b"")),
    )


@reader
def read_generation(message: memoryview) -> int:
    """Returns the ruleset's generation; message: the whole answer."""
    return number(attribute_map(message[GENMSG_LENGTH:])[uapi.NFTA_GEN_ID])


@reader
def table_of(data: memoryview) -> str:
    """Returns the name of the table that a chain, a rule or a set is in."""
    return text_of(attribute_map(data)[uapi.NFTA_CHAIN_TABLE])


class ChainHook(NamedTuple):
    """Where a base chain is attached: a number of enum nf_inet_hooks, its priority, and `nat`, `filter` or `route`."""

    number: int
    priority: int
    type: str


class ChainHeader(NamedTuple):
    """A chain. policy: a base chain's verdict, ACCEPT for any other."""

    table: str
    name: str
    hook: ChainHook | None
    policy: int


def pack_chain(table: str, name: str, hook: ChainHook | None = None) -> bytes:
    """Packs a chain; a base chain's policy is to accept."""
    body = string(uapi.NFTA_CHAIN_TABLE, table) + string(uapi.NFTA_CHAIN_NAME, name)
    if hook is None:
        return body
    where = u32(uapi.NFTA_HOOK_HOOKNUM, hook.number), u32(uapi.NFTA_HOOK_PRIORITY, hook.priority)
    body += nested(uapi.NFTA_CHAIN_HOOK, *where)
    return body + u32(uapi.NFTA_CHAIN_POLICY, Code.ACCEPT) + string(uapi.NFTA_CHAIN_TYPE, hook.type)


@reader
def read_chain(data: memoryview) -> ChainHeader:
    """Reads a chain's message."""
    fields = attribute_map(data)
    table, name = text_of(fields[uapi.NFTA_CHAIN_TABLE]), text_of(fields[uapi.NFTA_CHAIN_NAME])
    if uapi.NFTA_CHAIN_HOOK not in fields:
        return ChainHeader(table, name, None, Code.ACCEPT)
    where = attribute_map(fields[uapi.NFTA_CHAIN_HOOK])
    priority = int.from_bytes(where[uapi.NFTA_HOOK_PRIORITY], "big", signed=True)
    hook = ChainHook(number(where[uapi.NFTA_HOOK_HOOKNUM]), priority, text_of(fields[uapi.NFTA_CHAIN_TYPE]))
    policy = fields.get(uapi.NFTA_CHAIN_POLICY)
    return ChainHeader(table, name, hook, Code.ACCEPT if policy is None else number(policy))


class Flowtable(NamedTuple):
    """A flowtable, and the devices at whose ingress hook it takes packets."""

    table: str
    name: str
    devices: frozenset[str]


def pack_flowtable(table: str, name: str, devices: Iterable[str] = ()) -> bytes:
    """Packs a new flowtable at the ingress hook; or, of one that exists, devices to add or to remove."""
    named = [string(uapi.NFTA_DEVICE_NAME, device) for device in devices]
    where = u32(uapi.NFTA_FLOWTABLE_HOOK_NUM, uapi.NF_NETDEV_INGRESS) + u32(uapi.NFTA_FLOWTABLE_HOOK_PRIORITY, 0)
    if named:
        where += nested(uapi.NFTA_FLOWTABLE_HOOK_DEVS, *named)
    return named_flowtable(table, name) + nested(uapi.NFTA_FLOWTABLE_HOOK, where)


def pack_counting_flowtable(table: str, name: str) -> bytes:
    """Packs a new flowtable that continues the counts of connection tracking (net.netfilter.nf_conntrack_acct)."""
    return pack_flowtable(table, name) + u32(uapi.NFTA_FLOWTABLE_FLAGS, uapi.NFT_FLOWTABLE_COUNTER)


def named_flowtable(table: str, name: str) -> bytes:
    """Packs a reference to a flowtable."""
    return string(uapi.NFTA_FLOWTABLE_TABLE, table) + string(uapi.NFTA_FLOWTABLE_NAME, name)


@reader
def read_flowtable(data: memoryview) -> Flowtable:
    """Reads a flowtable's message."""
    fields = attribute_map(data)
    table, name = text_of(fields[uapi.NFTA_FLOWTABLE_TABLE]), text_of(fields[uapi.NFTA_FLOWTABLE_NAME])
    where = attribute_map(fields.get(uapi.NFTA_FLOWTABLE_HOOK, _NOTHING))
    named = attributes(where.get(uapi.NFTA_FLOWTABLE_HOOK_DEVS, _NOTHING))
    return Flowtable(table, name, frozenset(text_of(device) for kind, device in named if kind == uapi.NFTA_DEVICE_NAME))


class KernelExpression(NamedTuple):
    """An expression of a rule as dumped: its name and raw data."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class KernelRule:
    """A rule as dumped. comment: nft's comment in its user data."""

    chain: str
    expressions: tuple[KernelExpression, ...]
    handle: int = 0
    comment: str = ""


def pack_rules(table: str, chain: str = "", handle: int | None = None) -> bytes:
    """Packs a reference to one rule, or all of a chain, or all of a table."""
    body = string(uapi.NFTA_RULE_TABLE, table)
    if chain:
        body += string(uapi.NFTA_RULE_CHAIN, chain)
    return body if handle is None else body + u64(uapi.NFTA_RULE_HANDLE, handle)


def pack_rule(table: str, chain: str, expressions: Iterable[tuple[str, bytes]]) -> bytes:
    """Packs a new rule of these expressions, each its name and its data."""
    encoded = (
        nested(uapi.NFTA_LIST_ELEM, string(uapi.NFTA_EXPR_NAME, name), nested(uapi.NFTA_EXPR_DATA, data))
        for name, data in expressions
    )
    return pack_rules(table, chain) + nested(uapi.NFTA_RULE_EXPRESSIONS, *encoded)


@reader
def read_rule(data: memoryview) -> KernelRule:
    """Reads a rule's message."""
    fields = attribute_map(data)
    expressions = []
    for _, item in attributes(fields.get(uapi.NFTA_RULE_EXPRESSIONS, _NOTHING)):
        parts = attribute_map(item)
        name, held = text_of(parts[uapi.NFTA_EXPR_NAME]), bytes(parts.get(uapi.NFTA_EXPR_DATA, b""))
        expressions.append(KernelExpression(name, held))
    return KernelRule(
        text_of(fields[uapi.NFTA_RULE_CHAIN]),
        tuple(expressions),
        number(fields.get(uapi.NFTA_RULE_HANDLE, b"")),
        comment_in(fields.get(uapi.NFTA_RULE_USERDATA, b""), uapi.NFTNL_UDATA_RULE_COMMENT),
    )


@reader
def read_rule_place(data: memoryview) -> tuple[str, int]:
    """Returns a rule's chain and handle from its message."""
    fields = attribute_map(data)
    return text_of(fields[uapi.NFTA_RULE_CHAIN]), number(fields[uapi.NFTA_RULE_HANDLE])


@dataclass(frozen=True, slots=True)
class NewSet:
    """A set or map to be created. Lengths in bytes; types are nft's own numbers, which the kernel only stores.

    field_lengths: of the key's fields, if the kernel needs them (NFT_SET_CONCAT). size: a hard limit.
    timeout_milliseconds: of elements without a timeout of their own.
    """

    name: str
    flags: int
    key_type: int
    key_length: int
    data_type: int = 0
    data_length: int = 0
    size: int | None = None
    field_lengths: tuple[int, ...] = ()
    timeout_milliseconds: int | None = None
    counter: bool = False
    user_data: bytes = b""


def pack_set(table: str, made: NewSet, set_id: int) -> bytes:
    """Packs a new set. set_id: rules of the same batch may refer to the set by this."""
    body = (
        named_set(table, made.name)
        + u32(uapi.NFTA_SET_FLAGS, made.flags)
        + u32(uapi.NFTA_SET_KEY_TYPE, made.key_type)
        + u32(uapi.NFTA_SET_KEY_LEN, made.key_length)
    )
    if made.flags & uapi.NFT_SET_MAP:
        body += u32(uapi.NFTA_SET_DATA_TYPE, made.data_type) + u32(uapi.NFTA_SET_DATA_LEN, made.data_length)
    description = b"" if made.size is None else u32(uapi.NFTA_SET_DESC_SIZE, made.size)
    if made.field_lengths:
        lengths = (nested(uapi.NFTA_LIST_ELEM, u32(uapi.NFTA_SET_FIELD_LEN, length)) for length in made.field_lengths)
        description += nested(uapi.NFTA_SET_DESC_CONCAT, *lengths)
    if description:
        body += nested(uapi.NFTA_SET_DESC, description)
    body += u32(uapi.NFTA_SET_ID, set_id)
    if made.timeout_milliseconds is not None:
        body += u64(uapi.NFTA_SET_TIMEOUT, made.timeout_milliseconds)
    if made.user_data:
        body += attribute(uapi.NFTA_SET_USERDATA, made.user_data)
    if made.counter:
        body += nested(uapi.NFTA_SET_EXPR, string(uapi.NFTA_EXPR_NAME, "counter"), nested(uapi.NFTA_EXPR_DATA))
    return body


@cache
def named_set(table: str, name: str) -> bytes:
    """Packs a reference to a set: with it begin messages about it and about its elements, also the kernel's (nf_tables_fill_setelem_info)."""
    return string(uapi.NFTA_SET_TABLE, table) + string(uapi.NFTA_SET_NAME, name)


def pack_element_list(table: str, name: str, encoded: Iterable[bytes], set_id: int | None = None) -> bytes:
    """Packs a list of elements from `elements.py`. set_id: of a set created in the same batch."""
    by_id = b"" if set_id is None else u32(uapi.NFTA_SET_ELEM_LIST_SET_ID, set_id)
    return named_set(table, name) + by_id + nested(uapi.NFTA_SET_ELEM_LIST_ELEMENTS, *encoded)


@dataclass(frozen=True, slots=True)
class SetHeader:
    """A set as the kernel describes it, as far as it matters to us; `count` is None on kernels that do not report it."""

    name: str
    flags: int
    key_type: int
    key_length: int
    data_type: int
    data_length: int
    counter: bool
    count: int | None


@reader
def read_set(data: memoryview) -> SetHeader:
    """Reads a set's message."""
    fields = attribute_map(data)
    count = fields.get(uapi.NFTA_SET_COUNT)
    return SetHeader(
        text_of(fields[uapi.NFTA_SET_NAME]),
        number(fields.get(uapi.NFTA_SET_FLAGS, b"")),
        number(fields.get(uapi.NFTA_SET_KEY_TYPE, b"")),
        number(fields.get(uapi.NFTA_SET_KEY_LEN, b"")),
        number(fields.get(uapi.NFTA_SET_DATA_TYPE, b"")),
        number(fields.get(uapi.NFTA_SET_DATA_LEN, b"")),
        uapi.NFTA_SET_EXPR in fields,
        None if count is None else number(count),
    )
