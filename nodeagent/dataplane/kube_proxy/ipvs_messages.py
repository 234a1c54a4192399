"""Generic netlink messages about IPVS virtual servers (pure; linux/ip_vs.h, linux/genetlink.h).

Attributes are in host byte order, except addresses and ports.
"""

import socket
import struct
from typing import NamedTuple

from nodeagent.model.addresses import Protocol, unpack_address
from nodeagent.netlink.framing import Request, attribute, attribute_map, nested, string
from nodeagent.netlink.uapi.netlink import NLM_F_DUMP

GENL_FAMILY = "IPVS"
_GENL_CONTROL = 0x10
_GET_FAMILY = 3
_FAMILY_ID, _FAMILY_NAME = 1, 2

_DELETE_SERVICE, _GET_SERVICE = 3, 4
_VERSION = 1
_SERVICE = 1
_AF, _PROTOCOL, _ADDRESS, _PORT, _FWMARK = 1, 2, 3, 4, 5
_GENMSG = struct.Struct("=BBxx")
_U16 = struct.Struct("=H")
_U32 = struct.Struct("=I")


class VirtualServer(NamedTuple):
    """One virtual server. key: the attributes by which the kernel knows it, as it sent them."""

    text: str
    key: bytes


def family_request(name: str) -> Request:
    """Asks for the number of a generic netlink family."""
    return Request(_GENL_CONTROL, 0, _GENMSG.pack(_GET_FAMILY, 1) + string(_FAMILY_NAME, name))


def family_number(reply: memoryview) -> int:
    """Of the reply to `family_request`."""
    return int(_U16.unpack(attribute_map(reply[_GENMSG.size :])[_FAMILY_ID])[0])


def servers_request(family: int) -> Request:
    """A dump of all virtual servers."""
    return Request(family, NLM_F_DUMP, _GENMSG.pack(_GET_SERVICE, _VERSION))


def delete_request(family: int, server: VirtualServer) -> Request:
    """Deletes one virtual server with its real servers."""
    return Request(family, 0, _GENMSG.pack(_DELETE_SERVICE, _VERSION) + nested(_SERVICE, server.key))


def read_server(reply: memoryview) -> VirtualServer:
    """One reply of the dump."""
    service = attribute_map(attribute_map(reply[_GENMSG.size :])[_SERVICE])
    key: tuple[int, ...]
    if _FWMARK in service:
        key = (_AF, _FWMARK)
        text = f"fwmark {_U32.unpack(service[_FWMARK])[0]}"
    else:
        key = (_AF, _PROTOCOL, _ADDRESS, _PORT)
        text = _address_and_port(service)
    return VirtualServer(text, b"".join(attribute(kind, bytes(service[kind])) for kind in key))


def _address_and_port(service: dict[int, memoryview]) -> str:
    ipv6 = _U16.unpack(service[_AF])[0] == socket.AF_INET6
    address = unpack_address(bytes(service[_ADDRESS][: 16 if ipv6 else 4]))
    number = _U16.unpack(service[_PROTOCOL])[0]
    protocol = Protocol(number).name if number in set(Protocol) else str(number)
    port = int.from_bytes(service[_PORT], "big")
    return f"{protocol} {f'[{address}]' if ipv6 else address}:{port}"
