"""How often a process that runs for months looks for unreachable cycles.

What it holds while it works has none and is big: with Python's usual figures (700, 10, 10) a quarter of an agent's first
pass goes into looking, and one full look takes 100 ms at 10,000 services, in which nothing else happens.
"""

import gc

THRESHOLDS = (50_000, 20, 20)


def collect_rarely() -> None:
    """Set the figures for this process, and spare the program's own code, which stays, from every look."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
