"""A blocking netlink socket that sends batches and reads dumps.

The socket blocks: callers on the event loop use it through ``asyncio.to_thread``. A socket belongs
to the network namespace of the thread that opens it and is closed on exec.
"""

import errno
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from nodeagent.dataplane.framing import (
    HEADER,
    NLM_F_ACK,
    NLM_F_ACK_TLVS,
    NLM_F_DUMP,
    NLM_F_DUMP_INTR,
    NLM_F_REQUEST,
    NLMSG_DONE,
    NLMSG_ERROR,
    attributes,
    messages,
)

T = TypeVar("T")

_SOL_NETLINK = 270
_NETLINK_CAP_ACK = 10
_NETLINK_EXT_ACK = 11
_NETLINK_GET_STRICT_CHK = 12

_NLMSGERR_ATTR_MSG = 1

_INT = struct.Struct("=i")

# A dump fills at most 32 kB per datagram (measured; a smaller buffer truncates them without an error).
_RECEIVE_BYTES = 1 << 16
# Each failing message answers with a datagram; this many always fit in a receive buffer of default size.
_BATCH_MESSAGES = 128
# No request takes the kernel so long; a longer silence is a lost answer.
_REPLY_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 0.001
_LAST_PAUSE_SECONDS = 0.05


class Request(NamedTuple):
    """One message to the kernel: its type, its NLM_F_* flags (REQUEST is implied) and what follows the header."""

    kind: int
    flags: int
    body: bytes


class Failure(NamedTuple):
    """The kernel refused the request at `position` of a batch. `detail`: its extended text, or that of the errno."""

    position: int
    errno: int
    detail: str


class DumpInterruptedError(OSError):
    """The dumped objects changed meanwhile: what was read may lack some of them. Read again."""


def read_consistently(read: Callable[[], T], attempts: int = 10) -> T:
    """What `read` returns, repeated with growing pauses while it raises DumpInterruptedError, at last raising it."""
    pause = _FIRST_PAUSE_SECONDS
    for _ in range(attempts - 1):
        try:
            return read()
        except DumpInterruptedError:
            time.sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE_SECONDS)
    return read()


class NetlinkSocket:
    """A blocking netlink socket of one protocol (``NETLINK_ROUTE``, …). Not for use by two threads at a time.

    All methods raise TimeoutError, an OSError, when the kernel does not answer within a minute.
    """

    def __init__(self, protocol: int) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
        self._socket.settimeout(_REPLY_SECONDS)
        self._sequence = 0
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._view = memoryview(self._buffer)
        for option in (_NETLINK_CAP_ACK, _NETLINK_EXT_ACK, _NETLINK_GET_STRICT_CHK):
            try:
                self._socket.setsockopt(_SOL_NETLINK, option, 1)
            except OSError:  # an older kernel: errors are longer, dumps unfiltered; both are understood
                continue

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closing twice does nothing."""
        self._socket.close()

    def perform(self, requests: Iterable[Request]) -> list[Failure]:
        """Performs all requests in order and returns those that failed; one failing does not stop the others.

        The requests are taken from the iterable a batch at a time, so thousands need not exist at once.

        Raises OSError when the socket itself fails (the outcome is then unknown: read back).
        """
        failures: list[Failure] = []
        remaining = iter(requests)
        position = 0
        while batch := list(islice(remaining, _BATCH_MESSAGES)):
            failures.extend(self._perform_batch(batch, position))
            position += len(batch)
        return failures

    def _perform_batch(self, requests: Sequence[Request], position: int) -> Iterator[Failure]:
        first = self._sequence + 1
        last = self._sequence + len(requests)
        parts = []
        for kind, flags, body in requests:
            self._sequence += 1
            acknowledge = NLM_F_ACK if self._sequence == last else 0
            size = 16 + len(body)
            parts.append(HEADER.pack(size, kind, flags | NLM_F_REQUEST | acknowledge, self._sequence, 0))
            parts.append(body + b"\0" * (-size % 4))
        self._socket.sendall(b"".join(parts))
        while True:
            for kind, flags, sequence, body_view in messages(self._receive()):
                if kind != NLMSG_ERROR or not first <= sequence <= last:
                    continue
                code = -_INT.unpack_from(body_view)[0]
                if code:
                    yield Failure(position + sequence - first, code, _error_text(code, flags, body_view))
                if sequence == last:
                    return

    def ask(self, request: Request) -> memoryview:
        """The body of the one message that answers a request; valid until the socket's next use.

        Raises OSError when the kernel refuses (ENODEV, ENOENT, …).
        """
        self._sequence += 1
        header = HEADER.pack(16 + len(request.body), request.kind, request.flags | NLM_F_REQUEST, self._sequence, 0)
        self._socket.sendall(header + request.body)
        while True:
            for kind, flags, sequence, body in messages(self._receive()):
                if sequence != self._sequence:
                    continue
                if kind == NLMSG_ERROR:
                    code = -_INT.unpack_from(body)[0]
                    raise OSError(code, _error_text(code, flags, body))
                return body

    def dump(self, request: Request) -> Iterator[memoryview]:
        """The bodies of all messages a dump request yields; each is valid until the next step.

        Raises OSError when the kernel refuses, DumpInterruptedError at the end of an inconsistent dump.
        """
        for datagram in self.dump_datagrams(request):
            for kind, _, sequence, body in messages(datagram):
                if sequence == self._sequence and kind > NLMSG_DONE:
                    yield body

    def dump_datagrams(self, request: Request) -> Iterator[memoryview]:
        """As `dump`, but whole datagrams, the control messages among them, for readers that parse in bulk."""
        self._sequence += 1
        header = HEADER.pack(
            16 + len(request.body), request.kind, request.flags | NLM_F_REQUEST | NLM_F_DUMP, self._sequence, 0
        )
        self._socket.sendall(header + request.body)
        interrupted = ended = False
        try:
            while not ended:
                datagram = self._receive()
                for kind, flags, sequence, body in messages(datagram):
                    if sequence != self._sequence:
                        continue
                    interrupted = interrupted or bool(flags & NLM_F_DUMP_INTR)
                    if kind in {NLMSG_ERROR, NLMSG_DONE}:
                        ended = True
                        code = -_INT.unpack_from(body)[0] if len(body) >= 4 else 0
                        if code > 0:
                            raise OSError(code, _error_text(code, flags, body))
                yield datagram
        finally:
            if not ended:
                self._drain()
        if interrupted:
            raise DumpInterruptedError(errno.EINTR, "the dumped objects changed meanwhile")

    def _drain(self) -> None:
        """Receive what is left of a dump that nobody reads to its end: the kernel refuses another one before that."""
        if self._socket.fileno() < 0:
            return
        self._socket.settimeout(0)
        try:
            while self._receive():
                continue
        except OSError:
            return
        finally:
            self._socket.settimeout(_REPLY_SECONDS)

    def _receive(self) -> memoryview:
        size = self._socket.recv_into(self._buffer)
        return self._view[:size]


def _error_text(code: int, flags: int, body: memoryview) -> str:
    """What the kernel says about a failing request (struct nlmsgerr, then attributes when it has more to say)."""
    text = os.strerror(code)
    if flags & NLM_F_ACK_TLVS and len(body) > 20:
        for kind, value in attributes(body[20:]):
            if kind == _NLMSGERR_ATTR_MSG:
                said = bytes(value).rstrip(b"\0").decode(errors="replace")
                return f"{text} ({said})"
    return text
