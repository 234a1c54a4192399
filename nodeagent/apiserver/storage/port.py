"""The interface of a storage. `log` implements it with SQLite, `etcd` with etcd; both pass tests/contract/storage."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from nodeagent.apiserver.storage.records import Change, Revision

Settled: TypeAlias = "list[Revision] | Exception"
"""How a transaction ended: its rows, or Precondition, StorageFull or StorageFailed."""

Deliver: TypeAlias = Callable[[Sequence[Revision], Sequence[tuple[object, Settled]]], None]
"""Called in the event loop and in order with the revisions of a commit (own or foreign) and the outcomes of own transactions."""


@dataclass(slots=True)
class Write:
    """One transaction. `at`: Unix seconds. `token`: chosen by the caller, to recognise the outcome."""

    changes: Sequence[Change]
    at: int
    token: object


@dataclass(frozen=True, slots=True)
class Loaded:
    """The contents of a storage when it is opened.

    `rows` in order of their numbers: for each object the latest revision at or before `floor`, then every later one: the state
    at the floor and all changes since. `counter` is the latest revision, including compacted ones.
    """

    rows: list[Revision]
    floor: int
    counter: int


class Storage(Protocol):
    """Keeps revisions durably. All writers share one sequence of revision numbers.

    Several rows may have the same number: all changes of a transaction, if the storage counts transactions. They are delivered
    together. Errors are StorageFailed, and StorageFull if there is no space. Revisions are delivered after they are durable,
    and before any call that depends on them returns.
    """

    @property
    def shared(self) -> bool:
        """Whether other processes may write to it."""
        ...

    @property
    def remote(self) -> bool:
        """Whether it is remote: then revisions of other writers arrive automatically, and a call may get no answer."""
        ...

    @property
    def reachable(self) -> bool:
        """Whether the storage answers."""
        ...

    @property
    def failure_reason(self) -> str:
        """Why the storage does not answer, for the operator; empty if that is not known."""
        ...

    @property
    def short(self) -> bool:
        """Whether only writes that free space are accepted: deletions, and objects that become smaller."""
        ...

    async def open(self, deliver: Deliver) -> Loaded:
        """Reads everything. From then on calls `deliver` with each further revision, without gaps."""
        ...

    async def close(self) -> None:
        """Finishes all requests. Nothing is delivered afterwards."""
        ...

    def write(self, writes: Sequence[Write]) -> None:
        """Carries out each transaction completely, or not at all if an object is not at its expected revision."""
        ...

    async def latest(self) -> int:
        """Returns a revision at least as new as any that a client received before this call, after all up to it were delivered.
        Raises StorageUnreachable if it is remote, and HistoryLost as `catch_up` does."""
        ...

    async def catch_up(self, now: int) -> int:
        """Deletes objects that expired at `now`. Returns the latest revision that any client received, after all up to it were
        delivered. Raises HistoryLost if other servers compacted revisions that were not read yet."""
        ...

    async def compact(self, floor: int) -> None:
        """Deletes every revision that was superseded or deleted at or before `floor`."""
        ...

    async def snapshot(self, path: str) -> None:
        """Copies itself, consistent at one revision, to a new file."""
        ...
