"""UDP flows that the kernel tracks in a namespace, and one pass of the cleaner over them."""

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from nodeagent.model.addresses import Family, pack_address
from nodeagent.model.addresses import Protocol as Transport
from nodeagent.model.frontend import UdpPort
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.model.reports import CleaningReport
from nodeagent.proxy.dataplane.conntrack_cleaner import ConntrackCleaner
from nodeagent.wire.netlink.framing import Request, attribute, nested
from nodeagent.wire.netlink.socket import NetlinkSocket
from nodeagent.wire.netlink.uapi.netlink import NETLINK_NETFILTER, NLM_F_CREATE, NLM_F_EXCL

T = TypeVar("T")

NODE = "192.0.2.1"
VIP, VIP6 = "10.96.0.1", "fd00:96::1"
POD, GONE = ("10.244.0.5", 5353), ("10.244.0.6", 5353)
POD6, GONE6 = ("fd00:244::5", 5353), ("fd00:244::6", 5353)


class Namespace(Protocol):
    """The fixture of conftest.py."""

    def run(self, work: Callable[[], T]) -> T: ...

    def run_unprivileged(self, work: Callable[[], T]) -> T: ...

    def shell(self, command: str) -> str: ...


class Notebook:
    """A listener that keeps what it receives."""

    def __init__(self) -> None:
        self.reports: list[CleaningReport] = []

    def conntrack_cleaned(self, report: CleaningReport) -> None:
        self.reports.append(report)


def udp_port(
    *addresses: str,
    name: str = "dns",
    node_port: int = 0,
    serving: tuple[tuple[str, int], ...] = (POD,),
    family: Family = Family.IPV4,
) -> UdpPort:
    service_port = ServicePortName(ObjectKey("default", name), "", Transport.UDP)
    return UdpPort(service_port, family, addresses, 53, node_port, frozenset(serving))


def track(client: tuple[str, int], to: tuple[str, int], answered_by: tuple[str, int], *, protocol: int = 17) -> Request:
    """The message that makes the kernel track a flow (IPCTNL_MSG_CT_NEW)."""
    first = 3 if ":" in client[0] else 1

    def direction(kind: int, source: tuple[str, int], destination: tuple[str, int]) -> bytes:
        addresses = [attribute(first, pack_address(source[0])), attribute(first + 1, pack_address(destination[0]))]
        ports = [attribute(2, struct.pack(">H", source[1])), attribute(3, struct.pack(">H", destination[1]))]
        return nested(kind, nested(1, *addresses), nested(2, attribute(1, bytes([protocol])), *ports))

    family = socket.AF_INET6 if first == 3 else socket.AF_INET
    confirmed_and_answered = attribute(3, struct.pack(">I", 0xA))
    body = struct.pack(">BBH", family, 0, 0) + direction(1, client, to) + direction(2, answered_by, client)
    body += confirmed_and_answered + attribute(7, struct.pack(">I", 3600))
    if protocol == socket.IPPROTO_TCP:
        body += nested(4, nested(1, attribute(1, b"\x03")))
    return Request(1 << 8, NLM_F_CREATE | NLM_F_EXCL, body)


def given_flows(namespace: Namespace, flows: Iterator[Request] | list[Request]) -> None:
    def insert() -> None:
        with NetlinkSocket(NETLINK_NETFILTER) as netlink:
            assert netlink.perform(flows) == []

    namespace.run(insert)


def tracked(namespace: Namespace, family: str = "ipv4") -> set[tuple[str, str, int]]:
    """(protocol, original destination, client port) of all flows, as the conntrack tool lists them."""
    found = set()
    for line in namespace.shell(f"conntrack -L -f {family} 2>/dev/null").splitlines():
        words = line.split()
        fields = [word.split("=", 1) for word in words if "=" in word]
        destination = next(value for key, value in fields if key == "dst")
        found.add((words[0], destination, int(next(value for key, value in fields if key == "sport"))))
    return found


def clean(namespace: Namespace, *ports: UdpPort, local: tuple[str, ...] = (NODE,)) -> list[CleaningReport]:
    async def one_pass() -> list[CleaningReport]:
        cleaner = ConntrackCleaner(Notebook(), local_addresses=local)
        cleaner.submit(ports)
        return await cleaner.clean()

    return namespace.run(lambda: asyncio.run(one_pass()))
