"""Recent answers of upstream. Bounded in entries, in bytes, and in the share of each client. Pure."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from nodeagent.names.shares import Client, Shares
from nodeagent.names.upstream.belonging import AnswerKind
from nodeagent.names.upstream.limits import CacheLimits
from nodeagent.names.upstream.prepared_reply import PreparedReply
from nodeagent.names.upstream.upstream_question import Asked

OVERHEAD = 500
"""Bytes of memory for an entry beside its question and records."""
TTL_COST = 120
"""Bytes of memory for the place and the value of one TTL."""


UNIT_BYTES = 1024
"""The unit of shares, in bytes."""


@dataclass(slots=True)
class Entry:
    """A cached answer. Times are those of the caller's clock. client: the one that asked first. rests_until: until then
    the stale answer is used without asking upstream."""

    answer: PreparedReply
    worth: AnswerKind
    stored: float
    expires: float
    size: int
    client: Client
    rests_until: float = 0.0

    def age(self, now: float) -> int:
        """Returns the whole seconds since it was stored."""
        return max(0, int(now - self.stored))

    @property
    def units(self) -> int:
        """Its size in the share of its client."""
        return 1 + self.size // UNIT_BYTES


class BoundedEntries:
    """Entries by question; at most `entries`, and `size` bytes. When it is full, the client with the largest share
    loses its least recently used entry."""

    def __init__(self, entries: int, size: int) -> None:
        self._most = entries
        self._most_bytes = size
        self._entries: dict[Asked, Entry] = {}
        self._of: dict[Client, OrderedDict[Asked, None]] = {}
        self._shares = Shares(size // UNIT_BYTES)
        self.size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, asked: Asked) -> Entry | None:
        entry = self._entries.get(asked)
        if entry is not None:
            self._of[entry.client].move_to_end(asked)
        return entry

    def put(self, asked: Asked, entry: Entry) -> None:
        self.drop(asked)
        if entry.size > self._most_bytes:
            return
        self._entries[asked] = entry
        self._of.setdefault(entry.client, OrderedDict())[asked] = None
        self._shares.take(entry.client, entry.units)
        self.size += entry.size
        while len(self._entries) > self._most or self.size > self._most_bytes:
            self.drop(next(iter(self._of[self._shares.largest()])))

    def drop(self, asked: Asked) -> None:
        entry = self._entries.pop(asked, None)
        if entry is None:
            return
        self.size -= entry.size
        self._shares.give_back(entry.client, entry.units)
        own = self._of[entry.client]
        del own[asked]
        if not own:
            del self._of[entry.client]

    def entries(self) -> Iterable[Entry]:
        return self._entries.values()


class Cache:
    """Times are the caller's, in seconds of one clock that never goes back. Answers with data, denials and failures are
    stored separately, so that names that do not exist push out no others."""

    def __init__(self, limits: CacheLimits) -> None:
        self._limits = limits
        self._answers = BoundedEntries(limits.entries, limits.size)
        self._denials = BoundedEntries(limits.denials, limits.denials_size)
        self._failures = BoundedEntries(limits.failures, limits.size)

    def __len__(self) -> int:
        return len(self._answers) + len(self._denials)

    @property
    def size(self) -> int:
        """Bytes of all answers, estimated."""
        return self._answers.size + self._denials.size

    def fresh(self, asked: Asked, now: float) -> Entry | None:
        """Returns a valid answer; or a recent failure, if there is no stale answer; or None."""
        entry = self._answers.get(asked)
        if entry is not None and now < entry.expires:
            return entry
        denial = self._denials.get(asked)
        if denial is not None and now < denial.expires:
            return denial
        if entry is not None and self._is_usable(entry, now):
            return None
        failure = self._failures.get(asked)
        return failure if failure is not None and now < failure.expires else None

    def stale(self, asked: Asked, now: float) -> Entry | None:
        """Returns an expired positive answer that may be used instead of a new one (RFC 8767); never a negative one."""
        entry = self._answers.get(asked)
        if entry is None or now < entry.expires:
            return None
        if not self._is_usable(entry, now):
            self._answers.drop(asked)
            return None
        return entry

    def put(self, asked: Asked, answer: PreparedReply, worth: AnswerKind, ttl: int, now: float, client: Client) -> None:
        """Stores an answer of upstream. It replaces every earlier one, even if it may not be cached itself."""
        positive = worth is AnswerKind.POSITIVE
        kept = min(ttl, self._limits.longest if positive else self._limits.longest_negative)
        for shelf in (self._answers, self._denials, self._failures):
            shelf.drop(asked)
        if kept > 0:
            entry = Entry(answer, worth, now, now + kept, cost(asked, answer), client)
            (self._answers if positive else self._denials).put(asked, entry)

    def fail(self, asked: Asked, answer: PreparedReply, now: float, client: Client) -> None:
        """Records that asking failed: a stale answer is used for a while without asking, or the failure is cached
        briefly."""
        entry = self.stale(asked, now)
        if entry is not None:
            entry.rests_until = now + self._limits.rest
            return
        end = now + self._limits.failure
        self._failures.put(asked, Entry(answer, AnswerKind.FAILURE, now, end, cost(asked, answer), client))

    def expire_all(self, now: float) -> None:
        """Marks all answers as stale and drops denials and failures, because other servers are asked from now on."""
        self._failures = BoundedEntries(self._limits.failures, self._limits.size)
        self._denials = BoundedEntries(self._limits.denials, self._limits.denials_size)
        for entry in self._answers.entries():
            entry.expires = min(entry.expires, now)
            entry.rests_until = 0.0

    def _is_usable(self, entry: Entry, now: float) -> bool:
        return now < entry.expires + self._limits.stale


def cost(asked: Asked, answer: PreparedReply) -> int:
    """Returns the bytes of memory for an entry, estimated."""
    return OVERHEAD + len(asked.question) + len(answer.records) + TTL_COST * len(answer.ttls)
