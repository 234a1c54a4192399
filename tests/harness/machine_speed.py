"""How fast this machine is now. The speed of a virtual machine changes within a minute, also in processor time: others share its caches."""

import time
from collections.abc import Callable

COUNT = 5_000_000


def slowness(reference_seconds: float, clock: Callable[[], float] = time.perf_counter) -> float:
    """Returns how many times as long as the reference this machine takes now to count to COUNT; at least 1."""
    begun = clock()
    number = 0
    while number < COUNT:
        number += 1
    return max(1.0, (clock() - begun) / reference_seconds)
