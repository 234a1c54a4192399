"""How far this machine's clock is from the API server's, from the dates of its answers."""

import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime


class ServerClock:
    """Remembers when the server last said what time it is; a clock that is set afterwards is noticed too.

    wall: seconds since the epoch, of the clock that is compared. steady: seconds of a clock that nobody sets.
    """

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._steady = steady
        self._offset: float | None = None

    def answered(self, date: str | None) -> None:
        """Takes in the header Date of an answer; None or a date that cannot be read changes nothing."""
        try:
            self._offset = parsedate_to_datetime(date or "").timestamp() - self._steady()
        except (ValueError, OverflowError):
            return

    @property
    def ahead_seconds(self) -> float | None:
        """How far the clock of this machine is ahead, to a second or two; negative: behind; None: not known."""
        return None if self._offset is None else self._wall() - self._offset - self._steady()
