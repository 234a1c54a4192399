"""What a change costs in counts, so that the same is expected of every machine; the limits are data."""

import json
import os
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.kernel

ROOT = Path(__file__).parents[2]
LIMITS: dict[str, float] = tomllib.loads((ROOT / "tests" / "bench" / "work_limits.toml").read_text())
NOISE = 1.02
"""The sizes of memory depend a little on the order in which things come."""
FALLEN = 0.9


@cache
def counts() -> dict[str, float]:
    """In a network namespace of its own."""
    program = f"ip link set lo up && exec {sys.executable} -m tests.bench.work_counts"
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def test_everything_that_is_counted_has_a_limit() -> None:
    assert counts().keys() == LIMITS.keys()


@pytest.mark.parametrize("what", LIMITS)
def test_a_change_costs_no_more_than_it_did(what: str) -> None:
    assert counts()[what] <= LIMITS[what] * NOISE


@pytest.mark.parametrize("what", [what for what in LIMITS if what.startswith(("calls", "system", "bytes"))])
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="newer ones call fewer functions for the same")
def test_limits_follow_what_was_gained(what: str) -> None:
    assert counts()[what] >= LIMITS[what] * FALLEN
