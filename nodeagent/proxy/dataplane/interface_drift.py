"""Decides whether the kernel's notifications about the service interface contradict what was programmed (pure).

The kernel also reports the agent's own changes. They are no contradiction: only the last state of each address, route and of the
interface itself counts, not the number of notifications.
"""

from copy import copy
from enum import Enum
from typing import NamedTuple, Self

from nodeagent.model.addresses import family_of
from nodeagent.proxy.dataplane.interface_claim import MARK
from nodeagent.proxy.dataplane.interface_plan import Present
from nodeagent.proxy.dataplane.interface_sources import Sources
from nodeagent.wire.netlink.local_routes import LocalRoute
from nodeagent.wire.netlink.rtnetlink import LOOPBACK_INDEX, InterfaceAddress, Link

_LINK_LOCAL = "fe80:"


class Drift(Enum):
    """Why the interface must be programmed again, as text to follow its name."""

    CHANGED = "was changed by another process"
    SOURCE = "has routes with another source than the node's address now"
    IPV6 = "lost its IPv6 routes, or may have some again"


class Programmed(NamedTuple):
    """What an interface carries as far as we know, and the index by which a replaced one is noticed.

    sources: those of its routes. lo: whether the kernel accepted routes over ``lo``. without_ipv6: IPv6 addresses were left out because
    the interface must not carry any.
    """

    ifindex: int
    present: Present
    sources: Sources
    lo: bool = True
    without_ipv6: bool = False


class PartsDrift(NamedTuple):
    """How the interface differs from what was programmed. kind: `link`, `addresses` or `routes`. detail: one line for users."""

    kind: str
    detail: str


def parts_drift(found: Present, *programmed: Present) -> PartsDrift | None:
    """Returns how what was read differs from each of several states; None if each part is as in one of them.

    programmed: one, or those before and after the reading: what the agent itself changed meanwhile is then no drift.
    """
    if found in programmed:
        return None
    have, wanted = _parts(found), [_parts(one) for one in programmed]
    missing, more = frozenset.intersection(*wanted) - have, have - frozenset.union(*wanted)
    if not missing and not more:
        return None
    (what, where), state = min(
        (one, state) for parts, state in ((missing, "gone"), (more, "not ours")) for one in parts
    )
    others = len(missing) + len(more) - 1
    detail = f"{what} {where} is {state}" + (f", and {others} more differ" if others else "")
    return PartsDrift("addresses" if what == "address" else "routes", detail)


def _parts(present: Present) -> frozenset[tuple[str, str]]:
    return frozenset(
        (
            *(("address", one) for one in present.addresses),
            *(("address", f"{one.address}/{one.prefix_length}") for one in present.strays),
            *(("route to", one) for one in present.routes),
            *(("route over lo to", f"{one} from {source}") for source, to in present.over_lo.items() for one in to),
            *(("source of the route to", f"{one}, {source},") for source, to in present.sourced.items() for one in to),
        )
    )


class InterfaceNotifications:
    """The latest notification about each part of the interface called `name`, since the last `clear`."""

    def __init__(self, name: str, ifindex: int | None) -> None:
        self._name = name
        self._ifindex = ifindex
        self.clear()

    def clear(self) -> None:
        """Drops the notifications; the index of the interface stays known."""
        self._links: dict[int, Link | None] = {}
        self._addresses: dict[tuple[str, int], bool] = {}
        self._routes: dict[str, str | None] = {}
        self._over_lo: dict[LocalRoute, bool] = {}
        self._elsewhere: set[str] = set()
        self._lo_is_up: bool | None = None
        self._incomplete = False
        self.sources_in_doubt = False

    def take(self) -> Self:
        """Returns the notifications so far and drops them here; later ones are collected again."""
        taken = copy(self)
        self.clear()
        return taken

    def lose(self, ifindex: int | None) -> None:
        """Records that notifications were lost, and the interface's present index."""
        self._incomplete = True
        self._ifindex = ifindex

    @property
    def incomplete(self) -> bool:
        """Whether some were lost, so that the interface is read in any case."""
        return self._incomplete

    @property
    def ifindex(self) -> int | None:
        """The index of the interface that has our name or had it last; None: no interface had it."""
        return self._ifindex

    def link(self, link: Link, *, gone: bool) -> bool:
        """Records a notification about an interface. Returns whether it concerns ours."""
        if link.ifindex == LOOPBACK_INDEX:
            self._lo_is_up = link.up and not gone
            return True
        if link.name == self._name and not gone:
            self._ifindex = link.ifindex
        if link.name != self._name and link.ifindex != self._ifindex:
            return False
        self._links[link.ifindex] = None if gone else link
        return True

    def address(self, found: InterfaceAddress, *, gone: bool) -> bool:
        """Records a notification about an address; returns whether it is on our interface, or may be the source of the node's
        connections."""
        if found.ifindex == self._ifindex:
            self._addresses[found.address, found.prefix_length] = not gone
            return True
        if found.ifindex == LOOPBACK_INDEX and gone:
            self._incomplete = (
                True  # with its last IPv4 address ``lo`` loses all routes, and the kernel does not report that
            )
        if found.address.startswith(_LINK_LOCAL):
            return False
        self._elsewhere.add(found.address)
        self.sources_in_doubt = True
        return True

    def default_route(self) -> None:
        """Records that a default route was added, deleted or changed."""
        self.sources_in_doubt = True

    def route(self, route: LocalRoute, *, gone: bool) -> None:
        """Records a notification about one of our routes over the interface."""
        self._routes[route.destination] = None if gone else route.source

    def route_over_lo(self, route: LocalRoute, *, gone: bool) -> None:
        """Records a notification about a route over ``lo``, ours or another agent's."""
        self._over_lo[route] = not gone

    def contradicts(self, programmed: Programmed) -> bool:
        """Returns whether the interface may differ from what was programmed; always True if notifications were lost."""
        present = programmed.present
        return bool(
            self._incomplete
            or any(not as_programmed(link, self._name) for link in self._links.values())
            or programmed.ifindex != self._ifindex
            or any(
                there != (prefix_length == _full_length(address) and address in present.addresses)
                for (address, prefix_length), there in self._addresses.items()
            )
            or any(not _as_notified(route, source, present) for route, source in self._routes.items())
            or any(there != (to in present.over_lo.get(source, ())) for (to, source), there in self._over_lo.items())
            or not self._elsewhere.isdisjoint(programmed.sources.values())
            or (self._lo_is_up and not programmed.lo)
        )


def _as_notified(route: str, source: str | None, present: Present) -> bool:
    if route not in present.routes:
        return source is None
    return source == next((one for one, routes in present.sourced.items() if route in routes), "")


def as_programmed(link: Link | None, name: str) -> bool:
    """Returns whether the interface exists and has all the settings that it was given."""
    return link is not None and link.name == name and link.up and not link.resolves and link.alias == MARK


def _full_length(address: str) -> int:
    return family_of(address).address_length * 8
