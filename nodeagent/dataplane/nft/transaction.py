"""Messages of one atomic batch, in an order the kernel accepts (pure).

A transaction is a value: building one never fails and never looks at the kernel. Every message knows what it is about,
so a rejected one can be traced to a rule or to elements.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nodeagent.dataplane.nft import schema
from nodeagent.dataplane.nft.chain import Chain, Program
from nodeagent.dataplane.nft.diff import Delta
from nodeagent.dataplane.nft.image import Elements
from nodeagent.dataplane.nft.readback import TABLE_OWNER, TABLE_PERSIST
from nodeagent.dataplane.nft.schema import SetSpec
from nodeagent.model.addresses import Family
from nodeagent.netlink.framing import attribute, nested, packed_message, string
from nodeagent.netlink.netfilter import genmsg, message_type, nfproto, u32, u64
from nodeagent.netlink.nf_tables.expressions import Code, OneOf, Rule, verdict_value
from nodeagent.netlink.uapi.netlink import (
    NLA_F_NESTED,
    NLM_F_ACK,
    NLM_F_APPEND,
    NLM_F_CREATE,
    NLM_F_EXCL,
    NLM_F_REQUEST,
)
from nodeagent.netlink.uapi.nfnetlink import (
    NFNL_BATCH_GENID,
    NFNL_MSG_BATCH_BEGIN,
    NFNL_MSG_BATCH_END,
    NFNL_SUBSYS_NFTABLES,
)

NEWTABLE, GETTABLE, DELTABLE = 0, 1, 2
NEWCHAIN, GETCHAIN, DELCHAIN = 3, 4, 5
NEWRULE, GETRULE, DELRULE = 6, 7, 8
NEWSET, GETSET = 9, 10
NEWSETELEM, GETSETELEM, DELSETELEM = 12, 13, 14
GETGEN = 16

MAX_NEST = 65000
"""Bytes of elements in one message: an attribute's length field has 16 bits."""

_COMMENT_OF_TABLE = 0
_COMMENT_OF_SET = 7
_COMMENT_OF_ELEMENT = 0
_BYTE_ORDER_HOST = 1
_BYTE_ORDER_NONE = 0
_UDATA_KEY_ORDER = 0
_UDATA_DATA_ORDER = 1
_INTERVAL_END = 1


@dataclass(frozen=True, slots=True)
class Message:
    """One operation. about: for a person. set and keys: for element operations, in the order of the elements.

    expressions: the names of a rule's expressions, in order.
    """

    kind: int
    flags: int
    body: bytes
    about: str
    set: str = ""
    keys: tuple[bytes, ...] = ()
    expressions: tuple[str, ...] = ()


class Transaction:
    """Operations on one family's table, in order."""

    def __init__(self, family: Family, specs: Mapping[str, SetSpec]) -> None:
        self.family = family
        self.messages: list[Message] = []
        self._specs = specs
        self._next_set_id = 1

    @property
    def empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not self.messages

    def encode(self, first_seq: int, generation: int | None = None) -> bytes:
        """The batch as one datagram; message i has sequence number first_seq + 1 + i, the last one asks for an ack.

        generation: the kernel takes the batch only while the ruleset is of this one (nfnetlink.h, NFNL_BATCH_GENID).
        """
        family = nfproto(self.family)
        met = b"" if generation is None else u32(NFNL_BATCH_GENID, generation)
        parts = [packed_message(NFNL_MSG_BATCH_BEGIN, NLM_F_REQUEST, first_seq, genmsg(0, NFNL_SUBSYS_NFTABLES) + met)]
        header = genmsg(family)
        last = len(self.messages) - 1
        for index, item in enumerate(self.messages):
            flags = item.flags | NLM_F_REQUEST | (NLM_F_ACK if index == last else 0)
            kind = message_type(NFNL_SUBSYS_NFTABLES, item.kind)
            parts.append(packed_message(kind, flags, first_seq + 1 + index, header + item.body))
        parts.append(
            packed_message(NFNL_MSG_BATCH_END, NLM_F_REQUEST, first_seq + 2 + last, genmsg(0, NFNL_SUBSYS_NFTABLES))
        )
        return b"".join(parts)

    def claim_table(self, *, owned: bool) -> None:
        """Create the table, or take over the one that is there (as owner: only of an orphan or our own)."""
        flags = TABLE_OWNER | TABLE_PERSIST if owned else 0
        comment = f"{schema.COMMENT_PREFIX} services are map elements, see docs/dataplane.md".encode() + b"\0"
        user_data = bytes((_COMMENT_OF_TABLE, len(comment))) + comment
        body = string(1, schema.TABLE) + u32(2, flags) + attribute(6, user_data)
        self._add(NEWTABLE, NLM_F_CREATE, body, "table")

    def probe_owned_table(self, name: str) -> None:
        """Make an owned, persistent table and delete it again: accepted only where the kernel knows such tables."""
        flags = u32(2, TABLE_OWNER | TABLE_PERSIST)
        self._add(NEWTABLE, NLM_F_CREATE | NLM_F_EXCL, string(1, name) + flags, "probe table")
        self._add(DELTABLE, 0, string(1, name), "probe table")

    def delete_table(self) -> None:
        """Remove the table with everything in it."""
        self._add(DELTABLE, 0, string(1, schema.TABLE), "table")

    def create_sets(self) -> None:
        """Create every set and map."""
        for spec in self._specs.values():
            self._create_set(spec)

    def write_program(self, program: Program) -> None:
        """Create all chains, then their rules, then the elements that lead to them."""
        self.add_chains(program.chains)
        self.add_verdicts(program.verdicts)

    def add_chains(self, chains: Iterable[Chain]) -> None:
        """Create chains, then fill them: rules may jump to any of them."""
        chains = tuple(chains)
        for chain in chains:
            body = string(1, schema.TABLE) + string(3, chain.name)
            if chain.hook is not None:
                hook = nested(4, u32(1, chain.hook.number), u32(2, chain.hook.priority))
                body += hook + u32(5, Code.ACCEPT) + string(7, chain.hook.type.value)
            self._add(NEWCHAIN, NLM_F_CREATE, body, f"chain {chain.name}")
        for chain in chains:
            for number, rule in enumerate(chain.rules, 1):
                self._add_rule(chain.name, rule, f"rule {number} of chain {chain.name}")

    def flush_rules(self) -> None:
        """Remove every rule of the table."""
        self._add(DELRULE, 0, string(1, schema.TABLE), "all rules")

    def delete_chain(self, name: str) -> None:
        """Remove a chain; nothing may lead to it any more."""
        self._add(DELCHAIN, 0, string(1, schema.TABLE) + string(3, name), f"chain {name}")

    def add_verdicts(self, verdicts: Mapping[str, Mapping[bytes, str]]) -> None:
        """Add `goto chain` elements to verdict maps."""
        for name, elements in verdicts.items():
            encoded = [
                nested(1, nested(1, attribute(1, key)), nested(2, verdict_value(Code.GOTO, chain)))
                for key, chain in elements.items()
            ]
            self._add_elements(NEWSETELEM, NLM_F_CREATE, name, tuple(elements), encoded)

    def delete_verdicts(self, name: str, keys: Iterable[bytes]) -> None:
        """Remove elements of a verdict map."""
        wanted = tuple(keys)
        encoded = [nested(1, nested(1, attribute(1, key))) for key in wanted]
        self._add_elements(DELSETELEM, 0, name, wanted, encoded)

    def write_delta(self, delta: Delta) -> None:
        """Deletes before puts: a key that gets another value must go first."""
        for name, keys in delta.deletes.items():
            encoded = encode_keys(self._specs[name], keys)
            self._add_elements(DELSETELEM, 0, name, tuple(keys), encoded)
        for name, elements in delta.puts.items():
            encoded = encode_elements(self._specs[name], self.family, elements)
            self._add_elements(NEWSETELEM, NLM_F_CREATE, name, tuple(elements), encoded)

    def forget_affinity(self, keys: Iterable[bytes]) -> None:
        """Remove learned entries, a message each: then the kernel names all that have expired meanwhile, not the first."""
        where = string(1, schema.TABLE) + string(2, schema.AFFINITY)
        about = f"elements of {schema.AFFINITY}"
        wanted = tuple(keys)
        for key, encoded in zip(wanted, encode_keys(self._specs[schema.AFFINITY], wanted), strict=True):
            self.messages.append(Message(DELSETELEM, 0, where + nested(3, encoded), about, schema.AFFINITY, (key,)))

    def restore_affinity(self, learned: Mapping[bytes, tuple[bytes, int, int]]) -> None:
        """Put learned entries back into a new table: key → (endpoint, timeout ms, remaining ms)."""
        encoded = [
            nested(
                1,
                nested(1, attribute(1, key)),
                nested(2, attribute(1, endpoint)),
                u64(4, timeout),
                u64(5, remaining),
            )
            for key, (endpoint, timeout, remaining) in learned.items()
        ]
        self._add_elements(NEWSETELEM, NLM_F_CREATE, schema.AFFINITY, tuple(learned), encoded)

    def _add(self, kind: int, flags: int, body: bytes, about: str) -> None:
        self.messages.append(Message(kind, flags, body, about))

    def _create_set(self, spec: SetSpec) -> None:
        family = self.family
        flags = spec.flags
        body = (
            string(1, schema.TABLE)
            + string(2, spec.name)
            + u32(3, flags)
            + u32(4, spec.key_type(family))
            + u32(5, spec.key_length(family))
        )
        if spec.is_map:
            body += u32(6, spec.data_type(family)) + u32(7, spec.data_length(family))
        description = b""
        if spec.size is not None:
            description += u32(1, spec.size)
        if schema.Flag.CONCAT in flags:
            lengths = [nested(1, u32(1, length)) for length in spec.field_lengths(family)]
            description += nested(2, *lengths)
        if description:
            body += nested(9, description)
        body += u32(10, self._take_set_id())
        if spec.dynamic:
            body += u64(11, schema.AFFINITY_DEFAULT_TIMEOUT_SECONDS * 1000)
        user_data = _set_user_data(spec)
        if user_data:
            body += attribute(13, user_data)
        if spec.counter:
            body += nested(17, string(1, "counter"), nested(2))
        self._add(NEWSET, NLM_F_CREATE, body, f"set {spec.name}")

    def _take_set_id(self) -> int:
        self._next_set_id += 1
        return self._next_set_id

    def _add_rule(self, chain: str, rule: Rule, about: str) -> None:
        encoded = []
        for expression in rule:
            if isinstance(expression, OneOf):
                set_id = self._add_anonymous_set(expression)
                data = expression.encode_with(set_id)
            else:
                data = expression.encode()
            encoded.append(nested(1, string(1, expression.name), nested(2, data)))
        body = string(1, schema.TABLE) + string(2, chain) + nested(4, *encoded)
        names = tuple(expression.name for expression in rule)
        self.messages.append(Message(NEWRULE, NLM_F_CREATE | NLM_F_APPEND, body, about, expressions=names))

    def _add_anonymous_set(self, expression: OneOf) -> int:
        set_id = self._take_set_id()
        flags = schema.Flag.ANONYMOUS | schema.Flag.CONSTANT
        where = string(1, schema.TABLE) + string(2, "__set%d")
        length = len(expression.values[0])
        body = where + u32(3, flags) + u32(4, expression.key_type) + u32(5, length) + u32(10, set_id)
        self._add(NEWSET, NLM_F_CREATE, body, "set of a rule")
        elements = [nested(1, nested(1, attribute(1, value))) for value in expression.values]
        body = where + u32(4, set_id) + nested(3, *elements)
        self._add(NEWSETELEM, NLM_F_CREATE, body, "set of a rule")
        return set_id

    def _add_elements(self, kind: int, flags: int, name: str, keys: tuple[bytes, ...], encoded: list[bytes]) -> None:
        where = string(1, schema.TABLE) + string(2, name)
        start = 0
        while start < len(encoded):
            stop, size = start, 0
            while stop < len(encoded) and size + len(encoded[stop]) <= MAX_NEST:
                size += len(encoded[stop])
                stop += 1
            body = where + nested(3, *encoded[start:stop])
            self.messages.append(Message(kind, flags, body, f"elements of {name}", name, keys[start:stop]))
            start = stop


def _set_user_data(spec: SetSpec) -> bytes:
    """Byte orders, without which nft prints a lone classid swapped, and the comment (type, length, value each)."""
    parts = []
    if spec.key == (schema.Kind.CLASS,):
        parts.append((_UDATA_KEY_ORDER, struct.pack("=I", _BYTE_ORDER_HOST)))
    elif spec.data == (schema.Kind.CLASS,):
        parts.append((_UDATA_KEY_ORDER, struct.pack("=I", _BYTE_ORDER_NONE)))
    if spec.data == (schema.Kind.CLASS,):
        parts.append((_UDATA_DATA_ORDER, struct.pack("=I", _BYTE_ORDER_HOST)))
    if spec.comment:
        parts.append((_COMMENT_OF_SET, spec.comment.encode() + b"\0"))
    return b"".join(bytes((kind, len(value))) + value for kind, value in parts)


def _element_frame(spec: SetSpec, family: Family) -> tuple[bytes, bytes, bytes]:
    """What stands before the key, between key and value, and after the value of every element of a map."""
    key_length, data_length = spec.key_length(family), spec.data_length(family)
    key_nest = 8 + (key_length + 3 & ~3)
    data_nest = 8 + (data_length + 3 & ~3) if spec.is_map else 0
    header = struct.Struct("=HH")
    before = (
        header.pack(4 + key_nest + data_nest, 1 | NLA_F_NESTED)
        + header.pack(key_nest, 1 | NLA_F_NESTED)
        + header.pack(4 + key_length, 1)
    )
    between = b"\0" * (-key_length % 4)
    if spec.is_map:
        between += header.pack(data_nest, 2 | NLA_F_NESTED) + header.pack(4 + data_length, 1)
    return before, between, b"\0" * (-data_length % 4)


def encode_elements(spec: SetSpec, family: Family, elements: Elements) -> list[bytes]:
    """Elements in their netlink form, one entry per key (an interval's two elements in one entry)."""
    if spec.interval:
        return encode_keys(spec, elements)
    if spec.commented:
        length = spec.data_length(family)
        return [_commented(key, value[:length], value[length:]) for key, value in elements.items()]
    before, between, after = _element_frame(spec, family)
    if not spec.is_map:
        return [before + key + between for key in elements]
    return [before + key + between + value + after for key, value in elements.items()]


def encode_keys(spec: SetSpec, keys: Iterable[bytes]) -> list[bytes]:
    """Elements without values: for plain sets, and to delete from any."""
    if spec.interval and len(spec.key) > 1:
        return [_concat_interval(key) for key in keys]
    if spec.interval:
        return [_interval(key) for key in keys]
    keys = tuple(keys)
    if not keys:
        return []
    # All keys of a set have the same length, so what is around them is the same.
    frame = nested(1, nested(1, attribute(1, b"\0" * len(keys[0]))))
    before, after = frame[:12], frame[12 + len(keys[0]) :]
    return [before + key + after for key in keys]


def _commented(key: bytes, value: bytes, comment: bytes) -> bytes:
    user_data = bytes((_COMMENT_OF_ELEMENT, len(comment) + 1)) + comment + b"\0"
    return nested(1, nested(1, attribute(1, key)), nested(2, attribute(1, value)), attribute(6, user_data))


def _concat_interval(key: bytes) -> bytes:
    half = len(key) // 2
    return nested(1, nested(1, attribute(1, key[:half])), nested(10, attribute(1, key[half:])))


def _interval(key: bytes) -> bytes:
    """A range of a lone field: its first element, and the one behind its last as the end (none at the space's end)."""
    half = len(key) // 2
    first = nested(1, nested(1, attribute(1, key[:half])))
    behind = int.from_bytes(key[half:], "big") + 1
    if behind >> (8 * half):
        return first
    end = behind.to_bytes(half, "big")
    return first + nested(1, nested(1, attribute(1, end)), u32(3, _INTERVAL_END))
