"""The netlink socket: batches of requests, single requests, dumps, and the kernel's notifications.

It blocks: callers on the event loop use it in a worker thread. It belongs to the network namespace of the thread that
opens it, and is closed on exec.
"""

import errno
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple, Self, TypeVar

from nodeagent.wire.netlink.equal_answers import EqualAnswers
from nodeagent.wire.netlink.framing import (
    HEADER,
    Received,
    Request,
    attribute_map,
    messages,
    packed_message,
    text_of,
    unlike_messages,
)
from nodeagent.wire.netlink.uapi.netlink import (
    NETLINK_CAP_ACK,
    NETLINK_EXT_ACK,
    NETLINK_GET_STRICT_CHK,
    NLM_F_ACK,
    NLM_F_ACK_TLVS,
    NLM_F_DUMP,
    NLM_F_DUMP_INTR,
    NLM_F_REQUEST,
    NLMSG_DONE,
    NLMSG_ERROR,
    NLMSGERR_ATTR_MSG,
    NLMSGERR_ATTR_OFFS,
    SO_RCVBUFFORCE,
    SO_SNDBUFFORCE,
    SOL_NETLINK,
)

T = TypeVar("T")

REPLY_SECONDS = 60.0
"""No request takes the kernel this long; a longer silence means that the answer was lost."""
_ERRNO = struct.Struct("=i")
_OFFSET = struct.Struct("=I")
_LARGEST_CODE = (
    1 << 31
) - 1  # that can be spelled; above 4095 subsystems have codes of their own (linux/netfilter/ipset/ip_set.h)
_SEQUENCE_NUMBERS = 1 << 32
_ENDS = frozenset({NLMSG_DONE, NLMSG_ERROR})
"""The types of the last message of an answer."""
# A dump fills at most 32 kB per datagram (measured; a smaller buffer truncates them without an error).
_RECEIVE_BYTES = 1 << 16
# Each failing message answers with a datagram; this many always fit in a receive buffer of default size.
_BATCH_MESSAGES = 128
_FIRST_PAUSE_SECONDS = 0.001
_LAST_PAUSE_SECONDS = 0.05
_QUICK_PAUSE_SECONDS = 0.004
"""The longest between attempts of a single request: 31 ms in all, so that the event loop can wait for them."""
_ATTEMPTS = 10
OUT_OF_MEMORY = frozenset({errno.EAGAIN, errno.EINTR, errno.ENOBUFS, errno.ENOMEM})
"""Errors of a kernel that had no memory or was interrupted: what it refused with one of these was not done."""
TEMPORARY = OUT_OF_MEMORY | {errno.EBUSY, errno.EMSGSIZE}
"""Errors of a read that is worth another try; also an earlier dump that has not ended (EBUSY), and an answer that was lost
(ENOBUFS) or cut off (EMSGSIZE)."""


class Failure(NamedTuple):
    """The kernel refused the request at `position` of a batch. `detail`: its extended text, or that of the errno."""

    position: int
    errno: int
    detail: str


class DumpInterruptedError(OSError):
    """The dumped objects changed meanwhile: the dump may lack some of them. Read again."""


def is_temporary(error: Exception) -> bool:
    """Returns whether it is a TEMPORARY error."""
    return isinstance(error, OSError) and error.errno in TEMPORARY


def retry(
    work: Callable[[], T],
    attempts: int = _ATTEMPTS,
    is_temporary: Callable[[Exception], bool] = is_temporary,
    longest_pause: float = _LAST_PAUSE_SECONDS,
) -> T:
    """Returns the result of `work`; repeats it with growing pauses while it raises a temporary error, and raises that at last.

    longest_pause: in seconds.
    """
    pause = _FIRST_PAUSE_SECONDS
    for _ in range(attempts - 1):
        try:
            return work()
        except Exception as error:
            if not is_temporary(error):
                raise
            time.sleep(pause)
            pause = min(2 * pause, longest_pause)
    return work()


def retry_briefly(work: Callable[[], T]) -> T:
    """Like `retry`, for a single request: it is worth no longer wait than the event loop can afford."""
    return retry(work, longest_pause=_QUICK_PAUSE_SECONDS)


class NetlinkSocket:
    """A netlink socket of one protocol (NETLINK_ROUTE, …). Not for use by two threads at a time.

    groups: multicast groups to join; such a socket is read with `receive_now` and does not block.
    All methods raise TimeoutError, an OSError, if the kernel does not answer within a minute.
    """

    def __init__(self, protocol: int, groups: int = 0) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
        self._socket.settimeout(0 if groups else REPLY_SECONDS)
        self._socket.bind((0, groups))
        self._sequence = 0
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._view = memoryview(self._buffer)
        for option in (NETLINK_CAP_ACK, NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK):
            try:
                self._socket.setsockopt(SOL_NETLINK, option, 1)
            except OSError:  # an older kernel: errors are longer, dumps unfiltered; both are understood
                continue

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the socket; a second call does nothing."""
        self._socket.close()

    def fileno(self) -> int:
        """Returns the file descriptor, negative once closed."""
        return self._socket.fileno()

    @property
    def port(self) -> int:
        """The socket's address, by which the kernel knows it."""
        return int(self._socket.getsockname()[0])

    def enlarge_receive_buffer(self, size: int) -> None:
        """Makes room for this many bytes of answers; without CAP_NET_ADMIN at most as many as net.core.rmem_max allows."""
        self._enlarge(SO_RCVBUFFORCE, socket.SO_RCVBUF, size)

    def enlarge_send_buffer(self, size: int) -> None:
        """Makes room for datagrams of this many bytes; without CAP_NET_ADMIN at most as many as net.core.wmem_max allows."""
        self._enlarge(SO_SNDBUFFORCE, socket.SO_SNDBUF, size)

    def _enlarge(self, force: int, plain: int, size: int) -> None:
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, force, size)
        except PermissionError:
            self._socket.setsockopt(socket.SOL_SOCKET, plain, size)

    def perform(self, requests: Iterable[Request]) -> list[Failure]:
        """Performs all requests in order and returns those that failed; a failure does not stop the others.

        The requests are taken from the iterable a batch at a time, so thousands need not exist at once. Tries those again that
        the kernel had no memory for.

        Raises OSError if the socket itself fails (the outcome is then unknown: read back).
        """
        failures: list[Failure] = []
        remaining = enumerate(requests)
        while batch := dict(islice(remaining, _BATCH_MESSAGES)):
            for left in reversed(range(_ATTEMPTS)):
                found = list(self._perform_batch(batch))
                batch = {each.position: batch[each.position] for each in found if each.errno in OUT_OF_MEMORY}
                failures += [each for each in found if each.position not in batch or not left]
                if not batch:
                    break
                time.sleep(_FIRST_PAUSE_SECONDS)
        return sorted(failures)

    def _perform_batch(self, numbered: Mapping[int, Request]) -> Iterator[Failure]:
        positions, requests = list(numbered), list(numbered.values())
        first = self.reserve(len(requests))
        last = first + len(requests) - 1
        parts = [
            packed_message(kind, flags | NLM_F_REQUEST, seq, body)
            for seq, (kind, flags, body) in enumerate(requests[:-1], first)
        ]
        kind, flags, body = requests[-1]
        parts.append(packed_message(kind, flags | NLM_F_REQUEST | NLM_F_ACK, last, body))
        retry_briefly(lambda: self.send(b"".join(parts)))
        for answer in self.acknowledgements(first, last):
            code = errno_of(answer)
            if code:
                yield Failure(positions[answer.seq - first], code, _error_text(code, answer))

    def ask(self, request: Request) -> memoryview:
        """Returns the body of the one message that answers a request to read; valid until the socket's next use. Tries again
        a few times if the kernel is busy.

        Raises OSError if the kernel refuses (ENODEV, ENOENT, …).
        """
        return retry_briefly(lambda: self._ask(request))

    def _ask(self, request: Request) -> memoryview:
        seq = self._send_request(request, 0)
        while True:
            for received in messages(self.receive()):
                if received.seq != seq:
                    continue
                if received.type == NLMSG_ERROR:
                    code = errno_of(received)
                    raise OSError(code, _error_text(code, received))
                return received.body

    def dump(self, request: Request) -> Iterator[memoryview]:
        """Yields the bodies of all messages that answer a dump request; each is valid until the next step. Reads an interrupted dump to
        its end: before that, the kernel refuses another one (EBUSY).

        Raises OSError if the kernel refuses, DumpInterruptedError at the end of an inconsistent dump.
        """
        seq = self._send_request(request, NLM_F_DUMP)
        interrupted = ended = False
        try:
            while True:
                for received in messages(self.receive()):
                    if received.seq != seq:
                        continue
                    interrupted = interrupted or bool(received.flags & NLM_F_DUMP_INTR)
                    if received.type in _ENDS:
                        _raise_for_end(received, interrupted=interrupted)
                        ended = True
                        return
                    if not interrupted:
                        yield received.body
        finally:
            if not ended:
                self.drain()

    def fetch(self, request: Request) -> list[bytes]:
        """Returns the bodies of the messages that answer a request that names objects, one for each. Raises OSError if the kernel refuses."""
        seq = self._send_request(request, NLM_F_ACK)
        found: list[bytes] = []
        ended = False
        try:
            while True:
                datagram = self.receive()
                length, kind, _, answered, _ = HEADER.unpack_from(datagram)
                if answered == seq and length == len(datagram) and kind not in _ENDS:
                    found.append(bytes(datagram[HEADER.size :]))  # the kernel sends each by itself
                    continue
                for received in messages(datagram):
                    if received.seq != seq:
                        continue
                    if received.type in _ENDS:
                        _raise_for_end(received, interrupted=False)
                        ended = True
                        return found
                    found.append(bytes(received.body))
        finally:
            if not ended:
                self.drain()

    def fetch_equal(self, request: Request, count: int, answers: EqualAnswers) -> memoryview | None:
        """Returns the messages of a `fetch` for `count` objects side by side, if each has the size of `answers`; valid until these are
        used again. None if not, or if the kernel did not answer for all: ask by `fetch`.

        Raises OSError if the socket itself fails.
        """
        complete = None
        try:
            self._send_request(request, NLM_F_ACK)
            complete = answers.receive(self._socket.fileno(), count)
        except OSError as error:
            if not is_temporary(error):
                raise
        finally:
            if complete is None:
                self.drain()
        return complete

    def dump_datagrams(self, request: Request) -> Iterator[memoryview]:
        """Like `dump`, but yields whole datagrams, including control messages, for readers that parse in bulk."""
        seq = self._send_request(request, NLM_F_DUMP)
        interrupted = False
        end: Received | None = None
        try:
            while end is None:
                datagram = self.receive()
                for received in unlike_messages(datagram):
                    if received.seq == seq:
                        interrupted = interrupted or bool(received.flags & NLM_F_DUMP_INTR)
                        end = received if received.type in _ENDS else end
                if end is not None:
                    _raise_for_end(end, interrupted=False)
                yield datagram
        finally:
            if end is None:
                self.drain()
        if interrupted:
            raise _interruption()

    def count_confirmed(
        self, request: Request, start: int, expected: Iterable[tuple[bytes, bytes]], *, exact: bool
    ) -> int:
        """Returns how many of the objects that a request names, counted from the first, are answered as expected; a busy kernel
        answers fewer.

        expected: (the bytes at `start` of each answer, its last bytes); exact: nothing is between these.
        Raises OSError if the kernel could not answer.
        """
        count = 0
        receive, buffer = self._socket.recv_into, self._view
        try:
            self._send_request(request, NLM_F_ACK)
            for head, tail in expected:
                size = receive(buffer)
                if exact:
                    if buffer[start:size] != head:
                        break
                elif buffer[start : start + len(head)] != head or buffer[size - len(tail) : size] != tail:
                    break
                count += 1
        except OSError as error:
            if not is_temporary(error):
                raise
        finally:
            self.drain()
        return count

    def reserve(self, count: int) -> int:
        """Returns the first of this many sequence numbers, for the caller's own messages."""
        first = self._sequence + 1
        if first + count > _SEQUENCE_NUMBERS:
            first = 1
        self._sequence = first + count - 1
        return first

    def send(self, data: bytes) -> None:
        """Sends one datagram of whole messages. The kernel has handled them all when this returns."""
        self._socket.sendall(data)

    def receive(self) -> memoryview:
        """Returns the next datagram; valid until the socket's next use. Raises OSError with EMSGSIZE if it was cut off."""
        size = self._socket.recv_into(self._buffer, 0, socket.MSG_TRUNC)
        if size > _RECEIVE_BYTES:
            raise OSError(errno.EMSGSIZE, f"an answer of {size} bytes was cut off")
        return self._view[:size]

    def receive_now(self) -> memoryview | None:
        """Returns the next datagram of a socket with groups, or None if nothing was received; valid until the next use.

        Raises OSError with ENOBUFS if notifications were lost.
        """
        try:
            return self.receive()
        except BlockingIOError:
            return None

    def acknowledgements(self, first: int, last: int, *, echoes: bool = False) -> Iterator[Received]:
        """Yields failures and acknowledgements of messages with these sequence numbers, up to that of the last.

        echoes: also the kernel's echoes (NLM_F_ECHO), each valid until the next step. Their sequence number may be 0: the
        kernel (6.18) loses that of an element's deletion.
        """
        ended = False
        try:
            while True:
                for received in messages(self.receive()):
                    if received.type != NLMSG_ERROR:
                        if echoes:
                            yield received
                        continue
                    if not first <= received.seq <= last:
                        continue
                    ended = received.seq == last
                    yield received
                    if ended:
                        return
        finally:
            if not ended:
                self.drain()

    def drain(self) -> None:
        """Receives and drops the rest of answers that are not needed: a dump continues only as it is received."""
        if self._socket.fileno() < 0:
            return
        self._socket.settimeout(0)
        try:
            while self._drained_one():
                continue
        finally:
            self._socket.settimeout(REPLY_SECONDS)

    def _drained_one(self) -> bool:
        """Returns whether more may be waiting: a datagram was dropped, or the kernel reports that one was lost."""
        try:
            return self._socket.recv_into(self._buffer) > 0
        except OSError as error:
            return error.errno in TEMPORARY - {errno.EAGAIN}

    def _send_request(self, request: Request, flags: int) -> int:
        seq = self.reserve(1)
        self.send(packed_message(request.type, request.flags | NLM_F_REQUEST | flags, seq, request.body))
        return seq


def errno_of(answer: Received) -> int:
    """Returns the error in an NLMSG_ERROR (or NLMSG_DONE); 0 for success (struct nlmsgerr)."""
    code = -int(_ERRNO.unpack_from(answer.body)[0]) if len(answer.body) >= _ERRNO.size else 0
    return code if code <= _LARGEST_CODE else errno.EBADMSG


def offset_at_fault(answer: Received) -> int | None:
    """Returns the byte of the refused message at which the kernel found the fault, if it reports that."""
    found = _extended(answer).get(NLMSGERR_ATTR_OFFS)
    return None if found is None or len(found) != _OFFSET.size else int(_OFFSET.unpack(found)[0])


def _extended(answer: Received) -> dict[int, memoryview]:
    """Returns the kernel's additions to an error: attributes after the errno and the refused message's header."""
    return attribute_map(answer.body[_ERRNO.size + HEADER.size :]) if answer.flags & NLM_F_ACK_TLVS else {}


def _error_text(code: int, answer: Received) -> str:
    said = _extended(answer).get(NLMSGERR_ATTR_MSG)
    return os.strerror(code) if said is None else f"{os.strerror(code)} ({text_of(said)})"


def _raise_for_end(end: Received, *, interrupted: bool) -> None:
    code = errno_of(end)
    if interrupted:
        raise _interruption()
    if code > 0:
        raise OSError(code, _error_text(code, end))


def _interruption() -> DumpInterruptedError:
    return DumpInterruptedError(errno.EINTR, "the dumped objects changed meanwhile")
