"""Clients of an actor: connect to the server behind an address, and send a question."""

import errno
import itertools
import os
import random
import socket
import struct
import threading
import time
from typing import Protocol as Interface

from nodeagent.lab.net.actor_messages import Answer, Dial, Failure
from nodeagent.model.addresses import Protocol, family_of

FAILURES = {
    errno.ECONNREFUSED: Failure.REFUSED,
    errno.EHOSTUNREACH: Failure.UNREACHABLE,
    errno.ENETUNREACH: Failure.UNREACHABLE,
    errno.EADDRNOTAVAIL: Failure.OTHER,
    errno.ETIMEDOUT: Failure.TIMEOUT,
    errno.ECONNRESET: Failure.RESET,
    errno.EPIPE: Failure.RESET,
    errno.EPERM: Failure.DENIED,
    errno.EACCES: Failure.DENIED,
}


_CLIENT_PORTS = range(32768, 61000)
"""net.ipv4.ip_local_port_range."""


class Dialer:
    """Opens conversations. Source ports are taken one after the other, starting at random: for flows without an end, which a
    connection tracker keeps for half a minute. A new flow with the port of such a flow would follow its old translation,
    whatever the rules are now."""

    def __init__(self) -> None:
        self._taken = itertools.count(random.randrange(len(_CLIENT_PORTS)))  # noqa: S311 - no secret

    def take(self) -> int:
        """Returns the next port. Threads may call it at the same time."""
        return _CLIENT_PORTS[next(self._taken) % len(_CLIENT_PORTS)]

    def open(self, dial: Dial) -> "Conversation":
        """Connects. Raises OSError."""
        return SocketConversation(dial, self)


class Conversation(Interface):
    """A connection or flow on which several questions can be sent."""

    def ask(self, timeout: float) -> bytes:
        """Returns the answer's bytes; empty if the other side closed. Raises OSError."""
        ...

    def close(self) -> None: ...


class SocketConversation:
    """TCP, UDP, and what else the kernel has sockets for. Raises OSError if it cannot connect."""

    def __init__(self, dial: Dial, dialer: Dialer) -> None:
        kind = socket.SOCK_DGRAM if dial.protocol is Protocol.UDP else socket.SOCK_STREAM
        self._socket = socket.socket(family_of(dial.address).socket_family, kind, dial.protocol)
        try:
            prepare(self._socket, dial, dialer)
            if dial.source_port and kind == socket.SOCK_STREAM:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._socket.connect((dial.address, dial.port))
        except OSError:
            self._socket.close()
            raise

    def ask(self, timeout: float) -> bytes:
        self._socket.settimeout(timeout)
        self._socket.send(b"?")
        return self._socket.recv(4096)

    def close(self) -> None:
        self._socket.close()


def prepare(client: socket.socket, dial: Dial, dialer: Dialer) -> None:
    """Sets all options of a client socket before it connects."""
    client.settimeout(dial.timeout)
    if dial.source_port:
        # Only then: the kernel sometimes gives two UDP sockets with this option the same port.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if dial.mark is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, dial.mark)
    if dial.priority is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, dial.priority)
    source = dial.source_address or ("::" if client.family == socket.AF_INET6 else "")
    if client.type == socket.SOCK_DGRAM and not dial.source_port:
        _bind_to_next(client, source, dialer)
    elif dial.source_address or dial.source_port:
        client.bind((source, dial.source_port))


def _bind_to_next(client: socket.socket, source: str, dialer: Dialer) -> None:
    for _ in _CLIENT_PORTS:
        try:
            return client.bind((source, dialer.take()))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def ask(dial: Dial, dialer: Dialer) -> Answer:
    """Connects, sends one question, closes. Returns the answer."""
    conversation, answer = begin(dial, dialer)
    if conversation:
        conversation.close()
    return answer


def begin(dial: Dial, dialer: Dialer) -> tuple[Conversation | None, Answer]:
    """Opens a conversation and asks once. The conversation is None unless the server answered."""
    started = time.monotonic()
    try:
        conversation = dialer.open(dial)
    except OSError as error:
        return None, failed(error, started)
    answer = continue_asking(conversation, max(0.001, dial.timeout - (time.monotonic() - started)), started)
    if answer.failure:
        conversation.close()
        return None, answer
    return conversation, answer


def continue_asking(conversation: Conversation, timeout: float, started: float | None = None) -> Answer:
    """Sends a question on an open conversation. Returns the answer."""
    started = time.monotonic() if started is None else started
    try:
        text = conversation.ask(timeout)
    except OSError as error:
        return failed(error, started)
    seconds = time.monotonic() - started
    if not text:
        return Answer(started=started, seconds=seconds, failure=Failure.CLOSED)
    name, peer, peer_port, local, local_port = text.decode().split()
    return Answer(name, peer, int(peer_port), local, int(local_port), started, seconds)


def failed(error: OSError, started: float) -> Answer:
    """Returns the answer of a failed attempt, with the reason."""
    kind = Failure.TIMEOUT if isinstance(error, TimeoutError) else FAILURES.get(error.errno or 0, Failure.OTHER)
    return Answer(started=started, seconds=time.monotonic() - started, failure=kind, detail=str(error))


def ask_many(dial: Dial, count: int, workers: int, dialer: Dialer) -> list[Answer]:
    """Returns the answers of `count` connections, `workers` at a time, in the order in which they were begun."""
    if workers == 1:
        return [ask(dial, dialer) for _ in range(count)]
    answers: list[Answer] = []
    lock = threading.Lock()
    left = count

    def work() -> None:
        nonlocal left
        while True:
            with lock:
                if left == 0:
                    return
                left -= 1
            answer = ask(dial, dialer)
            with lock:
                answers.append(answer)

    threads = [threading.Thread(target=work) for _ in range(min(workers, count))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(answers, key=lambda answer: answer.started)
