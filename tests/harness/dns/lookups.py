"""Lookups that go on all the time, from wherever, and servers in pods that answer where the node does not."""

import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache, partial

import dns.flags
import dns.message
import dns.rcode
import dns.rrset

from nodeagent.lab.net.network_namespaces import enter
from nodeagent.model.addresses import family_of
from tests.harness.cluster import Cluster

ANSWER_OF_SERVERS = "192.0.2.77"
PATIENCE_SECONDS = 20.0
"""Within which a query is answered; resolvers ask again after 5 s, but a lost query shall show."""
DEADLINE_SECONDS = 60.0
POLL_SECONDS = 0.1
BETWEEN_SECONDS = 0.04


@contextmanager
def servers_in(cluster: Cluster, *pods: str, port: int = 53) -> Iterator[None]:
    """In each of these pods a server by UDP and TCP that knows one address for every name."""
    ending = threading.Event()
    with ExitStack() as stack:
        for pod in pods:
            ready = threading.Event()
            thread = threading.Thread(target=_serve, args=(cluster, pod, port, ready, ending), name=f"server in {pod}")
            thread.start()
            stack.callback(thread.join)
            assert ready.wait(DEADLINE_SECONDS)
        stack.callback(ending.set)
        yield


def _serve(cluster: Cluster, pod: str, port: int, ready: threading.Event, ending: threading.Event) -> None:
    enter(cluster.world.namespace(pod))
    with ExitStack() as stack:
        for address in cluster.world[pod].addresses:
            for kind, serve in ((socket.SOCK_DGRAM, _serve_datagrams), (socket.SOCK_STREAM, _serve_connections)):
                sock = stack.enter_context(socket.socket(family_of(address).socket_family, kind))
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind((address, port))
                sock.settimeout(POLL_SECONDS)
                thread = threading.Thread(target=serve, args=(sock, ending))
                thread.start()
                stack.callback(thread.join)
        ready.set()
        ending.wait()


def _serve_datagrams(sock: socket.socket, ending: threading.Event) -> None:
    while not ending.is_set():
        with suppress(TimeoutError):
            query, peer = sock.recvfrom(4096)
            sock.sendto(_answer(query), peer)


def _serve_connections(sock: socket.socket, ending: threading.Event) -> None:
    sock.listen(64)
    with ExitStack() as stack:
        while not ending.is_set():
            with suppress(TimeoutError):
                connection, _ = sock.accept()
                thread = threading.Thread(target=_serve_connection, args=(connection, ending))
                thread.start()
                stack.callback(thread.join)


def _serve_connection(connection: socket.socket, ending: threading.Event) -> None:
    connection.settimeout(POLL_SECONDS)
    with connection, suppress(OSError):
        while not ending.is_set():
            with suppress(TimeoutError):
                data = connection.recv(4096)  # one query, as our clients send it
                if not data:
                    return
                answer = _answer(data[2:])
                connection.sendall(len(answer).to_bytes(2, "big") + answer)


def _answer(packet: bytes) -> bytes:
    return packet[:2] + _answer_without_id(packet[2:])


@lru_cache
def _answer_without_id(question: bytes) -> bytes:
    query = dns.message.from_wire(b"\0\0" + question)
    response = dns.message.make_response(query)
    response.flags |= dns.flags.AA
    response.answer.append(dns.rrset.from_text(query.question[0].name, 5, "IN", "A", ANSWER_OF_SERVERS))
    return response.to_wire()[2:]


class Asker:
    """Asks for one name again and again, each time from another port. answers: what came, counted; lost: queries
    without an answer, and connections that broke; longest: seconds until the latest of the answers."""

    def __init__(self, member: str, enter: Callable[[], None], server: str, kind: socket.SocketKind, name: str) -> None:
        self.what = f"{member} to {server} by {kind.name}"
        self.answers: Counter[str] = Counter()
        self.lost: list[str] = []
        self.longest = 0.0
        self._enter = enter
        self._server, self._kind, self._name = server, kind, name
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.what)
        self._thread.start()

    def _run(self) -> None:
        self._enter()
        while not self._ending.wait(BETWEEN_SECONDS):
            started = time.monotonic()
            try:
                self.answers[ask(self._server, self._name, self._kind)] += 1
                self.longest = max(self.longest, time.monotonic() - started)
            except OSError as error:
                self.lost.append(f"{self.what}: {error!r} after {time.monotonic() - started:.3f} s")

    def stop(self) -> None:
        """Ask no more."""
        self._ending.set()
        self._thread.join()


def ask(server: str, name: str, kind: socket.SocketKind) -> str:
    """The one address of the answer, or its rcode, from where this thread is. Raises OSError."""
    query = os.urandom(2) + _query_without_id(name)
    with socket.socket(family_of(server).socket_family, kind) as sock:
        sock.settimeout(PATIENCE_SECONDS)
        sock.connect((server, 53))
        return exchange(sock, query)


@lru_cache
def _query_without_id(name: str) -> bytes:
    return dns.message.make_query(name, "A").to_wire()[2:]


def exchange(sock: socket.socket, query: bytes) -> str:
    """One query and its answer on a connected socket. Raises OSError."""
    if sock.type == socket.SOCK_DGRAM:
        sock.send(query)
        packet = sock.recv(4096)
    else:
        sock.sendall(len(query).to_bytes(2, "big") + query)
        packet = _read(sock, int.from_bytes(_read(sock, 2), "big"))
    return _read_without_id(packet[2:])


@lru_cache
def _read_without_id(answer: bytes) -> str:
    response = dns.message.from_wire(b"\0\0" + answer)
    found = [item.to_text() for rrset in response.answer for item in rrset]
    return found[0] if len(found) == 1 else dns.rcode.to_text(response.rcode())


def _read(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise ConnectionError("closed")
        data += piece
    return data


@contextmanager
def lookups(cluster: Cluster, members: Sequence[str], servers: Sequence[str], name: str) -> Iterator[list[Asker]]:
    """From each member to each server, by UDP and by TCP, until the block ends."""
    places = {member: partial(enter, cluster.world.namespace(member)) for member in members}
    with lookups_from(places, servers, name) as askers:
        yield askers


@contextmanager
def lookups_from(places: Mapping[str, Callable[[], None]], servers: Sequence[str], name: str) -> Iterator[list[Asker]]:
    """The same from each place; its function moves the calling thread there."""
    askers: list[Asker] = []
    try:
        askers += [
            Asker(member, move, server, kind, name)
            for member, move in places.items()
            for server in servers
            for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM)
        ]
        yield askers
    finally:
        for asker in askers:
            asker.stop()


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for it."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < end, f"not within {DEADLINE_SECONDS:.0f} s: {what}"
        time.sleep(0.01)


def until_all_say(askers: Sequence[Asker], answer: str, *, times: int = 3) -> None:
    """Until each of them has got this answer so many times more, the last ones in a row."""
    for asker in askers:
        before = asker.answers[answer]
        until(
            lambda asker=asker, before=before: asker.answers[answer] >= before + times,  # type: ignore[misc]
            f"{asker.what} receives {answer}: {dict(asker.answers)}, {asker.lost[-3:]}",
        )
