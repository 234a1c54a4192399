"""All listeners for what the dataplane does beside the passes."""

from typing import Protocol

from nodeagent.model.reports import CleaningReport, DriftReport, PurgeReport


class DataplaneListener(Protocol):
    """Is notified of what the dataplane did. A method must not raise or block. A class that inherits needs only the methods
    that it uses."""

    def conntrack_cleaned(self, report: CleaningReport) -> None:  # noqa: ARG002 - by default it is ignored
        return

    def affinity_purged(self, report: PurgeReport) -> None:  # noqa: ARG002 - by default it is ignored
        return

    def drift_found(self, report: DriftReport) -> None:  # noqa: ARG002 - by default it is ignored
        return


class DataplaneListeners(DataplaneListener):
    """Notifies all listeners, in their order."""

    def __init__(self, *listeners: DataplaneListener) -> None:
        self._listeners = listeners

    def conntrack_cleaned(self, report: CleaningReport) -> None:
        for listener in self._listeners:
            listener.conntrack_cleaned(report)

    def affinity_purged(self, report: PurgeReport) -> None:
        for listener in self._listeners:
            listener.affinity_purged(report)

    def drift_found(self, report: DriftReport) -> None:
        for listener in self._listeners:
            listener.drift_found(report)
