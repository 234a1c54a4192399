"""Receives many answers of one size by one system call: for a hundred thousand objects that are asked for by key, a call for each takes
longer than the kernel needs to find them."""

import ctypes
import mmap
import socket

from nodeagent.wire.message_vectors import DatagramMessage, DatagramPiece, receive_many

_FLAGS = socket.MSG_DONTWAIT | socket.MSG_TRUNC


class EqualAnswers:
    """Room for the answers to one request, side by side. most: how many objects a request may name. size: bytes of each answer."""

    def __init__(self, most: int, size: int) -> None:
        count = most + 1  # an acknowledgement is the last
        self.size = size
        self._box = mmap.mmap(-1, count * size)
        self._messages, self._pieces = (DatagramMessage * count)(), (DatagramPiece * count)()
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._box))
        pieces = ctypes.addressof(self._pieces)
        for index in range(count):
            self._pieces[index] = DatagramPiece(base + index * size, size)
            self._messages[index].header.pieces = pieces + index * ctypes.sizeof(DatagramPiece)
            self._messages[index].header.piece_count = 1
        words = memoryview(self._messages).cast("B").cast("I")
        self._sizes = words[
            DatagramMessage.size.offset // words.itemsize :: ctypes.sizeof(DatagramMessage) // words.itemsize
        ]

    def receive(self, descriptor: int, count: int) -> memoryview | None:
        """Returns `count` answers that wait at a socket, valid until the next call; None if these and an acknowledgement are not
        exactly what waits, or one has another size."""
        received = 0
        while received <= count:
            place = ctypes.addressof(self._messages) + received * ctypes.sizeof(DatagramMessage)
            some: int = receive_many(descriptor, place, count + 1 - received, _FLAGS, None)
            if some <= 0:
                return None
            received += some
        if self._sizes[:count].tolist().count(self.size) != count:
            return None
        return memoryview(self._box)[: count * self.size]
