"""One nf_tables netlink socket: commit a transaction, dump objects, read the ruleset generation.

The socket is the owner of an owned table, so the agent has exactly one per process for as long as it lives. It is
close-on-exec (Python's default): a child that held it would keep the table owned.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterator
from typing import Final

from nodeagent.dataplane.errors import CommitRejected, KernelUnclear, NotPermitted, Rejection
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

    def close(self) -> None:
        """Give up the socket, and with it the ownership of owned tables."""
        self._socket.close()

    def commit(self, transaction: Transaction) -> None:
        """Apply all of a transaction, or nothing.

        Raises CommitRejected with every operation at fault, NotPermitted, or KernelUnclear when the answer was lost
        (the caller reads back).
        """
        if transaction.empty:
            return
        first = self._reserve(len(transaction.messages) + 2)
        batch = transaction.encode(first)
        self._make_room(len(batch))
        try:
            self._socket.sendall(batch)
            rejections = self._replies(first, transaction.messages)
        except TimeoutError as error:
            raise KernelUnclear(f"no answer to a transaction within {REPLY_SECONDS:.0f} s") from error
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                raise KernelUnclear(f"a transaction of {len(batch)} bytes does not fit net.core.wmem_max") from error
            raise KernelUnclear(f"netlink: {error.strerror}") from error
        if rejections:
            if all(item.errno == errno.EPERM for item in rejections):
                raise NotPermitted(_NO_CAPABILITY if rejections[0].about == _BATCH else _OWNED_BY_ANOTHER)
            raise CommitRejected(tuple(rejections))

    def dump(self, kind: int, family: int, body: bytes = b"") -> Iterator[tuple[int, memoryview]]:
        """(res_id, attributes) of every object; the memory is valid only until the next step.

        Raises FileNotFoundError when the table or set is not there, KernelUnclear when the kernel says that the dump
        was interrupted.
        """
        for received in self._ask(kind, NLM_F_DUMP, family, body):
            yield int.from_bytes(received.body[2:4], "big"), received.body[nl.GENMSG_LENGTH :]

    def fetch(self, kind: int, family: int, body: bytes) -> Iterator[memoryview]:
        """The attributes of every object a request names, a message each; valid only until the next step.

        Raises FileNotFoundError when one of them is not there, KernelUnclear when the kernel could not answer.
        """
        for received in self._ask(kind, NLM_F_ACK, family, body):
            yield received.body[nl.GENMSG_LENGTH :]

    def get(self, kind: int, family: int, body: bytes) -> memoryview:
        """The attributes of one object. Raises FileNotFoundError when there is none."""
        for received in self._ask(kind, 0, family, body):
            return memoryview(bytes(received.body[nl.GENMSG_LENGTH :]))
        raise KernelUnclear("an acknowledgement in place of an object")

    def _ask(self, kind: int, flags: int, family: int, body: bytes) -> Iterator[Received]:
        """Everything that answers a request, until the kernel says that this is all."""
        seq = self._reserve(1)
        self._socket.sendall(nl.message(SUBSYSTEM << 8 | kind, NLM_F_REQUEST | flags, seq, family, 0, body))
        while True:
            for received in self._receive():
                if received.seq != seq:
                    continue
                if received.flags & NLM_F_DUMP_INTR:
                    raise KernelUnclear("a dump was interrupted by a change")
                if received.kind == NLMSG_DONE:
                    return
                if received.kind == NLMSG_ERROR:
                    code = -_ERROR.unpack_from(received.body)[0]
                    if code:
                        _raise_errno(code)
                    return
                yield received

    def generation(self) -> int:
        """The ruleset generation of this network namespace: any change of any table raises it (21 µs)."""
        attributes = nl.attribute_map(self.get(GETGEN, 0, b""))
        return int.from_bytes(attributes[1], "big")

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
    if code == errno.ENOENT:
        raise FileNotFoundError(code, os.strerror(code))
    if code == errno.EPERM:
        raise NotPermitted(_NO_CAPABILITY)
    raise KernelUnclear(f"netlink: {os.strerror(code)}")
