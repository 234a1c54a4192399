"""Virtual servers as the kernel dumps them (linux/ip_vs.h), and how they are named and deleted again."""

import socket
import struct

import pytest

from nodeagent.model.addresses import pack_address
from nodeagent.proxy.dataplane.kube_proxy.ipvs_messages import delete_request, read_server, servers_request
from nodeagent.wire.netlink.framing import attribute, nested

FAMILY = 31


def u16(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=H", value))


def of_address(family: int, protocol: int, address: str, port: int) -> bytes:
    packed = pack_address(address).ljust(16, b"\0")
    return u16(1, family) + u16(2, protocol) + attribute(3, packed) + attribute(4, struct.pack("!H", port))


def of_mark(mark: int) -> bytes:
    return u16(1, socket.AF_INET) + attribute(5, struct.pack("=I", mark))


SCHEDULER = attribute(6, b"rr\0")
SERVERS = pytest.mark.parametrize(
    ("key", "text"),
    [
        pytest.param(of_address(socket.AF_INET, 6, "10.96.0.1", 443), "TCP 10.96.0.1:443", id="IPv4"),
        pytest.param(of_address(socket.AF_INET6, 17, "fd00:10:96::a", 53), "UDP [fd00:10:96::a]:53", id="IPv6"),
        pytest.param(of_address(socket.AF_INET, 132, "192.168.0.2", 30100), "SCTP 192.168.0.2:30100", id="node port"),
        pytest.param(of_address(socket.AF_INET, 51, "192.0.2.1", 0), "51 192.0.2.1:0", id="another protocol"),
        pytest.param(of_mark(77), "fwmark 77", id="firewall mark"),
    ],
)


@SERVERS
def test_a_server_is_named_for_people(key: bytes, text: str) -> None:
    assert read_server(memoryview(b"\1\1\0\0" + nested(1, key, SCHEDULER))).text == text


@SERVERS
def test_a_server_is_deleted_by_the_attributes_that_identify_it(key: bytes, text: str) -> None:
    server = read_server(memoryview(b"\1\1\0\0" + nested(1, key, SCHEDULER)))

    request = delete_request(FAMILY, server)

    assert (request.type, request.body) == (FAMILY, b"\3\1\0\0" + nested(1, key))


def test_all_servers_are_asked_for_in_one_dump() -> None:
    request = servers_request(FAMILY)

    assert (request.type, request.flags & 0x300, request.body) == (FAMILY, 0x300, b"\4\1\0\0")
