"""Which garbage is collected when; each case in a process of its own, because the thresholds are the process's."""

import subprocess
import sys

CYCLES = """
import gc, weakref
from nodeagent.daemon.collector import collect_everything, collect_hardly, collect_rarely

class Part:
    pass

def cycle():
    one = Part()
    one.itself = one
    return weakref.ref(one)

collect_rarely()
"""


def printed(lines: str) -> list[str]:
    return subprocess.run(
        [sys.executable, "-c", CYCLES + lines], check=True, capture_output=True, text=True
    ).stdout.split()


def test_an_agent_that_starts_does_not_look_for_garbage() -> None:
    lines = "collect_hardly()\ngone = cycle()\nheld = [[] for _ in range(200_000)]\nprint(gone() is None, gc.get_count()[0] > 200_000)"
    assert printed(lines) == ["False", "True"]


def test_one_that_is_ready_looks_only_at_what_came_later() -> None:
    lines = """
collect_hardly()
before, held = cycle(), [[] for _ in range(200_000)]
collect_rarely()
after = cycle()
print(len(gc.get_objects()) < 1000)
gc.collect()
print(before() is None, after() is None)
"""
    assert printed(lines) == ["True", "False", "True"]


def test_a_predecessor_is_collected_at_last() -> None:
    assert printed("gone = cycle()\ncollect_rarely()\ncollect_everything()\nprint(gone() is None)") == ["True"]
