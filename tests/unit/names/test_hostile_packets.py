"""Broken and forged packets on the way that every packet takes: no exception, no growth, no answer that is too long.

NODEAGENT_PACKETS says how many; `make fuzz-names` sends a million.
"""

import os
import random

import pytest

from nodeagent.names.feed.feed_messages import End, Put, Settings
from nodeagent.names.server.fed_state import ReceivedState
from nodeagent.names.server.front import Front, Waiting
from nodeagent.names.zone.prepared_answers import PREPARED_BYTES
from nodeagent.names.zone.service_names import names_of
from nodeagent.wire.dns.codes import TCP_LIMIT
from tests.harness.dns.no_upstream import NoUpstream
from tests.harness.dns.reference import RecordedObjects, answers, packet_of

PACKETS = int(os.environ.get("NODEAGENT_PACKETS", "30000"))


@pytest.fixture(scope="module")
def front() -> Front:
    objects = RecordedObjects()
    fed = ReceivedState(Settings())
    fed.take(Put(tuple(names_of(one, objects.slices_of(key)) for key, one in objects.services.items()), 1))
    fed.take(End(1))
    return Front(fed.answers, NoUpstream())


def broken(packet: bytes, chance: random.Random) -> bytes:
    """The packet with some bytes changed, cut off, put in or repeated."""
    data = bytearray(packet)
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(5):
            case 0 if at < len(data):
                data[at] = chance.randrange(256)
            case 1:
                del data[at:]
            case 2:
                data[at:at] = chance.randbytes(chance.randrange(8))
            case 3:
                data[at:at] = bytes(data[chance.randrange(len(data) + 1) :])
            case _ if at < len(data):
                data[at] ^= 0x20
    return bytes(data[:4096])


def test_any_packet_gets_a_reply_that_fits_or_silence(front: Front) -> None:
    chance = random.Random(53)
    good = [packet for record in answers() if len(packet := packet_of(record["query"], 1)) >= 12]
    for _ in range(PACKETS):
        packet = broken(chance.choice(good), chance)
        replies = [front.answers.reply(packet), front.reply(packet, tcp=False), front.reply(packet, tcp=True)]
        for reply, limit in zip(replies, (udp_limit(packet), udp_limit(packet), TCP_LIMIT), strict=True):
            if reply is None or isinstance(reply, Waiting):
                continue
            assert len(reply) <= limit
            assert reply[:2] == packet[:2]
            assert reply[2] & 0x80
    assert front.answers.bytes_held <= PREPARED_BYTES


def udp_limit(packet: bytes) -> int:
    """At most what any OPT record in the packet could allow."""
    sizes = [
        int.from_bytes(packet[at + 3 : at + 5], "big")
        for at in range(12, len(packet) - 4)
        if packet[at : at + 3] == b"\0\0\x29"
    ]
    return max([512, *sizes])


def test_replies_are_no_queries(front: Front) -> None:
    """Two servers that answer each other's replies would never stop."""
    for record in answers():
        packet = packet_of(record["query"], 1)
        reply = front.reply(packet, tcp=False)
        if isinstance(reply, bytes):
            assert front.reply(reply, tcp=False) is None
            assert front.answers.reply(reply) is None
