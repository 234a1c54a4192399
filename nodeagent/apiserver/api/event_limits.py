"""Limits how many Events there may be, and how many of them a user may write. Pure.

The rate is what kube-apiserver's admission plugin EventRateLimit limits; the total is what a ResourceQuota would limit.
"""

from dataclasses import dataclass
from math import ceil
from typing import Final

from nodeagent.kinds.description.status import ApiError, too_many_requests

UNIT_BYTES: Final = 4096
"""An Event counts once for each started unit of this size."""
_SHARE: Final = 4
_MOST_USERS: Final = 1024
"""When this many users have a bucket, those whose bucket is full again are dropped."""


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class EventRate:
    """A token bucket for each user. a_second: units that are refilled in a second. burst: capacity in units."""

    def __init__(self, *, a_second: float = 1.0, burst: int = 200) -> None:
        self._a_second = a_second
        self._burst = burst
        self._buckets: dict[str, _Bucket] = {}

    def take(self, user: str, size_bytes: int, now: float) -> float:
        """Returns 0 and takes the units if the user may write this much now; otherwise the seconds until then. An Event of more
        units than a burst counts as one burst. `now` is in monotonic seconds."""
        self._drop_full_buckets(now)
        bucket = self._buckets.setdefault(user, _Bucket(self._burst, now))
        bucket.left = min(self._burst, bucket.left + (now - bucket.at) * self._a_second)
        bucket.at = now
        units = min(max(1, -(-size_bytes // UNIT_BYTES)), self._burst)
        if units <= bucket.left:
            bucket.left -= units
            return 0.0
        return (units - bucket.left) / self._a_second

    def _drop_full_buckets(self, now: float) -> None:
        if len(self._buckets) < _MOST_USERS:
            return
        full_since = now - self._burst / self._a_second
        self._buckets = {user: bucket for user, bucket in self._buckets.items() if bucket.at > full_since}


@dataclass(frozen=True, slots=True)
class EventRoom:
    """The limits for all Events together: their count, and their size in bytes."""

    objects: int = 50_000
    size_bytes: int = 128 * 1024 * 1024

    @classmethod
    def within(cls, limit_bytes: int | None) -> "EventRoom":
        """Returns limits for a store of `limit_bytes` (None: without a limit): Events get a quarter of it at most."""
        most = cls()
        return most if limit_bytes is None else cls(most.objects, min(most.size_bytes, limit_bytes // _SHARE))


class EventLimits:
    """Decides whether a user may write an Event."""

    def __init__(self, room: EventRoom) -> None:
        self._room = room
        self._rate = EventRate()

    def check(self, user: str, size_bytes: int, *, objects: int, all_bytes: int, now: float) -> None:
        """Raises ApiError 403 if there are too many Events, and 429 if the user writes them too fast.

        size_bytes: of the Event to write.
        objects, all_bytes: count and total size of the stored Events.
        """
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
