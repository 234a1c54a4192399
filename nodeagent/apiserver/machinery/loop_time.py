"""Long work in the event loop: in pieces of a few milliseconds, and one client after the other.

Work is a generator that yields where it may be interrupted, each few microseconds where it can; it knows no clock. In one turn of the
loop all work together takes `PIECE_SECONDS` and one step, and is continued for `_MOST_JOBS` requests, each of which may then write what
it has got. So a short request is answered between the pieces of long ones, however many there are, and a client with a hundred long
requests gets no more time than a client with one.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

PIECE_SECONDS: Final = 0.005
_MOST_JOBS: Final = 16
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class _Job:
    """Work that waits for its next piece. `done` gets what the work returns or raises."""

    work: Generator[None, None, Any]
    done: asyncio.Future[Any]


class LoopTime:
    """Runs work of many clients. clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: dict[str, deque[_Job]] = {}
        """The clients in the order of their turns."""
        self._turn_ends: float | None = None
        """When this turn of the loop has had its time, what requests wrote between two pieces included; None: it has not begun."""
        self._left_jobs = _MOST_JOBS
        self._renewing = False

    async def run(self, client: str, work: Generator[None, None, _Result]) -> _Result:
        """What the generator returns; raises what it raises. `client` says whose time it takes."""
        if not self._waiting and self._has_time:
            try:
                self._advance(work)
            except StopIteration as end:
                result: _Result = end.value
                return result
        job = _Job(work, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(client, deque()).append(job)
        self._renew()
        try:
            return await job.done  # type: ignore[no-any-return]
        finally:
            job.done.cancel()

    async def turn(self, client: str) -> None:
        """Waits until the client may do what takes about a millisecond, such as to encrypt a piece of a long answer."""
        await self.run(client, _nothing())

    @property
    def _has_time(self) -> bool:
        return self._left_jobs > 0 and (self._turn_ends is None or self._clock() < self._turn_ends)

    async def next_piece(self, client: str, made: Iterator[bytes | memoryview]) -> bytes | memoryview:
        """The next piece that is not empty, or an empty one at the end. Empty ones are steps on the way to it."""
        return await self.run(client, _until_something(made))

    def _advance(self, work: Generator[None, None, object]) -> None:
        """One piece of work. Raises StopIteration at its end, and what the work raises."""
        now = self._clock()
        if self._turn_ends is None:
            self._turn_ends = now + PIECE_SECONDS
        self._left_jobs -= 1
        self._renew()
        while now < self._turn_ends:
            next(work)
            now = self._clock()

    def _renew(self) -> None:
        if not self._renewing:
            self._renewing = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """The next turn of the loop: the time is there again, for those who wait first."""
        self._renewing = False
        self._turn_ends = None
        self._left_jobs = _MOST_JOBS
        while self._waiting and self._has_time:
            client, jobs = next(iter(self._waiting.items()))
            del self._waiting[client]
            job = jobs.popleft()
            if not self._is_over(job):
                jobs.append(job)
            if jobs:
                self._waiting[client] = jobs
        if self._waiting:
            self._renew()

    def _is_over(self, job: _Job) -> bool:
        if job.done.done():
            return True  # the client has gone
        try:
            self._advance(job.work)
        except StopIteration as end:
            job.done.set_result(end.value)
        except Exception as error:  # noqa: BLE001 - it is raised where the work was asked for
            job.done.set_exception(error)
        return job.done.done()


def _until_something(made: Iterator[bytes | memoryview]) -> Generator[None, None, bytes | memoryview]:
    for piece in made:
        if piece:
            return piece
        yield
    return b""


def _nothing() -> Generator[None, None, None]:
    return
    yield
