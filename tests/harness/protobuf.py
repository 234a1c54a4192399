"""Objects in Kubernetes' protobuf encoding, written byte by byte."""


def varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    head = b""
    while number > 0x7F:
        head += bytes([number & 0x7F | 0x80])
        number >>= 7
    return head + bytes([number])


def field(number: int, value: bytes | int) -> bytes:
    """A field of a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    """`k8s\\0` and a runtime.Unknown (typeMeta 1, raw 2), whose TypeMeta has apiVersion 1 and kind 2."""
    return b"k8s\x00" + field(1, field(1, api_version.encode()) + field(2, kind.encode())) + field(2, raw)
