"""A storage that several servers of one process share, and that can be taken from each of them. And time that is nobody's.

`run` lets a scenario go on in a loop whose clock jumps to the next task that is due, so that minutes pass in milliseconds and every
run is the same.
"""

import asyncio
import selectors
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from nodeagent.apiserver.storage.port import Deliver, Loaded, Settled, Write
from nodeagent.apiserver.storage.records import Precondition, Revision, StorageFailed, StorageFull, assemble

Result = TypeVar("Result")


class _Jumping(selectors.SelectSelector):
    """Waits for nothing but the clock, which it moves."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise AssertionError("everybody waits for something that nobody will do")
        if not ready and timeout is not None:
            self.now += timeout
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run(scenario: Coroutine[Any, Any, Result]) -> Result:
    """The scenario's result, in a time of its own that begins at 0."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(scenario)


class Clock:
    """The loop's time as a machine shows it. `offset`: how wrong its calendar is, in seconds."""

    def __init__(self, offset: float = 0.0) -> None:
        self.offset = offset

    def time(self) -> float:
        return 1_000_000.0 + self.offset + self.monotonic()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class SharedMemory:
    """What is kept. `full`: nothing more fits."""

    def __init__(self) -> None:
        self.rows: list[Revision] = []
        self.full = False
        self.versions: dict[tuple[str, str], int] = {}
        self.ends: dict[tuple[str, str], float] = {}
        self._members: list[Member] = []

    def member(self) -> "Member":
        """The storage of one more server."""
        self._members.append(Member(self))
        return self._members[-1]

    def commit(self, write: Write) -> Settled:
        """Rows, or why not."""
        for change in write.changes:
            actual = self.versions.get((change.collection, change.path), 0)
            if change.expected is not None and change.expected != actual:
                return Precondition(change, actual)
        if self.full:
            return StorageFull("full")
        now = asyncio.get_running_loop().time()
        found = []
        for change in write.changes:
            key, body = (change.collection, change.path), change.body if change.body is not None else change.last
            self.ends.pop(key, None)
            if change.seconds is not None:
                self.ends[key] = now + change.seconds
            found.append(self._add(key, body, write.at, deleted=change.body is None))
        self._tell()
        return found

    def expire(self) -> None:
        """What was not written again in time goes."""
        now = asyncio.get_running_loop().time()
        for key in [key for key, end in self.ends.items() if end <= now]:
            del self.ends[key]
            if self.versions.get(key):
                last = next(row.body for row in reversed(self.rows) if (row.collection, row.path) == key)
                self._add(key, last, int(now), deleted=True)
        self._tell()

    def _add(self, key: tuple[str, str], body: bytes | None, at: int, *, deleted: bool) -> Revision:
        number = len(self.rows) + 1
        self.versions[key] = 0 if deleted else number
        self.rows.append(Revision(number, *key, assemble(body, number) if body else b"", deleted, at))
        return self.rows[-1]

    def _tell(self) -> None:
        for member in self._members:
            member.read()


class Member:
    """A `Storage`. While `cut`, nothing is received from the others and every write fails; while `stalled`, it does not end."""

    shared = reachable = True
    remote = False
    """True: as an etcd, on which a kube-apiserver may live."""
    short = False
    failure_reason = ""

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory
        self._deliver: Deliver | None = None
        self._read = 0
        self.cut = self.stalled = False

    async def open(self, deliver: Deliver) -> Loaded:
        self._deliver = deliver
        self._read = len(self._memory.rows)
        return Loaded(list(self._memory.rows), 0, self._read)

    async def close(self) -> None:
        self._deliver = None

    async def latest(self) -> int:
        return self._read

    def read(self) -> None:
        """What the others wrote."""
        if self._deliver is not None and not (self.cut or self.stalled) and self._read < len(self._memory.rows):
            rows, self._read = self._memory.rows[self._read :], len(self._memory.rows)
            self._deliver(rows, ())

    def write(self, writes: Sequence[Write]) -> None:
        for write in writes:
            if self.stalled:
                continue
            settled = StorageFailed("cut off") if self.cut else self._memory.commit(write)
            assert self._deliver is not None
            self._deliver((), [(write.token, settled)])

    async def catch_up(self, now: int) -> int:
        self._memory.expire()
        self.read()
        return self._read

    async def compact(self, floor: int) -> None: ...

    async def snapshot(self, path: str) -> None:
        raise StorageFailed(path)
