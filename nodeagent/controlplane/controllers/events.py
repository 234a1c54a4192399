"""Forgets events after an hour, as Kubernetes does (--event-ttl): nobody else ever deletes them."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from nodeagent.controlplane.storage.records import Change
from nodeagent.controlplane.storage.store import Store

_EVENTS: Final = "events"
_KEPT_SECONDS: Final = 3600.0


class EventExpiry:
    """Reconciles one event by path."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock

    async def reconcile(self, path: str) -> float | None:
        """Removes it, or says how long it has left since it was last written. Raises Precondition when it just changed."""
        record = self._store.get(_EVENTS, path)
        if record is None:
            return None
        event = record.document()
        # What an event says of its time is its author's; when it was written is the server's.
        meta = event["metadata"]
        times = [meta["creationTimestamp"], *(entry.get("time") for entry in meta.get("managedFields") or [])]
        last = max(datetime.fromisoformat(time).timestamp() for time in times if time)
        left = last + _KEPT_SECONDS - self._clock()
        if left > 0:
            return left
        await self._store.commit([Change(_EVENTS, path, record.revision, None, record.body)])
        return None
