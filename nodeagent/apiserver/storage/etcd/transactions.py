"""What etcd is asked for a write, and what can be proven of it where the answer was lost. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nodeagent.apiserver.storage.etcd import etcd_messages
from nodeagent.apiserver.storage.etcd.etcd_messages import TxnReply, WatchEvent
from nodeagent.apiserver.storage.etcd.layout import Layout
from nodeagent.apiserver.storage.records import Change, Precondition, Revision, assemble

MOST_CHANGES = 128
"""The default of etcd's --max-txn-ops."""


@dataclass(slots=True, eq=False)
class Transaction:
    """The changes of one write as etcd sees them. `following`: the first change of each key beyond the revision expected of it,
    of those that came since the write began.

    Two writes that want the same are two: each has its own place among the changes it saw.
    """

    changes: Sequence[Change]
    keys: Sequence[bytes]
    values: Sequence[bytes | None]
    """None: the key is removed."""
    following: dict[bytes, WatchEvent] = field(default_factory=dict)

    def request(self, lease: int = 0) -> bytes:
        """If every key is at the revision expected of it then all changes, else the present revisions."""
        compared = [
            (key, change.expected)
            for key, change in zip(self.keys, self.changes, strict=True)
            if change.expected is not None
        ]
        success = [
            etcd_messages.as_delete(etcd_messages.delete_request(key))
            if value is None
            else etcd_messages.as_put(etcd_messages.put_request(key, value, lease if change.seconds is not None else 0))
            for key, value, change in zip(self.keys, self.values, self.changes, strict=True)
        ]
        failure = [etcd_messages.as_range(etcd_messages.range_request(key, keys_only=True)) for key, _ in compared]
        compares = [etcd_messages.compare(key, etcd_messages.MODIFIED, expected) for key, expected in compared]
        return etcd_messages.txn_request(compares, success, failure)

    def purpose(self) -> tuple[str, str]:
        """What its first change does, `create`, `update` or `delete`, and in which collection: the others come along with it."""
        change = self.changes[0]
        if change.body is None:
            return "delete", change.collection
        return "create" if change.expected == 0 else "update", change.collection

    def refusal(self, reply: TxnReply) -> Precondition:
        """Which change expected something else than what is there."""
        compared = [change for change in self.changes if change.expected is not None]
        for change, found in zip(compared, reply.ranges, strict=True):
            actual = found.kvs[0].mod_revision if found.kvs else 0
            if actual != change.expected:
                return Precondition(change, actual)
        return Precondition(compared[0], compared[0].expected or 0)

    @property
    def is_carried_out_once(self) -> bool:
        """However often it is sent, etcd carries it out at most once: it replaces a revision of a key, which never comes again.

        A key that was made and removed can be made once more.
        """
        return any(change.expected for change in self.changes)

    def note(self, event: WatchEvent) -> None:
        """One of its keys has changed."""
        expected = self.changes[self.keys.index(event.kv.key)].expected
        if expected and event.kv.mod_revision > expected:
            self.following.setdefault(event.kv.key, event)

    def overtaken(self) -> Precondition | None:
        """The proof that it was never carried out and never will be: an expected revision was replaced by something else.

        The same bytes prove nothing: they may be its own, or another client's.
        """
        for key, value, change in zip(self.keys, self.values, self.changes, strict=True):
            event = self.following.get(key)
            if event is not None and (event.deleted, event.kv.value) != (value is None, value or b""):
                return Precondition(change, 0 if event.deleted else event.kv.mod_revision)
        return None

    def rows(self, layout: Layout, revision: int, at: int) -> list[Revision]:
        """What it wrote, at that revision."""
        return [
            Revision(
                revision,
                change.collection,
                change.path,
                assemble(change.last, revision)
                if value is None and change.last
                else b""
                if value is None
                else layout.body(change.collection, change.path, value, revision),
                deleted=value is None,
                at=at,
            )
            for change, value in zip(self.changes, self.values, strict=True)
        ]


def transaction(layout: Layout, changes: Sequence[Change]) -> Transaction:
    """The changes with their keys and values."""
    return Transaction(
        changes,
        [layout.key(change.collection, change.path) for change in changes],
        [None if change.body is None else layout.value(change.collection, change.body) for change in changes],
    )


def rows_of(
    layout: Layout, known: Mapping[tuple[str, str], Revision], found: tuple[str, str], event: WatchEvent, at: int
) -> Revision | None:
    """Returns the row of a change, or None where an object was deleted that did not exist. Raises Unreadable."""
    collection, path = found
    revision = event.kv.mod_revision
    if not event.deleted:
        return Revision(revision, *found, layout.body(collection, path, event.kv.value, revision), deleted=False, at=at)
    before = known.get(found)
    return None if before is None else gone(before, revision, at)


def gone(before: Revision, revision: int, at: int) -> Revision:
    """An object's end, with its last state."""
    body = assemble(before.body, revision)
    return Revision(revision, before.collection, before.path, body, deleted=True, at=at)
