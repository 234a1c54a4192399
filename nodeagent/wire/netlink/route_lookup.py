"""Packs the request for the route of a packet (RTM_GETROUTE of one destination), and reads the answer; pure."""

import struct
from typing import NamedTuple

from nodeagent.model.addresses import family_of, pack_address, unpack_address
from nodeagent.wire.netlink.framing import Request, attribute, attributes, reader
from nodeagent.wire.netlink.uapi import rtnetlink as uapi

_ROUTE = struct.Struct("=BBBBBBBBI")
_U32 = struct.Struct("=I")
_PORT = struct.Struct(">H")
_VIA_FAMILY_BYTES = 2


class FoundRoute(NamedTuple):
    """The route that the kernel would use. kind: RTN_…. interface: its index, 0 for none. gateway, source: canonical text, empty
    for none."""

    kind: int
    interface: int
    gateway: str
    source: str


def look_up_route(
    destination: str,
    source: str = "",
    interface: int = 0,
    protocol: int = 0,
    port: int = 0,
    mark: int = 0,
    *,
    source_port: int = 0,
) -> Request:
    """Returns the request. interface: the packet's input interface; 0: the node sends it. port, source_port: 0: not known.

    With an interface the kernel also checks the source, as it does for a packet.
    """
    packed = pack_address(destination)
    bits = 8 * len(packed)
    body = _ROUTE.pack(family_of(destination).socket_family, bits, bits if source else 0, 0, 0, 0, 0, 0, 0)
    body += attribute(uapi.RTA_DST, packed)
    if source:
        body += attribute(uapi.RTA_SRC, pack_address(source))
    if interface:
        body += attribute(uapi.RTA_IIF, _U32.pack(interface))
    if mark:
        body += attribute(uapi.RTA_MARK, _U32.pack(mark))
    if protocol and (port or source_port):
        body += attribute(uapi.RTA_IP_PROTO, bytes((protocol,)))
    for kind, number in ((uapi.RTA_SPORT, source_port), (uapi.RTA_DPORT, port)):
        if protocol and number:
            body += attribute(kind, _PORT.pack(number))
    return Request(uapi.RTM_GETROUTE, 0, body)


@reader
def read_found_route(body: memoryview) -> FoundRoute:
    """Reads the answer."""
    kind = body[7]
    found = {number: bytes(value) for number, value in attributes(body[_ROUTE.size :])}
    gateway = found.get(uapi.RTA_GATEWAY, b"") or found.get(uapi.RTA_VIA, b"")[_VIA_FAMILY_BYTES:]
    source = found.get(uapi.RTA_PREFSRC, b"")
    interface = found.get(uapi.RTA_OIF, bytes(4))
    return FoundRoute(
        kind,
        _U32.unpack(interface)[0],
        unpack_address(gateway) if gateway else "",
        unpack_address(source) if source else "",
    )
