"""Which key an object has, and how its value is read: as kube-apiserver keeps it when it stores JSON. Pure.

A value has kind and apiVersion and no resourceVersion, which is the revision the key was last written at. Values from here end
in a space, which JSON permits: they are canonical, and need not be made so when they are read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from nodeagent.controlplane.documents import Document, decode, encode

_MARK: Final = b'"resourceVersion":"'
_OWN: Final = b" "
_METADATA: Final = b'"metadata":{'
_INTERNAL: Final = "nodeagent.dev"
"""The place of what is no object of the API: node ports that are taken, servers that live."""


class Unreadable(ValueError):
    """A value that is no object this server knows; the text says why."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the objects of a collection are below the prefix, and what they are."""

    path: str
    kind: str
    api_version: str
    namespaced: bool
    canonical: Callable[[Document], Document]
    """The object with the fields in the order they are stored here, without those that are not known."""

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
    """Keys below `prefix`. `places` says where the collections of the API are; any other is internal."""

    def __init__(self, prefix: str, places: Mapping[str, Place]) -> None:
        self._prefix = f"/{prefix.strip('/')}/"
        self._places = dict(places)
        self._opening = {collection: place.opening for collection, place in places.items()}
        self._by_path = {place.path: collection for collection, place in places.items()}

    @property
    def start(self) -> bytes:
        """The first key there may be."""
        return self._prefix.encode()

    @property
    def end(self) -> bytes:
        """The first key beyond."""
        return self._prefix[:-1].encode() + b"0"

    def key(self, collection: str, path: str) -> bytes:
        """The key of an object."""
        place = self._places.get(collection)
        where = place.path if place is not None else f"{_INTERNAL}/{collection}"
        return f"{self._prefix}{where}/{path}".encode()

    def locate(self, key: bytes) -> tuple[str, str] | None:
        """(collection, path) of a key; None: it is no place of ours."""
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

    def place_of(self, key: bytes) -> str:
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
        place = self._places.get(collection)
        try:
            head = _head.decode(value)
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
            raise Unreadable(_why(value, error)) from None
        if place is not None:
            _check(place, path, head)
        opening = self._opening.get(collection, b"{")
        if value.endswith(_OWN) and value.startswith(opening + _METADATA):
            rest = value[len(opening) + len(_METADATA) : -len(_OWN)]
        elif place is not None:
            rest = self._canonical(place, value)
        else:
            raise Unreadable("it was not written by this program")
        return b'{"metadata":{"resourceVersion":"%d",%b' % (revision, rest)

    def _canonical(self, place: Place, value: bytes) -> bytes:
        try:
            document = decode(value)
            document["metadata"].pop("resourceVersion", None)
            found = encode(place.canonical(document))
        except Exception as error:  # noqa: BLE001 - whatever is the matter with a value of others, it is theirs
            raise Unreadable(f"not a {place.kind}: {error}") from None
        start = b'{"metadata":{'
        if not found.startswith(start):
            raise Unreadable("it has no metadata")
        return found[len(start) :]


def _check(place: Place, path: str, head: _Head) -> None:
    meta = head.metadata
    own = f"{meta.namespace}/{meta.name}" if place.namespaced else meta.name
    if (head.kind, head.api_version) != (place.kind, place.api_version):
        raise Unreadable(
            f"it is {head.api_version or 'no'} {head.kind or 'kind'}, not {place.api_version} {place.kind}"
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
