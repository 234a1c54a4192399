"""Shares the event loop's time between long pieces of work: in slices of a few milliseconds, one client after the other.

Work is a generator that yields wherever it may be interrupted, every few microseconds if possible; it knows no clock. In one
iteration of the loop all work together takes `PIECE_SECONDS` and one step, and at most `_MOST_JOBS` jobs are continued, each of
which may then write its result. So short requests are answered between the slices of long ones, however many there are, and a
client with a hundred long requests gets no more time than a client with one.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

PIECE_SECONDS: Final = 0.005
_MOST_JOBS: Final = 16
_Result = TypeVar("_Result")


class Clock(Protocol):
    """Monotonic time for timeouts and wall time for ages."""

    def monotonic(self) -> float:
        """Returns monotonic seconds."""
        ...

    def time(self) -> float:
        """Returns seconds since 1970."""
        ...


@dataclass(frozen=True, slots=True)
class _Job:
    """Work that waits for its next slice. `done` receives its result or its exception."""

    work: Generator[None, None, Any]
    done: asyncio.Future[Any]


class LoopTime:
    """Runs the work of many clients. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: dict[str, deque[_Job]] = {}
        """Jobs by client, in the order in which clients are served."""
        self._turn_ends: float | None = None
        """When the time of this iteration is used up (the time that requests write in between counts); None: not started yet."""
        self._left_jobs = _MOST_JOBS
        self._scheduled = False

    async def run(self, client: str, work: Generator[None, None, _Result]) -> _Result:
        """Returns what the generator returns; raises what it raises. The time is charged to `client`."""
        if not self._waiting and self._has_time:
            try:
                self._advance(work)
            except StopIteration as end:
                result: _Result = end.value
                return result
        job = _Job(work, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(client, deque()).append(job)
        self._schedule()
        try:
            return await job.done  # type: ignore[no-any-return]
        finally:
            job.done.cancel()

    async def turn(self, client: str) -> None:
        """Waits until the client may do about a millisecond of work, such as encrypting a piece of a long response."""
        await self.run(client, _nothing())

    @property
    def _has_time(self) -> bool:
        return self._left_jobs > 0 and (self._turn_ends is None or self._clock() < self._turn_ends)

    async def next_piece(self, client: str, made: Iterator[bytes | memoryview]) -> bytes | memoryview:
        """Returns the next piece that is not empty, or an empty one at the end. Empty pieces are steps of the work."""
        return await self.run(client, _next_nonempty(made))

    def _advance(self, work: Generator[None, None, object]) -> None:
        """Runs one slice of the work. Raises StopIteration at its end, and what the work raises."""
        now = self._clock()
        if self._turn_ends is None:
            self._turn_ends = now + PIECE_SECONDS
        self._left_jobs -= 1
        self._schedule()
        while now < self._turn_ends:
            next(work)
            now = self._clock()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        """Starts the time of this iteration and continues waiting jobs, one client after the other."""
        self._scheduled = False
        self._turn_ends = None
        self._left_jobs = _MOST_JOBS
        while self._waiting and self._has_time:
            client, jobs = next(iter(self._waiting.items()))
            del self._waiting[client]
            job = jobs.popleft()
            if not self._continue(job):
                jobs.append(job)
            if jobs:
                self._waiting[client] = jobs
        if self._waiting:
            self._schedule()

    def _continue(self, job: _Job) -> bool:
        if job.done.done():
            return True  # the client disconnected
        try:
            self._advance(job.work)
        except StopIteration as end:
            job.done.set_result(end.value)
        except Exception as error:  # noqa: BLE001 - it is raised in `run`
            job.done.set_exception(error)
        return job.done.done()


def _next_nonempty(made: Iterator[bytes | memoryview]) -> Generator[None, None, bytes | memoryview]:
    for piece in made:
        if piece:
            return piece
        yield
    return b""


def _nothing() -> Generator[None, None, None]:
    return
    yield
