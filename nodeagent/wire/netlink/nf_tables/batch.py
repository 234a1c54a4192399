"""A batch: messages that the kernel applies all together or not at all (net/netfilter/nfnetlink.c; pure)."""

from collections.abc import Iterable

from nodeagent.wire.netlink.framing import ATTRIBUTE, HEADER, Request, attributes, packed_message
from nodeagent.wire.netlink.netfilter import GENMSG_LENGTH, genmsg, message_type, u32
from nodeagent.wire.netlink.uapi.netlink import NLM_F_ACK, NLM_F_REQUEST
from nodeagent.wire.netlink.uapi.nf_tables import NFTA_RULE_EXPRESSIONS, NFTA_SET_ELEM_LIST_ELEMENTS
from nodeagent.wire.netlink.uapi.nfnetlink import (
    NFNL_BATCH_GENID,
    NFNL_MSG_BATCH_BEGIN,
    NFNL_MSG_BATCH_END,
    NFNL_SUBSYS_NFTABLES,
)

_LISTS = frozenset({NFTA_SET_ELEM_LIST_ELEMENTS, NFTA_RULE_EXPRESSIONS})


def request(kind: int, family: int, body: bytes = b"") -> Request:
    """Returns a request about the ruleset, outside of any batch."""
    return Request(message_type(NFNL_SUBSYS_NFTABLES, kind), 0, genmsg(family) + body)


def pack_batch(
    family: int, operations: Iterable[tuple[int, int, bytes]], first_seq: int, generation: int | None = None
) -> bytes:
    """Returns operations (kind, NLM_F_* flags, body) as one datagram; the last one requests an acknowledgement.

    Operation i has sequence number first_seq + 1 + i; first_seq is that of the batch's begin, and the highest one that of its end.
    generation: the kernel accepts the batch only while the ruleset has this one.
    """
    met = b"" if generation is None else u32(NFNL_BATCH_GENID, generation)
    about_subsystem = genmsg(0, NFNL_SUBSYS_NFTABLES)
    parts = [packed_message(NFNL_MSG_BATCH_BEGIN, NLM_F_REQUEST, first_seq, about_subsystem + met)]
    header = genmsg(family)
    items = list(operations)
    last = len(items) - 1
    for index, (kind, flags, body) in enumerate(items):
        wanted = flags | NLM_F_REQUEST | (NLM_F_ACK if index == last else 0)
        kind_there = message_type(NFNL_SUBSYS_NFTABLES, kind)
        # Joined once: a program for a whole node has many megabytes, and each copy of it counts at the peak.
        size = HEADER.size + len(header) + len(body)
        head = HEADER.pack(size, kind_there, wanted, first_seq + 1 + index, 0)
        parts += (head, header, body, b"\0" * (-size % 4))
    parts.append(packed_message(NFNL_MSG_BATCH_END, NLM_F_REQUEST, first_seq + 2 + last, about_subsystem))
    return b"".join(parts)


def entry_at(body: bytes, offset: int) -> int | None:
    """Returns the index of the element or expression, in an operation's list, that contains an offset of its message.

    An interval of a lone field is two entries.
    """
    position = HEADER.size + GENMSG_LENGTH
    for kind, payload in attributes(memoryview(body)):
        if kind in _LISTS and position <= offset < position + ATTRIBUTE.size + len(payload):
            inside = position + ATTRIBUTE.size
            for index, (_, entry) in enumerate(attributes(payload)):
                inside += ATTRIBUTE.size + len(entry) + 3 & ~3
                if offset < inside:
                    return index
        position += ATTRIBUTE.size + len(payload) + 3 & ~3
    return None
