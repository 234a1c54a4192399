"""Rows as aligned columns that fit a terminal without cutting a value (pure).

Where they do not fit, lists are wrapped between their items; where that is not enough, whole columns are left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

GAP = "  "
_SEPARATOR = ", "


@dataclass(frozen=True, slots=True)
class Column:
    """A column: the row's key, the heading, whether it holds numbers, and its turn to be left out (0: never)."""

    key: str
    heading: str
    number: bool = False
    leaves: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """The lines, the headings first, and the headings of the columns that were left out."""

    lines: tuple[str, ...]
    dropped: tuple[str, ...]


def lay_out(columns: Sequence[Column], rows: Sequence[Mapping[str, object]], width: int | None) -> Layout:
    """The rows as lines of at most `width` characters (None: any), longer only where no column may be left out."""
    shown = list(columns)
    while True:
        limits = _limits(shown, rows, width)
        leaving = min((column for column in shown if column.leaves), key=lambda column: column.leaves, default=None)
        if limits is not None or leaving is None:
            break
        shown.remove(leaving)
    lines = _lines(shown, rows, limits if limits is not None else _narrowest(shown, rows))
    return Layout(tuple(lines), tuple(column.heading for column in columns if column not in shown))


def _limits(shown: Sequence[Column], rows: Sequence[Mapping[str, object]], width: int | None) -> list[int] | None:
    """Each column's width, the lists as wide as there is room; None when not even the narrowest fit."""
    limits = [_widest([column.heading, *(_text(row[column.key]) for row in rows)]) for column in shown]
    if width is None:
        return limits
    excess = sum(limits) + len(GAP) * (len(shown) - 1) - width
    for position, narrowest in enumerate(_narrowest(shown, rows)):
        given = min(max(excess, 0), limits[position] - narrowest)
        limits[position] -= given
        excess -= given
    return limits if excess <= 0 else None


def _narrowest(shown: Sequence[Column], rows: Sequence[Mapping[str, object]]) -> list[int]:
    return [_widest([column.heading, *(part for row in rows for part in _parts(row[column.key]))]) for column in shown]


def _lines(shown: Sequence[Column], rows: Sequence[Mapping[str, object]], limits: Sequence[int]) -> list[str]:
    lines = [_line(shown, limits, [column.heading for column in shown])]
    for row in rows:
        cells = [_wrapped(_parts(row[column.key]), limit) for column, limit in zip(shown, limits, strict=True)]
        lines += (_line(shown, limits, texts) for texts in zip_longest(*cells, fillvalue=""))
    return lines


def _line(shown: Sequence[Column], limits: Sequence[int], texts: Sequence[str]) -> str:
    padded = (
        text.rjust(limit) if column.number else text.ljust(limit)
        for column, limit, text in zip(shown, limits, texts, strict=True)
    )
    return GAP.join(padded).rstrip()


def _parts(value: object) -> list[str]:
    """A value in the pieces it may be wrapped between, each with the comma that follows it."""
    if not isinstance(value, list):
        return [_text(value)]
    return [f"{item}," for item in value[:-1]] + [str(item) for item in value[-1:]]


def _wrapped(parts: Sequence[str], limit: int) -> list[str]:
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 1 + len(part) <= limit:
            lines[-1] += f" {part}"
        else:
            lines.append(part)
    return lines or [""]


def _text(value: object) -> str:
    if value is None:
        return "-"
    return _SEPARATOR.join(map(str, value)) if isinstance(value, list) else str(value)


def _widest(texts: Sequence[str]) -> int:
    return max(map(len, texts))
