"""What a storage has to do, and no more. `log` is one, in SQLite; every other must pass tests/contract/storage."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from nodeagent.apiserver.storage.records import Change, Revision

Settled: TypeAlias = "list[Revision] | Exception"
"""How a transaction ended: its rows, or Precondition, StorageFull or StorageFailed."""

Deliver: TypeAlias = Callable[[Sequence[Revision], Sequence[tuple[object, Settled]]], None]
"""Called in the event loop and in order with the revisions of a commit (own or foreign) and each transaction's outcome."""


@dataclass(slots=True)
class Write:
    """One transaction. `at` is the time in Unix seconds; `token` is the caller's, to recognise it by when it is settled."""

    changes: Sequence[Change]
    at: int
    token: object


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a storage holds when it is opened.

    `rows` in order of their numbers: of each object the latest revision at or before `floor`, then every later one; so they are
    a range at the floor and all that happened since. `counter` is the latest revision, also of what was forgotten.
    """

    rows: list[Revision]
    floor: int
    counter: int


class Storage(Protocol):
    """Keeps revisions durably. All writers share one sequence of revision numbers.

    Several rows may have one number: all changes of a transaction do where the storage counts transactions. They are delivered at
    once. Failures are StorageFailed, and StorageFull where nothing more fits. What is delivered has been made durable; it is
    delivered before anything that followed from it returns.
    """

    @property
    def shared(self) -> bool:
        """Others can write to it, too."""
        ...

    @property
    def remote(self) -> bool:
        """The storage is remote: revisions of other writers arrive by themselves, and a call may get no answer."""
        ...

    @property
    def reachable(self) -> bool:
        """Whether the storage answers."""
        ...

    @property
    def trouble(self) -> str:
        """Why the storage does not answer, for the operator; empty where the reason is not known."""
        ...

    @property
    def short(self) -> bool:
        """There is room only for what leads to less: deletions, and objects that become smaller."""
        ...

    async def open(self, deliver: Deliver) -> Loaded:
        """Reads it all. From then on calls `deliver` with each further revision: a watch that begins where the range ended."""
        ...

    async def close(self) -> None:
        """Finishes what was asked for. Nothing is delivered afterwards."""
        ...

    def write(self, writes: Sequence[Write]) -> None:
        """Carries out each transaction whole or, where an object is not at the revision expected of it, not at all."""
        ...

    async def latest(self) -> int:
        """Returns a revision no older than any that a client received before this call, after all up to it were delivered.

        Raises StorageUnreachable where it is remote, and LeftBehind as `catch_up` does.
        """
        ...

    async def catch_up(self, now: int) -> int:
        """Returns the latest revision that any client received; all up to it were delivered. First removes objects that expired at `now`.

        Raises LeftBehind when others have forgotten what was not read yet.
        """
        ...

    async def compact(self, floor: int) -> None:
        """Forgets every revision that was superseded or deleted at or before `floor`."""
        ...

    async def snapshot(self, path: str) -> None:
        """Copies itself, consistent at one revision, to a new file."""
        ...
