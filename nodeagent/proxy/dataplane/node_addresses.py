"""Follows the addresses of the node's interfaces, for node ports restricted to some of them."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import NamedTuple, Protocol

from nodeagent.proxy.dataplane.worker_thread import in_thread
from nodeagent.wire.netlink import rtnetlink
from nodeagent.wire.netlink.framing import messages
from nodeagent.wire.netlink.notifications import Group, following
from nodeagent.wire.netlink.socket import DumpInterruptedError, NetlinkSocket, retry
from nodeagent.wire.netlink.uapi.rtnetlink import RTM_DELADDR, RTM_NEWADDR

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0


class LocalAddress(NamedTuple):
    """An address of the node: canonical text, its prefix length, and the interface that has it."""

    interface: str
    address: str
    prefix_length: int


class AddressListener(Protocol):
    """Receives the addresses, at first and after each change."""

    def node_addresses_changed(self, addresses: frozenset[LocalAddress]) -> None:
        """Called on the event loop with all current addresses, at first and after every change."""
        ...


class AddressesOnly:
    """An AddressListener for functions that need only the addresses: calls each with all of them, in this order."""

    def __init__(self, *listeners: Callable[[frozenset[str]], None]) -> None:
        self._listeners = listeners

    def node_addresses_changed(self, addresses: frozenset[LocalAddress]) -> None:
        """Called with all current addresses, at first and after every change."""
        alone = frozenset(local.address for local in addresses)
        for listener in self._listeners:
            listener(alone)


class NodeAddresses:
    """Reports the node's addresses to a listener, loopback and link-local ones included.

    excluding: interfaces that do not count, above all our own with the ClusterIPs.
    quiet_seconds: changes are reported together when there were none for this long, but after ten times that in any case.
    """

    def __init__(
        self,
        listener: AddressListener,
        *,
        excluding: frozenset[str] = frozenset({"nodeagent0"}),
        quiet_seconds: float = 0.1,
    ) -> None:
        self._listener = listener
        self._excluding = excluding
        self._quiet_seconds = quiet_seconds

    async def read(self) -> frozenset[LocalAddress]:
        """Returns the present addresses. Raises OSError if the kernel does not answer."""
        return await in_thread(self._read)

    async def report(self) -> None:
        """Calls the listener once. Raises OSError as `read` does."""
        self._listener.node_addresses_changed(await self.read())

    async def run(self) -> None:
        """Reports the addresses at once and then each change, until cancelled. Raises OSError if the kernel's notifications cannot be
        received.

        If the addresses cannot be read, because so many change (our own ClusterIPs, thousands at the start, count here) or
        the kernel does not answer, the last ones stay in effect, and reading is retried after a pause.
        """
        changed = asyncio.Event()
        groups = Group.IPV4_ADDRESSES | Group.IPV6_ADDRESSES

        def take(datagram: memoryview) -> None:
            if self._concerns_us(datagram):
                changed.set()

        def lost() -> None:
            logger.info("address notifications were lost; reading all addresses again")
            changed.set()

        with following(groups, take, lost):
            known: frozenset[LocalAddress] | None = None
            while True:
                changed.clear()
                try:
                    addresses = await self.read()
                except DumpInterruptedError:
                    changed.set()
                except OSError as error:
                    logger.warning("cannot read the addresses of this node, trying again: %s", error.strerror or error)
                    await asyncio.sleep(_RETRY_SECONDS)
                    changed.set()
                else:
                    if addresses != known:
                        known = addresses
                        self._listener.node_addresses_changed(addresses)
                await self._quiet_after(changed)

    def _read(self) -> frozenset[LocalAddress]:
        with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
            return retry(lambda: self._read_once(netlink))

    def _read_once(self, netlink: NetlinkSocket) -> frozenset[LocalAddress]:
        names: dict[int, str | None] = {}
        found = set()
        for body in netlink.dump(rtnetlink.get_addresses()):
            address = rtnetlink.read_address(body)
            if address is None:
                continue
            if address.ifindex not in names:
                names[address.ifindex] = _interface_name(address.ifindex)
            name = names[address.ifindex]
            if name is not None and name not in self._excluding:
                found.add(LocalAddress(name, address.address, address.prefix_length))
        return frozenset(found)

    def _concerns_us(self, datagram: memoryview) -> bool:
        for kind, _, _, body in messages(datagram):
            if kind in {RTM_NEWADDR, RTM_DELADDR}:
                address = rtnetlink.read_address(body)
                if address is not None and _interface_name(address.ifindex) not in self._excluding:
                    return True
        return False

    async def _quiet_after(self, changed: asyncio.Event) -> None:
        """Waits for a change, and then until no further one came for a while."""
        await changed.wait()
        loop = asyncio.get_running_loop()
        latest = loop.time() + 10 * self._quiet_seconds
        while changed.is_set() and loop.time() < latest:
            changed.clear()
            await asyncio.sleep(self._quiet_seconds)


def _interface_name(ifindex: int) -> str | None:
    try:
        return socket.if_indextoname(ifindex)
    except OSError:
        return None
