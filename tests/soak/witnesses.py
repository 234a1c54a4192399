"""The clients of a run: threads that open connections, keep some open and look up names, and write down what they see."""

import random
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import dns.message
import dns.rcode

from nodeagent.lab.lab_plan import CLIENT, DNS_PORT, ZONE
from nodeagent.lab.net.network_namespaces import LabError, enter
from nodeagent.model.addresses import family_of
from nodeagent.wire.dns.codes import RecordType
from nodeagent.wire.dns.domain_names import from_text
from nodeagent.wire.dns.query import query_packet, question_of
from tests.soak.offers import Target, answer_text, name_view
from tests.soak.records import NO_NAME, Attempt, Held, Lookup

ANSWER_SECONDS = 4.0
"""Time for two more SYNs of TCP, after one and after three seconds."""
HELD_SECONDS = 15.0
"""An open connection sends again more and more rarely; what was lost for three seconds is there after seven."""
LOOKUP_SECONDS, LOOKUP_TRIES = 1.5, 2
LIVES = (4.0, 15.0)
TCP_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Client:
    """A host that connects. node: where it is; empty if it is outside the cluster."""

    name: str
    namespace: str
    node: str = ""

    def reaches(self, target: Target) -> bool:
        """Whether this client connects there: from inside to ClusterIPs, from outside to everything else."""
        return bool(self.node) == (target.kind == "ClusterIP")


@dataclass(slots=True)
class Notes:
    """What the clients saw. Appending to a list is atomic."""

    attempts: list[Attempt] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    lookups: list[Lookup] = field(default_factory=list)


@dataclass(slots=True)
class Offered:
    """What clients choose from; replaced as a whole when it changes."""

    targets: tuple[Target, ...] = ()
    names: tuple[str, ...] = ()


class Witnesses:
    """Threads from construction until `stop`. interval: seconds from one connection of a thread to its next. servers: the address of
    the DNS server. paused: whether new connections wait."""

    def __init__(
        self, clients: Sequence[Client], nodes: Sequence[str], offered: Offered, server: str, interval: float
    ) -> None:
        self.notes = Notes()
        self.paused = threading.Event()
        self._nodes = tuple(nodes)
        self._offered = offered
        self._server = server
        self._interval = interval
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []
        for client in clients:
            outside = client.name == CLIENT
            for _ in range(3 if outside else 1):
                self._begin(client, self._connect_again_and_again)
            for _ in range(4 if outside else 2 if client.name != client.node else 0):
                self._begin(client, self._hold_again_and_again)
            if not outside and client.name != client.node:
                self._begin(client, self._look_up_again_and_again)

    def _begin(self, client: Client, work: Callable[[Client, random.Random], None]) -> None:
        chance = random.Random(secrets.randbits(64))

        def run() -> None:
            with suppress(LabError):
                enter(client.namespace)
                work(client, chance)

        thread = threading.Thread(target=run, name=f"{work.__name__} {client.name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """Ends all threads, after their last answers."""
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _choose(self, client: Client, chance: random.Random) -> tuple[Target, tuple[str, ...]] | None:
        """Returns a target, and the nodes that could translate connections of this client to it."""
        if self.paused.is_set() or not (found := [one for one in self._offered.targets if client.reaches(one)]):
            return None
        target = chance.choice(found)
        if client.node:
            return target, (client.node,)
        return target, (target.node,) if target.node else self._nodes

    def _connect_again_and_again(self, client: Client, chance: random.Random) -> None:
        while not self._ending.wait(chance.uniform(0.5, 1.5) * self._interval):
            if (chosen := self._choose(client, chance)) is None:
                continue
            target, nodes = chosen
            by_udp = target.kind == "ClusterIP" and chance.random() > TCP_SHARE
            began = time.monotonic()
            pod, failure = ask_once(target.address, target.port, by_udp=by_udp)
            views = tuple(target.view(node) for node in nodes)
            self.notes.attempts.append(
                Attempt(client.name, target.service, views, nodes, began, time.monotonic(), pod, failure)
            )

    def _hold_again_and_again(self, client: Client, chance: random.Random) -> None:
        while not self._ending.wait(chance.uniform(0.1, 0.5)):
            if (chosen := self._choose(client, chance)) is None:
                continue
            target, nodes = chosen
            with suppress(OSError), tcp_to(target.address, target.port) as sock:
                self._hold(sock, client, nodes, chance)

    def _hold(self, sock: socket.socket, client: Client, nodes: tuple[str, ...], chance: random.Random) -> None:
        pod = exchange(sock)
        opened = heard = time.monotonic()
        sock.settimeout(HELD_SECONDS)
        ends = opened + chance.uniform(*LIVES)
        failure = ""
        while time.monotonic() < ends and not self._ending.wait(0.25) and not failure:
            try:
                again = exchange(sock)
                heard = time.monotonic()
                failure = "" if again == pod else f"{again or 'an end'} instead of an answer"
            except OSError as error:
                failure = type(error).__name__
        self.notes.held.append(Held(client.name, nodes, pod, opened, heard, time.monotonic(), failure))

    def _look_up_again_and_again(self, client: Client, chance: random.Random) -> None:
        while not self._ending.wait(chance.uniform(0.5, 1.5) * self._interval):
            if not self._offered.names:
                continue
            name = chance.choice(self._offered.names)
            began = time.monotonic()
            answer = ""
            for _ in range(LOOKUP_TRIES):
                with suppress(OSError):
                    answer = look_up(self._server, f"{name}.default.svc.{ZONE}")
                    break
            self.notes.lookups.append(Lookup(client.node, name_view(name), began, time.monotonic(), answer))


def tcp_to(address: str, port: int) -> socket.socket:
    """Returns a connection. Raises OSError."""
    sock = socket.socket(family_of(address).socket_family, socket.SOCK_STREAM)
    try:
        sock.settimeout(ANSWER_SECONDS)
        sock.connect((address, port))
    except OSError:
        sock.close()
        raise
    return sock


def exchange(sock: socket.socket) -> str:
    """Returns the name of the pod that answers a question; empty if it closed the connection. Raises OSError."""
    sock.send(b"?")
    return sock.recv(4096).decode().partition(" ")[0]


def ask_once(address: str, port: int, *, by_udp: bool) -> tuple[str, str]:
    """Returns the name of the pod that answered a new connection, or empty and the failure."""
    try:
        if not by_udp:
            with tcp_to(address, port) as sock:
                pod = exchange(sock)
            return pod, "" if pod else "closed"
        with socket.socket(family_of(address).socket_family, socket.SOCK_DGRAM) as sock:
            sock.settimeout(ANSWER_SECONDS)
            sock.connect((address, port))
            return exchange(sock), ""
    except OSError as error:
        return "", type(error).__name__


def look_up(server: str, name: str) -> str:
    """Returns the addresses of a name as `answer_text`. Raises OSError if there is no answer in time."""
    query = query_packet(secrets.randbits(16), question_of(from_text(name), RecordType.A))
    with socket.socket(family_of(server).socket_family, socket.SOCK_DGRAM) as sock:
        sock.settimeout(LOOKUP_SECONDS)
        sock.connect((server, DNS_PORT))
        sock.send(query)
        reply = dns.message.from_wire(sock.recv(4096))
    if reply.rcode() == dns.rcode.NXDOMAIN:
        return NO_NAME
    if reply.rcode() != dns.rcode.NOERROR:
        raise ConnectionError(dns.rcode.to_text(reply.rcode()))
    return answer_text(str(record) for rrset in reply.answer for record in rrset)
