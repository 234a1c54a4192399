"""Which connections of strangers may stay. Pure.

A new connection always gets in; where there is no room, the one goes that has asked nothing for the longest: first
among those of the same source at the same port, then at the same port, then at the port that has most. So nobody can
keep others out by holding connections open, and a flood of one port leaves those of the others alone.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Generic, TypeVar

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Room:
    """How many connections there may be: from one address to one port, to one port, and in all."""

    source: int = 64
    port: int = 512
    total: int = 4096

    @classmethod
    def within(cls, files: int) -> "Room":
        """For one of a few listeners of a process that may have so many open files: an eighth of them, the rest is for the
        work of the agent."""
        most = cls()
        total = min(most.total, max(2, files // 8))
        return cls(min(most.source, total // 2), min(most.port, total), total)


class Admission(Generic[C]):
    """Who is in, for each port in the order of who has asked last."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._by_port: dict[int, dict[C, str]] = {}
        self._counts: Counter[tuple[int, str]] = Counter()
        self._total = 0

    def admit(self, connection: C, port: int, source: str) -> C | None:
        """Take the connection in; the one that has to go for it, which is out already."""
        there = self._by_port.setdefault(port, {})
        leaving: tuple[int, C] | None = None
        if self._counts[port, source] >= self._room.source:
            leaving = port, next(held for held, whose in there.items() if whose == source)
        elif len(there) >= self._room.port:
            leaving = port, next(iter(there))
        elif self._total >= self._room.total:
            fullest = max(self._by_port, key=lambda at: len(self._by_port[at]))
            leaving = fullest, next(iter(self._by_port[fullest]))
        if leaving is not None:
            self.leave(leaving[1], leaving[0])
            there = self._by_port.setdefault(port, {})
        there[connection] = source
        self._counts[port, source] += 1
        self._total += 1
        return None if leaving is None else leaving[1]

    def asked(self, connection: C, port: int) -> None:
        """The connection made a request: it is the last to go now."""
        there = self._by_port.get(port, {})
        if connection in there:
            there[connection] = there.pop(connection)

    def leave(self, connection: C, port: int) -> None:
        """The connection has ended; one that is not in is no matter."""
        there = self._by_port.get(port, {})
        source = there.pop(connection, None)
        if source is None:
            return
        self._total -= 1
        self._counts[port, source] -= 1
        if not self._counts[port, source]:
            del self._counts[port, source]
        if not there:
            del self._by_port[port]
