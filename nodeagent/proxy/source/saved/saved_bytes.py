"""The format of a saved state. Pure.

    nodeagent state 1\\n      the format's number
    <64 hex digits>\\n        SHA-256 of everything below
    <zlib stream>            lines of JSON: a `Head`, then a `_Batch` for at most BATCH objects of one kind

The checksum finds every truncated, torn or reordered write. `Head.schema` changes with the fields of the stored objects, so
that a release which reads more of an object does not use a file that lacks it.
"""

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final, Literal

import msgspec
from msgspec import Raw, Struct

from nodeagent.model.objects import EndpointSlice, Namespace, Node, Service, ServiceCIDR
from nodeagent.proxy.source.saved.state_origin import StateOrigin, StateUnusable
from nodeagent.wire.unreadable import UNREADABLE

SavedObject = Service | EndpointSlice | Node | ServiceCIDR | Namespace
KINDS: Final[dict[str, type[SavedObject]]] = {
    kind.__name__: kind for kind in (Service, EndpointSlice, Node, ServiceCIDR, Namespace)
}
BATCH = 50
"""Objects that are encoded or decoded in one call, in which no other thread gets a turn: 0.3 ms for slices of ten endpoints."""
LARGEST_BYTES = 1 << 30
"""Of the lines, before compression: ten times what 50,000 Services with 10 endpoints each take."""
_MAGIC = b"nodeagent state "
_FORMAT = b"1"
_DIGEST_BYTES = 64


class Head(Struct, frozen=True):
    """The first line. saved: when the state was current, in UTC."""

    origin: StateOrigin
    saved: datetime
    schema: str


class _Batch(Struct, frozen=True):
    kind: Literal["Service", "EndpointSlice", "Node", "ServiceCIDR", "Namespace"]
    items: Raw


def encode(origin: StateOrigin, saved: datetime, objects: Iterable[Sequence[SavedObject]]) -> bytes:
    """Returns the file's content. objects: those of one kind in each sequence."""
    encoder = msgspec.json.Encoder(enc_hook=list)  # packed values are written as lists
    packing = zlib.compressobj(level=1)
    pieces = [packing.compress(encoder.encode(Head(origin, saved, _schema())) + b"\n")]
    for batch in _batches(objects):
        line = encoder.encode({"kind": type(batch[0]).__name__, "items": batch})
        pieces.append(packing.compress(line + b"\n"))
    pieces.append(packing.flush())
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return b"".join([_MAGIC, _FORMAT, b"\n", digest.hexdigest().encode(), b"\n", *pieces])


def decode(content: bytes) -> tuple[Head, Iterator[Sequence[SavedObject]]]:
    """Returns the head and the objects, which are decoded batch by batch while they are iterated.

    Both raise StateUnusable if the file is damaged, or of a release with another format or other fields.
    """
    first, _, rest = content.partition(b"\n")
    if not first.startswith(_MAGIC):
        raise StateUnusable("is damaged: it does not begin like a saved state")
    if first != _MAGIC + _FORMAT:
        raise StateUnusable("was saved by a release with another format")
    digest, packed = rest[: _DIGEST_BYTES + 1], rest[_DIGEST_BYTES + 1 :]
    if hashlib.sha256(packed).hexdigest().encode() + b"\n" != digest:
        raise StateUnusable("is damaged: its checksum is not that of its contents")
    unpacking = zlib.decompressobj()
    try:
        lines = unpacking.decompress(packed, LARGEST_BYTES).split(b"\n")
        head = msgspec.json.decode(lines[0], type=Head)
    except (zlib.error, *UNREADABLE) as error:
        raise StateUnusable(f"is damaged: {error}") from error
    if not unpacking.eof:
        raise StateUnusable(f"has more than {LARGEST_BYTES >> 20} MiB")
    if head.schema != _schema():
        raise StateUnusable("was saved by a release that stores other fields")
    return head, _objects(lines[1:-1])


def _objects(lines: Iterable[bytes]) -> Iterator[Sequence[SavedObject]]:
    decoders = {name: msgspec.json.Decoder(list[kind]) for name, kind in KINDS.items()}  # type: ignore[valid-type]  # at run time
    for line in lines:
        try:
            batch = msgspec.json.decode(line, type=_Batch)
            yield decoders[batch.kind].decode(batch.items)
        except UNREADABLE as error:
            raise StateUnusable(f"is damaged: {error}") from error


def _batches(objects: Iterable[Sequence[SavedObject]]) -> Iterator[Sequence[SavedObject]]:
    for of_kind in objects:
        for start in range(0, len(of_kind), BATCH):
            yield of_kind[start : start + BATCH]


def _schema() -> str:
    described = msgspec.json.schema_components(list(KINDS.values()))
    return hashlib.sha256(msgspec.json.encode(described, order="deterministic")).hexdigest()[:16]
