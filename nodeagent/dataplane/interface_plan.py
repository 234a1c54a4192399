"""Which ClusterIPs are addresses of the service interface, which are local routes over it, and what to change.

Pure. An address is seen by people (`ip addr`), but inserting one takes time proportional to the number already there
(10,000 take 1.2 s, 30,000 11.6 s), and each brings a next hop of its own into the path of the node's connections
(net/ipv4/fib_semantics.c, fib_create_info: routes that differ in nothing but their destination share one). A local route
takes the same few microseconds at any number, and leads to a range of addresses as well as to one (text with a prefix length, such as
``fd00:10:96::/112``): such a one does not make them local. An IPv6 address costs every connection besides: whoever chooses a source
looks at all IPv6 addresses of the node (net/ipv6/addrconf.c, ipv6_dev_get_saddr), and masquerading chooses one for each
connection.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from nodeagent.model.addresses import Family, family_of, pack_address

ADDRESS_LIMITS: Mapping[Family, int] = {Family.IPV4: 256, Family.IPV6: 0}
"""ClusterIPs of a family that become addresses; the rest become local routes."""


class Stray(NamedTuple):
    """An address on the interface that no ClusterIP can have put there: it is not a host address."""

    address: str
    prefix_length: int


class Present(NamedTuple):
    """What the interface carries: canonical addresses with a full-length prefix, routes (to addresses, local; and to ranges), and the
    rest.

    over_lo: IPv4 addresses to which a local route over ``lo`` comes before that of the interface.
    """

    addresses: frozenset[str] = frozenset()
    routes: frozenset[str] = frozenset()
    strays: frozenset[Stray] = frozenset()
    over_lo: frozenset[str] = frozenset()

    @property
    def vips(self) -> frozenset[str]:
        """Every address that is local to the node because of the interface, and every range that is routed over it."""
        return self.addresses | self.routes

    @property
    def ranges(self) -> frozenset[str]:
        """The ranges that are routed over it."""
        return frozenset(route for route in self.routes if "/" in route)


class InterfacePlan(NamedTuple):
    """What to change. Done in the order of the fields, every address is local before another ceases to be.

    redundant_routes: routes to what is, or now becomes, an address. Each part is in numeric order, IPv4 first.
    """

    add_addresses: tuple[str, ...] = ()
    add_routes: tuple[str, ...] = ()
    redundant_routes: tuple[str, ...] = ()
    add_over_lo: tuple[str, ...] = ()
    remove_over_lo: tuple[str, ...] = ()
    remove_routes: tuple[str, ...] = ()
    remove_addresses: tuple[str, ...] = ()
    remove_strays: tuple[Stray, ...] = ()

    @property
    def gained(self) -> frozenset[str]:
        """The addresses that become local to the node, as canonical text."""
        return frozenset((*self.add_addresses, *self.add_routes)).difference(self.redundant_routes)

    @property
    def lost(self) -> frozenset[str]:
        """What is local no longer, strays left aside."""
        return frozenset((*self.remove_addresses, *self.remove_routes))

    @property
    def empty(self) -> bool:
        """Whether there is nothing to change."""
        return not any(self)


def plan(desired: frozenset[str], present: Present, *, limits: Mapping[Family, int] = ADDRESS_LIMITS) -> InterfacePlan:
    """The least change from `present` to exactly `desired` being local, by the rules of `plan_change`.

    Besides, strays go, and so does the route to what is an address as well.
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
    """The least change that makes `add` local and `remove` not (an address in both stays or comes).

    What is programmed keeps the form it has. New ones become addresses, in numeric order, while there is room for
    them under the limit of their family, then routes. One exception turns a route into an address: the kernel flushes
    all IPv4 routes over an interface that loses its last IPv4 address (net/ipv4/fib_frontend.c, fib_inetaddr_event),
    so one of them becomes an address before the last other goes.
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
    """What the interface carries after every step of `plan` succeeded."""
    return Present(
        (present.addresses | set(plan.add_addresses)) - set(plan.remove_addresses),
        (present.routes | set(plan.add_routes)) - {*plan.redundant_routes, *plan.remove_routes},
        present.strays - set(plan.remove_strays),
        (present.over_lo | set(plan.add_over_lo)) - set(plan.remove_over_lo),
    )


def with_routes_over_lo(change: InterfacePlan, present: Present, *, lo: bool = True) -> InterfacePlan:
    """The same change, after which exactly the IPv4 ClusterIPs that are local have a route over ``lo`` besides; where the
    kernel takes none (`lo` is False) those that have one keep it.

    Through one over another interface a socket of the node does not learn that packets have to be shorter: the kernel does
    not keep such destinations (net/ipv4/route.c, __mkroute_output), so it finds none to make invalid
    (update_or_create_fnhe). With ``lo`` it does.
    """
    gained, lost = frozenset((*change.add_addresses, *change.add_routes)), change.lost
    before = present.vips
    lacking = ((before - present.over_lo) | (gained - present.over_lo)) - lost
    left = (present.over_lo - before - gained) | (present.over_lo & lost)
    return change._replace(
        add_over_lo=tuple(in_order(address for address in lacking if _is_ipv4(address))) if lo else (),
        remove_over_lo=tuple(in_order(left)),
    )


def in_order(addresses: Iterable[str]) -> list[str]:
    """Addresses in numeric order, IPv4 before IPv6."""
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
