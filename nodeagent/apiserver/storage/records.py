"""Revisions, records and events: what the store keeps and what watchers receive. Pure."""

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Final

import msgspec

from nodeagent.kinds.description.documents import Document, decode, encode

_MARK: Final = b'"resourceVersion":"'
_MOST_KEPT_LABELS: Final = 32
"""More labels of an object are not kept decoded: thousands take twenty times the memory of their bytes."""


class _Meta(msgspec.Struct, gc=False):
    labels: dict[str, str] = {}


class _Identity(msgspec.Struct, rename="camel", gc=False):
    uid: str = ""
    deletion_timestamp: str = ""


class _Identified(msgspec.Struct, gc=False):
    metadata: _Identity


class _Labelled(msgspec.Struct, gc=False):
    metadata: _Meta


_labels = msgspec.json.Decoder(_Labelled)
_identity = msgspec.json.Decoder(_Identified)


@lru_cache(maxsize=2)
def _labels_of(body: bytes) -> Mapping[str, str]:
    """Caches the labels of the latest objects, since all watchers read a changed object, one after the other."""
    return _labels.decode(body).metadata.labels


def draft(document: Document) -> bytes:
    """Returns an object encoded with a placeholder for its resourceVersion, which is known once the revision is assigned.
    `document` is canonical: metadata comes first and has some resourceVersion. Raises ValueError if it has none."""
    body = encode(document)
    if _MARK not in body:
        raise ValueError("a draft needs a metadata.resourceVersion to replace")
    return body


def assemble(body: bytes, revision: int) -> bytes:
    """Returns the encoded object with its resourceVersion. The first `"resourceVersion":"` is metadata's: only names and UIDs
    precede it, and inside a JSON string a quote is always escaped."""
    start = body.index(_MARK) + len(_MARK)
    return b"%b%d%b" % (body[:start], revision, body[body.index(b'"', start) :])


class Record(msgspec.Struct, eq=False, gc=False):
    """One revision of one object; `body` is its JSON without kind and apiVersion, encoded once and shared by all readers.

    Records and events are in no reference cycles, so the garbage collector need not traverse them: with many objects that would
    hold the loop for a tenth of a second.
    """

    path: str
    """`namespace/name`, or `name` for objects without a namespace."""
    revision: int
    body: bytes
    _labels: Mapping[str, str] | None = None

    @property
    def labels(self) -> Mapping[str, str]:
        """metadata.labels, decoded at the first access, and kept if they are few."""
        if self._labels is not None:
            return self._labels
        found = _labels_of(self.body)
        if len(found) <= _MOST_KEPT_LABELS:
            self._labels = found
        return found

    @property
    def is_ending(self) -> bool:
        """Whether it has a metadata.deletionTimestamp."""
        return bool(_identity.decode(self.body).metadata.deletion_timestamp)

    @property
    def uid(self) -> str:
        """metadata.uid."""
        return _identity.decode(self.body).metadata.uid

    @property
    def name(self) -> str:
        """metadata.name."""
        return self.path.rpartition("/")[2]

    @property
    def namespace(self) -> str:
        """metadata.namespace; empty for objects without one."""
        return self.path.rpartition("/")[0]

    def document(self) -> Document:
        """Returns the object, decoded for this call: the caller may change it."""
        result: Document = decode(self.body)
        return result


class EventKind(Enum):
    """The kind of a change, in the words of the watch protocol."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Event(msgspec.Struct, eq=False, gc=False):
    """One change. `record` is the object after it (for DELETED: its last state, at the revision of the deletion). `before` is
    the record that it replaced: a selective watcher needs it to see objects enter and leave its selection."""

    kind: EventKind
    record: Record
    before: Record | None
    at: int
    """Time of the write in Unix seconds."""
    _gone: bytes | None = None
    """The previous object with this revision, made when a watcher first sees it leave its selection."""

    @property
    def revision(self) -> int:
        """The revision of the change."""
        return self.record.revision

    def body_as(self, kind: EventKind) -> bytes:
        """Returns the object for an event of this kind: its previous state if it left a selection. Callers share the bytes."""
        if kind is not EventKind.DELETED or self.kind is EventKind.DELETED or self.before is None:
            return self.record.body
        if self._gone is None:
            self._gone = assemble(self.before.body, self.revision)
        return self._gone


class Change(msgspec.Struct, frozen=True, gc=False):
    """One write of a transaction.

    `expected` is the revision that the object must have (0: it must not exist; None: any). `body` is a draft, or None to
    delete; a deletion's `last` is the object's last state as a draft, for watchers. `seconds`: the object expires unless it is
    written again within that time.
    """

    collection: str
    path: str
    expected: int | None
    body: bytes | None
    last: bytes | None = None
    seconds: float | None = None
    frees: bool = False
    """The write leads to less data, although it may itself need a little more: a full store accepts it."""


class Revision(msgspec.Struct, frozen=True, gc=False):
    """One row of the log. A row with `deleted` has the object's last state."""

    number: int
    collection: str
    path: str
    body: bytes
    deleted: bool
    at: int


class Precondition(Exception):
    """A change expected the object at another revision. `actual` is its present revision (0: it does not exist)."""

    def __init__(self, change: Change, actual: int) -> None:
        super().__init__(f"{change.collection}/{change.path} is at {actual}, not {change.expected}")
        self.change = change
        self.actual = actual


class StorageFull(Exception):
    """The disk, or the size limit of the store, is exhausted. Nothing of the transaction was written."""


class StorageFailed(Exception):
    """The storage reported another error. Nothing of the transaction was written, unless a subclass says so."""


class StorageUnreachable(StorageFailed):
    """The storage does not answer. Nothing of the transaction was written."""


class StorageUncertain(StorageFailed):
    """No answer came in time, and none can be obtained now: the transaction may have been carried out, or may yet be."""


class ObjectTooLarge(StorageFailed):
    """The transaction is larger than the storage accepts. Nothing of it was written."""


class StorageDamaged(StorageFailed):
    """The stored data differs from what was written; the text says what is affected and what to do."""


class HistoryLost(StorageFailed):
    """Revisions were written that this server has not read, or could not deliver: it has to read everything again."""


class Compacted(Exception):
    """The requested revision is older than the history. `floor` is the oldest one that can be requested."""

    def __init__(self, floor: int) -> None:
        super().__init__(f"history starts at {floor}")
        self.floor = floor
