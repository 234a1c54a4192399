"""Limits repeated log lines: this many a minute, then one a minute with the number of those left out."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

LINES = 60
"""Of one kind, in a row and then in each period."""
PERIOD_SECONDS = 60.0
_KINDS = 1000


@dataclass(slots=True)
class _LineCounts:
    """Counts the lines of one kind. since: when the period began. lines: in this period. left_out: since the last line."""

    since: float
    lines: int = 0
    left_out: int = 0


class RepeatFilter(logging.Filter):
    """Lets the first lines of a kind pass in each period; the next one that passes says how many were left out.

    Limits only warnings and errors: others can cause some of them at any rate, by the queries they send or by changing what is
    ours. Lines are of one kind if they have the same logger and format and are about the same object; numbers may differ.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._said: dict[tuple[object, ...], _LineCounts] = {}
        self._lock = Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        with self._lock:
            return self._passes(record, self._clock())

    def _passes(self, record: logging.LogRecord, now: float) -> bool:
        said = self._counts_of(_kind(record), now)
        if now - said.since >= PERIOD_SECONDS:
            said.since, said.lines = now, 0
        if said.lines >= LINES:
            said.left_out += 1
            return False
        said.lines += 1
        if said.left_out:
            record.msg = f"{record.getMessage()} (left out before: {said.left_out} such lines)"
            record.args = None
            said.left_out = 0
        return True

    def _counts_of(self, kind: tuple[object, ...], now: float) -> _LineCounts:
        """Returns the counts of a kind; drops those of the oldest kinds if there are many."""
        if kind not in self._said:
            while len(self._said) >= _KINDS:
                del self._said[next(iter(self._said))]
            self._said[kind] = _LineCounts(now)
        return self._said[kind]


def _kind(record: logging.LogRecord) -> tuple[object, ...]:
    """Returns the kind of a line. For exceptions only the format counts: their text may contain anything that others send."""
    form = (record.name, record.levelno, str(record.msg))
    if record.exc_info or not isinstance(record.args, tuple):
        return form
    return (*form, *(str(one) for one in record.args if not isinstance(one, int | float)))
