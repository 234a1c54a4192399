"""How thoroughly is tested: how many random cases, for how long, on which storages, and how punctual things must be."""

import os
from typing import Final, TypeVar

EFFORT = float(os.environ.get("EFFORT", "1"))
"""`make test` has little time; `make laws` looks twenty-five times as long."""
SEED: Final = int(os.environ.get("SEED", "0"))
"""Of what happens by chance in scenes: another number, other faults at other moments."""
AT_LENGTH: Final = EFFORT >= 10
PUNCTUAL: Final = os.environ.get("PUNCTUAL") == "1"
"""What is timed must take no longer than promised (`make times`), for which the machine has to have nothing else to do."""
STORAGES: Final = os.environ.get("STORAGES", "sqlite").split(",")
"""What the API server of a test keeps its objects in; `make storages` takes them all."""
MEMBERS: Final = 3 if "etcd" in STORAGES else 1
"""Of the etcd that the contract of storages is held to."""
_Case = TypeVar("_Case")


def examples(count: int) -> int:
    """How many examples a test tries that is content with `count` in `make test`."""
    return max(1, round(count * EFFORT))


def at_length(*cases: _Case) -> list[_Case]:
    """These, where there is time for them."""
    return list(cases) if AT_LENGTH else []
