"""What the kernel has of the service interface."""

import errno
import socket
from collections.abc import Set as AbstractSet
from pathlib import Path

from nodeagent.dataplane.interface_claim import MARK, objection
from nodeagent.dataplane.interface_deviation import InterfaceFound
from nodeagent.dataplane.interface_plan import Present, Stray
from nodeagent.model.addresses import Family, family_of
from nodeagent.netlink import rtnetlink
from nodeagent.netlink.socket import NetlinkSocket, read_consistently

_IPV6 = Path("/proc/sys/net/ipv6")


def read_interface(name: str) -> InterfaceFound:
    """The interface of this name with all it carries; nothing of one that is not ours. Raises OSError."""
    with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
        link, lo = find_link(netlink, name), lo_is_up(netlink)
        if link is None:
            return InterfaceFound(None, None, Present(), _IPV6.exists(), lo)
        why = why_not_ours(netlink, link)
        present = read_present(netlink, link.ifindex) if why is None else Present()
        return InterfaceFound(link, why, present, ipv6_missing(name) is None, lo)


def why_not_ours(netlink: NetlinkSocket, link: rtnetlink.Link) -> str | None:
    """Why an interface is not the agent's, as what follows "it"; None: it is."""
    ports = read_consistently(lambda: read_ports(netlink, link.ifindex)) if link.kind == "bridge" else []
    marked = link.alias == MARK
    addresses = [] if marked else read_consistently(lambda: read_addresses(netlink, link.ifindex))
    return objection(link, ports, addresses)


def find_link(netlink: NetlinkSocket, name: str) -> rtnetlink.Link | None:
    """The interface of this name; None: there is none."""
    try:
        return rtnetlink.read_link(netlink.ask(rtnetlink.get_link(name)))
    except OSError as error:
        if error.errno == errno.ENODEV:
            return None
        raise


def lo_is_up(netlink: NetlinkSocket) -> bool:
    """Whether the kernel takes routes over ``lo``."""
    lo = find_link(netlink, "lo")
    return lo is not None and lo.up


def read_ports(netlink: NetlinkSocket, index: int) -> list[str]:
    """The interfaces that are part of a bridge, by name."""
    links = (rtnetlink.read_link(body) for body in netlink.dump(rtnetlink.get_ports(index)))
    return sorted(link.name for link in links if link.master == index)


def read_addresses(netlink: NetlinkSocket, index: int) -> list[rtnetlink.InterfaceAddress]:
    """All addresses of an interface, both families."""
    found = (rtnetlink.read_address(body) for body in netlink.dump(rtnetlink.get_addresses(index)))
    return [address for address in found if address is not None and address.ifindex == index]


def ipv6_missing(name: str) -> str | None:
    """Why the interface can carry no IPv6 address; None: it can."""
    switch = Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6")
    try:
        return f"{switch} is 1" if switch.read_text().strip() == "1" else None
    except FileNotFoundError:
        return "the kernel runs without IPv6"


def read_present(netlink: NetlinkSocket, index: int) -> Present:
    """The addresses and routes of an interface. Raises OSError."""
    return read_consistently(lambda: _present_once(netlink, index))


def _present_once(netlink: NetlinkSocket, index: int) -> Present:
    addresses, routes, strays = set(), set(), set()
    for found in read_addresses(netlink, index):
        if found.prefix_length == family_of(found.address).address_length * 8:
            addresses.add(found.address)
        else:
            strays.add(Stray(found.address, found.prefix_length))
    dumps = [*(rtnetlink.get_local_routes(family, index) for family in Family), rtnetlink.get_range_routes(index)]
    for dump in dumps:
        try:
            for body in netlink.dump(dump):
                if (route := rtnetlink.read_local_route(body, index)) is not None:
                    routes.add(route)
        except FileNotFoundError:  # a namespace in which nothing ever was local has no such table yet
            continue
    over_lo = _routes_over_lo(netlink, index, addresses | routes)
    return Present(frozenset(addresses), frozenset(routes), frozenset(strays), over_lo)


def read_routes_over_lo(netlink: NetlinkSocket) -> frozenset[str]:
    """The addresses of routes over ``lo`` that an agent left behind, without the interface that it made them for."""
    return read_consistently(lambda: _routes_over_lo(netlink, None, frozenset()))


def _routes_over_lo(netlink: NetlinkSocket, index: int | None, own: AbstractSet[str]) -> frozenset[str]:
    """The addresses of our routes over ``lo``: to those that interface `index` carries, and those that no interface does."""
    try:
        found = {rtnetlink.read_route_over_lo(body) for body in netlink.dump(rtnetlink.get_routes_over_lo())}
    except FileNotFoundError:  # a namespace in which nothing ever was local has no such table yet
        return frozenset()
    over_lo = frozenset(address for address in found if address is not None)
    astray = over_lo - own
    return over_lo - _held_elsewhere(netlink, index, astray) if astray else over_lo


def _held_elsewhere(netlink: NetlinkSocket, index: int | None, among: AbstractSet[str]) -> set[str]:
    """Those that belong to the service interface of another agent: local by an interface that is neither `index` nor ``lo``."""
    held = {
        found.address
        for body in netlink.dump(rtnetlink.get_addresses())
        if (found := rtnetlink.read_address(body)) is not None and found.ifindex != index
    }
    for body in netlink.dump(rtnetlink.get_local_routes(Family.IPV4)):
        route = rtnetlink.read_local_route(body, None)
        if route is not None and (index is None or rtnetlink.read_local_route(body, index) is None):
            held.add(route)
    return held & among
