"""Routes and sockets of this network namespace, read from the kernel one at a time."""

import errno
import socket
import time
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Self

from nodeagent.diagnosis.trace.kernel_bridges import Bridges
from nodeagent.diagnosis.trace.listeners import Listeners
from nodeagent.diagnosis.trace.routes import Between, Leg, Route, RouteOutcome
from nodeagent.model.addresses import Family, Protocol, family_of
from nodeagent.proxy.dataplane.arp_rules import arp_rules_here
from nodeagent.proxy.dataplane.reverse_path import mode_of
from nodeagent.wire.netlink import rtnetlink
from nodeagent.wire.netlink.neighbours import look_up_neighbour, read_state, use_neighbour
from nodeagent.wire.netlink.route_lookup import FoundRoute, look_up_route, read_found_route
from nodeagent.wire.netlink.socket import NetlinkSocket, retry
from nodeagent.wire.netlink.uapi import rtnetlink as uapi

SETTINGS = Path("/proc/sys/net")
_WAYS = {
    uapi.RTN_LOCAL: RouteOutcome.HERE,
    uapi.RTN_BLACKHOLE: RouteOutcome.BLACKHOLE,
    uapi.RTN_UNREACHABLE: RouteOutcome.NOWHERE,
    uapi.RTN_PROHIBIT: RouteOutcome.PROHIBITED,
}
_NOT_BELIEVED = {errno.EXDEV, errno.EINVAL}
"""Errors of ip_route_input for a source that it does not accept; EINVAL since Linux 6.13."""
_OF_TYPE = "a route or rule of type {} applies to it"
_FIND_IT = "find it: ip rule; ip route show table all"
_OF_SEVERAL = frozenset({"bond", "team"})
_NO_ANSWER = uapi.NUD_INCOMPLETE | uapi.NUD_FAILED
NEIGHBOUR_SECONDS = 1.5
"""How long to wait for a neighbour that the kernel has given up: the kernel asks once a second
(neigh/*/retrans_time_ms)."""
MOST_WAITED_FOR = 3
_LOOK_SECONDS = 0.02


class KernelRoutes:
    """A Router for the network namespace of the creating thread. Needs no privilege."""

    def __init__(self) -> None:
        self._socket = NetlinkSocket(socket.NETLINK_ROUTE)
        self._links: dict[str, rtnetlink.Link] | None = None
        self._silent: dict[tuple[str, str], bool] = {}
        self._listeners = Listeners()
        self._bridges = Bridges(self._socket)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def route(self, leg: Leg) -> Route:
        """Returns the route of a packet. Raises OSError for an unknown interface, or if the kernel cannot be asked."""
        index = _index(leg.interface) if leg.interface else 0
        # The kernel accepts only these protocols in a request (rtm_getroute_parse_ip_proto).
        protocol = int(leg.protocol) if leg.protocol in (Protocol.TCP, Protocol.UDP) else 0
        request = look_up_route(
            leg.destination, leg.source, index, protocol, leg.port, leg.mark, source_port=leg.source_port
        )
        try:
            found = read_found_route(self._socket.ask(request))
        except TimeoutError:
            raise
        except OSError as error:
            return self._refused(leg, error)
        name = socket.if_indextoname(found.interface) if found.interface else ""
        if leg.interface and found.kind == uapi.RTN_UNICAST and not self._may_leave(leg, name):
            return _no_forwarding(leg)
        return Route(_way(found), name, found.gateway, found.source)

    def _may_leave(self, leg: Leg, interface: str) -> bool:
        """Returns whether a received packet may leave through an interface. IPv6 packets within a bridge are not
        forwarded (br_nf_pre_routing_finish_ipv6); for IPv4 the route lookup alone requires forwarding
        (ip_route_input_slow)."""
        family = family_of(leg.source)
        within = interface == leg.interface and self.between(interface, family) is Between.FILTERED
        return (within and family is Family.IPV6) or _forwards(leg.interface, family)

    def listens(self, address: str, port: int, protocol: Protocol, *, exactly: bool = False) -> bool:
        """Returns whether a socket of this namespace listens there; for protocols whose sockets are not listed: yes."""
        return self._listeners.accept(address, port, protocol, exactly=exactly)

    def between(self, interface: str, family: Family) -> Between:
        """Returns how packets go between two hosts behind the same interface.

        Hosts behind a bridge are assumed to send to each other's link addresses. Without a bridge everything passes
        this node.
        """
        link = self._link(interface)
        if link is None or not link.resolves:
            return Between.HERE
        if link.kind != "bridge":
            return Between.PAST
        return Between.FILTERED if self._bridges.are_filtered(link, family) else Between.BRIDGED

    def bridge_of(self, address: str) -> str:
        """Returns the bridge behind which the kernel knows a host; empty if there is no such bridge."""
        for link in self._all_links().values():
            known = self._neighbour(address, link.ifindex) if link.kind == "bridge" else uapi.NUD_NONE
            if known and not known & _NO_ANSWER:
                return link.name
        return ""

    def back_by_port(self, route: Route, destination: str) -> Route:
        """Returns the same route, or one that says that the bridge does not send the packet back through its input
        port.
        A packet that was translated to a host behind its own bridge is not routed, it stays within the bridge
        (br_nf_pre_routing_finish); and a port without hairpin mode sends nothing back. If the bridge has not learned the port, one
        port that sends packets back is taken for it."""
        link = self._link(route.interface)
        if link is None or self.between(link.name, family_of(destination)) is not Between.FILTERED:
            return route
        learned = self._bridges.port_to(link, destination)
        ports = [learned] if learned else [*self._ports_of(link)]
        if not ports or any(map(self._bridges.sends_back, ports)):
            return route
        if learned:
            reason = (
                f"{learned}, a port of the bridge {link.name}, does not send packets back out (hairpin mode is off)"
            )
        else:
            reason = f"no port of the bridge {link.name} sends packets back out (hairpin mode is off)"
        cure = f"bridge link set dev {learned or 'PORT'} hairpin on"
        return Route(RouteOutcome.REJECTED, link.name, reason=reason, cure=cure)

    def barred(self, interface: str, address: str) -> Route | None:
        """Returns a rejecting route if the bridge's VLANs separate this node from a host behind it; else None."""
        link = self._link(interface)
        if link is None or link.kind != "bridge":
            return None
        reason, cure = self._bridges.barrier(link, address)
        return Route(RouteOutcome.REJECTED, interface, reason=reason, cure=cure) if reason else None

    def barred_ports(self) -> dict[str, tuple[str, str]]:
        """Returns the bridge ports of this node that VLANs separate from it, each with why and what to do. Raises
        OSError."""
        links = self._all_links().values()
        found: dict[str, tuple[str, str]] = {}
        for bridge in (one for one in links if one.kind == "bridge"):
            found |= self._bridges.barred_ports(bridge, self._ports_of(bridge))
        return found

    def bridge_with_port(self, port: str) -> str:
        """Returns the bridge that an interface is a port of; empty if it is not a port."""
        link = self._link(port)
        links = () if link is None else self._all_links().values()
        return next((one.name for one in links if link is not None and one.ifindex == link.master), "")

    def ends_at(self, interface: str, address: str) -> tuple[str, ...]:
        """Returns the interface, for a bridge also the port behind which a host is, if the bridge has learned it, and the interfaces
        below both: that of a VLAN or a macvlan, the ports of a bond."""
        link = self._link(interface)
        port = self._bridges.port_to(link, address) if link is not None and link.kind == "bridge" else ""
        names = dict.fromkeys(filter(None, (interface, port)))
        waiting = list(names)
        while waiting:
            below = [one for one in self._below(waiting.pop()) if one not in names]
            names |= dict.fromkeys(below)
            waiting += below
        return tuple(names)

    def possible_ports(self, interface: str, address: str) -> tuple[str, ...]:
        """Returns all ports of a bridge that has not learned behind which of them a host is; empty if it has, or for other interfaces."""
        link = self._link(interface)
        if link is None or link.kind != "bridge" or self._bridges.port_to(link, address):
            return ()
        return tuple(self._ports_of(link))

    def _ports_of(self, bridge: rtnetlink.Link) -> dict[str, int]:
        """Returns the ports of a bridge: name → index."""
        return {one.name: one.ifindex for one in self._all_links().values() if one.master == bridge.ifindex}

    def _below(self, interface: str) -> Iterator[str]:
        link = self._link(interface)
        if link is not None and link.kind != "veth":
            for one in self._all_links().values():
                if one.ifindex == link.below or (link.kind in _OF_SEVERAL and one.master == link.ifindex):
                    yield one.name

    def width(self, interface: str) -> int:
        """Returns the interface's MTU; 0 if it is unknown."""
        link = self._link(interface)
        return 0 if link is None else link.mtu

    def beyond(self, route: Route, destination: str) -> Route:
        """Returns the same route, or one that says that the interface has no carrier or that the next hop does not
        answer.
        Only neighbours that the kernel has given up are probed, once more, and only a few of them."""
        link = self._link(route.interface)
        if link is None or route.way is not RouteOutcome.OUT:
            return route
        if link.up and not link.carrier:
            reason = f"{link.name} has no carrier: its other end is missing or down"
            return Route(
                RouteOutcome.NOWHERE, link.name, route.gateway, reason=reason, cure=f"see ip link show {link.name}"
            )
        hop = route.gateway or destination
        if not link.resolves or not self._is_silent(hop, link):
            return route
        rules = arp_rules_here() if family_of(hop) is Family.IPV4 else ""
        reason = f"no host answers for {hop} on {link.name}: {rules or 'it is down, or has another address'}"
        cure = "" if rules else f"see ip neigh show {hop}"
        return Route(RouteOutcome.NOWHERE, link.name, route.gateway, reason=reason, cure=cure)

    def has_answered(self, route: Route, destination: str) -> bool:
        """Returns whether the next hop of a route has answered a moment ago."""
        link = self._link(route.interface)
        if link is None or not link.resolves:
            return False
        return bool(self._neighbour(route.gateway or destination, link.ifindex) & uapi.NUD_REACHABLE)

    def is_entered(self, route: Route, destination: str) -> bool:
        """Returns whether the next hop's link address was entered by a program or a person; the kernel never verifies
        those."""
        link = self._link(route.interface)
        if link is None or not link.resolves:
            return False
        return bool(self._neighbour(route.gateway or destination, link.ifindex) & uapi.NUD_PERMANENT)

    def _is_silent(self, hop: str, link: rtnetlink.Link) -> bool:
        known = self._silent.get((hop, link.name))
        if known is None:
            given_up = bool(self._neighbour(hop, link.ifindex) & _NO_ANSWER)
            known = given_up and sum(self._silent.values()) < MOST_WAITED_FOR and self._stays_silent(hop, link.ifindex)
            self._silent[hop, link.name] = known
        return known

    def _stays_silent(self, hop: str, index: int) -> bool:
        """Returns whether a neighbour still does not answer: a failed entry is probed again, and a running probe is
        waited for."""
        end = time.monotonic() + NEIGHBOUR_SECONDS
        while (state := self._neighbour(hop, index)) & _NO_ANSWER:
            if time.monotonic() > end:
                return True
            if state & uapi.NUD_FAILED and retry(lambda: self._socket.perform([use_neighbour(hop, index)])):
                return False
            time.sleep(_LOOK_SECONDS)
        return False

    def _neighbour(self, hop: str, index: int) -> int:
        """Returns the state of a neighbour entry; NUD_NONE if the kernel does not report it."""
        try:
            return read_state(self._socket.ask(look_up_neighbour(hop, index)))
        except TimeoutError:
            raise
        except OSError:
            return uapi.NUD_NONE

    def _link(self, name: str) -> rtnetlink.Link | None:
        return self._all_links().get(name)

    def _all_links(self) -> dict[str, rtnetlink.Link]:
        if self._links is None:
            dump = retry(lambda: [*map(rtnetlink.read_link, self._socket.dump(rtnetlink.get_links()))])
            self._links = {link.name: link for link in dump}
        return self._links

    def local_addresses(self) -> frozenset[str]:
        """Returns the addresses whose packets are delivered here, also those of routes. Raises OSError."""
        return frozenset().union(*self.addresses_at_interfaces().values())

    def addresses_at_interfaces(self) -> Mapping[str, frozenset[str]]:
        """Returns the same by the interface that the address or route has. Raises OSError."""
        by_index = retry(self._local_once)
        names = {link.ifindex: name for name, link in self._all_links().items()}
        return {names.get(index, ""): frozenset(addresses) for index, addresses in by_index.items()}

    def _local_once(self) -> dict[int, set[str]]:
        found: dict[int, set[str]] = {}
        for family in Family:
            try:
                for body in self._socket.dump(rtnetlink.get_routes(family)):
                    if (route := rtnetlink.read_host_route(body)) is not None:
                        address, index = route
                        found.setdefault(index, set()).add(address)
            except OSError as error:
                if error.errno not in {errno.EOPNOTSUPP, errno.EAFNOSUPPORT, errno.ENOENT}:
                    raise
        return found

    def _refused(self, leg: Leg, error: OSError) -> Route:
        if error.errno == errno.EINVAL and self._is_blackholed(leg):
            way = RouteOutcome.BLACKHOLE if leg.interface else RouteOutcome.NOWHERE
            return Route(way, reason=_OF_TYPE.format("blackhole"), cure=_FIND_IT)
        if leg.interface and error.errno in _NOT_BELIEVED:
            return self._not_believed(leg)
        if error.errno == errno.EACCES:
            return Route(RouteOutcome.PROHIBITED, reason=_OF_TYPE.format("prohibit"), cure=_FIND_IT)
        if leg.interface and not _forwards(leg.interface, family_of(leg.destination)):
            return _no_forwarding(leg)
        if error.errno not in {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EINVAL}:
            raise error
        if error.errno == errno.EHOSTUNREACH:
            return Route(RouteOutcome.NOWHERE, reason=_OF_TYPE.format("unreachable"), cure=_FIND_IT)
        reason = f"no route to {leg.destination}"
        return Route(
            RouteOutcome.NOWHERE, reason=reason, cure=f"see ip rule, or add one: ip route add {leg.destination} …"
        )

    def _is_blackholed(self, leg: Leg) -> bool:
        """Returns whether a blackhole route applies: for own packets the kernel returns EINVAL only for that."""
        try:
            self._socket.ask(look_up_route(leg.destination, "", 0, 0, 0, leg.mark))
        except OSError as error:
            return error.errno == errno.EINVAL
        return False

    def _not_believed(self, leg: Leg) -> Route:
        back = self.route(Leg(leg.source))
        strict = mode_of(leg.interface, _setting)
        if strict and back.interface != leg.interface:
            mode = "strict" if strict == 1 else "loose"
            way = f"leads {back}" if back.way is RouteOutcome.OUT else "does not exist"
            return Route(
                RouteOutcome.REJECTED,
                reason=f"rp_filter ({mode}) of {leg.interface} drops packets from {leg.source}: the route back {way}",
                cure=f"sysctl -w net.ipv4.conf.{leg.interface}.rp_filter=2, or correct the route back",
            )
        if leg.destination.startswith("127."):
            return Route(
                RouteOutcome.REJECTED,
                reason=f"{leg.destination} is closed to packets from outside (route_localnet is 0)",
                cure="let the server listen on an address of the node",
            )
        if back.way is RouteOutcome.HERE:
            return Route(
                RouteOutcome.REJECTED,
                reason=f"{leg.source} is an address of this node, and {leg.interface} drops packets from it "
                "(accept_local is 0)",
                cure=f"give the client another address, or: sysctl -w net.ipv4.conf.{leg.interface}.accept_local=1",
            )
        if back.way is RouteOutcome.OUT and not _is_martian(leg.source):
            return Route(RouteOutcome.BLACKHOLE, reason=_OF_TYPE.format("blackhole"), cure=_FIND_IT)
        reason = f"{leg.source} cannot come in by {leg.interface} (a martian source)"
        return Route(RouteOutcome.REJECTED, reason=reason, cure="look at ip -s route, log_martians")


def _is_martian(address: str) -> bool:
    """Returns whether no host may have the address (ip_route_input_slow)."""
    held = ip_address(address)
    return held.is_loopback or held.is_multicast or held.is_reserved or held.is_unspecified


def _index(interface: str) -> int:
    """Returns the interface's index. Raises OSError with the interface's name."""
    try:
        return socket.if_nametoindex(interface)
    except OSError as error:
        raise OSError(f"there is no interface {interface} here: see ip link") from error


def _way(found: FoundRoute) -> RouteOutcome:
    return _WAYS.get(found.kind, RouteOutcome.OUT)


def _forwards(interface: str, family: Family) -> bool:
    kind = "ipv4" if family is Family.IPV4 else "ipv6"
    names = (interface,) if family is Family.IPV4 else ("all", interface)
    return any(_setting(f"{kind}/conf/{name}/forwarding") != 0 for name in names)


def _no_forwarding(leg: Leg) -> Route:
    """Returns the route for missing forwarding; the kernel sends no error (ip_error, ip6_forward)."""
    name = "net.ipv6.conf.all.forwarding"
    if family_of(leg.destination) is Family.IPV4:
        alone = _setting("ipv4/ip_forward") == 1
        name = f"net.ipv4.conf.{leg.interface}.forwarding" if alone else "net.ipv4.ip_forward"
    return Route(RouteOutcome.REJECTED, reason=f"forwarding is off on {leg.interface}", cure=f"sysctl -w {name}=1")


def _setting(path: str) -> int | None:
    try:
        return int((SETTINGS / path).read_text())
    except (OSError, ValueError):
        return None
