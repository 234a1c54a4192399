"""Decides which source the node's own connections to ClusterIPs get, and the routes that give it to them (pure).

The kernel takes the preferred source of the route, unless the program chose one. A local IPv4 route without one makes the
ClusterIP itself the source; an IPv6 route leaves the choice among all addresses of the node to the kernel.
"""

from collections.abc import Collection, Iterable, Mapping

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.interface_plan import InterfacePlan, Present, in_order
from nodeagent.wire.netlink.local_routes import LocalRoute

Sources = Mapping[Family, str]
"""The preferred source of each family; empty if the node has no usable one."""


def preferred_source(known: Iterable[str], usable: Collection[str], towards_others: str) -> str:
    """Returns, for one family, the first of the node's known addresses that it has, else the one with which it reaches other hosts.

    known: addresses of the Node object and the configuration, the best first. towards_others: the source of a packet that takes
    the default route; empty: there is no such route.
    """
    return next((address for address in (*known, towards_others) if address in usable), "")


def with_sources(change: InterfacePlan, present: Present, sources: Sources | None, *, lo: bool = True) -> InterfacePlan:
    """Extends a change so that afterwards exactly the local IPv4 ClusterIPs also have a route over ``lo``, and these routes and the IPv6
    routes have the given sources. If the kernel accepts no routes over ``lo`` (`lo` is False), existing ones stay.

    sources None: not known, routes that stay keep theirs.

    With a route over another interface a socket of the node does not learn that packets have to be shorter: the kernel does not keep such
    destinations (net/ipv4/route.c, __mkroute_output), so it finds none to invalidate (update_or_create_fnhe). With ``lo`` it does.
    """
    gained, lost, vips = frozenset((*change.add_addresses, *change.add_routes)), change.lost, present.vips
    left = [
        LocalRoute(one, source)
        for source, addresses in present.over_lo.items()
        for one in (addresses - vips - gained) | (addresses & lost)
    ]
    if sources is None:
        return change._replace(remove_over_lo=_ordered(left))
    source = sources.get(Family.IPV4, "")
    doubled = _doubled(present, {route.destination for route in left}) if lo and source else []
    right = present.over_lo.get(source, frozenset()).difference(route.destination for route in doubled)
    lacking = ((vips - right) | (gained - right)) - lost if lo else ()
    others = (
        LocalRoute(one, other) for other in present.over_lo.keys() - {source, ""} for one in present.over_lo[other]
    )
    return change._replace(
        sourced=_ordered(_resourced(change, present, sources.get(Family.IPV6, ""))),
        doubled_over_lo=_ordered(doubled),
        add_over_lo=tuple(in_order(one for one in lacking if ":" not in one)),
        remove_over_lo=_ordered({*left, *others}.difference(doubled)),
        source=source,
    )


def _doubled(present: Present, leaving: Collection[str]) -> list[LocalRoute]:
    """Returns routes that must be deleted together: a route without a source can only be deleted as the first one to its destination,
    so all others to the same destination are deleted, too."""
    without = present.over_lo.get("", frozenset()).difference(leaving)
    return (
        [LocalRoute(one, source) for source, to in present.over_lo.items() for one in to & without] if without else []
    )


def _resourced(change: InterfacePlan, present: Present, source: str) -> Iterable[LocalRoute]:
    """Returns the IPv6 routes that do not have this source yet."""
    known = present.routes.difference(*present.over_lo.values())
    routes = {route for route in (*known, *change.add_routes) if ":" in route}
    routes.difference_update(change.remove_routes, change.redundant_routes)
    if source:
        wrong = routes - present.sourced.get(source, frozenset())
    else:
        wrong = routes & frozenset[str]().union(*present.sourced.values())
    return (LocalRoute(route, source) for route in wrong)


def _ordered(routes: Iterable[LocalRoute]) -> tuple[LocalRoute, ...]:
    """Sorts by destination; routes to the same one with a source first, because one without is deleted as the first that exists."""
    known: dict[str, list[str]] = {}
    for destination, source in routes:
        known.setdefault(destination, []).append(source)
    return tuple(
        LocalRoute(destination, source)
        for destination in in_order(known)
        for source in sorted(known[destination], reverse=True)
    )
