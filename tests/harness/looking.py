"""How often a test looks whether something has happened."""

import time
from typing import Final

SOONEST_SECONDS: Final = 0.02
LATEST_SECONDS: Final = 0.5
PART: Final = 1 / 8
"""Of the time that it has waited already: so much later than possible it sees what happens."""


def look_later(began: float, latest_seconds: float = LATEST_SECONDS) -> None:
    """Sleeps until it is worth looking again, more rarely the longer a test waits since `began` (of `time.monotonic`): a look may be a
    command, which takes 20 to 200 ms of processor time."""
    time.sleep(max(SOONEST_SECONDS, min(latest_seconds, (time.monotonic() - began) * PART)))
