"""A batch as one datagram: what is in which order, and where in an operation a fault lies."""

import pytest

from nodeagent.wire.netlink.framing import HEADER, attribute, messages, nested, string
from nodeagent.wire.netlink.netfilter import GENMSG_LENGTH, message_type
from nodeagent.wire.netlink.nf_tables.batch import entry_at, pack_batch
from nodeagent.wire.netlink.uapi.netlink import NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST
from nodeagent.wire.netlink.uapi.nf_tables import NFT_MSG_DELTABLE, NFT_MSG_NEWTABLE, NFTA_SET_ELEM_LIST_ELEMENTS
from nodeagent.wire.netlink.uapi.nfnetlink import (
    NFNL_MSG_BATCH_BEGIN,
    NFNL_MSG_BATCH_END,
    NFNL_SUBSYS_NFTABLES,
    NFPROTO_IPV4,
)

NEW = message_type(NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWTABLE)
DELETE = message_type(NFNL_SUBSYS_NFTABLES, NFT_MSG_DELTABLE)
OPERATIONS = [(NFT_MSG_NEWTABLE, NLM_F_CREATE, string(1, "made")), (NFT_MSG_DELTABLE, 0, string(1, "gone"))]


def test_operations_stand_between_begin_and_end_and_only_the_last_asks_for_an_answer() -> None:
    found = messages(memoryview(pack_batch(NFPROTO_IPV4, OPERATIONS, 7)))

    assert [(one.type, one.seq) for one in found] == [
        (NFNL_MSG_BATCH_BEGIN, 7),
        (NEW, 8),
        (DELETE, 9),
        (NFNL_MSG_BATCH_END, 10),
    ]
    assert [one.flags for one in found] == [
        NLM_F_REQUEST,
        NLM_F_REQUEST | NLM_F_CREATE,
        NLM_F_REQUEST | NLM_F_ACK,
        NLM_F_REQUEST,
    ]


@pytest.mark.parametrize(("generation", "met"), [(None, b""), (258, b"\x08\0\x01\0\0\0\x01\x02")])
def test_a_generation_is_named_at_the_beginning(generation: int | None, met: bytes) -> None:
    begin = messages(memoryview(pack_batch(NFPROTO_IPV4, OPERATIONS, 7, generation)))[0]

    assert bytes(begin.body) == b"\0\0\0\x0a" + met


def test_an_offset_leads_to_the_entry_it_falls_into() -> None:
    before = string(1, "table") + string(2, "set")
    entries = [nested(1, attribute(1, b"k" * length)) for length in (4, 5, 16)]
    body = before + nested(NFTA_SET_ELEM_LIST_ELEMENTS, *entries)
    first = HEADER.size + GENMSG_LENGTH + len(before) + 4
    starts = [first, first + len(entries[0]), first + len(entries[0]) + len(entries[1])]

    assert [entry_at(body, start) for start in starts] == [0, 1, 2]
    assert [entry_at(body, start - 1) for start in starts[1:]] == [0, 1]
    assert entry_at(body, HEADER.size + GENMSG_LENGTH) is None
    assert entry_at(body, starts[2] + len(entries[2])) is None
