"""Reads the Unix sockets of a network namespace (linux/unix_diag.h); pure."""

import struct

from nodeagent.wire.netlink.framing import Request, attributes, reader
from nodeagent.wire.netlink.uapi.netlink import SOCK_DIAG_BY_FAMILY

_AF_UNIX = 1
_ALL_STATES = 0xFFFFFFFF
_SHOW_NAME, _SHOW_UID = 0x1, 0x40
_NAME, _UID = 0, 7
_REQUEST = struct.Struct("=BBxxIIIII")  # unix_diag_req: family, protocol, states, inode, what to show, cookie
_MESSAGE_LENGTH = 16
_U32 = struct.Struct("=I")


def get_unix_sockets() -> Request:
    """Returns the request for a dump of all Unix sockets, with their names and users."""
    return Request(SOCK_DIAG_BY_FAMILY, 0, _REQUEST.pack(_AF_UNIX, 0, _ALL_STATES, 0, _SHOW_NAME | _SHOW_UID, 0, 0))


@reader
def read_unix_socket(body: memoryview) -> tuple[bytes, int | None]:
    """Returns the name of a socket, empty without one, and the user who made it; None if the kernel does not say it (before Linux 5.3)."""
    found = dict(attributes(body[_MESSAGE_LENGTH:]))
    user = found.get(_UID)
    return bytes(found.get(_NAME, b"")), None if user is None else _U32.unpack_from(user)[0]
