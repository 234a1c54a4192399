"""Routes and sockets of this network namespace, asked of the kernel one at a time."""

import errno
import socket
from pathlib import Path
from types import TracebackType
from typing import Self

from nodeagent.model.addresses import Family, Protocol, family_of, pack_address, unpack_address
from nodeagent.netlink import rtnetlink
from nodeagent.netlink.route_lookup import FoundRoute, look_up_route, read_found_route
from nodeagent.netlink.socket import NetlinkSocket, read_consistently
from nodeagent.netlink.uapi import rtnetlink as uapi
from nodeagent.trace.routes import Leg, Route, Way

NET = Path("/proc/thread-self/net")
SETTINGS = Path("/proc/sys/net")
_WAYS = {
    uapi.RTN_LOCAL: Way.HERE,
    uapi.RTN_BLACKHOLE: Way.BLACKHOLE,
    uapi.RTN_UNREACHABLE: Way.NOWHERE,
    uapi.RTN_PROHIBIT: Way.PROHIBITED,
}
_NOT_BELIEVED = {errno.EXDEV, errno.EINVAL}
"""What ip_route_input says of a source it does not believe; EINVAL from Linux 6.13 on."""
_TCP_LISTEN, _UDP_UNCONNECTED = "0A", "07"
_SOCKET_TABLES = {
    Protocol.TCP: ("tcp", "tcp6", _TCP_LISTEN),
    Protocol.UDP: ("udp", "udp6", _UDP_UNCONNECTED),
}


class KernelRoutes:
    """A Router for the network namespace of the thread that makes it. Needs no privilege."""

    def __init__(self) -> None:
        self._socket = NetlinkSocket(socket.NETLINK_ROUTE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def route(self, leg: Leg) -> Route:
        """Where a packet goes. Raises OSError for an interface that is not there, and where the kernel cannot be asked."""
        index = socket.if_nametoindex(leg.interface) if leg.interface else 0
        # Of others than these the kernel takes no question (rtm_getroute_parse_ip_proto).
        protocol = int(leg.protocol) if leg.port and leg.protocol in _SOCKET_TABLES else 0
        request = look_up_route(leg.destination, leg.source, index, protocol, leg.port, leg.mark)
        try:
            found = read_found_route(self._socket.ask(request))
        except TimeoutError:
            raise
        except OSError as error:
            return self._refused(leg, error)
        if leg.interface and found.kind == uapi.RTN_UNICAST and not _forwards(leg.interface, family_of(leg.source)):
            return _no_forwarding(leg)
        name = socket.if_indextoname(found.interface) if found.interface else ""
        return Route(_way(found), name, found.gateway, found.source)

    def listens(self, address: str, port: int, protocol: Protocol, *, exactly: bool = False) -> bool:
        """Whether a socket of this namespace waits there; of protocols whose sockets are not listed: yes."""
        if protocol not in _SOCKET_TABLES:
            return not exactly
        v4, v6, state = _SOCKET_TABLES[protocol]
        names = (v6,) if family_of(address) is Family.IPV6 else (v4, v6)
        return any(_waits(NET / name, address, port, state, exactly=exactly) for name in names)

    def local_addresses(self) -> frozenset[str]:
        """The addresses that packets are delivered here for, those of routes included. Raises OSError."""
        return read_consistently(self._local_once)

    def _local_once(self) -> frozenset[str]:
        found = set()
        for family in Family:
            try:
                for body in self._socket.dump(rtnetlink.get_routes(family)):
                    address = rtnetlink.read_host_route(body)
                    if address is not None:
                        found.add(address)
            except OSError as error:
                if error.errno not in {errno.EOPNOTSUPP, errno.EAFNOSUPPORT, errno.ENOENT}:
                    raise
        return frozenset(found)

    def _refused(self, leg: Leg, error: OSError) -> Route:
        if leg.interface and error.errno in _NOT_BELIEVED:
            return self._not_believed(leg)
        if error.errno == errno.EACCES:
            return Route(Way.PROHIBITED, reason="a route of type prohibit")
        if leg.interface and not _forwards(leg.interface, family_of(leg.destination)):
            return _no_forwarding(leg)
        if error.errno not in {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EINVAL}:
            raise error
        reason = f"no route to {leg.destination}"
        return Route(Way.NOWHERE, reason=reason, cure=f"add one: ip route add {leg.destination} …")

    def _not_believed(self, leg: Leg) -> Route:
        back = self.route(Leg(leg.source))
        strict = _rp_filter(leg.interface)
        if strict and back.interface != leg.interface:
            mode = "strict" if strict == 1 else "loose"
            way = f"leads {back}" if back.way is Way.OUT else "is none"
            return Route(
                Way.REJECTED,
                reason=f"rp_filter ({mode}) of {leg.interface} does not believe {leg.source}, the route back {way}",
                cure=f"sysctl -w net.ipv4.conf.{leg.interface}.rp_filter=2, or correct the route back",
            )
        if leg.destination.startswith("127."):
            return Route(
                Way.REJECTED,
                reason=f"{leg.destination} is not for packets from outside (route_localnet is 0)",
                cure="let the server listen on an address of the node",
            )
        reason = f"{leg.source} cannot come in by {leg.interface} (a martian source)"
        return Route(Way.REJECTED, reason=reason, cure="look at ip -s route, log_martians")


def _way(found: FoundRoute) -> Way:
    return _WAYS.get(found.kind, Way.OUT)


def _forwards(interface: str, family: Family) -> bool:
    kind = "ipv4" if family is Family.IPV4 else "ipv6"
    names = (interface,) if family is Family.IPV4 else ("all", interface)
    return any(_setting(f"{kind}/conf/{name}/forwarding") != 0 for name in names)


def _no_forwarding(leg: Leg) -> Route:
    """Without a word to the sender (ip_error, ip6_forward)."""
    name = "net.ipv4.ip_forward" if family_of(leg.destination) is Family.IPV4 else "net.ipv6.conf.all.forwarding"
    return Route(Way.REJECTED, reason=f"forwarding is off on {leg.interface}", cure=f"sysctl -w {name}=1")


def _rp_filter(interface: str) -> int:
    """The greater of the interface's value and that of all counts (ip-sysctl)."""
    return max(_setting(f"ipv4/conf/{name}/rp_filter") or 0 for name in ("all", interface))


def _setting(path: str) -> int | None:
    try:
        return int((SETTINGS / path).read_text())
    except (OSError, ValueError):
        return None


def _waits(table: Path, address: str, port: int, state: str, *, exactly: bool) -> bool:
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:
        return False
    for line in lines:
        _, local, _, found, *_ = line.split()
        place, _, number = local.partition(":")
        if int(number, 16) == port and found == state and _covers(place, address, exactly=exactly):
            return True
    return False


def _covers(place: str, address: str, *, exactly: bool) -> bool:
    """Whether a socket's address, in the hexadecimal words of /proc/net, takes packets to `address`."""
    words = [bytes.fromhex(place[at : at + 8])[::-1] for at in range(0, len(place), 8)]
    packed = b"".join(words)
    if not any(packed):
        return not exactly
    mapped = packed[-4:] if len(packed) > len(pack_address(address)) else packed
    return unpack_address(mapped) == address
