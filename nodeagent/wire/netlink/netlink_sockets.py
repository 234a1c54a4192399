"""Reads the netlink sockets of a network namespace (linux/netlink_diag.h); pure."""

import struct

from nodeagent.wire.netlink.framing import Request, reader
from nodeagent.wire.netlink.uapi.netlink import SOCK_DIAG_BY_FAMILY

_AF_NETLINK = 16
_SHOW_FLAGS = 0x8
_REQUEST = struct.Struct("=BBxxIIII")  # netlink_diag_req: family, protocol, inode, what to show, cookie
_SOCKET = struct.Struct("=16xI8x2xHI")  # the inode in netlink_diag_msg, and the one attribute that is asked for
_FLAGS = 5
_DUMPS = 0x1


def get_netlink_sockets(protocol: int) -> Request:
    """Returns the request for a dump of the sockets of a netlink protocol, with their flags."""
    return Request(SOCK_DIAG_BY_FAMILY, 0, _REQUEST.pack(_AF_NETLINK, protocol, 0, _SHOW_FLAGS, 0, 0))


@reader
def read_netlink_socket(body: memoryview) -> tuple[int, bool]:
    """Returns the inode of a socket, and whether a dump is in progress."""
    inode, kind, flags = _SOCKET.unpack_from(body)
    if kind != _FLAGS:
        raise ValueError(f"attribute {kind} instead of the flags")
    return inode, bool(flags & _DUMPS)
