"""The columns of `kubectl get`, and texts that many kinds show (pkg/printers/internalversion). Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import TypeAlias

from nodeagent.kinds.description.documents import Document, Json

Cells: TypeAlias = Callable[[Document, float], list[Json]]

NONE = "<none>"
_SHOWN_ENDPOINTS = 3
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400
_SPANS = (
    (2 * _MINUTE, 1, "s", 1, ""),
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 1, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (48 * _HOUR, _HOUR, "h", 1, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (730 * _DAY, _DAY, "d", 1, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
    (inf, _YEAR, "y", 1, ""),
)
"""Below so many seconds: the unit and its letter, and the smaller unit that the rest is shown in, if it has a letter."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `described_by`: path of the field whose documentation describes it. `priority` 1: shown only with -o wide."""

    name: str
    kind: str = "string"
    described_by: str = ""
    priority: int = 0
    description: str = ""


@dataclass(frozen=True, slots=True)
class Printer:
    """Columns and the function that computes their cells. `named`: a Name column, which is not listed, comes first."""

    columns: Sequence[Column]
    cells: Cells
    named: bool = True


def age(timestamp: str | None, now: float) -> str:
    """Returns the time since `timestamp` as kubectl prints it (duration.HumanDuration): `5s`, `3m20s`, `2d4h`."""
    if not timestamp:
        return "<unknown>"
    try:
        then = datetime.fromisoformat(timestamp[:19]).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return "<unknown>"
    seconds = int(now - then)
    if seconds < -1:
        return "<invalid>"
    return _span(max(seconds, 0))


def _span(seconds: int) -> str:
    _, unit, letter, rest_unit, rest_letter = next(row for row in _SPANS if seconds < row[0])
    rest = seconds % unit // rest_unit
    return f"{seconds // unit}{letter}{rest}{rest_letter}" if rest and rest_letter else f"{seconds // unit}{letter}"


def name_and_age(document: Document, now: float) -> tuple[str, str]:
    """Returns metadata.name, and the age of the object."""
    meta = document["metadata"]
    return meta.get("name", ""), age(meta.get("creationTimestamp"), now)


def pairs(labels: dict[str, str] | None) -> str:
    """Returns labels as `key=value`, joined by commas."""
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def first_three(texts: list[str]) -> str:
    """Returns the first three texts, and how many more there are."""
    if len(texts) > _SHOWN_ENDPOINTS:
        return f"{','.join(texts[:_SHOWN_ENDPOINTS])} + {len(texts) - _SHOWN_ENDPOINTS} more..."
    return ",".join(texts) or NONE


AGE = Column("Age", described_by="metadata.creationTimestamp")
