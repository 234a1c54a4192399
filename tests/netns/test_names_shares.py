"""One pod asks for all that it can get, and another pod's lookups are answered."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest

from nodeagent.lab.net.network_namespaces import enter, inside
from nodeagent.names.server.tcp import MOST_CONNECTIONS
from tests.harness.cluster import NODE, Cluster, cluster_ips

SERVER = ("169.254.20.10", 53)
UPSTREAM = ("127.0.0.1", 5302)
GREEDY, OTHER = "caller", "web-0"
PATIENCE_SECONDS = 20.0
LOOKUPS = 60
AT_ONCE, BETWEEN_SECONDS = 12, 0.02
"""600 a second."""


@pytest.fixture
def named(cluster: Cluster) -> Iterator[Cluster]:
    cluster.expose("shop", cluster_ips(830)[0])
    with resolver(cluster.world.namespace(NODE)):
        agent = cluster.start_agent(
            *("--dns", "--dns-listen", SERVER[0], "--dns-upstreams", f"{UPSTREAM[0]}:{UPSTREAM[1]}")
        )
        agent.wait_until(lambda: look_up(cluster, "first.example.org.") == "NOERROR", "names")
        yield cluster
        agent.stop()
        cluster.kill_agents()
    cluster.call("cleanup")


@contextmanager
def resolver(namespace: str) -> Iterator[None]:
    """Knows an address of every name but those that begin with `silent`, to which it says nothing."""

    def opened() -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        sock.bind(UPSTREAM)
        return sock

    def serve(sock: socket.socket) -> None:
        while packet := (received := sock.recvfrom(4096))[0]:
            if b"\x06silent" in packet:
                continue
            query = dns.message.from_wire(packet)
            response = dns.message.make_response(query, recursion_available=True)
            response.answer.append(dns.rrset.from_text(query.question[0].name, 300, "IN", "A", "192.0.2.1"))
            sock.sendto(response.to_wire(), received[1])

    with inside(namespace, opened) as sock, ending(lambda: serve(sock), lambda: sock.sendto(b"", UPSTREAM)):
        yield


@contextmanager
def ending(work: Callable[[], None], end: Callable[[], object]) -> Iterator[None]:
    """Work in a thread, until it is ended."""
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        end()
        thread.join()


def look_up(cluster: Cluster, name: str, kind: socket.SocketKind = socket.SOCK_DGRAM) -> str:
    """What the other pod gets for a name: an rcode, or an error."""
    query = dns.message.make_query(name, "A").to_wire()

    def ask() -> str:
        with socket.socket(socket.AF_INET, kind) as sock:
            sock.settimeout(PATIENCE_SECONDS)
            sock.connect(SERVER)
            if kind == socket.SOCK_DGRAM:
                sock.send(query)
                return dns.rcode.to_text(dns.message.from_wire(sock.recv(4096)).rcode())
            sock.sendall(len(query).to_bytes(2, "big") + query)
            with sock.makefile("rb") as stream:
                size = int.from_bytes(stream.read(2), "big")
                return dns.rcode.to_text(dns.message.from_wire(stream.read(size)).rcode())

    try:
        return inside(cluster.world.namespace(OTHER), ask)
    except (OSError, dns.exception.DNSException) as error:
        return repr(error)


def test_names_that_nobody_answers_cost_no_other_pod_its_lookups(named: Cluster) -> None:
    enough = threading.Event()
    refused = threading.Event()

    def flood() -> None:
        enter(named.world.namespace(GREEDY))
        number = 0
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect(SERVER)
            while not enough.wait(BETWEEN_SECONDS):
                for _ in range(AT_ONCE):
                    number += 1
                    sock.send(dns.message.make_query(f"n{number}.silent.example.org.", "A").to_wire())
                with suppress(BlockingIOError):
                    while True:
                        reply = dns.message.from_wire(sock.recv(4096, socket.MSG_DONTWAIT))
                        if reply.rcode() == dns.rcode.SERVFAIL:
                            refused.set()

    with ending(flood, enough.set):
        assert refused.wait(PATIENCE_SECONDS), "the flood never filled its share"
        said = [look_up(named, f"n{number}.example.org.") for number in range(LOOKUPS)]
    assert said == ["NOERROR"] * LOOKUPS


def test_connections_of_one_pod_keep_no_other_pod_out(named: Cluster) -> None:
    with ExitStack() as stack:

        def connect() -> socket.socket:
            return socket.create_connection(SERVER, timeout=PATIENCE_SECONDS)

        for _ in range(MOST_CONNECTIONS):
            stack.enter_context(inside(named.world.namespace(GREEDY), connect))
        said = [look_up(named, "shop.default.svc.cluster.local.", socket.SOCK_STREAM) for _ in range(LOOKUPS)]
    assert said == ["NOERROR"] * LOOKUPS
