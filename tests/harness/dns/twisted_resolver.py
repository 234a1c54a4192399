"""A resolver on a node that answers wrongly, by UDP and TCP, as a test says."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import dns.flags
import dns.message
import dns.rcode

from nodeagent.lab.net.network_namespaces import inside

Behaviour = Callable[[dns.message.Message, bool], bytes | None]
"""The query and whether it came by TCP → what is sent, None for nothing."""


def well(query: dns.message.Message, stream: bool) -> bytes:
    """There is no such name."""
    return error("NXDOMAIN")(query, stream)


def error(rcode: str) -> Callable[[dns.message.Message, bool], bytes]:
    def answer(query: dns.message.Message, stream: bool) -> bytes:
        made = dns.message.make_response(query, recursion_available=True)
        made.set_rcode(dns.rcode.from_text(rcode))
        return made.to_wire()

    return answer


def late(query: dns.message.Message, stream: bool) -> bytes:
    time.sleep(3.0)
    return well(query, stream)


def silent(query: dns.message.Message, stream: bool) -> None:
    return None


def garbage(query: dns.message.Message, stream: bool) -> bytes:
    return query.to_wire()[:2] + b"garbage"


def of_another_question(query: dns.message.Message, stream: bool) -> bytes:
    other = dns.message.make_query("other.example.org.", "A", id=query.id)
    return well(other, stream)


def cut_off(query: dns.message.Message, stream: bool) -> bytes | None:
    """By TCP it says nothing."""
    if stream:
        return None
    made = dns.message.make_response(query, recursion_available=True)
    made.flags |= dns.flags.TC
    return made.to_wire()


class TwistedResolver:
    """behaves: may be changed while it serves. Each query has a thread, so that a late answer delays no other."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.behaves: Behaviour = well
        self.datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.datagrams.bind(address)
        self.listener = socket.create_server(address)

    def __str__(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def serve(self) -> Iterator[threading.Thread]:
        for work in (self._serve_datagrams, self._serve_streams):
            yield threading.Thread(target=work)

    def end(self) -> None:
        for sock in (self.datagrams, self.listener):
            with suppress(OSError):  # a socket of datagrams is not connected, and wakes up nevertheless
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _serve_datagrams(self) -> None:
        while True:
            try:
                packet, peer = self.datagrams.recvfrom(4096)
            except OSError:
                return
            if not packet:
                return
            threading.Thread(target=self._answer, args=(packet, peer), daemon=True).start()

    def _answer(self, packet: bytes, peer: tuple[str, int]) -> None:
        with suppress(OSError):
            if (answer := self.behaves(dns.message.from_wire(packet), False)) is not None:
                self.datagrams.sendto(answer, peer)

    def _serve_streams(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        with connection, suppress(OSError), connection.makefile("rb") as file:
            packet = file.read(int.from_bytes(file.read(2), "big"))
            if packet and (answer := self.behaves(dns.message.from_wire(packet), True)) is not None:
                connection.sendall(len(answer).to_bytes(2, "big") + answer)
            connection.recv(1)


@contextmanager
def twisted_resolvers(namespace: str, *addresses: tuple[str, int]) -> Iterator[tuple[TwistedResolver, ...]]:
    """Resolvers at addresses of a namespace."""
    made = inside(namespace, lambda: tuple(map(TwistedResolver, addresses)))
    threads = [thread for one in made for thread in one.serve()]
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        for one in made:
            one.end()
        for thread in threads:
            thread.join()
