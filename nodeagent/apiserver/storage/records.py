"""Revisions, records and events: what the store keeps and what watchers are given. Pure."""

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Final

import msgspec

from nodeagent.kinds.description.documents import Document, decode, encode

_MARK: Final = b'"resourceVersion":"'
_MOST_KEPT_LABELS: Final = 32
"""Of an object, decoded: thousands take twenty times the memory of their bytes."""


class _Meta(msgspec.Struct, gc=False):
    labels: dict[str, str] = {}


class _Life(msgspec.Struct, rename="camel", gc=False):
    uid: str = ""
    deletion_timestamp: str = ""


class _Living(msgspec.Struct, gc=False):
    metadata: _Life


class _Labelled(msgspec.Struct, gc=False):
    metadata: _Meta


_labels = msgspec.json.Decoder(_Labelled)
_life = msgspec.json.Decoder(_Living)


@lru_cache(maxsize=2)
def _labels_of(body: bytes) -> Mapping[str, str]:
    """Of the objects that were looked at last: all watchers look at an object that changes, one after the other."""
    return _labels.decode(body).metadata.labels


def draft(document: Document) -> bytes:
    """An object encoded with a placeholder for its resourceVersion, which is known once the revision is assigned.

    `document` is canonical: metadata comes first and carries some resourceVersion. Raises ValueError if it does not.
    """
    body = encode(document)
    if _MARK not in body:
        raise ValueError("a draft needs a metadata.resourceVersion to replace")
    return body


def assemble(body: bytes, revision: int) -> bytes:
    """The encoded object with its resourceVersion.

    The first `"resourceVersion":"` is metadata's: what precedes it are names and uids, and inside a JSON string a
    quote is always escaped.
    """
    start = body.index(_MARK) + len(_MARK)
    return b"%b%d%b" % (body[:start], revision, body[body.index(b'"', start) :])


class Record(msgspec.Struct, eq=False, gc=False):
    """One revision of one object; `body` is its JSON without kind and apiVersion, encoded once and shared by all readers.

    Records and events refer to nothing that refers back, so the cycle collector need not walk through all of them: with
    many objects its passes would hold the loop for a tenth of a second.
    """

    path: str
    """`namespace/name`, or `name` for objects without a namespace."""
    revision: int
    body: bytes
    _labels: Mapping[str, str] | None = None

    @property
    def labels(self) -> Mapping[str, str]:
        """metadata.labels, decoded when first asked for, and kept where they are few."""
        if self._labels is not None:
            return self._labels
        found = _labels_of(self.body)
        if len(found) <= _MOST_KEPT_LABELS:
            self._labels = found
        return found

    @property
    def is_ending(self) -> bool:
        """It has a metadata.deletionTimestamp."""
        return bool(_life.decode(self.body).metadata.deletion_timestamp)

    @property
    def uid(self) -> str:
        """metadata.uid."""
        return _life.decode(self.body).metadata.uid

    @property
    def name(self) -> str:
        """metadata.name."""
        return self.path.rpartition("/")[2]

    @property
    def namespace(self) -> str:
        """metadata.namespace, empty for objects without one."""
        return self.path.rpartition("/")[0]

    def document(self) -> Document:
        """The object, decoded afresh: the caller may change it."""
        result: Document = decode(self.body)
        return result


class EventKind(Enum):
    """What happened, in the watch protocol's words."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Event(msgspec.Struct, eq=False, gc=False):
    """One change. `record` is the object after it (for DELETED: its last state, at the revision of the deletion).

    `before` is the record it replaced: a selective watcher needs it to see objects enter and leave its selection.
    """

    kind: EventKind
    record: Record
    before: Record | None
    at: int
    """Unix seconds: when it was written."""
    _gone: bytes | None = None
    """The object as it was, at this revision, once a watcher saw it leave its selection."""

    @property
    def revision(self) -> int:
        """The revision of the change."""
        return self.record.revision

    def body_as(self, kind: EventKind) -> bytes:
        """The object as an event of this kind shows it, the same bytes for all who ask: one that leaves a selection as it was."""
        if kind is not EventKind.DELETED or self.kind is EventKind.DELETED or self.before is None:
            return self.record.body
        if self._gone is None:
            self._gone = assemble(self.before.body, self.revision)
        return self._gone


class Change(msgspec.Struct, frozen=True, gc=False):
    """One write of a transaction.

    `expected` is the revision the object must be at (0: it must not exist; None: any). `body` is a draft, or None to
    delete; a deletion's `last` is the object's last state as a draft, for watchers. `seconds`: unless written again within
    that time, the object goes by itself.
    """

    collection: str
    path: str
    expected: int | None
    body: bytes | None
    last: bytes | None = None
    seconds: float | None = None
    frees: bool = False
    """It leads to less being stored, although it may itself need a little more: a full store lets it pass."""


class Revision(msgspec.Struct, frozen=True, gc=False):
    """One row of the log: `deleted` rows carry the last state."""

    number: int
    collection: str
    path: str
    body: bytes
    deleted: bool
    at: int


class Precondition(Exception):
    """A change expected the object at another revision. `actual` is where it is (0: it does not exist)."""

    def __init__(self, change: Change, actual: int) -> None:
        super().__init__(f"{change.collection}/{change.path} is at {actual}, not {change.expected}")
        self.change = change
        self.actual = actual


class StorageFull(Exception):
    """The disk, or the size limit of the store, is exhausted. Nothing of the transaction was written."""


class StorageFailed(Exception):
    """The storage reported an error that is none of the above. Nothing of the transaction was written, unless a class below says so."""


class StorageUnreachable(StorageFailed):
    """The storage does not answer. Nothing of the transaction was written."""


class StorageUncertain(StorageFailed):
    """No answer came in time, and none can be had for now: the transaction may have been carried out, or may yet be."""


class ObjectTooLarge(StorageFailed):
    """More than the storage takes in one transaction. Nothing of it was written."""


class StorageDamaged(StorageFailed):
    """What is stored is not what was written; the text says what is affected and what to do."""


class LeftBehind(StorageFailed):
    """Others wrote to the store, and forgot, more than this server has read: it has to read everything again."""


class Compacted(Exception):
    """The revision asked for is older than the kept history. `floor` is the oldest that can be asked for."""

    def __init__(self, floor: int) -> None:
        super().__init__(f"history starts at {floor}")
        self.floor = floor
