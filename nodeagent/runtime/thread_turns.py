"""How long a thread may run Python while the event loop waits for its turn.

With Python's 5 ms a change waited for a thread that computed, such as one that saves the state: 5 ms after each request to the kernel,
because a thread gives its turn up there.
"""

import sys

TURN_SECONDS = 0.0005


def take_short_turns() -> None:
    """Sets the longest turn for all threads of this process."""
    sys.setswitchinterval(TURN_SECONDS)
