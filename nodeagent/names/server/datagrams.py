"""Reads the queries of many clients in one system call, and sends the answers in another."""

import ctypes
import mmap
import socket
from contextlib import suppress
from typing import Any

from nodeagent.wire.message_vectors import DatagramHeader, DatagramMessage, DatagramPiece, receive_many, send_many

AT_ONCE = 64
"""Datagrams that are read before the loop does anything else; about 0.5 ms."""
LARGEST_QUERY = 4096
LARGEST_BATCHED = 2048
"""Bytes of an answer that is sent together with others; a longer one is sent alone."""
_NAME = 32
_ADDRESS = {socket.AF_INET: slice(4, 8), socket.AF_INET6: slice(8, 24)}
"""Where the IP address is in a socket address (linux/in.h, linux/in6.h)."""
_NAME_SIZE = {socket.AF_INET: 16, socket.AF_INET6: 28}
_SCOPE = slice(24, 28)


class Datagrams:
    """The datagrams that one socket received in one call, and the answers to them.
    inbox, names: the datagrams and their senders. slots: for each datagram its number, its offset in `inbox`, and start
    and end of its sender's IP address in `names`. sizes: bytes of each datagram."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._name_size = _NAME_SIZE[sock.family]
        self.inbox = mmap.mmap(-1, AT_ONCE * LARGEST_QUERY)
        self.names = mmap.mmap(-1, AT_ONCE * _NAME)
        self._outbox = mmap.mmap(-1, AT_ONCE * LARGEST_BATCHED)
        address = self._address = _ADDRESS[sock.family]
        self.slots = tuple(
            (index, index * LARGEST_QUERY, index * _NAME + address.start, index * _NAME + address.stop)
            for index in range(AT_ONCE)
        )
        received, self._places = self._messages(self.inbox, LARGEST_QUERY)
        sent, pieces = self._messages(self._outbox, LARGEST_BATCHED)
        self._received_at, self._sent_at = ctypes.addressof(received), ctypes.addressof(sent)
        words = memoryview(received).cast("B").cast("I")
        self.sizes = words[
            DatagramMessage.size.offset // words.itemsize :: ctypes.sizeof(DatagramMessage) // words.itemsize
        ]
        numbers = memoryview(sent).cast("B").cast("L")
        self._targets = numbers[
            DatagramHeader.name.offset // numbers.itemsize :: ctypes.sizeof(DatagramMessage) // numbers.itemsize
        ]
        self._lengths = memoryview(pieces).cast("B").cast("L")[1::2]
        self._names_at = ctypes.addressof(ctypes.c_char.from_buffer(self.names))
        self._waiting = 0

    def receive(self) -> int:
        """Reads the datagrams that have arrived, without waiting. Returns how many."""
        count: int = receive_many(self._socket.fileno(), self._received_at, AT_ONCE, socket.MSG_DONTWAIT, None)
        return max(count, 0)  # nothing to read, or an ICMP error of an earlier answer

    def peer(self, index: int) -> tuple[Any, ...]:
        """Returns the sender of a datagram, as `recvfrom` does."""
        name = self.names[index * _NAME : (index + 1) * _NAME]
        port = int.from_bytes(name[2:4], "big")
        host = socket.inet_ntop(self._socket.family, name[self._address])
        if self._socket.family == socket.AF_INET:
            return host, port
        scope = int.from_bytes(name[_SCOPE], "little")
        return (f"{host}%{scope}" if scope else host), port, 0, scope

    def answer(self, index: int, answer: bytes) -> None:
        """Queues an answer to the sender of a datagram for the next `send`."""
        size = len(answer)
        if size > LARGEST_BATCHED:
            with suppress(OSError):
                self._socket.sendto(answer, self.peer(index))
            return
        at = self._waiting
        self._waiting = at + 1
        start = at * LARGEST_BATCHED
        self._outbox[start : start + size] = answer
        self._lengths[at] = size
        self._targets[at] = self._names_at + index * _NAME

    def send(self) -> None:
        """Sends the queued answers, at most one for each datagram. What the kernel does not accept is lost."""
        count, self._waiting = self._waiting, 0
        done = 0
        while done < count:
            where = self._sent_at + done * ctypes.sizeof(DatagramMessage)
            sent = send_many(self._socket.fileno(), where, count - done, socket.MSG_DONTWAIT)
            done += sent if sent > 0 else 1

    def _messages(self, box: mmap.mmap, step: int) -> tuple[Any, Any]:
        """Returns headers and pieces for AT_ONCE datagrams in a box; both must stay referenced while in use."""
        base = ctypes.addressof(ctypes.c_char.from_buffer(box))
        names = ctypes.addressof(ctypes.c_char.from_buffer(self.names))
        messages = (DatagramMessage * AT_ONCE)()
        pieces = (DatagramPiece * AT_ONCE)()
        for index in range(AT_ONCE):
            pieces[index] = DatagramPiece(base + index * step, step)
            header = messages[index].header
            header.name, header.name_size = names + index * _NAME, self._name_size
            header.pieces = ctypes.addressof(pieces) + index * ctypes.sizeof(DatagramPiece)
            header.piece_count = 1
        return messages, pieces
