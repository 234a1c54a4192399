"""How thoroughly random cases are looked for."""

import os

EFFORT = float(os.environ.get("EFFORT", "1"))
"""`make test` has little time; `make laws` looks ten times as long."""


def examples(count: int) -> int:
    """How many examples a test tries that is content with `count` in `make test`."""
    return max(1, round(count * EFFORT))
