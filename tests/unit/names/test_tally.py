"""What is counted and written down of queries, on a socket."""

import asyncio
import socket

import dns.message
import pytest

from nodeagent.model.name_counts import Replies, UpstreamCounts
from nodeagent.names.feed.feed_messages import Begin, End, Put, Settings
from nodeagent.names.server.clients import Clients
from nodeagent.names.server.fed_state import ReceivedState
from nodeagent.names.server.front import Front, Tasks
from nodeagent.names.server.query_log import MOST_LINES, QueryLog
from nodeagent.names.server.udp import UdpListener
from nodeagent.names.shares import Client
from nodeagent.names.zone.service_names import NamedPort, ServiceNames
from nodeagent.wire.dns.codes import Rcode
from nodeagent.wire.dns.query import answer_with, read_query

WEB = "web.shop.svc.cluster.local."
LOCAL = "127.0.0.1"


class Resolver:
    async def run(self) -> None: ...

    def figures(self) -> UpstreamCounts:
        return UpstreamCounts(requests=1)

    async def resolve(self, query: bytes, client: Client) -> bytes:
        return answer_with(read_query(query), Rcode.SERVFAIL)


class Listening:
    """A listener on loopback, and a client of it."""

    def __init__(self, *, log_every: int = 0) -> None:
        fed = ReceivedState(Settings())
        for message in (
            Begin(),
            Put((ServiceNames("shop", "web", cluster_ips=("10.96.0.1",), ports=(NamedPort("", "tcp", 80),)),), 1),
            End(1),
        ):
            fed.take(message)
        self.front = Front(fed.answers, Resolver(), Clients(), log=QueryLog(log_every))
        self.server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.server.bind((LOCAL, 0))
        self.listener = UdpListener(self.server, self.front, Tasks())

    def ask(self, *packets: bytes) -> None:
        """Send each and wait for its reply; an empty one has none and is only sent."""
        asyncio.run(self._ask(packets))

    async def _ask(self, packets: tuple[bytes, ...]) -> None:
        loop = asyncio.get_running_loop()
        self.listener.start()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.setblocking(False)
            client.connect(self.server.getsockname())
            for packet in packets:
                client.send(packet)
                if packet:
                    await asyncio.wait_for(loop.sock_recv(client, 4096), 60)
        self.listener.stop()

    def counted(self) -> set[tuple[str, str, str, int]]:
        """Zone, type, rcode, how many."""
        found: list[Replies] = list(self.listener.tally.replies("cluster.local."))
        port = self.server.getsockname()[1]
        assert {(one.server, one.proto, one.family) for one in found} <= {(f"dns://{LOCAL}:{port}", "udp", "1")}
        return {(one.zone, one.kind, one.rcode, one.count) for one in found}


def query(name: str, kind: str = "A", *, edns: bool = False) -> bytes:
    return dns.message.make_query(name, kind, use_edns=0 if edns else -1).to_wire()


def test_replies_are_counted_whichever_way_they_came() -> None:
    listening = Listening()
    web = [query(WEB), query(WEB), query(WEB, edns=True), query(WEB, edns=True)]
    rare = [query(WEB, "TYPE65280"), query(WEB, "TYPE65280"), query(WEB, "HTTPS")]
    listening.ask(
        *web, query(WEB, "AAAA"), query(f"x.{WEB}"), query("example.com."), *rare, b"", b"\0\0\x28" + bytes(9)
    )
    assert listening.counted() == {
        ("cluster.local.", "A", "NOERROR", 4),
        ("cluster.local.", "AAAA", "NOERROR", 1),
        ("cluster.local.", "A", "NXDOMAIN", 1),
        ("cluster.local.", "other", "NOERROR", 2),
        ("cluster.local.", "HTTPS", "NOERROR", 1),
        ("cluster.local.", "other", "NOTIMP", 1),
        (".", "A", "SERVFAIL", 1),
    }
    durations = {one.zone: one for one in listening.listener.tally.durations("cluster.local.")}
    assert {zone: sum(one.counts) for zone, one in durations.items()} == {"cluster.local.": 9, ".": 1}
    assert all(one.total_seconds > 0 for one in durations.values())
    assert listening.front.upstream_counts() == UpstreamCounts(requests=1)


def test_a_sample_of_queries_is_written_down() -> None:
    listening = Listening(log_every=2)
    listening.ask(query(WEB), query(WEB.upper(), "AAAA"), query("a\\032b.example."), query("example.com.", "MX"))
    first, second = listening.front.log.take()
    assert first.startswith("127.0.0.1:")
    assert f" AAAA {WEB.upper()} udp NOERROR aa,rd " in first
    assert first.endswith(" ms")
    assert " MX example.com. udp SERVFAIL rd 29 bytes " in second
    assert listening.front.log.take() == []


@pytest.mark.parametrize(("every", "written"), [(0, 0), (1, MOST_LINES + 1), (10, 30)])
def test_the_log_is_bounded(every: int, written: int) -> None:
    log = QueryLog(every)
    packet = query(WEB)
    for _ in range(300):
        log.note(packet, answer_with(read_query(packet), Rcode.SERVFAIL), LOCAL, "udp", 0.001)
    lines = log.take()
    assert len(lines) == written
    assert every != 1 or lines[-1] == "200 more sampled queries were not written"
