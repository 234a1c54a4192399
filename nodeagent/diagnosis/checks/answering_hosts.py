"""Asks by ARP which hosts answer for the addresses that this node needs: its own ones, its gateways, and its pods."""

import socket
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from ipaddress import IPv4Network, ip_address, ip_network
from itertools import islice
from pathlib import Path
from typing import Self

from nodeagent.diagnosis.checks.duplicate_addresses import AnsweringHosts
from nodeagent.model.addresses import Family, family_of
from nodeagent.wire.arp import pack_probe, read_reply
from nodeagent.wire.netlink import rtnetlink
from nodeagent.wire.netlink.socket import NetlinkSocket, retry

LONGEST_SECONDS = 0.25
"""The time limit for all answers; hosts of one network answer within some milliseconds."""
LINGER_SECONDS = 0.1
"""This time is left for a second host, after all other hosts have answered."""
MOST = 128
"""The number of addresses that are asked for."""
MOST_PACKETS = 10_000
"""Others' requests and answers are read, too, however many there are."""
STATISTICS = Path("/proc/thread-self/net")
_ARP = 0x0806
_EVERYBODY = b"\xff" * 6
_BUFFER_BYTES = 256
_IS_COMPLETE = 0x2
"""The flag ATF_COM of an entry in /proc/net/arp."""


class HostsAsked:
    """Requests that have been sent: answers arrive while the caller does something else.

    wanted: whether to ask at all. No host is asked without CAP_NET_RAW.
    """

    def __init__(self, *, wanted: bool = True) -> None:
        self._hosts: dict[tuple[str, str], set[bytes]] = {}
        self._ours: set[bytes] = set()
        self._own: set[tuple[str, str]] = set()
        self._gateways: set[tuple[str, str]] = set()
        self._socket: socket.socket | None = None
        self._sent = time.monotonic()
        if wanted:
            with suppress(OSError):
                self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ARP))
                self._send(self._socket)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._socket is not None:
            self._socket.close()

    def answers(self, pod_cidrs: Collection[str]) -> tuple[AnsweringHosts, ...]:
        """Returns for each address of this node, its gateways and its pods the hosts that answer; waits for them."""
        pods = [network for one in pod_cidrs if isinstance(network := ip_network(one), IPv4Network)]
        for interface, address in [*self._hosts]:
            needed = (interface, address) in self._own | self._gateways
            if not needed and not any(ip_address(address) in network for network in pods):
                del self._hosts[interface, address]
        if self._socket is not None:
            self._receive(self._socket)
        return tuple(
            AnsweringHosts(*key, key in self._own, tuple(sorted(one.hex(":") for one in hosts - self._ours)))
            for key, hosts in self._hosts.items()
        )

    def _send(self, raw: socket.socket) -> None:
        with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
            links = retry(lambda: [rtnetlink.read_link(body) for body in netlink.dump(rtnetlink.get_links())])
            found = retry(lambda: [rtnetlink.read_address(body) for body in netlink.dump(rtnetlink.get_addresses())])
        self._ours = {one.hardware for one in links}
        hardware = {one.name: one.hardware for one in links if one.up and one.carrier and one.resolves and one.hardware}
        names = {one.ifindex: one.name for one in links}
        self._own = {
            (names[one.ifindex], one.address)
            for one in found
            if one and one.ifindex in names and family_of(one.address) is Family.IPV4
        }
        self._gateways = set(_gateways())
        wanted = dict.fromkeys([*sorted(self._own), *sorted(self._gateways), *_neighbours()])
        for interface, address in islice((one for one in wanted if one[0] in hardware), MOST):
            with suppress(OSError):  # an interface may have gone
                raw.sendto(pack_probe(address, hardware[interface]), (interface, _ARP, 0, 0, _EVERYBODY))
                self._hosts[interface, address] = set()

    def _receive(self, raw: socket.socket) -> None:
        silent = self._hosts.keys() - self._own
        end = self._sent + (LONGEST_SECONDS if silent else LINGER_SECONDS) if self._hosts else 0.0
        for _ in range(MOST_PACKETS):
            raw.settimeout(max(0.0, end - time.monotonic()))
            try:
                packet, (interface, *_) = raw.recvfrom(_BUFFER_BYTES)
            except (TimeoutError, BlockingIOError):
                return
            reply = read_reply(packet)
            if reply is None or (interface, reply.address) not in self._hosts:
                continue
            self._hosts[interface, reply.address].add(reply.hardware)
            silent.discard((interface, reply.address))
            if not silent:
                end = min(end, self._sent + LINGER_SECONDS)


def _gateways() -> Iterator[tuple[str, str]]:
    """Yields the gateways of the main table, with the interfaces that lead to them.

    Columns of /proc/net/route: interface, destination, gateway …; addresses in the byte order of the host.
    """
    for name, _, gateway, *_ in _rows("route"):
        if address := int.from_bytes(bytes.fromhex(gateway), sys.byteorder):
            yield name, str(ip_address(address))


def _neighbours() -> Iterator[tuple[str, str]]:
    """Yields the neighbours that this node knows, with their interface.

    Columns of /proc/net/arp: address, type of hardware, flags, hardware address, mask, interface.
    """
    for address, _, flags, _, _, name in _rows("arp"):
        if int(flags, 16) & _IS_COMPLETE:
            yield name, address


def _rows(name: str) -> list[list[str]]:
    try:
        return [line.split() for line in (STATISTICS / name).read_text().splitlines()[1:]]
    except OSError:
        return []
