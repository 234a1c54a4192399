"""The columns of `kubectl get`, and texts that many kinds show (pkg/printers/internalversion). Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from nodeagent.kinds.description.documents import Document, Json

Cells: TypeAlias = Callable[[Document, float], list[Json]]

NONE = "<none>"
_SHOWN_ENDPOINTS = 3


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
        then = datetime.strptime(timestamp[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return "<unknown>"
    seconds = int(now - then)
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    for limit, text in (
        (120, f"{seconds}s"),
        (600, f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"),
        (3 * 3600, f"{minutes}m"),
        (8 * 3600, f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"),
        (48 * 3600, f"{hours}h"),
        (8 * 86400, f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"),
        (730 * 86400, f"{days}d"),
    ):
        if seconds < limit:
            return text
    years = days // 365
    return f"{years}y{days % 365}d" if days < 8 * 365 and days % 365 else f"{years}y"


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
