"""Which key an object has, and how its value is read: as kube-apiserver keeps it when it stores JSON. Pure.

A value has kind and apiVersion and no resourceVersion, which is the revision the key was last written at. Values from here end
in a space, which JSON permits: they are canonical, and need not be made so when they are read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from nodeagent.kinds.description.documents import Document, decode, encode

_MARK: Final = b'"resourceVersion":"'
_OWN: Final = b" "
_METADATA: Final = b'"metadata":{'
_INTERNAL: Final = "nodeagent.dev"
"""The first part of keys that only this program uses: for servers that live, and credentials."""


class Unreadable(ValueError):
    """A value that is no object this server knows; the text says why."""


@dataclass(frozen=True, slots=True)
class StoredCollection:
    """Where the objects of a collection are below the prefix, and what they are."""

    path: str
    kind: str
    api_version: str
    namespaced: bool
    canonical: Callable[[Document], Document] | None
    """The object with the fields in the order they are stored here, without those that are not known. None: it is no object of
    the API, but a record of kube-apiserver's own without a name or uid, and is taken as it is."""

    @property
    def opening(self) -> bytes:
        """How a value begins."""
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
    """Keys below `prefix`, of which the slashes between names count only once, as for kube-apiserver.

    `stored` says how the collections of the API, and kube-apiserver's own records, are kept; any other is internal.
    """

    def __init__(self, prefix: str, stored: Mapping[str, StoredCollection]) -> None:
        self._prefix = "".join(f"/{part}" for part in prefix.split("/") if part) + "/"
        self._stored = dict(stored)
        self._opening = {collection: one.opening for collection, one in stored.items()}
        self._by_path = {one.path: collection for collection, one in stored.items()}

    @property
    def prefix(self) -> str:
        """Without a slash at its end."""
        return self._prefix[:-1]

    @property
    def internal_above(self) -> list[tuple[bytes, bytes]]:
        """The bounds of what servers have for themselves whose prefix holds this one."""
        parts = self.prefix.split("/")
        above = (f"{'/'.join(parts[:count])}/{_INTERNAL}".encode() for count in range(2, len(parts)))
        return [(key + b"/", key + b"0") for key in above]

    @property
    def start(self) -> bytes:
        """The first key there may be."""
        return self._prefix.encode()

    @property
    def end(self) -> bytes:
        """The first key beyond."""
        return self._prefix[:-1].encode() + b"0"

    @property
    def internal_start(self) -> bytes:
        """The first key of what servers have for themselves."""
        return f"{self._prefix}{_INTERNAL}/".encode()

    def key(self, collection: str, path: str) -> bytes:
        """The key of an object."""
        stored = self._stored.get(collection)
        where = stored.path if stored is not None else f"{_INTERNAL}/{collection}"
        return f"{self._prefix}{where}/{path}".encode()

    def locate(self, key: bytes) -> tuple[str, str] | None:
        """(collection, path) of a key; None: it is not below the prefix or in no collection."""
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
        """What is said of a key that is nowhere here: the first part of it."""
        return key.decode(errors="replace").removeprefix(self._prefix).partition("/")[0]

    def value(self, collection: str, draft: bytes) -> bytes:
        """The value of an object that is a draft, with some resourceVersion."""
        start = draft.index(_MARK)
        end = draft.index(b'"', start + len(_MARK)) + 1
        if draft[end : end + 1] == b",":
            end += 1
        elif draft[start - 1 : start] == b",":
            start -= 1
        opening = self._opening.get(collection, b"{")
        return opening + draft[1:start] + draft[end:] + _OWN

    def body(self, collection: str, path: str, value: bytes, revision: int) -> bytes:
        """The object as it is kept in memory. Raises Unreadable."""
        stored = self._stored.get(collection)
        if stored is not None and stored.canonical is None:
            return _record(stored, value, revision)
        try:
            head = _head.decode(value)
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
            raise Unreadable(_why(value, error)) from None
        if stored is not None:
            _check(stored, path, head)
        metadata = self._metadata(collection, value)
        if stored is None:
            return b'{"metadata":{"resourceVersion":"%d",%b' % (revision, metadata)
        # Clients receive the fields in kube-apiserver's order.
        uid = f'"uid":"{head.metadata.uid}",'.encode()
        before, _, after = metadata.partition(uid)
        if not after:
            raise Unreadable("its uid is not plain")
        return b'{"metadata":{%b%b"resourceVersion":"%d",%b' % (before, uid, revision, after)

    def _metadata(self, collection: str, value: bytes) -> bytes:
        """The canonical object from its first field of metadata on. Raises Unreadable."""
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
    """One of kube-apiserver's own, as it is kept in memory. Raises Unreadable."""
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
        raise Unreadable(f"it says it is {own}")
    if not meta.uid or not meta.creation_timestamp:
        raise Unreadable("it has no uid or no creationTimestamp")


def _why(value: bytes, error: Exception) -> str:
    if value.startswith(b"k8s\0"):
        return "protobuf: let its kube-apiserver store JSON (--storage-media-type=application/json)"
    if value.startswith(b"k8s:enc:"):
        return "encrypted"
    return f"not JSON of an object: {error}"
