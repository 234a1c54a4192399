"""A network namespace per test, entered by a thread of its own; the test process itself stays where it is."""

import asyncio
import ctypes
import os
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000


class Namespace:
    """A new, empty network namespace. Threads and processes started by its work are in it too."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._thread.submit(_enter_new_namespace).result()

    def run(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises, done inside."""
        return self._thread.submit(work).result()

    def shell(self, command: str) -> str:
        """The output of a shell command that must succeed."""
        done = self.run(
            lambda: subprocess.run(["bash", "-ec", command], capture_output=True, text=True, check=False, timeout=60)
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def run_unprivileged(self, work: Callable[[], T]) -> T:
        """As `run`, with no capability in effect."""

        def without_capabilities() -> T:
            _set_effective_capabilities(0)
            try:
                return work()
            finally:
                _set_effective_capabilities(0xFFFFFFFF)

        return self.run(without_capabilities)

    def close(self) -> None:
        """Leaves nothing behind: the namespace ends with its last thread."""
        self._thread.shutdown()


def _enter_new_namespace() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"unshare: {os.strerror(number)}")


def _set_effective_capabilities(wanted: int) -> None:
    """capset(2) for the calling thread; what is permitted stays permitted."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    if libc.capget(header, data) == 0:
        data[0], data[3] = data[1] & wanted, data[4] & wanted
        if libc.capset(header, data) == 0:
            return
    number = ctypes.get_errno()
    raise OSError(number, f"capset: {os.strerror(number)}")


@pytest.fixture
def bare_namespace() -> Iterator[Namespace]:
    """Not even loopback is up."""
    made = Namespace()
    yield made
    made.close()


@pytest.fixture
def namespace(bare_namespace: Namespace) -> Namespace:
    """Loopback is up."""
    bare_namespace.shell("ip link set lo up")
    return bare_namespace


def waited_for_processor() -> float:
    """Seconds that the threads of this process could have run and did not (sched-stats.rst: the second figure, ns)."""
    found = (path.read_text() for path in Path("/proc/self/task").glob("*/schedstat"))
    return sum(int(text.split()[1]) for text in found) / 1e9


async def stalls_during(work: Awaitable[T]) -> tuple[T, float]:
    stalled = 0.0

    async def watch() -> None:
        nonlocal stalled
        while True:
            before, waited = time.perf_counter(), waited_for_processor()
            await asyncio.sleep(0.001)
            took = time.perf_counter() - before
            if took > 0.05:
                stalled += max(0.0, took - 0.05 - (waited_for_processor() - waited))

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0.05)
    result = await work
    await asyncio.sleep(0.01)  # a stall is noted only when it is over
    watching.cancel()
    return result, stalled


@pytest.fixture(scope="session")
def watch_loop() -> Callable[[Awaitable[T]], Awaitable[tuple[T, float]]]:
    """Awaits something; its result, and for how many seconds it held the loop by more than 50 ms at a time.

    That others had the processor is not counted: work on the loop would hold it all the time that it runs.
    """
    return stalls_during
