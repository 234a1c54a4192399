"""Finds out whether this node has a route to endpoints of Services, from its routes, its neighbours and its interfaces."""

import errno
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from nodeagent.model.addresses import Family, family_of
from nodeagent.model.frontend import Backend
from nodeagent.model.problem import Problem
from nodeagent.model.problem_subjects import TO_ENDPOINTS
from nodeagent.proxy.dataplane.arp_rules import arp_rules_here
from nodeagent.wire.netlink.neighbours import look_up_neighbour, read_state, use_neighbour
from nodeagent.wire.netlink.route_lookup import FoundRoute, look_up_route, read_found_route
from nodeagent.wire.netlink.socket import NetlinkSocket, retry
from nodeagent.wire.netlink.uapi import rtnetlink as uapi

OF_INTERFACES = "forwarding of interfaces"
_SETTINGS = Path("/proc/sys/net")
_REFUSED = {
    errno.EINVAL: "a route or rule of type blackhole is for it",
    errno.EACCES: "a route or rule of type prohibit is for it",
    errno.EHOSTUNREACH: "a route or rule of type unreachable is for it",
    errno.ENETUNREACH: "no route leads there",
    errno.ENETDOWN: "its interface is down",
}
"""The errors with which the kernel answers if it has no route for a packet of the node (ip_route_output_key_hash_rcu)."""
_SILENT = uapi.NUD_FAILED | uapi.NUD_INCOMPLETE


class EndpointWays(Struct, frozen=True):
    """What keeps packets of this node from endpoints. lost: endpoint → why this node has no route to it. closed: (interface,
    setting) of interfaces that lead to endpoints and do not forward what they receive."""

    lost: dict[Backend, str] = {}
    closed: tuple[tuple[str, str], ...] = ()


def read_ways(endpoints: Iterable[Backend]) -> EndpointWays:
    """Returns the kernel's present answers. Makes the kernel probe a neighbour that it has given up, so that a later check finds it.

    Raises OSError if the kernel does not answer.
    """
    lost, interfaces = {}, set()
    with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
        for one in endpoints:
            try:
                found = read_found_route(netlink.ask(look_up_route(one.address)))
            except TimeoutError:
                raise
            except OSError as error:
                if (why := _REFUSED.get(error.errno or 0)) is None:
                    raise
                lost[one] = why
                continue
            if found.kind != uapi.RTN_UNICAST:
                continue
            name = socket.if_indextoname(found.interface)
            interfaces.add((name, family_of(one.address)))
            if why := _led_astray(netlink, found, one, name) or _silent(netlink, found, one.address, name):
                lost[one] = why
    return EndpointWays(lost, tuple(_closed(sorted(interfaces, key=lambda one: (one[0], one[1].value)))))


def _led_astray(netlink: NetlinkSocket, found: FoundRoute, one: Backend, name: str) -> str:
    """Returns why the route to a pod of this node leads to a gateway of another host; empty if it does not."""
    if not (one.local and found.gateway):
        return ""
    if read_found_route(netlink.ask(look_up_route(found.gateway))).kind == uapi.RTN_LOCAL:
        return ""
    return f"it is on this node, and the route to it leads out by {name} via {found.gateway}"


def _silent(netlink: NetlinkSocket, found: FoundRoute, address: str, name: str) -> str:
    """Returns why no host answers at the end of a route; empty if one may."""
    hop = found.gateway or address
    with suppress(OSError):
        state = read_state(netlink.ask(look_up_neighbour(hop, found.interface)))
        if state & uapi.NUD_FAILED:
            retry(lambda: netlink.perform([use_neighbour(hop, found.interface)]))
        if state & _SILENT:
            rules = arp_rules_here() if family_of(hop) is Family.IPV4 else ""
            return f"no host answers for {hop} on {name}" + (f": {rules}" if rules else "")
    return ""


def _closed(interfaces: Iterable[tuple[str, Family]]) -> Iterator[tuple[str, str]]:
    for name, family in interfaces:
        kind = "ipv4" if family is Family.IPV4 else "ipv6"
        own, everywhere = (_setting(_SETTINGS / kind / "conf" / one / "forwarding") for one in (name, "all"))
        if own == 0 and everywhere == 1:
            yield name, f"net.{kind}.conf.{name}.forwarding"


def _setting(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def way_problems(ways: EndpointWays) -> tuple[Problem, ...]:
    """Returns the problems, in a stable order."""
    found = []
    if ways.lost:
        first = min(ways.lost)
        more = f", and {len(ways.lost) - 1} more" if len(ways.lost) > 1 else ""
        why = f"{ways.lost[first]}{more}; see ip route get {first.address}"
        detail = f"this node has no way to endpoint {first.address}: {why}"
        found.append(Problem(TO_ENDPOINTS, "EndpointsUnreachable", detail))
    for name, setting in ways.closed:
        detail = f"{setting} is 0: answers of endpoints that come in by {name} reach no pod; sysctl -w {setting}=1"
        found.append(Problem(OF_INTERFACES, "ForwardingOff", detail))
    return tuple(found)


ReadWays = Callable[[Iterable[Backend]], EndpointWays]
