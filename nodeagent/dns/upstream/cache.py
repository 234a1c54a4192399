"""What was answered lately. Bounded in entries and bytes; whoever was not asked for the longest goes first."""

from collections import OrderedDict
from dataclasses import dataclass

from nodeagent.dns.upstream.belonging import Worth
from nodeagent.dns.upstream.limits import CacheLimits
from nodeagent.dns.upstream.prepared import Prepared
from nodeagent.dns.upstream.question import Asked

OVERHEAD = 500
"""Bytes that an entry takes beside its question and records."""
TTL_COST = 120
"""Bytes for the place and the value of one TTL."""


@dataclass(slots=True)
class Entry:
    """Times are the clock's. rests_until: until then it is stale and nobody is asked."""

    answer: Prepared
    worth: Worth
    stored: float
    expires: float
    size: int
    rests_until: float = 0.0

    def age(self, now: float) -> int:
        """Whole seconds since it was stored."""
        return max(0, int(now - self.stored))


class Shelf:
    """Entries by question; holds at most `entries`, and `size` bytes of them."""

    def __init__(self, entries: int, size: int) -> None:
        self._most = entries
        self._most_bytes = size
        self._entries: OrderedDict[Asked, Entry] = OrderedDict()
        self.size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, asked: Asked) -> Entry | None:
        entry = self._entries.get(asked)
        if entry is not None:
            self._entries.move_to_end(asked)
        return entry

    def put(self, asked: Asked, entry: Entry) -> None:
        self.drop(asked)
        if entry.size > self._most_bytes:
            return
        self._entries[asked] = entry
        self.size += entry.size
        while len(self._entries) > self._most or self.size > self._most_bytes:
            _, oldest = self._entries.popitem(last=False)
            self.size -= oldest.size

    def drop(self, asked: Asked) -> None:
        entry = self._entries.pop(asked, None)
        if entry is not None:
            self.size -= entry.size

    def items(self) -> list[tuple[Asked, Entry]]:
        return list(self._entries.items())


class Cache:
    """Times are given by the caller, in seconds of one clock that never goes back."""

    def __init__(self, limits: CacheLimits) -> None:
        self._limits = limits
        self._answers = Shelf(limits.entries, limits.size)
        self._failures = Shelf(limits.failures, limits.size)

    def __len__(self) -> int:
        return len(self._answers)

    @property
    def size(self) -> int:
        """Bytes of all answers, about."""
        return self._answers.size

    def fresh(self, asked: Asked, now: float) -> Entry | None:
        """The answer, or a failure of a moment ago if there is no stale one to be had."""
        entry = self._answers.get(asked)
        if entry is not None and now < entry.expires:
            return entry
        if entry is not None and self._is_usable(entry, now):
            return None
        failure = self._failures.get(asked)
        return failure if failure is not None and now < failure.expires else None

    def stale(self, asked: Asked, now: float) -> Entry | None:
        """A positive answer past its time that may stand in for a new one (RFC 8767); never a negative one."""
        entry = self._answers.get(asked)
        if entry is None or now < entry.expires:
            return None
        if not self._is_usable(entry, now):
            self._answers.drop(asked)
            return None
        return entry

    def put(self, asked: Asked, answer: Prepared, worth: Worth, ttl: int, now: float) -> None:
        """Take in what upstream said. It always replaces what was known, even if it may not be kept itself."""
        longest = self._limits.longest if worth is Worth.POSITIVE else self._limits.longest_negative
        kept = min(ttl, longest)
        self._failures.drop(asked)
        if kept > 0:
            self._answers.put(asked, Entry(answer, worth, now, now + kept, cost(asked, answer)))
        else:
            self._answers.drop(asked)

    def fail(self, asked: Asked, answer: Prepared, now: float) -> None:
        """Asking failed: a stale answer is good for a while without asking, anything else fails for a moment."""
        entry = self.stale(asked, now)
        if entry is not None:
            entry.rests_until = now + self._limits.rest
            return
        end = now + self._limits.failure
        self._failures.put(asked, Entry(answer, Worth.FAILURE, now, end, cost(asked, answer)))

    def distrust(self, now: float) -> None:
        """Other servers are asked from now on: what is known is stale, and what is not known is forgotten."""
        self._failures = Shelf(self._limits.failures, self._limits.size)
        for asked, entry in self._answers.items():
            if entry.worth is not Worth.POSITIVE:
                self._answers.drop(asked)
            else:
                entry.expires = min(entry.expires, now)
                entry.rests_until = 0.0

    def _is_usable(self, entry: Entry, now: float) -> bool:
        return entry.worth is Worth.POSITIVE and now < entry.expires + self._limits.stale


def cost(asked: Asked, answer: Prepared) -> int:
    """Bytes of memory, about."""
    return OVERHEAD + len(asked.question) + len(answer.records) + TTL_COST * len(answer.ttls)
