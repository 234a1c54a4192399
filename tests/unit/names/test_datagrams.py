"""Many datagrams by one system call: all of them, to whom they belong, in both families."""

import asyncio
import socket
from collections.abc import Iterator

import dns.message
import dns.rcode
import pytest

from nodeagent.names.feed.feed_messages import Begin, End, Put, Settings
from nodeagent.names.server.datagrams import AT_ONCE, LARGEST_BATCHED, LARGEST_QUERY, Datagrams
from nodeagent.names.server.fed_state import ReceivedState
from nodeagent.names.server.front import Front, Tasks
from nodeagent.names.server.udp import UdpListener
from nodeagent.names.zone.service_names import NamedPort, ServiceNames
from tests.harness.dns.no_upstream import NoUpstream

LOCAL = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
FAMILIES = pytest.mark.parametrize("family", LOCAL, ids=["ipv4", "ipv6"])


@pytest.fixture
def sockets(family: socket.AddressFamily) -> Iterator[tuple[socket.socket, list[socket.socket]]]:
    """A server's, and three of clients that are connected to it."""
    made = [socket.socket(family, socket.SOCK_DGRAM) for _ in range(4)]
    server, *clients = made
    server.bind((LOCAL[family], 0))
    for one in clients:
        one.settimeout(60)
        one.connect(server.getsockname())
    yield server, clients
    for one in made:
        one.close()


@FAMILIES
def test_each_sender_gets_its_answers(sockets: tuple[socket.socket, list[socket.socket]]) -> None:
    server, clients = sockets
    box = Datagrams(server)
    assert box.receive() == 0
    for round_ in range(2):
        sent = [b"", b"x", b"a" * LARGEST_QUERY, b"b" * (LARGEST_QUERY + 1), b"last"]
        for data in sent:
            for number, client in enumerate(clients):
                client.send(data + bytes((number,)) if data else data)
        assert box.receive() == len(sent) * len(clients)
        for index, start, _, _ in box.slots[: len(sent) * len(clients)]:
            data = box.inbox[start : start + box.sizes[index]]
            expected = sent[index // len(clients)]
            number = index % len(clients)
            assert data == (expected + bytes((number,)) if expected else b"")[:LARGEST_QUERY]
            assert box.peer(index) == clients[number].getsockname()
            if index % 2 == round_:  # some are left out
                box.answer(index, b"%d" % index)
        box.send()
        for number, client in enumerate(clients):
            answered = [index for index in range(number, 15, 3) if index % 2 == round_]
            assert [client.recv(100) for _ in answered] == [b"%d" % index for index in answered]


@FAMILIES
def test_more_than_fit_at_once_wait_and_long_answers_go_alone(
    sockets: tuple[socket.socket, list[socket.socket]],
) -> None:
    server, (client, *_) = sockets
    box = Datagrams(server)
    for number in range(AT_ONCE + 1):
        client.send(bytes((number,)))
    assert [box.receive(), box.receive(), box.receive()] == [AT_ONCE, 1, 0]
    for size in (LARGEST_BATCHED, LARGEST_BATCHED + 1, 60_000):
        box.answer(0, b"l" * size)
        box.send()
        assert client.recv(65535) == b"l" * size


@FAMILIES
def test_an_answer_that_cannot_be_sent_holds_back_no_other(
    sockets: tuple[socket.socket, list[socket.socket]],
) -> None:
    server, (client, *_) = sockets
    box = Datagrams(server)
    client.send(b"1")
    client.send(b"2")
    assert box.receive() == 2
    box.names[2:4] = b"\0\0"  # port 0, where nothing can be sent to
    box.answer(0, b"nowhere")
    box.answer(1, b"here")
    box.send()
    assert client.recv(100) == b"here"


@FAMILIES
def test_queries_after_the_end_are_left_to_the_next_reader(
    sockets: tuple[socket.socket, list[socket.socket]],
) -> None:
    """However often it is asked to stop: it knows nothing new any more."""
    server, (client, *_) = sockets
    fed = ReceivedState(Settings())
    for message in (Begin(), End(1)):
        fed.take(message)
    query = dns.message.make_query("no.shop.svc.cluster.local.", "A").to_wire()

    async def stop_twice() -> None:
        listener = UdpListener(server, Front(fed.answers, NoUpstream()), Tasks())
        listener.start()
        client.send(query)
        listener.stop()
        client.send(query)
        listener.stop()

    asyncio.run(stop_twice())
    assert dns.message.from_wire(client.recv(4096)).rcode() == dns.rcode.NXDOMAIN
    assert server.recv(4096) == query


@FAMILIES
def test_replies_that_are_kept_differ_in_what_their_queries_differ(family: socket.AddressFamily) -> None:
    """Id, RD, CD, letter case, EDNS size and DO; first made, then prepared, then kept whole."""
    name = "web.shop.svc.cluster.local."
    fed = ReceivedState(Settings())
    service = ServiceNames("shop", "web", cluster_ips=("10.96.0.1",), ports=(NamedPort("", "tcp", 80),))
    for message in (Begin(), Put((service,), 1), End(1)):
        fed.take(message)
    queries = [
        dns.message.make_query(
            text, "A", id=number + 10 * turn, flags=flags, use_edns=edns, payload=size, want_dnssec=do
        )
        for turn in range(3)
        for number, (text, flags, edns, size, do) in enumerate(
            [
                (name, 0x0100, -1, 0, False),
                (name.upper(), 0x0100, -1, 0, False),
                (name, 0x0010, -1, 0, False),
                (name, 0, 0, 1232, False),
                (name, 0, 0, 4096, True),
            ]
        )
    ]

    async def replies() -> list[dns.message.Message]:
        found = []
        loop = asyncio.get_running_loop()
        with socket.socket(family, socket.SOCK_DGRAM) as server, socket.socket(family, socket.SOCK_DGRAM) as client:
            server.bind((LOCAL[family], 0))
            client.setblocking(False)
            client.connect(server.getsockname())
            listener = UdpListener(server, Front(fed.answers, NoUpstream()), Tasks())
            listener.start()
            for query in queries:
                client.send(query.to_wire())
                found.append(dns.message.from_wire(await asyncio.wait_for(loop.sock_recv(client, 4096), 60)))
            listener.stop()
        return found

    for query, reply in zip(queries, asyncio.run(replies()), strict=True):
        assert reply.id == query.id
        assert reply.question[0].name.to_text() == query.question[0].name.to_text()
        assert reply.flags & 0x0110 == query.flags & 0x0110
        assert (reply.edns, reply.payload, reply.ednsflags) == (query.edns, query.payload, query.ednsflags)
        assert [one.to_text() for one in reply.answer[0]] == ["10.96.0.1"]
    assert fed.answers.ready, "the control: some are kept"


def test_a_kept_reply_goes_with_what_it_came_from() -> None:
    fed = ReceivedState(Settings())
    packets = [
        dns.message.make_query(name, kind).to_wire()
        for name, kind in (("web.shop.svc.cluster.local.", "A"), ("no.shop.svc.cluster.local.", "A"))
    ]
    for version in range(3):
        address = f"10.96.0.{version + 1}"
        service = ServiceNames("shop", "web", cluster_ips=(address,), ports=(NamedPort("", "tcp", 80),))
        fed.take(Put((service,), version))
        fed.take(End(version))
        front = Front(fed.answers, NoUpstream())
        for _ in range(3):
            web, missing = (fed.answers.reply(packet) or front.reply(packet, tcp=False) for packet in packets)
            assert isinstance(web, bytes)
            assert isinstance(missing, bytes)
            assert dns.message.from_wire(web).answer[0][0].to_text() == address
            assert dns.message.from_wire(missing).authority[0][0].serial == version
        assert len(fed.answers.ready) == len(packets)
