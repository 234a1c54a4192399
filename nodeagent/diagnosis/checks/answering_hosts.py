"""Asks by ARP which hosts answer for the addresses that this node needs: its own ones, its gateways, and its pods."""

import socket
import sys
import time
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network, ip_address, ip_network
from itertools import islice
from pathlib import Path

from nodeagent.diagnosis.checks.node_facts import AnsweringHosts
from nodeagent.model.addresses import Family, family_of
from nodeagent.wire.arp import pack_probe, read_reply
from nodeagent.wire.netlink import rtnetlink
from nodeagent.wire.netlink.socket import NetlinkSocket, retried

LONGEST_SECONDS = 0.25
"""The time limit for all answers; hosts of one network answer within some milliseconds."""
LINGER_SECONDS = 0.1
"""This time is left for a second host, after all other hosts have answered."""
MOST = 128
"""The number of addresses that are asked for."""
_ARP = 0x0806
_EVERYBODY = b"\xff" * 6
_BUFFER_BYTES = 256
_IS_COMPLETE = 0x2
"""The flag ATF_COM of an entry in /proc/net/arp."""
Asked = Mapping[tuple[str, str], bool]
"""(Interface, address), with whether the address is one of this node."""


def read_answering_hosts(statistics: Path, pod_cidrs: tuple[str, ...]) -> tuple[AnsweringHosts, ...]:
    """Returns for each address the hosts that answer. statistics: the directory of net in /proc. Empty if hosts cannot be asked, as without
    CAP_NET_RAW.

    Raises OSError if the kernel does not answer.
    """
    with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
        links = retried(lambda: [rtnetlink.read_link(body) for body in netlink.dump(rtnetlink.get_links())])
        found = retried(lambda: [rtnetlink.read_address(body) for body in netlink.dump(rtnetlink.get_addresses())])
    hardware = {one.name: one.hardware for one in links if one.up and one.carrier and one.resolves and one.hardware}
    names = {one.ifindex: one.name for one in links}
    own = [(names[one.ifindex], one.address) for one in found if one and family_of(one.address) is Family.IPV4]
    others = [*_gateways(statistics), *_pods(statistics, pod_cidrs)]
    wanted = dict.fromkeys(others, False) | dict.fromkeys(own, True)
    asked = dict(islice(((key, mine) for key, mine in reversed(wanted.items()) if key[0] in hardware), MOST))
    try:
        answers = _ask(asked, hardware) if asked else {}
    except OSError:
        return ()
    ours = {one.hardware for one in links}
    return tuple(
        AnsweringHosts(
            interface, address, asked[interface, address], tuple(sorted(each.hex(":") for each in hosts - ours))
        )
        for (interface, address), hosts in answers.items()
    )


def _gateways(statistics: Path) -> Iterator[tuple[str, str]]:
    """Yields the gateways of the main table, with the interfaces that lead to them.

    Columns of /proc/net/route: interface, destination, gateway …; addresses in the byte order of the host.
    """
    for name, _, gateway, *_ in _rows(statistics / "route"):
        if address := int.from_bytes(bytes.fromhex(gateway), sys.byteorder):
            yield name, str(ip_address(address))


def _pods(statistics: Path, pod_cidrs: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yields the neighbours of this node that have an address of pods.

    Columns of /proc/net/arp: address, type of hardware, flags, hardware address, mask, interface.
    """
    ranges = [network for one in pod_cidrs if isinstance(network := ip_network(one), IPv4Network)]
    for address, _, flags, _, _, name in _rows(statistics / "arp"):
        if int(flags, 16) & _IS_COMPLETE and any(ip_address(address) in network for network in ranges):
            yield name, address


def _rows(path: Path) -> list[list[str]]:
    try:
        return [line.split() for line in path.read_text().splitlines()[1:]]
    except OSError:
        return []


def _ask(asked: Asked, hardware: Mapping[str, bytes]) -> dict[tuple[str, str], set[bytes]]:
    """Returns the hardware addresses that answer. Raises OSError."""
    answers: dict[tuple[str, str], set[bytes]] = {one: set() for one in asked}
    silent = {one for one, mine in asked.items() if not mine}
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ARP)) as raw:
        for interface, address in asked:
            raw.sendto(pack_probe(address, hardware[interface]), (interface, _ARP, 0, 0, _EVERYBODY))
        end = time.monotonic() + (LONGEST_SECONDS if silent else LINGER_SECONDS)
        while (left := end - time.monotonic()) > 0:
            raw.settimeout(left)
            try:
                packet, (interface, *_) = raw.recvfrom(_BUFFER_BYTES)
            except TimeoutError:
                break
            reply = read_reply(packet)
            if reply is None or (interface, reply.address) not in answers:
                continue
            answers[interface, reply.address].add(reply.hardware)
            if (interface, reply.address) in silent:
                silent.discard((interface, reply.address))
                end = end if silent else min(end, time.monotonic() + LINGER_SECONDS)
    return answers
