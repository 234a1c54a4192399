"""Deletes Events an hour after they were last written, as Kubernetes does (--event-ttl): no client ever deletes them.

In etcd they also have a lease, as kube-apiserver gives them, for the time when no server of ours runs any more.
"""

from collections.abc import Callable
from datetime import datetime

from nodeagent.apiserver.storage.records import Change
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.event import EVENTS, KEPT_SECONDS


class EventExpiry:
    """Reconciles one Event by path. `clock` returns seconds since 1970."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock

    async def reconcile(self, path: str) -> float | None:
        """Deletes the Event, or returns the seconds it has left. Raises Precondition if it just changed."""
        record = self._store.get(EVENTS, path)
        if record is None:
            return None
        now = self._clock()
        left = _last_written(record.document()["metadata"], now) + KEPT_SECONDS - now
        if left > 0:
            return left
        await self._store.commit([Change(EVENTS, path, record.revision, None, record.body)])
        return None


def _last_written(meta: Document, now: float) -> float:
    """Returns when it was last written, by the clocks of servers, and no later than `now`.

    The creation time is set by a server. So is a time in managedFields, unless a client sent it; that is never later than the
    write that brought it (`machinery/managed.py`), but may be in objects that another program stored.
    """
    written = [_seconds(entry["time"]) for entry in meta.get("managedFields") or [] if entry.get("time")]
    return max([min(_seconds(meta["creationTimestamp"]), now), *(time for time in written if time <= now)])


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
