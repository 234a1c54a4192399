"""The sockets on which queries arrive. While any process holds them, no query meets a closed port."""

import socket
from typing import NamedTuple

from nodeagent.model.addresses import endpoint_text, family_of
from nodeagent.wire.netlink.rtnetlink import get_route_to, leads_here
from nodeagent.wire.netlink.socket import NetlinkSocket
from nodeagent.wire.netlink.uapi.netlink import NETLINK_ROUTE

BACKLOG = 256
RECEIVE_BUFFER = 4 << 20
"""Bytes of queries that the kernel keeps while there is no process: some ten thousand queries."""


class ListenAddress(NamedTuple):
    """An address and a port where queries are received, by UDP and TCP."""

    address: str
    port: int

    def __str__(self) -> str:
        return endpoint_text(self.address, self.port)


class CannotListen(Exception):
    """An address is in use or not allowed; the text says in one line which and why."""


def open_sockets(place: ListenAddress) -> tuple[socket.socket, socket.socket]:
    """Returns a UDP and a listening TCP socket, bound even if no interface has the address yet. Raises CannotListen."""
    opened = []
    try:
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            sock = socket.socket(family_of(place.address).socket_family, kind)
            opened.append(sock)
            _prepare(sock)
            sock.bind(place)
            if kind == socket.SOCK_STREAM:
                sock.listen(BACKLOG)
    except OSError as error:
        for sock in opened:
            sock.close()
        raise CannotListen(f"cannot answer names at {place}: {error.strerror}") from error
    return opened[0], opened[1]


def is_here(address: str) -> bool:
    """Returns whether this network namespace accepts packets to the address as its own. IPv6 ClusterIPs are routes, so
    that they can only be bound with IPV6_FREEBIND."""
    with NetlinkSocket(NETLINK_ROUTE) as routes:
        try:
            return leads_here(routes.ask(get_route_to(address)))
        except OSError:
            return False


def _prepare(sock: socket.socket) -> None:
    sock.setblocking(False)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setsockopt(socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)
    else:
        sock.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
    if sock.type == socket.SOCK_STREAM:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER)
    except PermissionError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)


IP_FREEBIND = 15
IPV6_FREEBIND = 78
SO_RCVBUFFORCE = 33
"""From linux/in.h, in6.h and asm-generic/socket.h; Python has no names for them."""


def address_of(sock: socket.socket) -> ListenAddress:
    """Returns where a bound socket listens."""
    address, port = sock.getsockname()[:2]
    return ListenAddress(address, port)
