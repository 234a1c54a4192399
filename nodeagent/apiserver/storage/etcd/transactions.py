"""The request that etcd receives for a write, and what can be proven about it if the answer was lost. Pure."""

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
    """The changes of one write as etcd sees them. `following`: for each key, the first change since the write began that
    replaced its expected revision. Two writes with equal changes are different: each has seen its own changes."""

    changes: Sequence[Change]
    keys: Sequence[bytes]
    values: Sequence[bytes | None]
    """None: the key is deleted."""
    following: dict[bytes, WatchEvent] = field(default_factory=dict)

    def request(self, lease: int = 0) -> bytes:
        """Encodes the transaction: all changes if every key is at its expected revision, else a read of the present revisions."""
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
        """Returns `create`, `update` or `delete`, and the collection, of the first change, for metrics."""
        change = self.changes[0]
        if change.body is None:
            return "delete", change.collection
        return "create" if change.expected == 0 else "update", change.collection

    def refusal(self, reply: TxnReply) -> Precondition:
        """Returns the change whose expected revision differs from the present one."""
        compared = [change for change in self.changes if change.expected is not None]
        for change, found in zip(compared, reply.ranges, strict=True):
            actual = found.kvs[0].mod_revision if found.kvs else 0
            if actual != change.expected:
                return Precondition(change, actual)
        return Precondition(compared[0], compared[0].expected or 0)

    @property
    def is_carried_out_once(self) -> bool:
        """Whether etcd carries it out at most once, however often it is sent: it replaces a revision, which never comes again.
        A key that was created and deleted can be created once more."""
        return any(change.expected for change in self.changes)

    def record(self, event: WatchEvent) -> None:
        """Records a change of one of its keys."""
        expected = self.changes[self.keys.index(event.kv.key)].expected
        if expected and event.kv.mod_revision > expected:
            self.following.setdefault(event.kv.key, event)

    def proof_of_refusal(self) -> Precondition | None:
        """Returns the proof that it was not and will never be carried out, or None: an expected revision was replaced by
        something else. Equal bytes prove nothing: they may be its own, or another client's."""
        for key, value, change in zip(self.keys, self.values, self.changes, strict=True):
            event = self.following.get(key)
            if event is not None and (event.deleted, event.kv.value) != (value is None, value or b""):
                return Precondition(change, 0 if event.deleted else event.kv.mod_revision)
        return None

    def rows(self, layout: Layout, revision: int, at: int) -> list[Revision]:
        """Returns the rows that it wrote, at that revision."""
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
    """Returns the changes with their keys and values."""
    return Transaction(
        changes,
        [layout.key(change.collection, change.path) for change in changes],
        [None if change.body is None else layout.value(change.collection, change.body) for change in changes],
    )


def row_of(
    layout: Layout, known: Mapping[tuple[str, str], Revision], found: tuple[str, str], event: WatchEvent, at: int
) -> Revision | None:
    """Returns the row of a change, or None if an object was deleted that did not exist. Raises Unreadable."""
    collection, path = found
    revision = event.kv.mod_revision
    if not event.deleted:
        return Revision(revision, *found, layout.body(collection, path, event.kv.value, revision), deleted=False, at=at)
    before = known.get(found)
    return None if before is None else deletion_row(before, revision, at)


def deletion_row(before: Revision, revision: int, at: int) -> Revision:
    """Returns the row of a deletion, with the object's last state."""
    body = assemble(before.body, revision)
    return Revision(revision, before.collection, before.path, body, deleted=True, at=at)
