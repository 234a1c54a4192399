"""Names as a pod asks for them, by UDP: one question after the other, asked again as resolvers do."""

import secrets
import socket
import threading
import time

from nodeagent.lab.lab_plan import DNS_PORT
from nodeagent.lab.net.network_namespaces import enter, inside
from nodeagent.model.addresses import family_of
from nodeagent.wire.dns.codes import HEADER_RCODE, LARGEST_UDP_LIMIT, RecordType
from nodeagent.wire.dns.domain_names import from_text
from nodeagent.wire.dns.query import query_packet, question_of

TRIES = 2
TIMEOUT_SECONDS = 5.0
"""Both as in resolv.conf(5) when nobody says otherwise."""
BETWEEN_SECONDS = 0.005


class Resolver:
    """Asks one server from one namespace."""

    def __init__(self, namespace: str, server: str) -> None:
        self.namespace = namespace
        self._server = server

    def knows(self, name: str) -> bool:
        """Whether the answer, if one comes soon, has an address of that name."""
        try:
            return inside(self.namespace, lambda: self.ask(name))
        except OSError:
            return False

    def ask(self, name: str) -> bool:
        """Whether the name has an address, asked once from where this thread is. Raises OSError without an answer."""
        query = query_packet(secrets.randbits(16), question_of(from_text(name), RecordType.A))
        with socket.socket(family_of(self._server).socket_family, socket.SOCK_DGRAM) as sock:
            sock.settimeout(TIMEOUT_SECONDS)
            sock.connect((self._server, DNS_PORT))
            sock.send(query)
            while True:
                answer = sock.recv(LARGEST_UDP_LIMIT)
                if answer[:2] == query[:2]:
                    return not answer[3] & HEADER_RCODE and any(answer[6:8])


class Lookups:
    """A thread that asks for one name all the time, until `stop`. failed: those not answered at any try, or wrongly;
    again: those answered at a later one. slowest: seconds."""

    def __init__(self, resolver: Resolver, name: str) -> None:
        self._resolver = resolver
        self._name = name
        self.asked = self.failed = self.again = 0
        self.slowest = 0.0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"lookups of {name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        enter(self._resolver.namespace)
        while not self._ending.wait(BETWEEN_SECONDS):
            began = time.monotonic()
            tries, answered = self._ask()
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.failed += not answered
            self.again += answered and tries > 1
            self.asked += 1

    def _ask(self) -> tuple[int, bool]:
        """How often it was asked, and whether it was answered in the end."""
        for number in range(1, TRIES + 1):
            try:
                return number, self._resolver.ask(self._name)
            except OSError:
                continue
        return TRIES, False

    def stop(self) -> None:
        """End it; the last question is answered first, or not in time."""
        self._ending.set()
        self._thread.join()
