"""User data: what nft stores with an object and the kernel returns unread. Type, length and value each (pure)."""


def pack_user_data(*entries: tuple[int, bytes]) -> bytes:
    """Packs (NFTNL_UDATA_*, value) each; a value has at most 255 bytes."""
    return b"".join(bytes((kind, len(value))) + value for kind, value in entries)


def pack_comment(kind: int, text: bytes) -> bytes:
    """Packs user data that is only a comment."""
    return pack_user_data((kind, text + b"\0"))


def read_user_data(data: memoryview | bytes) -> dict[int, bytes]:
    """Returns values by type; a truncated value is returned as far as it goes."""
    found: dict[int, bytes] = {}
    offset = 0
    while offset + 2 <= len(data):
        kind, length = data[offset], data[offset + 1]
        found[kind] = bytes(data[offset + 2 : offset + 2 + length])
        offset += 2 + length
    return found


def comment_in(data: memoryview | bytes, kind: int) -> str:
    """Returns the comment of this type; empty without a comment."""
    return read_user_data(data).get(kind, b"").rstrip(b"\0").decode(errors="replace")
