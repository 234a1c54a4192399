"""What has an address around this node: its interfaces, the gateways of its routes, and whatever else is named.

Not counted are addresses that are not used to reach or leave the node and may be ClusterIPs: those of dummies
(``nodeagent0``, ``kube-ipvs0``, the interface of a DNS cache), of scope host (``nodeagent0`` where it is a bridge), and
deprecated ones (the same in IPv6).
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Iterable, Iterator

from nodeagent.dataplane.worker_thread import in_thread
from nodeagent.model.addresses import Family, parse_address, unpack_address
from nodeagent.model.in_use import InUse, host
from nodeagent.netlink import rtnetlink
from nodeagent.netlink.socket import NetlinkSocket, read_consistently

LOOK_SECONDS = 30.0
"""Between looks when nothing is heard of a change; routes change without a word."""

logger = logging.getLogger(__name__)


class Surroundings:
    """What service ranges must keep clear of, as it is now.

    changed: called on the event loop when `in_use` is another. others: more of it, addresses and names alike, each with
    what has it; names are resolved by `run` only, for a name server may take its time.
    """

    def __init__(
        self,
        changed: Callable[[], None],
        *,
        excluding: str,
        others: Callable[[], Iterable[tuple[str, str]]] = tuple,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._changed = changed
        self._excluding = excluding
        self._others = others
        self._look_seconds = look_seconds
        self._look = asyncio.Event()
        self._in_use: frozenset[InUse] = frozenset()

    @property
    def in_use(self) -> frozenset[InUse]:
        """As read last; empty before."""
        return self._in_use

    def look_again(self) -> None:
        """Something may have changed."""
        self._look.set()

    async def read(self) -> None:
        """Read once. What cannot be read leaves what was known."""
        self._take(await self._read(resolve=False))

    async def run(self) -> None:
        """Read again and again, until cancelled."""
        while True:
            self._look.clear()
            self._take(await self._read(resolve=True))
            try:
                async with asyncio.timeout(self._look_seconds):
                    await self._look.wait()
            except TimeoutError:
                continue

    async def _read(self, *, resolve: bool) -> frozenset[InUse]:
        others = tuple(self._others())
        try:
            found = await in_thread(lambda: in_use_here(self._excluding))
        except OSError as error:
            logger.warning("cannot read addresses and routes: %s", error)
            return self._in_use
        for name, what in others:
            address = parse_address(name)
            if address is not None:
                found |= {host(address, what)}
            elif resolve:
                found |= {host(address, f"{what}, {name}") for address in await _resolved(name)}
        return found

    def _take(self, found: frozenset[InUse]) -> None:
        if found != self._in_use:
            self._in_use = found
            self._changed()


def in_use_here(excluding: str) -> frozenset[InUse]:
    """Addresses and gateways in this network namespace; `excluding` names an interface that does not count.

    Needs no privilege. Raises OSError.
    """
    with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
        return read_consistently(lambda: frozenset((*_addresses(netlink, excluding), *_gateways(netlink))))


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
            for body in netlink.dump(rtnetlink.get_routes(family)):
                gateways = rtnetlink.gateways_of(body)
                yield from (host(unpack_address(packed), "a gateway of this node") for packed in gateways)
        except OSError as error:
            if error.errno not in {errno.EOPNOTSUPP, errno.EAFNOSUPPORT, errno.ENOENT}:
                raise


async def _resolved(name: str) -> set[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {address for *_, where in found if (address := parse_address(str(where[0])))}
