"""User data: what nft keeps with an object and the kernel hands back unread. Type, length and value each (pure)."""


def pack_user_data(*entries: tuple[int, bytes]) -> bytes:
    """(NFTNL_UDATA_*, value) each; a value has 255 bytes at most."""
    return b"".join(bytes((kind, len(value))) + value for kind, value in entries)


def pack_comment(kind: int, text: bytes) -> bytes:
    """User data that is a comment and nothing else."""
    return pack_user_data((kind, text + b"\0"))


def read_user_data(data: memoryview | bytes) -> dict[int, bytes]:
    """Values by type; a value that is cut short is returned as far as it goes."""
    found: dict[int, bytes] = {}
    offset = 0
    while offset + 2 <= len(data):
        kind, length = data[offset], data[offset + 1]
        found[kind] = bytes(data[offset + 2 : offset + 2 + length])
        offset += 2 + length
    return found


def comment_in(data: memoryview | bytes, kind: int) -> str:
    """The comment of this type; empty without a comment."""
    return read_user_data(data).get(kind, b"").rstrip(b"\0").decode(errors="replace")
