"""Names as a pod asks for them, by UDP: one question after the other, asked again as resolvers do."""

import secrets
import socket
import struct
import threading
import time

from nodeagent.lab.lab_plan import DNS_PORT
from nodeagent.lab.net.network_namespaces import enter, inside
from nodeagent.model.addresses import family_of

TRIES = 2
TIMEOUT_SECONDS = 5.0
"""Both as in resolv.conf(5) when nobody says otherwise."""
BETWEEN_SECONDS = 0.005
LARGEST_ANSWER = 4096
HEADER = struct.Struct(">HHHHHH")  # RFC 1035, 4.1.1
RECURSION_DESIRED = 0x0100
RCODE = 0x000F
QUESTION_END = b"\0\0\1\0\1"  # the root, type A, class IN


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
        number = secrets.randbits(16)
        labels = b"".join(bytes((len(label),)) + label.encode() for label in name.split("."))
        with socket.socket(family_of(self._server).socket_family, socket.SOCK_DGRAM) as sock:
            sock.settimeout(TIMEOUT_SECONDS)
            sock.connect((self._server, DNS_PORT))
            sock.send(HEADER.pack(number, RECURSION_DESIRED, 1, 0, 0, 0) + labels + QUESTION_END)
            while True:
                answer = sock.recv(LARGEST_ANSWER)
                told, flags, _, answers, _, _ = HEADER.unpack_from(answer)
                if told == number:
                    return answers > 0 and not flags & RCODE


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
