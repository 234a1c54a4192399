"""When a process that runs for months collects unreachable cycles.

What it holds while it works has no cycles and is large: with Python's default thresholds (700, 10, 10) much of an
agent's first pass is garbage collection, and a full collection stops everything for longer than a pass takes.
"""

import gc

THRESHOLDS = (50_000, 20, 20)
WHILE_STARTING = (2_000_000, 20, 20)
"""What an agent makes until it is ready is nearly all kept, so each collection would look at it again for nothing."""
STARTING_SECONDS = 60.0
"""The longest time with these: an agent may wait for its API server for days."""


def collect_rarely() -> None:
    """Sets the thresholds for this process, and exempts all that it holds, such as its own code, from every collection."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


def collect_hardly() -> None:
    """Sets the thresholds for an agent that starts. Call `collect_rarely` when it is ready, or after STARTING_SECONDS."""
    gc.set_threshold(*WHILE_STARTING)


def collect_everything() -> None:
    """Collects also what has been exempted, as when the agent that held it has ended."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
