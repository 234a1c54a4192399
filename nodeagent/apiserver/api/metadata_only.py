"""PartialObjectMetadata (meta.k8s.io): an object without all but its metadata, for clients that look at nothing else. Pure."""

from functools import lru_cache

import msgspec

KIND = "PartialObjectMetadata"
LIST_KIND = "PartialObjectMetadataList"


class _Labelled(msgspec.Struct, gc=False):
    metadata: msgspec.Raw


_metadata = msgspec.json.Decoder(_Labelled)


def opening(version: str) -> bytes:
    """How an encoded PartialObjectMetadata begins; a trimmed body follows after its own brace."""
    return f'{{"kind":"{KIND}","apiVersion":"meta.k8s.io/{version}",'.encode()


@lru_cache(maxsize=2)
def metadata_of(body: bytes) -> memoryview:
    """The encoded metadata of an encoded object: a view, so that all who are sent it share the object's bytes."""
    return memoryview(_metadata.decode(body).metadata)


def trimmed(body: bytes) -> bytes:
    """Of an encoded object its metadata only, as it is."""
    return b'{"metadata":%b}' % bytes(metadata_of(body))


def partial_of(body: bytes, version: str) -> bytes:
    """The whole PartialObjectMetadata."""
    return opening(version) + trimmed(body)[1:]
