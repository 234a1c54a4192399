"""The key of each object, and how its value is read: as kube-apiserver stores JSON. Pure.

A value has kind and apiVersion but no resourceVersion, which is the revision of the key's last write. Values written by this
program end in a space, which JSON permits: they are canonical and need no conversion when they are read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from nodeagent.kinds.description.documents import Document, decode, encode
from nodeagent.wire.unreadable import UNREADABLE

_MARK: Final = b'"resourceVersion":"'
_OWN: Final = b" "
_METADATA: Final = b'"metadata":{'
_INTERNAL: Final = "nodeagent.dev"
"""The first part of keys that only this program uses: records of live servers, and credentials."""


class Unreadable(ValueError):
    """A value that is not an object known to this server; the text says why."""


@dataclass(frozen=True, slots=True)
class StoredCollection:
    """The path of a collection below the prefix, and the kind of its objects."""

    path: str
    kind: str
    api_version: str
    namespaced: bool
    canonical: Callable[[Document], Document] | None
    """Returns the object with its fields in the order in which they are stored here, without unknown ones.

    None: a record of kube-apiserver itself, without a name or UID, which is used as it is.
    """

    @property
    def opening(self) -> bytes:
        """The beginning of a value."""
        return f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}",'.encode()


class _Metadata(msgspec.Struct, gc=False):
    name: str
    uid: str = ""
    namespace: str = ""
    creation_timestamp: str | None = msgspec.field(default=None, name="creationTimestamp")


class _Head(msgspec.Struct, gc=False):
    metadata: _Metadata
    kind: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")


_head = msgspec.json.Decoder(_Head)


class Layout:
    """The keys below `prefix`; repeated slashes in it count as one, as in kube-apiserver. `stored` has the collections of the
    API and kube-apiserver's own records; any other collection is internal."""

    def __init__(self, prefix: str, stored: Mapping[str, StoredCollection]) -> None:
        self._prefix = "".join(f"/{part}" for part in prefix.split("/") if part) + "/"
        self._stored = dict(stored)
        self._opening = {collection: one.opening for collection, one in stored.items()}
        self._by_path = {one.path: collection for collection, one in stored.items()}

    @property
    def prefix(self) -> str:
        """The prefix without a slash at its end."""
        return self._prefix[:-1]

    @property
    def internal_above(self) -> list[tuple[bytes, bytes]]:
        """The key ranges (start, end) of internal records of servers whose prefix contains this one."""
        parts = self.prefix.split("/")
        above = (f"{'/'.join(parts[:count])}/{_INTERNAL}".encode() for count in range(2, len(parts)))
        return [(key + b"/", key + b"0") for key in above]

    @property
    def start(self) -> bytes:
        """The first key below the prefix."""
        return self._prefix.encode()

    @property
    def end(self) -> bytes:
        """The first key beyond the prefix."""
        return self._prefix[:-1].encode() + b"0"

    @property
    def internal_start(self) -> bytes:
        """The first key of internal records."""
        return f"{self._prefix}{_INTERNAL}/".encode()

    def key(self, collection: str, path: str) -> bytes:
        """Returns the key of an object."""
        stored = self._stored.get(collection)
        where = stored.path if stored is not None else f"{_INTERNAL}/{collection}"
        return f"{self._prefix}{where}/{path}".encode()

    def locate(self, key: bytes) -> tuple[str, str] | None:
        """Returns (collection, path) of a key, or None if it is not below the prefix or in no known collection."""
        try:
            text = key.decode()
        except UnicodeDecodeError:
            return None
        if not text.startswith(self._prefix):
            return None
        first, _, rest = text[len(self._prefix) :].partition("/")
        if first == _INTERNAL:
            collection, _, path = rest.partition("/")
            return (collection, path) if path else None
        if first in self._by_path:
            return (self._by_path[first], rest) if rest else None
        second, _, rest = rest.partition("/")
        collection = self._by_path.get(f"{first}/{second}", "")
        return (collection, rest) if collection and rest else None

    def first_part(self, key: bytes) -> str:
        """Returns the first part of a key below the prefix, to report a key that is in no known collection."""
        return key.decode(errors="replace").removeprefix(self._prefix).partition("/")[0]

    def value(self, collection: str, draft: bytes) -> bytes:
        """Returns the value to store for a draft, which has some resourceVersion."""
        start = draft.index(_MARK)
        end = draft.index(b'"', start + len(_MARK)) + 1
        if draft[end : end + 1] == b",":
            end += 1
        elif draft[start - 1 : start] == b",":
            start -= 1
        opening = self._opening.get(collection, b"{")
        return opening + draft[1:start] + draft[end:] + _OWN

    def body(self, collection: str, path: str, value: bytes, revision: int) -> bytes:
        """Returns the object in the form that is kept in memory. Raises Unreadable."""
        stored = self._stored.get(collection)
        if stored is not None and stored.canonical is None:
            return _record(stored, value, revision)
        try:
            head = _head.decode(value)
        except UNREADABLE as error:
            raise Unreadable(_why(value, error)) from None
        if stored is not None:
            _check(stored, path, head)
        metadata = self._metadata(collection, value)
        if stored is None:
            return b'{"metadata":{"resourceVersion":"%d",%b' % (revision, metadata)
        # Clients expect the fields in kube-apiserver's order.
        uid = f'"uid":"{head.metadata.uid}",'.encode()
        before, _, after = metadata.partition(uid)
        if not after:
            raise Unreadable("its uid is not plain")
        return b'{"metadata":{%b%b"resourceVersion":"%d",%b' % (before, uid, revision, after)

    def _metadata(self, collection: str, value: bytes) -> bytes:
        """Returns the canonical object from the first field of its metadata on. Raises Unreadable."""
        stored = self._stored.get(collection)
        opening = self._opening.get(collection, b"{")
        if value.endswith(_OWN) and value.startswith(opening + _METADATA):
            return value[len(opening) + len(_METADATA) : -len(_OWN)]
        if stored is None:
            raise Unreadable("it was not written by this program")
        return self._canonical(stored, value)

    def _canonical(self, stored: StoredCollection, value: bytes) -> bytes:
        try:
            document = decode(value)
            document["metadata"].pop("resourceVersion", None)
            assert stored.canonical is not None
            found = encode(stored.canonical(document))
        except Exception as error:  # noqa: BLE001 - the value was written by another program
            raise Unreadable(f"not a {stored.kind}: {error}") from None
        start = b'{"metadata":{'
        if not found.startswith(start):
            raise Unreadable("it has no metadata")
        return found[len(start) :]


def _record(stored: StoredCollection, value: bytes, revision: int) -> bytes:
    """Returns a record of kube-apiserver itself in the form that is kept in memory. Raises Unreadable."""
    try:
        document = decode(value)
        kind = document.pop("kind", None), document.pop("apiVersion", None)
        metadata = {**document.pop("metadata", {}), "resourceVersion": str(revision)}
    except Exception as error:  # noqa: BLE001 - the value was written by another program
        raise Unreadable(_why(value, error)) from None
    if kind != (stored.kind, stored.api_version):
        raise Unreadable(f"it is {kind[1]} {kind[0]}, not {stored.api_version} {stored.kind}")
    return encode({"metadata": metadata, **document})


def _check(stored: StoredCollection, path: str, head: _Head) -> None:
    meta = head.metadata
    own = f"{meta.namespace}/{meta.name}" if stored.namespaced else meta.name
    if (head.kind, head.api_version) != (stored.kind, stored.api_version):
        raise Unreadable(
            f"it is {head.api_version or 'no'} {head.kind or 'kind'}, not {stored.api_version} {stored.kind}"
        )
    if own != path:
        raise Unreadable(f"its name is {own}")
    if not meta.uid or not meta.creation_timestamp:
        raise Unreadable("it has no uid or no creationTimestamp")


def _why(value: bytes, error: Exception) -> str:
    if value.startswith(b"k8s\0"):
        return "protobuf: let its kube-apiserver store JSON (--storage-media-type=application/json)"
    if value.startswith(b"k8s:enc:"):
        return "encrypted"
    return f"not JSON of an object: {error}"
