"""Generic netlink messages about IPVS virtual servers (pure; linux/ip_vs.h, linux/genetlink.h).

Attributes are in host byte order, except addresses and ports.
"""

import socket
import struct
from typing import NamedTuple

from nodeagent.model.addresses import Protocol, unpack_address
from nodeagent.wire.netlink.framing import Request, attribute, attribute_map, nested, reader, string
from nodeagent.wire.netlink.uapi import ip_vs as uapi
from nodeagent.wire.netlink.uapi.netlink import NLM_F_DUMP

_GENMSG = struct.Struct("=BBxx")
_U16 = struct.Struct("=H")
_U32 = struct.Struct("=I")


class VirtualServer(NamedTuple):
    """One virtual server. key: the attributes by which the kernel identifies it, as it sent them."""

    text: str
    key: bytes


def family_request(name: str) -> Request:
    """Returns the request for the number of a generic netlink family."""
    return Request(
        uapi.GENL_ID_CTRL, 0, _GENMSG.pack(uapi.CTRL_CMD_GETFAMILY, 1) + string(uapi.CTRL_ATTR_FAMILY_NAME, name)
    )


@reader
def family_number(reply: memoryview) -> int:
    """Returns the number in the reply to `family_request`."""
    return int(_U16.unpack(attribute_map(reply[_GENMSG.size :])[uapi.CTRL_ATTR_FAMILY_ID])[0])


def servers_request(family: int) -> Request:
    """Returns the request for a dump of all virtual servers."""
    return Request(family, NLM_F_DUMP, _GENMSG.pack(uapi.IPVS_CMD_GET_SERVICE, uapi.IPVS_GENL_VERSION))


def delete_request(family: int, server: VirtualServer) -> Request:
    """Returns the request to delete one virtual server with its real servers."""
    return Request(
        family,
        0,
        _GENMSG.pack(uapi.IPVS_CMD_DEL_SERVICE, uapi.IPVS_GENL_VERSION)
        + nested(uapi.IPVS_CMD_ATTR_SERVICE, server.key),
    )


@reader
def read_server(reply: memoryview) -> VirtualServer:
    """Returns the virtual server in one reply of the dump."""
    service = attribute_map(attribute_map(reply[_GENMSG.size :])[uapi.IPVS_CMD_ATTR_SERVICE])
    key: tuple[int, ...]
    if uapi.IPVS_SVC_ATTR_FWMARK in service:
        key = (uapi.IPVS_SVC_ATTR_AF, uapi.IPVS_SVC_ATTR_FWMARK)
        text = f"fwmark {_U32.unpack(service[uapi.IPVS_SVC_ATTR_FWMARK])[0]}"
    else:
        key = (uapi.IPVS_SVC_ATTR_AF, uapi.IPVS_SVC_ATTR_PROTOCOL, uapi.IPVS_SVC_ATTR_ADDR, uapi.IPVS_SVC_ATTR_PORT)
        text = _address_and_port(service)
    return VirtualServer(text, b"".join(attribute(kind, bytes(service[kind])) for kind in key))


def _address_and_port(service: dict[int, memoryview]) -> str:
    ipv6 = _U16.unpack(service[uapi.IPVS_SVC_ATTR_AF])[0] == socket.AF_INET6
    address = unpack_address(bytes(service[uapi.IPVS_SVC_ATTR_ADDR][: 16 if ipv6 else 4]))
    number = _U16.unpack(service[uapi.IPVS_SVC_ATTR_PROTOCOL])[0]
    protocol = Protocol(number).name if number in set(Protocol) else str(number)
    port = int.from_bytes(service[uapi.IPVS_SVC_ATTR_PORT], "big")
    return f"{protocol} {f'[{address}]' if ipv6 else address}:{port}"
