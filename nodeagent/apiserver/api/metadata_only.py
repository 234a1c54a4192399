"""PartialObjectMetadata (meta.k8s.io): only the metadata of an object, for clients that need nothing else. Pure."""

from functools import lru_cache

import msgspec

KIND = "PartialObjectMetadata"
LIST_KIND = "PartialObjectMetadataList"


class _Labelled(msgspec.Struct, gc=False):
    metadata: msgspec.Raw


_metadata = msgspec.json.Decoder(_Labelled)


def opening(version: str) -> bytes:
    """Returns how an encoded PartialObjectMetadata begins; the trimmed body follows without its opening brace."""
    return f'{{"kind":"{KIND}","apiVersion":"meta.k8s.io/{version}",'.encode()


@lru_cache(maxsize=2)
def metadata_of(body: bytes) -> memoryview:
    """Returns the encoded metadata of an encoded object: a view, so that all clients share the object's bytes."""
    return memoryview(_metadata.decode(body).metadata)


def trimmed(body: bytes) -> bytes:
    """Returns an encoded object reduced to its metadata."""
    return b'{"metadata":%b}' % bytes(metadata_of(body))


def partial_of(body: bytes, version: str) -> bytes:
    """Returns the encoded PartialObjectMetadata of an encoded object."""
    return opening(version) + trimmed(body)[1:]
