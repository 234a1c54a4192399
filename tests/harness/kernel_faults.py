"""A kernel that is busy: of the requests that go over a netlink socket, one in ten is refused, interrupted, or its answer is lost.

What happens to a request is decided when it is sent, by the seed and the requests before it. Nothing of it is in the program that is
tested: the sockets that are opened inside `opened` have one of these between them and the kernel.
"""

import errno
import os
import random
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from nodeagent.wire.netlink.framing import HEADER
from nodeagent.wire.netlink.socket import NetlinkSocket
from nodeagent.wire.netlink.uapi.netlink import NLM_F_DUMP, NLM_F_DUMP_INTR, NLMSG_ERROR

PROPORTION = 0.1
_NO_ROOM = (errno.ENOMEM, errno.ENOBUFS, errno.EINTR)
_BATCH = (0x10, 0x11)
"""The types of the first and the last message of a transaction (linux/netfilter/nfnetlink.h)."""
_MULTI = 2
_FLAGS_AT = 6


class KernelFaults:
    """Decides which requests fail, and how. counts: the faults so far, by name.

    seed: the same requests in the same order meet the same faults.
    proportion: of the requests that fail; it may be changed at any time.
    commits_are_answered: a commit may be refused, but its outcome is always known.
    """

    def __init__(self, seed: int, proportion: float = PROPORTION, *, commits_are_answered: bool = False) -> None:
        self.commits_are_answered = commits_are_answered
        self.seed = seed
        self.proportion = proportion
        self.counts: Counter[str] = Counter()
        self._random = random.Random(seed)

    @contextmanager
    def opened(self) -> Iterator["KernelFaults"]:
        """Sockets that are opened inside have these faults as long as they live. An error that leaves the block names the seed."""
        original = NetlinkSocket.__init__
        faults = self

        def opening(self: NetlinkSocket, protocol: int, groups: int = 0) -> None:
            original(self, protocol, groups)
            self._socket = _BusySocket(self._socket, faults, following=bool(groups))  # type: ignore[assignment]

        with patch.object(NetlinkSocket, "__init__", opening):
            try:
                yield self
            except BaseException as error:
                error.add_note(str(self))
                raise

    def draw(self, *names: str) -> str:
        """Returns the name of the fault that happens now; mostly empty."""
        if self._random.random() >= self.proportion:
            return ""
        name = self._random.choice(names)
        self.counts[name] += 1
        return name

    def choice(self, *values: int) -> int:
        return self._random.choice(values)

    def __str__(self) -> str:
        return f"kernel faults of seed {self.seed}: {dict(self.counts)}"


class _BusySocket:
    """Stands for the socket of a NetlinkSocket. following: it receives notifications, and some of these are lost."""

    def __init__(self, real: socket.socket, faults: KernelFaults, *, following: bool) -> None:
        self._real = real
        self._faults = faults
        self._following = following
        self._forged: list[bytes] = []
        self._fault = ""
        self._after = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def sendall(self, data: bytes) -> None:
        """Sends, or does not; the answers meet the fault that is drawn here."""
        self._forged.clear()
        headers = _headers(data)
        is_dump = headers[0][2] & NLM_F_DUMP == NLM_F_DUMP
        if self._faults.commits_are_answered and _is_transaction(headers):
            self._fault = self._faults.draw("not sent", "refused")
        else:
            interrupted = ("interrupted",) if is_dump else ()
            self._fault = self._faults.draw("not sent", "refused", "lost", "not received", "cut off", *interrupted)
        self._after = self._faults.choice(0, 0, 1) if is_dump else 0
        if self._fault == "not sent":
            self._fault = ""
            raise _error(self._faults.choice(*_NO_ROOM))
        if self._fault == "refused":
            self._fault = ""
            self._refuse(data, headers, self._faults.choice(*_NO_ROOM, *([errno.EBUSY] if is_dump else [])))
        else:
            self._real.sendall(data)

    def _refuse(self, data: bytes, headers: list[tuple[int, ...]], number: int) -> None:
        """One message is refused. Of a transaction nothing is done, of other batches what is left."""
        transaction = _is_transaction(headers)
        last = headers[-2 if transaction else -1]
        if transaction:
            refused = headers[self._faults.choice(*range(len(headers) - 1))]
        else:
            refused = headers[self._faults.choice(*range(max(1, len(headers) - 1)))]
        self._forged.append(_answer(refused[3], number))
        if transaction:
            if refused[3] != last[3]:
                self._forged.append(_answer(last[3], 0))
        elif len(headers) > 1:
            at = refused[4]
            self._real.sendall(data[:at] + data[at + (refused[0] + 3 & ~3) :])

    def recv_into(self, buffer: bytearray, size: int = 0, flags: int = 0) -> int:
        """Receives an answer, or what the fault makes of it."""
        if self._forged:
            answer = self._forged.pop(0)
            buffer[: len(answer)] = answer
            return len(answer)
        if self._following and not self._fault:
            self._fault = self._faults.draw("lost")
        fault = self._fault if self._after == 0 else ""
        if fault == "not received":
            self._fault = ""
            raise _error(self._faults.choice(*_NO_ROOM))
        size = self._real.recv_into(buffer, size, flags)
        if not fault:
            self._after = max(0, self._after - 1)
            return size
        self._fault = ""
        if fault == "lost":
            raise _error(errno.ENOBUFS)
        if fault == "cut off":
            return len(buffer) + 4 if flags & socket.MSG_TRUNC else size // 2
        found = struct.unpack_from("=H", buffer, _FLAGS_AT)[0]
        if found & _MULTI:
            struct.pack_into("=H", buffer, _FLAGS_AT, found | NLM_F_DUMP_INTR)
        return size


def _headers(data: bytes) -> list[tuple[int, ...]]:
    """Returns length, type, flags, sequence number and place of each message."""
    found: list[tuple[int, ...]] = []
    at = 0
    while at < len(data):
        length, kind, flags, seq, _ = HEADER.unpack_from(data, at)
        found.append((length, kind, flags, seq, at))
        at += length + 3 & ~3
    return found


def _is_transaction(headers: list[tuple[int, ...]]) -> bool:
    return (headers[0][1], headers[-1][1]) == _BATCH


def _answer(seq: int, number: int) -> bytes:
    return HEADER.pack(HEADER.size + 20, NLMSG_ERROR, 0, seq, 0) + struct.pack("=i", -number) + bytes(16)


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
