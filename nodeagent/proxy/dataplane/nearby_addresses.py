"""Collects the addresses in use around this node: its interfaces, the gateways of its routes, and others by name.

Not counted are addresses that are not used to reach or leave the node and may be ClusterIPs: those of dummies (``nodeagent0``,
``kube-ipvs0``, the interface of a DNS cache), of scope host (``nodeagent0`` if it is a bridge), and deprecated ones of 128 bits (the same
in IPv6). A deprecated address of a network counts: its lifetime ends, but it is reached until then.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator

from msgspec import Struct

from nodeagent.model.addresses import Family, parse_address, unpack_address
from nodeagent.model.in_use import InUse, host
from nodeagent.model.protected import Protected, SocketAddress
from nodeagent.proxy.dataplane.worker_thread import in_thread
from nodeagent.wire.netlink import rtnetlink
from nodeagent.wire.netlink.socket import NetlinkSocket, retry
from nodeagent.wire.netlink.uapi.rtnetlink import RTN_UNICAST

LOOK_SECONDS = 30.0
"""Between two looks without a notification of a change; routes change without one."""

NAME_PATIENCE_SECONDS = 5.0
"""How long `read` waits for names; `run` waits for as long as it takes."""

logger = logging.getLogger(__name__)


class OutboundEndpoint(Struct, frozen=True):
    """A host, an address or a name, and the TCP port at which the agent reaches it. is_server: it is the API server."""

    host: str
    port: int
    is_server: bool = True


class NearbyAddresses:
    """The present addresses that service ranges must not overlap, and those that external addresses must not capture.

    changed: called on the event loop when one of them changes.
    others: further addresses or names in use, each with its holder.
    ways: how the API server is reached.
    names: where this node answers DNS queries.
    resolvers: the present name servers of the node; they matter if a way is a name. A name that cannot be resolved for a moment
    keeps its previous addresses.
    resolve: returns the addresses of a name; empty if it has none.
    """

    def __init__(
        self,
        changed: Callable[[], None],
        *,
        excluding: str,
        others: Callable[[], Iterable[tuple[str, str]]] = tuple,
        ways: Iterable[OutboundEndpoint] = (),
        names: Iterable[SocketAddress] = (),
        resolvers: Callable[[], Iterable[SocketAddress]] = tuple,
        look_seconds: float = LOOK_SECONDS,
        name_patience_seconds: float = NAME_PATIENCE_SECONDS,
        resolve: Callable[[str], Awaitable[frozenset[str]]] | None = None,
    ) -> None:
        self._changed = changed
        self._excluding = excluding
        self._others = others
        self._ways = tuple(ways)
        self._names_at = frozenset(names)
        by_name = any(parse_address(way.host) is None for way in self._ways)
        self._resolvers = resolvers if by_name else tuple
        self._look_seconds = look_seconds
        self._name_patience_seconds = name_patience_seconds
        self._ask = resolve or resolve_here
        self._look = asyncio.Event()
        self._in_use: frozenset[InUse] = frozenset()
        self._protected = Protected()
        self._resolved: dict[str, frozenset[str]] = {}

    @property
    def in_use(self) -> frozenset[InUse]:
        """The addresses and networks in use, as last read; empty before the first time."""
        return self._in_use

    @property
    def protected(self) -> Protected:
        """What Services must not capture, as last read; empty before the first time."""
        return self._protected

    def look_again(self) -> None:
        """Requests a read soon, because something may have changed; returns at once."""
        self._look.set()

    async def read(self) -> None:
        """Reads all addresses once. What cannot be read keeps its previous value. Waits only a few seconds for host names."""
        try:
            async with asyncio.timeout(self._name_patience_seconds):
                await self._resolve()
        except TimeoutError:
            logger.warning("these names have not been resolved yet: %s", ", ".join(self._names()))
        await self._read()

    async def run(self) -> None:
        """Reads repeatedly, until cancelled."""
        while True:
            self._look.clear()
            await self._resolve()
            await self._read()
            try:
                async with asyncio.timeout(self._look_seconds):
                    await self._look.wait()
            except TimeoutError:
                continue

    def _names(self) -> list[str]:
        hosts = {*(name for name, _ in self._others()), *(way.host for way in self._ways)}
        return sorted(name for name in hosts if name and parse_address(name) is None)

    async def _resolve(self) -> None:
        for name in self._names():
            self._resolved[name] = await self._ask(name) or self._resolved.get(name, frozenset())

    def _addresses_of(self, name: str) -> frozenset[str]:
        address = parse_address(name)
        return self._resolved.get(name, frozenset()) if address is None else frozenset({address})

    async def _read(self) -> None:
        try:
            here, resolvers = await in_thread(lambda: (read_here(self._excluding), frozenset(self._resolvers())))
        except OSError as error:
            logger.warning("cannot read addresses and routes of this node, trying again: %s", error)
            return
        in_use = here.addresses | here.gateways
        for name, what in self._others():
            shown = what if parse_address(name) else f"{what}, {name}"
            in_use |= {host(address, shown) for address in self._addresses_of(name)}
        ways = {(address, way.port) for way in self._ways for address in self._addresses_of(way.host)}
        own = frozenset(one.cidr.partition("/")[0] for one in here.addresses)
        ports = frozenset(way.port for way in self._ways if way.is_server)
        protected = Protected(frozenset(ways), own, ports, self._names_at, resolvers)
        if (in_use, protected) != (self._in_use, self._protected):
            self._in_use, self._protected = in_use, protected
            self._changed()


class Here(Struct, frozen=True):
    """The addresses in use in a network namespace."""

    addresses: frozenset[InUse]
    gateways: frozenset[InUse]


def read_here(excluding: str) -> Here:
    """Reads addresses and gateways in this network namespace; `excluding` names an interface that does not count.

    Needs no privilege. Raises OSError.
    """
    with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
        return retry(lambda: Here(frozenset(_addresses(netlink, excluding)), frozenset(_gateways(netlink))))


def in_use_here(excluding: str) -> frozenset[InUse]:
    """Returns all addresses of `read_here`. Raises OSError."""
    here = read_here(excluding)
    return here.addresses | here.gateways


def _addresses(netlink: NetlinkSocket, excluding: str) -> Iterator[InUse]:
    links = {link.ifindex: link for link in map(rtnetlink.read_link, netlink.dump(rtnetlink.get_links()))}
    for body in netlink.dump(rtnetlink.get_addresses()):
        address = rtnetlink.read_address(body)
        link = None if address is None else links.get(address.ifindex)
        if address is None or link is None or link.name == excluding or link.kind == "dummy":
            continue
        if rtnetlink.reaches_others(body):
            yield host(address.address, f"an address of this node, {link.name}")


def _gateways(netlink: NetlinkSocket) -> Iterator[InUse]:
    for family in Family:
        try:
            # Not the local ones, which are two for each ClusterIP.
            for body in netlink.dump(rtnetlink.get_routes(family, RTN_UNICAST)):
                gateways = rtnetlink.gateways_of(body)
                yield from (host(unpack_address(packed), "a gateway of this node") for packed in gateways)
        except OSError as error:
            if error.errno not in {errno.EOPNOTSUPP, errno.EAFNOSUPPORT, errno.ENOENT}:
                raise


async def resolve_here(name: str) -> frozenset[str]:
    """Returns the addresses of a name, resolved as for connections; empty if that fails."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError):  # ValueError: a name that no host can have
        return frozenset()
    return frozenset(address for *_, where in found if (address := parse_address(str(where[0]))))
