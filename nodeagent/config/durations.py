"""Go durations: ``1h30m``, ``250ms``, ``0s``, read and written exactly as Go's package time does.

Kubernetes writes every period as a ``metav1.Duration``, which is the text form of Go's ``time.Duration``: a signed
64-bit count of nanoseconds. Source: ``ParseDuration`` and ``Duration.String`` in Go's ``time`` package.
"""

import re
from dataclasses import dataclass

NANOSECONDS_PER_SECOND = 1_000_000_000

_UNIT_NANOSECONDS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": NANOSECONDS_PER_SECOND,
    "m": 60 * NANOSECONDS_PER_SECOND,
    "h": 3600 * NANOSECONDS_PER_SECOND,
}
_OVERFLOW = 1 << 63
_TERM = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^.0-9]*)", re.DOTALL)


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A duration in nanoseconds, -2**63 to 2**63 - 1."""

    nanoseconds: int

    @property
    def seconds(self) -> float:
        """The duration in seconds, for sleeping and comparing with clocks."""
        return self.nanoseconds / NANOSECONDS_PER_SECOND

    def __str__(self) -> str:
        return format_duration(self.nanoseconds)


def parse_duration(text: str) -> Duration:
    """Returns the duration that Go reads from `text`.

    Raises ValueError, with Go's texts, if Go refuses it: a number without a unit, an unknown unit, empty text, or a
    value outside 64 bits.
    """
    rest = text[1:] if text[:1] in {"-", "+"} else text
    if rest == "0":
        return Duration(0)
    if not rest:
        raise _invalid(text)
    total = 0
    while rest:
        term = _TERM.match(rest)
        assert term is not None
        total += _term_nanoseconds(term, text)
        if total > _OVERFLOW:
            break
        rest = rest[term.end() :]
    negative = text.startswith("-")
    if total > _OVERFLOW or (total == _OVERFLOW and not negative):
        raise _invalid(text)
    return Duration(-total if negative else total)


def format_duration(nanoseconds: int) -> str:
    """Returns Go's text of a duration: ``1h30m0s``, ``1.5s``, ``250ms``, ``0s``."""
    sign = "-" if nanoseconds < 0 else ""
    magnitude = abs(nanoseconds)
    if magnitude == 0:
        return "0s"
    for unit, size in (("ns", 1), ("µs", 1_000), ("ms", 1_000_000)):
        if magnitude < size * 1_000:
            return f"{sign}{_decimal(magnitude, size)}{unit}"
    minutes, below = divmod(magnitude, 60 * NANOSECONDS_PER_SECOND)
    seconds = f"{_decimal(below, NANOSECONDS_PER_SECOND)}s"
    if not minutes:
        return f"{sign}{seconds}"
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours}h{minutes}m{seconds}" if hours else f"{sign}{minutes}m{seconds}"


def _term_nanoseconds(term: re.Match[str], text: str) -> int:
    whole, fraction, unit = term.groups()
    if not whole and not fraction:
        raise _invalid(text)
    if not unit:
        raise ValueError(f'missing unit in duration "{text}"')
    if unit not in _UNIT_NANOSECONDS:
        raise ValueError(f'unknown unit "{unit}" in duration "{text}"')
    size = _UNIT_NANOSECONDS[unit]
    count = int(whole or "0")
    if count > _OVERFLOW // size:
        raise _invalid(text)
    nanoseconds = count * size
    if fraction:
        numerator, scale = _leading_fraction(fraction)
        nanoseconds += int(float(numerator) * (float(size) / scale))
    return nanoseconds


def _leading_fraction(digits: str) -> tuple[int, float]:
    """Returns numerator and scale of ``0.digits``; digits that do not fit in 63 bits are dropped, as in Go."""
    numerator, scale = 0, 1.0
    for digit in digits:
        if numerator > (_OVERFLOW - 1) // 10:
            break
        extended = numerator * 10 + int(digit)
        if extended > _OVERFLOW:
            break
        numerator, scale = extended, scale * 10
    return numerator, scale


def _decimal(magnitude: int, size: int) -> str:
    whole, below = divmod(magnitude, size)
    width = len(str(size)) - 1
    return f"{whole}.{below:0{width}d}".rstrip("0") if below else str(whole)


def _invalid(text: str) -> ValueError:
    return ValueError(f'invalid duration "{text}"')
