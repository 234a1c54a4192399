"""Decides when a pass waits so that several changes share it, and the reading of a watch so that several events come at once. Pure.

Both cost most of their processor time once, however many Services changed. A single change is read and programmed at once, and so
are a few in a row. While changes come faster than passes are granted, a pass waits for the next grant and takes all changes until
then. Reading is spaced in the same way; the passes of what was read together need not wait again. Below, a pass is either.
"""

from typing import Final

SPACING_SECONDS: Final = 0.01
"""A pass is granted this often."""
LONG_SPACING_SECONDS: Final = 0.033
"""A pass that takes the last grant costs this: from then on there are 30 passes a second. The longest that a change waits here."""
BURST: Final = 20
"""This many passes may follow each other without a wait, after a time without changes."""


class Spacing:
    """Grants passes: BURST at first, and one more each SPACING_SECONDS, up to BURST again. Times are of one monotonic clock."""

    def __init__(self) -> None:
        self._all_granted_at = 0.0
        """The time at which all grants are available again if no pass takes one. Each pass moves it by what it costs."""

    def wait_seconds(self, now: float) -> float:
        """Returns how long the next pass waits for a grant."""
        return max(0.0, (1.0 - self._grants(now)) * SPACING_SECONDS)

    def take(self, now: float) -> None:
        """Takes the grant for a pass that begins now."""
        is_last = self._grants(now) < 1.5  # noqa: PLR2004 - between this one and two, whatever rounding makes of them
        cost = LONG_SPACING_SECONDS if is_last else SPACING_SECONDS
        self._all_granted_at = max(self._all_granted_at, now) + cost

    def _grants(self, now: float) -> float:
        """Returns how many passes may begin now; less than 1: none."""
        return BURST - max(0.0, self._all_granted_at - now) / SPACING_SECONDS
