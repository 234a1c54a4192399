"""How long a server's loop is held: the processor time of one turn of it, whatever it did in it and for how many clients."""

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tests.harness.machine_speed import slowness
from tests.harness.stopwatch import once_within

LOOP_HELD_SECONDS = 0.05
"""No turn may take longer."""
TRIES = 3
"""How often something is done that took too long: a virtual machine that must wait for its memory takes twice as long for a moment."""
REFERENCE_SECONDS = 0.25
"""The machine that the limits are stated for counts (`machine_speed.py`) in this time."""
WORTH_A_LOOK_SECONDS = 0.04
"""From here on the machine's speed is measured too."""


_Result = TypeVar("_Result")


class Stall:
    """`longest_s` is the processor time that a turn of the loop took at most, on a machine of the reference's speed."""

    def __init__(self) -> None:
        self.longest_s = 0.0


@contextmanager
def measured(loop: asyncio.AbstractEventLoop) -> Iterator[Stall]:
    """Measures a loop that runs in another thread, for as long as the block lasts.

    Each turn is measured from within: the time in which the thread waits, for events or for a processor, does not count. Nor
    does garbage collection: here it goes through all that the tests hold, and takes the longer the more of them ran before.
    """
    found = Stall()
    patched: Any = loop
    turn = patched._run_once

    def run_once() -> None:
        began = time.thread_time()
        turn()
        found.longest_s = max(found.longest_s, time.thread_time() - began)

    def until_next_turn() -> None:
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()

    patched._run_once = run_once
    gc.disable()
    try:
        until_next_turn()  # the one that goes on is not measured
        yield found
        until_next_turn()
    finally:
        gc.enable()
        patched._run_once = turn
        if found.longest_s > WORTH_A_LOOK_SECONDS:
            found.longest_s /= slowness(REFERENCE_SECONDS, time.thread_time)


def hold_nobody_up(loop: asyncio.AbstractEventLoop, work: Callable[[], _Result]) -> _Result:
    """Returns the result of `work`, which is repeated if a turn of the loop took too long. Raises AssertionError if one does each time."""
    results: list[_Result] = []

    def attempt() -> float:
        with measured(loop) as stall:
            results.append(work())
        return stall.longest_s

    once_within(LOOP_HELD_SECONDS, attempt, "a turn of the loop, in seconds", TRIES)
    return results[-1]
