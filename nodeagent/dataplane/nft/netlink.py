"""One nf_tables netlink socket: commit a transaction, dump objects, read the ruleset generation.

The socket is the owner of an owned table, so the agent has exactly one per process for as long as it lives. It is
close-on-exec (Python's default): a child that held it would keep the table owned.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

from nodeagent.dataplane.errors import (
    CommitRejected,
    DumpInterrupted,
    KernelUnclear,
    NotPermitted,
    Rejection,
    StaleGeneration,
)
from nodeagent.dataplane.framing import (
    HEADER,
    NLM_F_ACK,
    NLM_F_ACK_TLVS,
    NLM_F_DUMP,
    NLM_F_DUMP_INTR,
    NLM_F_REQUEST,
    NLMSG_DONE,
    NLMSG_ERROR,
    Received,
    attributes,
    messages,
)
from nodeagent.dataplane.nft import attributes as nl
from nodeagent.dataplane.nft.generations import OwnSteps
from nodeagent.dataplane.nft.transaction import GETGEN, SUBSYSTEM, Message, Transaction

NETLINK_NETFILTER: Final = 12
SOL_NETLINK: Final = 270
NETLINK_CAP_ACK: Final = 10
NETLINK_EXT_ACK: Final = 11
SO_SNDBUFFORCE: Final = 32
SO_RCVBUFFORCE: Final = 33
ATTR_OFFSET: Final = 2

RECEIVE_BYTES: Final = 1 << 16
"""A dump's datagrams have up to 32 kB; a smaller buffer would cut them without an error."""
REPLY_BUFFER: Final = 8 << 20
REPLY_SECONDS: Final = 60.0
_ERROR = struct.Struct("=i")
_BATCH = "the batch"
_NO_CAPABILITY = "nf_tables: not permitted: run as root or with CAP_NET_ADMIN"
_OWNED_BY_ANOTHER = "table nodeagent is owned by another process: stop the nodeagent that runs here first"


class NetlinkSocket:
    """Blocking; a call ends when the kernel has answered. Big transactions belong in a worker thread.

    One call at a time; threads wait for each other. steps: which generations of the ruleset our own commits made.

    Raises NotPermitted when the process may not use nf_tables at all.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
        self._socket.bind((0, 0))
        self._socket.settimeout(REPLY_SECONDS)
        self._socket.setsockopt(SOL_NETLINK, NETLINK_CAP_ACK, 1)
        self._socket.setsockopt(SOL_NETLINK, NETLINK_EXT_ACK, 1)
        self._force_buffer(SO_RCVBUFFORCE, socket.SO_RCVBUF, REPLY_BUFFER)
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._seq = 0
        self._send_bytes = 0
        self._lock = Lock()
        self.steps = OwnSteps()

    def close(self) -> None:
        """Give up the socket, and with it the ownership of owned tables."""
        self._socket.close()

    def commit(self, transaction: Transaction, known: int | None = None) -> None:
        """Apply all of a transaction, or nothing.

        known: only if the ruleset differs from this generation by nothing but commits of ours; then this one is known
        to be the next.

        Raises CommitRejected with every operation at fault, NotPermitted, StaleGeneration, or KernelUnclear when the
        answer was lost (the caller reads back).
        """
        if transaction.empty:
            return
        with self._lock:
            generation = None if known is None else self.steps.follow(known)
            self._commit(transaction, generation)
            # A transaction that has no effect makes no generation.
            if generation is not None and self._ask_generation() != generation:
                self.steps.add(generation)

    def _commit(self, transaction: Transaction, generation: int | None) -> None:
        first = self._reserve(len(transaction.messages) + 2)
        batch = transaction.encode(first, generation)
        self._make_room(len(batch))
        with self._typed():
            try:
                self._socket.sendall(batch)
            except OSError as error:
                if error.errno != errno.EMSGSIZE:
                    raise
                raise KernelUnclear(f"a transaction of {len(batch)} bytes does not fit net.core.wmem_max") from error
            rejections = self._replies(first, transaction.messages)
        if rejections:
            if generation is not None and rejections[0].about == _BATCH and rejections[0].errno == errno.ERESTART:
                raise StaleGeneration("somebody else changed the ruleset first")
            if all(item.errno == errno.EPERM for item in rejections):
                raise NotPermitted(_NO_CAPABILITY if rejections[0].about == _BATCH else _OWNED_BY_ANOTHER)
            raise CommitRejected(tuple(rejections))

    def dump(self, kind: int, family: int, body: bytes = b"") -> Iterator[tuple[int, memoryview]]:
        """(res_id, attributes) of every object; the memory is valid only until the next step.

        Raises FileNotFoundError when the table or set is not there, DumpInterrupted at the end of a dump into which a
        change fell, KernelUnclear when the kernel could not answer.
        """
        for received in self._ask(kind, NLM_F_DUMP, family, body):
            yield int.from_bytes(received.body[2:4], "big"), received.body[nl.GENMSG_LENGTH :]

    def fetch(self, kind: int, family: int, body: bytes) -> Iterator[memoryview]:
        """The attributes of every object a request names, a message each; valid only until the next step.

        Raises FileNotFoundError when one of them is not there, KernelUnclear when the kernel could not answer.
        """
        for received in self._ask(kind, NLM_F_ACK, family, body):
            yield received.body[nl.GENMSG_LENGTH :]

    def confirmed(
        self, kind: int, family: int, body: bytes, start: int, expected: Iterable[tuple[bytes, bytes]], *, exact: bool
    ) -> int:
        """How many objects that a request names, from the first on, are answered as expected.

        expected: what stands at `start` of each answer, and with what it ends; exact: it ends with the former.
        Raises KernelUnclear when the kernel could not answer.
        """
        count = 0
        request = nl.message(SUBSYSTEM << 8 | kind, NLM_F_REQUEST | NLM_F_ACK, self._reserve(1), family, 0, body)
        with self._lock, self._typed():
            self._socket.sendall(request)
            receive, buffer = self._socket.recv_into, self._buffer
            for head, tail in expected:
                size = receive(buffer)
                if exact:
                    if buffer[start:size] != head:
                        break
                elif buffer[start : start + len(head)] != head or buffer[size - len(tail) : size] != tail:
                    break
                count += 1
            self._drain()
        return count

    def get(self, kind: int, family: int, body: bytes) -> memoryview:
        """The attributes of one object. Raises FileNotFoundError when there is none."""
        found = None
        for received in self._ask(kind, NLM_F_ACK, family, body):
            found = memoryview(bytes(received.body[nl.GENMSG_LENGTH :]))
        if found is None:
            raise KernelUnclear("an acknowledgement in place of an object")
        return found

    def _ask(self, kind: int, flags: int, family: int, body: bytes) -> Iterator[Received]:
        """Everything that answers a request, until the kernel says that this is all."""
        with self._lock, self._typed():
            yield from self._answers(kind, flags, family, body)

    @contextmanager
    def _typed(self) -> Iterator[None]:
        """Give errors of the socket their types, and leave nothing of an answer behind when the reading ends early."""
        ended = False
        try:
            yield
            ended = True
        except FileNotFoundError:
            raise
        except TimeoutError as error:
            raise KernelUnclear(f"no answer from the kernel within {REPLY_SECONDS:.0f} s") from error
        except OSError as error:
            raise KernelUnclear(f"netlink: {error.strerror}") from error
        finally:
            if not ended:
                self._drain()

    def _answers(self, kind: int, flags: int, family: int, body: bytes) -> Iterator[Received]:
        """As `_ask`. An interrupted dump goes on to its end first: the kernel refuses another one before that."""
        seq = self._reserve(1)
        self._socket.sendall(nl.message(SUBSYSTEM << 8 | kind, NLM_F_REQUEST | flags, seq, family, 0, body))
        interrupted = False
        while True:
            for received in self._receive():
                if received.seq != seq:
                    continue
                interrupted = interrupted or bool(received.flags & NLM_F_DUMP_INTR)
                if received.kind in {NLMSG_DONE, NLMSG_ERROR}:
                    code = -_ERROR.unpack_from(received.body)[0]
                    if interrupted:
                        raise DumpInterrupted("others changed the ruleset while it was read")
                    if code > 0:
                        _raise_errno(code)
                    return
                if not interrupted:
                    yield received

    def _drain(self) -> None:
        """Receive what is left of an answer that nobody wants: a dump goes on only as it is received."""
        if self._socket.fileno() < 0:
            return
        self._socket.settimeout(0)
        try:
            while self._socket.recv_into(self._buffer):
                continue
        except OSError:
            return
        finally:
            self._socket.settimeout(REPLY_SECONDS)

    def generation(self) -> int:
        """The ruleset generation of this network namespace: any change of any table raises it (21 µs)."""
        with self._lock:
            return self._ask_generation()

    def _ask_generation(self) -> int:
        with self._typed():
            (answer,) = (bytes(one.body[nl.GENMSG_LENGTH :]) for one in self._answers(GETGEN, NLM_F_ACK, 0, b""))
        return int.from_bytes(nl.attribute_map(memoryview(answer))[1], "big")

    def _reserve(self, count: int) -> int:
        first = self._seq + 1
        if first + count >= 1 << 32:
            first = 1
        self._seq = first + count
        return first

    def _receive(self) -> Iterator[Received]:
        size = self._socket.recv_into(self._buffer)
        return messages(self._buffer[:size])

    def _replies(self, first: int, operations: list[Message]) -> list[Rejection]:
        """Errors until the last operation is answered, or the batch itself is refused.

        Replies of anything older on the socket are ignored. A commit that fails after all operations were accepted
        is reported on the batch's own sequence number.
        """
        rejections: list[Rejection] = []
        last = first + len(operations)
        while True:
            for received in self._receive():
                if received.kind != NLMSG_ERROR or not first <= received.seq <= last:
                    continue
                code = -_ERROR.unpack_from(received.body)[0]
                if received.seq == first:
                    rejections.append(Rejection(_BATCH, code, os.strerror(code)))
                    return rejections
                if code:
                    rejections.append(_rejection(operations[received.seq - first - 1], code, received))
                if received.seq == last:
                    return rejections

    def _make_room(self, size: int) -> None:
        """A batch cannot span datagrams, so the send buffer must hold all of it (twice: the kernel's bookkeeping)."""
        wanted = max(2 * size, 1 << 20)
        if wanted > self._send_bytes:
            self._force_buffer(SO_SNDBUFFORCE, socket.SO_SNDBUF, wanted)
            self._send_bytes = wanted

    def _force_buffer(self, force: int, plain: int, size: int) -> None:
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, force, size)
        except PermissionError:
            self._socket.setsockopt(socket.SOL_SOCKET, plain, size)


def _rejection(item: Message, code: int, received: Received) -> Rejection:
    """Names the element or expression at fault, where the extended acknowledgement has the bad attribute's offset."""
    reason = os.strerror(code)
    offset = _error_offset(received)
    at = None if offset is None else _child_at(item.body, offset)
    if item.keys:
        lone = item.keys[0] if len(item.keys) == 1 else None
        key = item.keys[at] if at is not None and at < len(item.keys) else lone
        return Rejection(item.about, code, reason, item.set, key)
    if item.expressions and at is not None and at < len(item.expressions):
        reason = f"{reason} (expression {item.expressions[at]})"
    return Rejection(item.about, code, reason)


def _child_at(body: bytes, offset: int) -> int | None:
    """Which entry of the message's list (elements, 3, or expressions, 4) an offset into the message falls into.

    An interval of a lone field is two entries; the keys there count ranges, so such an answer may be too high.
    """
    position = HEADER.size + nl.GENMSG_LENGTH
    for kind, payload in attributes(memoryview(body)):
        if kind in (3, 4) and position <= offset < position + 4 + len(payload):
            inside = position + 4
            for index, (_, entry) in enumerate(attributes(payload)):
                inside += 4 + len(entry) + 3 & ~3
                if offset < inside:
                    return index
        position += 4 + len(payload) + 3 & ~3
    return None


def _error_offset(received: Received) -> int | None:
    if not received.flags & NLM_F_ACK_TLVS:
        return None
    attributes = nl.attribute_map(received.body[4 + HEADER.size :])
    offset = attributes.get(ATTR_OFFSET)
    return None if offset is None else int(struct.unpack("=I", offset)[0])


def _raise_errno(code: int) -> None:
    if code == errno.EBUSY:
        raise DumpInterrupted("an earlier dump has not been read to its end")
    if code == errno.ENOENT:
        raise FileNotFoundError(code, os.strerror(code))
    if code == errno.EPERM:
        raise NotPermitted(_NO_CAPABILITY)
    raise KernelUnclear(f"netlink: {os.strerror(code)}")
