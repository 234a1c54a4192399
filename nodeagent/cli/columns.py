"""Lays out rows as aligned columns that fit a terminal, without cutting a value (pure).

If they do not fit, lists are wrapped between their items; if that is not enough, whole columns are left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

GAP = "  "
_SEPARATOR = ", "


@dataclass(frozen=True, slots=True)
class Column:
    """A column. key: of the value in a row. number: align right. leaves: order in which it is left out (0: never)."""

    key: str
    heading: str
    number: bool = False
    leaves: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """A table laid out as text for the width of a terminal.
    lines: the heading line, then the rows. dropped: headings of the columns that were left out."""

    lines: tuple[str, ...]
    dropped: tuple[str, ...]


def lay_out(columns: Sequence[Column], rows: Sequence[Mapping[str, object]], width: int | None) -> Layout:
    """Returns lines of at most `width` characters (None: no limit), longer only if no further column may be left out."""
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
    """Returns the width of each column, or None if even the narrowest columns do not fit."""
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
    """Splits a value where it may be wrapped: the items of a list, each with its comma."""
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
