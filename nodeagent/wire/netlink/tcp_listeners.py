"""Reads the listening TCP sockets of a network namespace (linux/inet_diag.h); pure."""

import struct

from nodeagent.model.addresses import Family, Protocol
from nodeagent.wire.netlink.framing import Request, reader
from nodeagent.wire.netlink.uapi.netlink import SOCK_DIAG_BY_FAMILY

_TCP_LISTEN = 10
_REQUEST = struct.Struct("=BBxxI48x")  # inet_diag_req_v2: family, protocol, states, no socket in particular
_PORT = struct.Struct(">H")
_PORT_AT, _ADDRESS_AT = 4, 8


def get_tcp_listeners(family: Family) -> Request:
    """Returns the request for a dump of all listening sockets of a family."""
    return Request(SOCK_DIAG_BY_FAMILY, 0, _REQUEST.pack(family.socket_family, Protocol.TCP, 1 << _TCP_LISTEN))


@reader
def read_tcp_listener(body: memoryview) -> tuple[bytes, int]:
    """Returns the packed address of a socket, all zeros for any, and its port."""
    length = Family.IPV4.address_length if body[0] == Family.IPV4.socket_family else Family.IPV6.address_length
    return bytes(body[_ADDRESS_AT : _ADDRESS_AT + length]), _PORT.unpack_from(body, _PORT_AT)[0]
