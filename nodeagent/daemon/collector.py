"""How often a process that runs for months collects unreachable cycles.

What it holds while it works has no cycles and is large: with Python's default thresholds (700, 10, 10) a quarter of an
agent's first pass is garbage collection, and one full collection stops everything for 100 ms at 10,000 services.
"""

import gc

THRESHOLDS = (50_000, 20, 20)


def collect_rarely() -> None:
    """Sets the thresholds for this process, and exempts the program's own code from every collection."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
