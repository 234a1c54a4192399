"""What has an address around this node: its interfaces, the gateways of its routes, and whatever else is named.

Not counted are addresses that are not used to reach or leave the node and may be ClusterIPs: those of dummies
(``nodeagent0``, ``kube-ipvs0``, the interface of a DNS cache), of scope host (``nodeagent0`` where it is a bridge), and
deprecated ones (the same in IPv6).
"""

import asyncio
import errno
import logging
import socket
import struct
from collections.abc import Callable, Iterable, Iterator

from nodeagent.dataplane import rtnetlink
from nodeagent.dataplane.framing import attributes
from nodeagent.dataplane.netlink import NetlinkSocket, Request, read_consistently
from nodeagent.dataplane.worker_thread import in_thread
from nodeagent.model.addresses import Family, parse_address, unpack_address
from nodeagent.model.in_use import InUse, host

LOOK_SECONDS = 30.0
"""Between looks when nothing is heard of a change; routes change without a word."""

_ADDRESS = struct.Struct("=BBBBI")  # ifaddrmsg: family, prefix length, flags, scope, interface index
_ROUTE = struct.Struct("=BBBBBBBBI")  # rtmsg: family, dst_len, src_len, tos, table, protocol, scope, type, flags
_NEXTHOP = struct.Struct("=HBBi")  # rtnexthop: length, flags, hops, interface index
_SCOPE_HOST = 254
_IFA_F_DEPRECATED = 0x20
_RTN_UNICAST = 1
_RTM_F_CLONED = 0x200
_RTA_GATEWAY = 5
_RTA_MULTIPATH = 9
_RTA_VIA = 18

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
    asked = netlink.dump(Request(rtnetlink.RTM_GETLINK, 0, bytes(16)))
    links = {link.ifindex: link for link in map(rtnetlink.read_link, asked)}
    for body in netlink.dump(rtnetlink.get_addresses()):
        _, _, flags, scope, index = _ADDRESS.unpack_from(body)
        address, link = rtnetlink.read_address(body), links.get(index)
        if address is None or link is None or link.name == excluding or link.kind == "dummy":
            continue
        if scope != _SCOPE_HOST and not flags & _IFA_F_DEPRECATED:
            yield host(address.address, f"an address of this node, {link.name}")


def _gateways(netlink: NetlinkSocket) -> Iterator[InUse]:
    for family in Family:
        request = Request(rtnetlink.RTM_GETROUTE, 0, _ROUTE.pack(family.socket_family, 0, 0, 0, 0, 0, 0, 0, 0))
        try:
            for body in netlink.dump(request):
                yield from (host(unpack_address(packed), "a gateway of this node") for packed in gateways_of(body))
        except OSError as error:
            if error.errno not in {errno.EOPNOTSUPP, errno.EAFNOSUPPORT, errno.ENOENT}:
                raise


def gateways_of(body: memoryview) -> Iterator[bytes]:
    """The packed addresses that an RTM_NEWROUTE message sends packets through: its own, via another family, or several."""
    _, _, _, _, _, _, _, kind, flags = _ROUTE.unpack_from(body)
    if kind == _RTN_UNICAST and not flags & _RTM_F_CLONED:
        yield from _hops(body[_ROUTE.size :])


def _hops(message: memoryview) -> Iterator[bytes]:
    for kind, value in attributes(message):
        if kind == _RTA_GATEWAY:
            yield bytes(value)
        elif kind == _RTA_VIA:
            yield bytes(value[2:])
        elif kind == _RTA_MULTIPATH:
            rest = value
            while len(rest) >= _NEXTHOP.size and (length := _NEXTHOP.unpack_from(rest)[0]) >= _NEXTHOP.size:
                yield from _hops(rest[_NEXTHOP.size : length])
                rest = rest[(length + 3) & ~3 :]


async def _resolved(name: str) -> set[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {address for *_, where in found if (address := parse_address(str(where[0])))}
