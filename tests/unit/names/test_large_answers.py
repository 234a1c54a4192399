"""Answers that no datagram, or no message at all, can hold."""

import asyncio
import socket
import time

import dns.flags
import dns.message
import dns.rcode
import pytest

from nodeagent.model.objects import (
    Endpoint,
    EndpointPort,
    EndpointSlice,
    ObjectMeta,
    Service,
    ServicePort,
    ServiceSpec,
)
from nodeagent.names.server.front import Front, Tasks
from nodeagent.names.server.udp import UdpListener
from nodeagent.names.zone.index import Index
from nodeagent.names.zone.lookup import Lookup, ZoneSettings
from nodeagent.names.zone.prepared_answers import PreparedAnswers
from nodeagent.names.zone.service_names import names_of
from nodeagent.wire.dns.codes import LARGEST_UDP_LIMIT, TCP_LIMIT
from tests.harness.dns.no_upstream import NoUpstream

LONGEST_BLOCK_SECONDS = 0.05
TRIES = 5


def front(endpoints: int, ports: int) -> Front:
    """A headless Service `big.shop` with so many endpoints and ports."""
    answers = PreparedAnswers(Lookup(ZoneSettings(), Index()), synced=True)
    spec = ServiceSpec(cluster_ip="None", ports=tuple(ServicePort(80 + one, f"p{one}") for one in range(ports)))
    service = Service(ObjectMeta(name="big", namespace="shop"), spec)
    addresses = (f"10.{at >> 16}.{at >> 8 & 255}.{at & 255}" for at in range(endpoints))
    slices = EndpointSlice(
        ObjectMeta(name="big-x", namespace="shop"),
        "IPv4",
        tuple(Endpoint((address,)) for address in addresses),
        tuple(EndpointPort(name=f"p{one}", port=8080 + one) for one in range(ports)),
    )
    answers.put(names_of(service, [slices]), 1)
    return Front(answers, NoUpstream())


def query(kind: str, payload: int = 1232) -> bytes:
    return dns.message.make_query("big.shop.svc.cluster.local.", kind, use_edns=0, payload=payload).to_wire()


def answered(made: object) -> dns.message.Message:
    assert isinstance(made, bytes)
    return dns.message.from_wire(made)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("kind", ["A", "SRV"])
def test_a_client_that_takes_65535_bytes_by_udp_gets_a_reply(address: str, kind: str) -> None:
    """No datagram of IPv4 has more than 65,507 bytes."""

    async def scene() -> bytes:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as server, socket.socket(family, socket.SOCK_DGRAM) as client:
            server.bind((address, 0))
            listener = UdpListener(server, front(5000, 1), Tasks())
            listener.start()
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            for _ in range(2):  # the second is answered from what the first left
                client.connect(server.getsockname())
                await loop.sock_sendall(client, query(kind, 65535))
                reply = await asyncio.wait_for(loop.sock_recv(client, 65535), 60)
            listener.stop()
            return reply

    reply = asyncio.run(scene())
    assert LARGEST_UDP_LIMIT - 100 < len(reply) <= LARGEST_UDP_LIMIT
    read = dns.message.from_wire(reply)
    assert read.flags & dns.flags.TC
    assert read.answer
    assert read.payload == 65535


@pytest.mark.parametrize("tcp", [False, True])
@pytest.mark.parametrize("kind", ["A", "SRV", "AAAA"])
@pytest.mark.parametrize(("endpoints", "ports"), [(5000, 1), (10_000, 7)])
def test_more_records_than_a_message_can_hold(endpoints: int, ports: int, kind: str, tcp: bool) -> None:
    limit = TCP_LIMIT if tcp else 1232
    packet = query(kind)
    made = front(endpoints, ports).reply(packet, tcp=tcp)
    assert isinstance(made, bytes)
    assert len(made) <= limit
    read = answered(made)
    assert read.rcode() == dns.rcode.NOERROR
    assert read.edns == 0
    if kind != "AAAA":
        assert len(made) > limit - 100
        assert read.flags & dns.flags.TC


@pytest.mark.parametrize("kind", ["A", "SRV"])
def test_the_cost_of_a_truncated_answer_depends_on_its_size(kind: str) -> None:
    """Only its first query has to go through all endpoints."""
    asked = front(5000, 1)
    asked.reply(query(kind), tcp=False)
    least = min(timed(asked, kind) for _ in range(TRIES))
    assert least < LONGEST_BLOCK_SECONDS / 10


def test_an_error_in_one_answer_does_not_affect_other_clients(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = front(1, 1)
    monkeypatch.setattr(Lookup, "find", lambda *_: 1 // 0)
    assert answered(asked.reply(query("A"), tcp=False)).rcode() == dns.rcode.SERVFAIL
    assert "big.shop.svc.cluster.local" in caplog.text


def timed(asked: Front, kind: str) -> float:
    begun = time.perf_counter()
    asked.reply(query(kind), tcp=False)
    return time.perf_counter() - begun
