"""Decides which ClusterIPs are addresses of the service interface, which are local routes over it, and what to change.

Pure. Addresses are visible to people (`ip addr`), but adding one takes time proportional to the number of existing ones (10,000 take 1.2
s, 30,000 11.6 s), and each brings a next hop of its own into the path of the node's connections (net/ipv4/fib_semantics.c,
fib_create_info: routes that differ only in their destination share one). A local route takes the same few microseconds at any number, and
can lead to one address or to a range (text with a prefix length, such as ``fd00:10:96::/112``); a route to a range does not make its
addresses local. An IPv6 address also slows every connection: each choice of a source looks at all IPv6 addresses of the node
(net/ipv6/addrconf.c, ipv6_dev_get_saddr), and masquerading chooses one for each connection.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import NamedTuple

from nodeagent.model.addresses import Family, family_of, pack_address
from nodeagent.wire.netlink.local_routes import LocalRoute

BySource = Mapping[str, frozenset[str]]
"""Destinations of routes by the routes' preferred source; under the empty text those without one."""

ADDRESS_LIMITS: Mapping[Family, int] = {Family.IPV4: 256, Family.IPV6: 0}
"""This many ClusterIPs of a family become addresses; the rest become local routes."""


class Stray(NamedTuple):
    """An address on the interface that cannot be a ClusterIP, because it is not a host address."""

    address: str
    prefix_length: int


class Present(NamedTuple):
    """What the interface carries: canonical addresses with a full-length prefix, routes (to addresses, local; and to ranges), and other
    addresses (strays).

    over_lo: IPv4 addresses whose local route over ``lo`` has precedence over that of the interface, by its source.
    sourced: the IPv6 routes that have a preferred source, by that source.
    """

    addresses: frozenset[str] = frozenset()
    routes: frozenset[str] = frozenset()
    strays: frozenset[Stray] = frozenset()
    over_lo: BySource = MappingProxyType({})
    sourced: BySource = MappingProxyType({})

    @property
    def vips(self) -> frozenset[str]:
        """Every address that is local to the node because of the interface, and every range that is routed over it."""
        return self.addresses | self.routes

    @property
    def ranges(self) -> frozenset[str]:
        """The ranges that are routed over the interface."""
        return frozenset(route for route in self.routes if "/" in route)


class InterfacePlan(NamedTuple):
    """What to change. In the order of the fields, every new address is local before an old one is removed, and no address is local
    without the route that sets its source.

    redundant_routes: routes to what is, or now becomes, an address. sourced: IPv6 routes that get this source: those of `add_routes` are
    created with it, others are replaced. doubled_over_lo: routes over ``lo`` that look like the new ones. source: that of the routes of
    `add_over_lo`. Each part is in numeric order, IPv4 first.
    """

    doubled_over_lo: tuple[LocalRoute, ...] = ()
    add_over_lo: tuple[str, ...] = ()
    add_addresses: tuple[str, ...] = ()
    add_routes: tuple[str, ...] = ()
    redundant_routes: tuple[str, ...] = ()
    sourced: tuple[LocalRoute, ...] = ()
    remove_routes: tuple[str, ...] = ()
    remove_addresses: tuple[str, ...] = ()
    remove_over_lo: tuple[LocalRoute, ...] = ()
    remove_strays: tuple[Stray, ...] = ()
    source: str = ""

    @property
    def gained(self) -> frozenset[str]:
        """The addresses that become local to the node, as canonical text."""
        return frozenset((*self.add_addresses, *self.add_routes)).difference(self.redundant_routes)

    @property
    def lost(self) -> frozenset[str]:
        """The addresses that cease to be local, without strays."""
        return frozenset((*self.remove_addresses, *self.remove_routes))

    @property
    def empty(self) -> bool:
        """Whether there is nothing to change."""
        return not any(self._replace(source=""))


def plan(desired: frozenset[str], present: Present, *, limits: Mapping[Family, int] = ADDRESS_LIMITS) -> InterfacePlan:
    """Returns the smallest change from `present` to exactly `desired` being local, by the rules of `plan_change`.

    Also removes strays, and routes to what is an address as well.
    """
    change = plan_change(present, desired - present.addresses - present.routes, present.vips - desired, limits=limits)
    doubled = present.addresses & present.routes & desired
    return change._replace(
        redundant_routes=tuple(in_order(doubled.union(change.redundant_routes))),
        remove_strays=tuple(sorted(present.strays)),
    )


def plan_change(
    present: Present, add: AbstractSet[str], remove: AbstractSet[str], *, limits: Mapping[Family, int] = ADDRESS_LIMITS
) -> InterfacePlan:
    """Returns the smallest change that makes `add` local and `remove` not local (an address in both is local afterwards).

    What is programmed keeps the form it has. New ones become addresses, in numeric order, while there is room for
    them under the limit of their family, then routes. One exception turns a route into an address: the kernel flushes
    all IPv4 routes over an interface that loses its last IPv4 address (net/ipv4/fib_frontend.c, fib_inetaddr_event),
    so one of them becomes an address before the last other address is removed.
    """
    leaving_addresses = present.addresses.intersection(remove).difference(add)
    leaving_routes = present.routes.intersection(remove).difference(add)
    new = {address for address in add if address not in present.addresses and address not in present.routes}
    add_addresses: list[str] = []
    add_routes: list[str] = []
    for family in Family:
        candidates = in_order(address for address in new if family_of(address) is family)
        if candidates:
            used = sum(1 for address in present.addresses if family_of(address) is family)
            leaving = sum(1 for address in leaving_addresses if family_of(address) is family)
            room = max(0, limits[family] - used + leaving)
            addresses = [address for address in candidates if "/" not in address][:room]
            taken = set(addresses)
            add_addresses += addresses
            add_routes += [address for address in candidates if address not in taken]
    anchor: list[str] = []
    if _last_ipv4_goes(present, leaving_addresses, add_addresses):
        staying = [route for route in present.routes if _is_ipv4(route) and route not in leaving_routes]
        anchor = in_order(staying)[:1] or [route for route in add_routes if _is_ipv4(route)][:1]
    return InterfacePlan(
        add_addresses=(*anchor, *add_addresses),
        add_routes=tuple(route for route in add_routes if route not in anchor),
        redundant_routes=tuple(route for route in anchor if route in present.routes),
        remove_routes=tuple(in_order(leaving_routes)),
        remove_addresses=tuple(in_order(leaving_addresses)),
    )


def apply_plan(present: Present, plan: InterfacePlan) -> Present:
    """Returns what the interface carries after every step of `plan` succeeded."""
    gone = {*plan.redundant_routes, *plan.remove_routes}
    changing = gone.union(route.destination for route in plan.sourced)
    before = [LocalRoute(one, source) for source, routes in present.sourced.items() for one in routes & changing]
    return Present(
        (present.addresses | set(plan.add_addresses)) - set(plan.remove_addresses),
        (present.routes | set(plan.add_routes)) - gone,
        present.strays - set(plan.remove_strays),
        _regrouped(
            present.over_lo, (*plan.doubled_over_lo, *plan.remove_over_lo), {plan.source: frozenset(plan.add_over_lo)}
        ),
        _regrouped(present.sourced, before, by_source(route for route in plan.sourced if route.source)),
    )


def by_source(routes: Iterable[LocalRoute]) -> BySource:
    """Groups destinations by the source of their routes."""
    found: dict[str, set[str]] = {}
    for destination, source in routes:
        if (destinations := found.get(source)) is None:
            destinations = found[source] = set()
        destinations.add(destination)
    return {source: frozenset(destinations) for source, destinations in found.items()}


def _regrouped(before: BySource, removed: Iterable[LocalRoute], added: BySource) -> BySource:
    groups = dict(before)
    for source, destinations in by_source(removed).items():
        groups[source] = groups.get(source, frozenset()) - destinations
    for source, destinations in added.items():
        if destinations:
            groups[source] = groups.get(source, frozenset()) | destinations
    return {source: destinations for source, destinations in groups.items() if destinations}


def in_order(addresses: Iterable[str]) -> list[str]:
    """Returns addresses in numeric order, IPv4 before IPv6."""
    return sorted(addresses, key=_number)


def _last_ipv4_goes(present: Present, leaving: AbstractSet[str], new: list[str]) -> bool:
    if not any(map(_is_ipv4, leaving)) or any(map(_is_ipv4, new)):
        return False
    return not any(_is_ipv4(address) for address in present.addresses if address not in leaving)


def _is_ipv4(address: str) -> bool:
    return family_of(address) is Family.IPV4


def _number(address: str) -> bytes:
    first, _, length = address.partition("/")
    packed = pack_address(first)
    return bytes([len(packed)]) + packed + bytes([int(length or 0)])
