"""DNS queries as a pod sends them, by UDP: one after the other, repeated as resolvers do."""

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
"""The defaults of resolv.conf(5), like TRIES."""
BETWEEN_SECONDS = 0.005


class Resolver:
    """Sends queries to one server from one namespace."""

    def __init__(self, namespace: str, server: str) -> None:
        self.namespace = namespace
        self._server = server

    def knows(self, name: str) -> bool:
        """Returns whether the name has an address; False if there is no answer in time."""
        try:
            return inside(self.namespace, lambda: self.ask(name))
        except OSError:
            return False

    def ask(self, name: str) -> bool:
        """Returns whether the name has an address, by one query from this thread's namespace. Raises OSError."""
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
    """A thread that looks up one name all the time, until `stop`. failed: lookups without a good answer at any try;
    again: those that needed more than one try. slowest: seconds."""

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
        """Returns the number of tries, and whether one was answered."""
        for number in range(1, TRIES + 1):
            try:
                return number, self._resolver.ask(self._name)
            except OSError:
                continue
        return TRIES, False

    def stop(self) -> None:
        """Ends it, after the last query was answered or has timed out."""
        self._ending.set()
        self._thread.join()
