"""core/v1 Event and events.k8s.io/v1 Event are one object with two faces; it is stored as the core one. Pure."""

from collections.abc import Mapping
from typing import Final

from nodeagent.controlplane.documents import Document

_RENAMED: Final[Mapping[str, str]] = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_BACK: Final[Mapping[str, str]] = {core: modern for modern, core in _RENAMED.items()}


def to_core(event: Document) -> Document:
    """The stored form of an events.k8s.io Event."""
    return {_RENAMED.get(name, name): value for name, value in event.items()}


def from_core(event: Document) -> Document:
    """The events.k8s.io form of a stored Event."""
    return {_BACK.get(name, name): value for name, value in event.items()}
