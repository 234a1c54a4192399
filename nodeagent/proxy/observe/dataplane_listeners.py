"""Everyone who wants to know what the dataplane does beside the passes."""

from typing import Protocol

from nodeagent.model.reports import CleaningReport, PurgeReport


class DataplaneListener(Protocol):
    """Must not raise or block."""

    def conntrack_cleaned(self, report: CleaningReport) -> None: ...
    def affinity_purged(self, report: PurgeReport) -> None: ...


class DataplaneListeners:
    """Tells all of them, in their order."""

    def __init__(self, *listeners: DataplaneListener) -> None:
        self._listeners = listeners

    def conntrack_cleaned(self, report: CleaningReport) -> None:
        """Called after each walk over tracked flows."""
        for listener in self._listeners:
            listener.conntrack_cleaned(report)

    def affinity_purged(self, report: PurgeReport) -> None:
        """Called when all that was stale has been forgotten."""
        for listener in self._listeners:
            listener.affinity_purged(report)
