"""Reads the service interface from the kernel."""

import errno
import socket
from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet
from pathlib import Path

from nodeagent.model.addresses import Family, family_of
from nodeagent.proxy.dataplane.interface_claim import MARK, objection
from nodeagent.proxy.dataplane.interface_deviation import InterfaceFound
from nodeagent.proxy.dataplane.interface_plan import BySource, Present, Stray
from nodeagent.proxy.dataplane.interface_sources import Sources, preferred_source
from nodeagent.wire.netlink import local_routes, rtnetlink
from nodeagent.wire.netlink.framing import Request
from nodeagent.wire.netlink.route_lookup import look_up_route, read_found_route
from nodeagent.wire.netlink.rtnetlink import InterfaceAddress
from nodeagent.wire.netlink.socket import NetlinkSocket, retry
from nodeagent.wire.netlink.uapi.rtnetlink import RTN_LOCAL, RTN_UNICAST

_IPV6 = Path("/proc/sys/net/ipv6")
_ELSEWHERE = {Family.IPV4: "198.41.0.4", Family.IPV6: "2001:503:ba3e::2:30"}
"""Addresses that are certainly not in the networks of a node (a.root-servers.net). Only routes to them are looked up; nothing is sent."""


def read_interface(name: str, node_addresses: Collection[str] = ()) -> InterfaceFound:
    """Returns the interface of this name with all it carries; without contents if it is not ours. node_addresses: as in
    `read_sources`. Raises OSError."""
    with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
        link, lo = find_link(netlink, name), lo_is_up(netlink)
        if link is None:
            return InterfaceFound(None, None, Present(), _IPV6.exists(), lo)
        sources = read_sources(netlink, link.ifindex, node_addresses)
        why = why_not_ours(netlink, link)
        present = read_present(netlink, link.ifindex) if why is None else Present()
        return InterfaceFound(link, why, present, ipv6_missing(name) is None, lo, sources)


def why_not_ours(netlink: NetlinkSocket, link: rtnetlink.Link) -> str | None:
    """Returns why an interface is not the agent's, as text to follow "it"; None: it is."""
    ports = retry(lambda: read_ports(netlink, link.ifindex)) if link.kind == "bridge" else []
    marked = link.alias == MARK
    addresses = [] if marked else retry(lambda: read_addresses(netlink, link.ifindex))
    return objection(link, ports, addresses)


def find_link(netlink: NetlinkSocket, name: str) -> rtnetlink.Link | None:
    """Returns the interface of this name; None: it does not exist."""
    try:
        return rtnetlink.read_link(netlink.ask(rtnetlink.get_link(name)))
    except OSError as error:
        if error.errno == errno.ENODEV:
            return None
        raise


def read_sources(netlink: NetlinkSocket, index: int, node_addresses: Collection[str]) -> Sources:
    """Returns the source that the node's connections to ClusterIPs shall have in each family; empty if no address is suitable.

    index: the service interface, whose addresses do not count. node_addresses: by which the node is known, the best first.
    """
    usable = retry(lambda: _usable_addresses(netlink, index))
    return {
        family: preferred_source(
            (one for one in node_addresses if family_of(one) is family), usable, _source_elsewhere(netlink, family)
        )
        for family in Family
    }


def _usable_addresses(netlink: NetlinkSocket, index: int) -> frozenset[str]:
    """Returns the addresses of the node that the kernel accepts as the source of a route."""
    found = ((rtnetlink.read_address(body), body) for body in netlink.dump(rtnetlink.get_addresses()))
    return frozenset(
        address.address
        for address, body in found
        if address is not None and address.ifindex != index and rtnetlink.may_be_source(body)
    )


def _source_elsewhere(netlink: NetlinkSocket, family: Family) -> str:
    try:
        route = read_found_route(netlink.ask(look_up_route(_ELSEWHERE[family])))
    except OSError:  # there is no route to it, or the kernel lacks the family
        return ""
    return route.source if route.kind == RTN_UNICAST else ""


def lo_is_up(netlink: NetlinkSocket) -> bool:
    """Returns whether the kernel accepts routes over ``lo``."""
    lo = find_link(netlink, "lo")
    return lo is not None and lo.up


def read_ports(netlink: NetlinkSocket, index: int) -> list[str]:
    """Returns the names of the interfaces that are ports of a bridge, sorted."""
    links = (rtnetlink.read_link(body) for body in netlink.dump(rtnetlink.get_ports(index)))
    return sorted(link.name for link in links if link.master == index)


def read_addresses(netlink: NetlinkSocket, index: int) -> list[InterfaceAddress]:
    """Returns all addresses of an interface, both families."""
    found = (rtnetlink.read_address(body) for body in netlink.dump(rtnetlink.get_addresses(index)))
    return [address for address in found if address is not None and address.ifindex == index]


def ipv6_missing(name: str) -> str | None:
    """Returns why the interface cannot carry IPv6 addresses; None: it can."""
    switch = Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6")
    try:
        return f"{switch} is 1" if switch.read_text().strip() == "1" else None
    except FileNotFoundError:
        return "the kernel runs without IPv6"


def is_routed(netlink: NetlinkSocket, route: str, index: int) -> bool:
    """Returns whether the kernel has a route of ours: it delivers the first address here, or sends it over the interface."""
    try:
        found = read_found_route(netlink.ask(look_up_route(route.partition("/")[0])))
    except OSError:
        return False
    return found.kind == RTN_LOCAL or found.interface == index


def read_present(netlink: NetlinkSocket, index: int) -> Present:
    """Returns the addresses and routes of an interface. Raises OSError."""
    return retry(lambda: _present_once(netlink, index))


def read_carried(name: str, family: Family) -> frozenset[str]:
    """Returns what of `Present.vips` the interface of this name carries in one family; nothing if it is not ours. Raises OSError."""
    with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
        link = find_link(netlink, name)
        if link is None or why_not_ours(netlink, link) is not None:
            return frozenset()
        index = link.ifindex
        addresses = retry(lambda: read_addresses(netlink, index))
        routes = retry(lambda: _static_routes(netlink, index, (family,)))
    alone = {one.address for one in addresses if _is_alone(one) and family_of(one.address) is family}
    return frozenset(alone.union(*routes.values()))


def _is_alone(one: InterfaceAddress) -> bool:
    """Returns whether its prefix has the full length."""
    return one.prefix_length == family_of(one.address).address_length * 8


def _static_routes(netlink: NetlinkSocket, index: int, families: Iterable[Family]) -> dict[str, set[str]]:
    """Returns the destinations of the static routes over an interface, local ones and those to ranges, which only IPv6 has, by their
    source."""
    dumps = []
    for family in families:
        dumps.append(rtnetlink.get_local_routes(family, index))
        if family is Family.IPV6:
            dumps.append(rtnetlink.get_range_routes(index))
    return _dumped(netlink, dumps, lambda datagram: local_routes.local_routes_in(datagram, index))


def _dumped(
    netlink: NetlinkSocket, dumps: Iterable[Request], read: Callable[[memoryview], dict[str, list[str]]]
) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for dump in dumps:
        try:
            for datagram in netlink.dump_datagrams(dump):
                for source, destinations in read(datagram).items():
                    found.setdefault(source, set()).update(destinations)
        except FileNotFoundError:  # a namespace in which nothing ever was local has no such table yet
            continue
    return found


def _present_once(netlink: NetlinkSocket, index: int) -> Present:
    addresses, strays = set(), set()
    for one in read_addresses(netlink, index):
        if _is_alone(one):
            addresses.add(one.address)
        else:
            strays.add(Stray(one.address, one.prefix_length))
    routes = _static_routes(netlink, index, Family)
    destinations = frozenset[str]().union(*routes.values())
    over_lo = _routes_over_lo(netlink, index, destinations | addresses)
    sourced = {source: frozenset(to) for source, to in routes.items() if ":" in source}
    return Present(frozenset(addresses), destinations, frozenset(strays), over_lo, sourced)


def read_routes_over_lo(netlink: NetlinkSocket) -> BySource:
    """Returns the routes over ``lo`` that an agent left behind without its interface, by their source."""
    return retry(lambda: _routes_over_lo(netlink, None, frozenset()))


def _routes_over_lo(netlink: NetlinkSocket, index: int | None, own: AbstractSet[str]) -> BySource:
    """Returns our routes over ``lo`` by their source: those to what interface `index` carries, and to what no interface carries."""
    over_lo = _dumped(netlink, [rtnetlink.get_routes_over_lo()], local_routes.routes_over_lo_in)
    astray = set[str]().union(*over_lo.values()) - own
    elsewhere = _held_elsewhere(netlink, index, astray) if astray else set()
    return {source: frozenset(here) for source, to in over_lo.items() if (here := to - elsewhere)}


def _held_elsewhere(netlink: NetlinkSocket, index: int | None, among: AbstractSet[str]) -> set[str]:
    """Returns the addresses that belong to the service interface of another agent: local by an interface that is neither `index` nor
    ``lo``."""
    held = {
        found.address
        for body in netlink.dump(rtnetlink.get_addresses())
        if (found := rtnetlink.read_address(body)) is not None and found.ifindex != index
    }
    for body in netlink.dump(rtnetlink.get_local_routes(Family.IPV4)):
        route = local_routes.read_local_route(body, None)
        if route is not None and (index is None or local_routes.read_local_route(body, index) is None):
            held.add(route.destination)
    return held & among
