"""How many Events there may be, and how many of them a user may write. Pure.

The rate is what the admission plugin EventRateLimit of kube-apiserver limits, the room what a ResourceQuota would.
"""

from dataclasses import dataclass
from math import ceil
from typing import Final

from nodeagent.kinds.description.status import ApiError, too_many_requests

UNIT_BYTES: Final = 4096
"""An Event counts once for each of these that it has, or begins."""
_SHARE: Final = 4
_MOST_USERS: Final = 1024
"""Who are remembered, before those are forgotten who may write as much as anybody."""


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class EventRate:
    """a_second: units that a user may write for long; burst: at once."""

    def __init__(self, *, a_second: float = 1.0, burst: int = 200) -> None:
        self._a_second = a_second
        self._burst = burst
        self._buckets: dict[str, _Bucket] = {}

    def take(self, user: str, size_bytes: int, now: float) -> float:
        """0 where the user may write so much now; else in how many seconds. now: seconds of a clock that only goes forward.

        What has more units than a burst may be written when nothing else was for as long as a burst takes.
        """
        self._forget_those_who_rested(now)
        bucket = self._buckets.setdefault(user, _Bucket(self._burst, now))
        bucket.left = min(self._burst, bucket.left + (now - bucket.at) * self._a_second)
        bucket.at = now
        units = min(max(1, -(-size_bytes // UNIT_BYTES)), self._burst)
        if units <= bucket.left:
            bucket.left -= units
            return 0.0
        return (units - bucket.left) / self._a_second

    def _forget_those_who_rested(self, now: float) -> None:
        if len(self._buckets) < _MOST_USERS:
            return
        rested = now - self._burst / self._a_second
        self._buckets = {user: bucket for user, bucket in self._buckets.items() if bucket.at > rested}


@dataclass(frozen=True, slots=True)
class EventRoom:
    """Of all Events: no other object has to make room for them."""

    objects: int = 50_000
    size_bytes: int = 128 * 1024 * 1024

    @classmethod
    def within(cls, limit_bytes: int | None) -> "EventRoom":
        """A quarter of a store of that size, or less."""
        most = cls()
        return most if limit_bytes is None else cls(most.objects, min(most.size_bytes, limit_bytes // _SHARE))


class EventLimits:
    """Asked before a user writes an Event."""

    def __init__(self, room: EventRoom) -> None:
        self._room = room
        self._rate = EventRate()

    def check(self, user: str, size_bytes: int, *, objects: int, all_bytes: int, now: float) -> None:
        """size_bytes: of this one; objects, all_bytes: how many there are, and of which size. Raises ApiError 403, 429."""
        if objects >= self._room.objects or all_bytes + size_bytes > self._room.size_bytes:
            raise ApiError(
                403,
                "Forbidden",
                f"events is forbidden: exceeded quota: there are {objects} events of {all_bytes} bytes, limited to"
                f" {self._room.objects} and {self._room.size_bytes}; each is deleted an hour after it was last written",
                details={"kind": "events"},
            )
        wait = self._rate.take(user, size_bytes, now)
        if wait:
            raise too_many_requests(f"limit reached on type User for key {user}: too many events", ceil(wait))
