"""Keeps the devices of our flowtables: all interfaces between which the node may forward.

A flowtable takes packets at the ingress hook of its devices only. The kernel removes a device that is deleted, and its entries with it
(nf_flow_table_core.c, nf_flow_table_cleanup); what is new must be added. No pass waits for this: a connection whose device is not added yet
passes the chains, and is offloaded later.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Collection, Iterable

from nodeagent.model.addresses import Family
from nodeagent.model.problem import Problem
from nodeagent.proxy.dataplane.driver.flowtable_support import SUBJECT
from nodeagent.proxy.dataplane.driver.kernel_table import KernelTable
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset, repeated
from nodeagent.proxy.dataplane.driver.transaction import Transaction
from nodeagent.proxy.dataplane.errors import CommitRejected, DataplaneError
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.worker_thread import in_thread
from nodeagent.wire.netlink.notifications import Group, following
from nodeagent.wire.netlink.rtnetlink import LOOPBACK_INDEX, Link, get_links, read_link
from nodeagent.wire.netlink.socket import NetlinkSocket, retry

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Between looks: each commit interrupts those who read the ruleset, so there is at most one in this time."""
REFUSED = "DeviceNotOffloaded"
_WITHOUT_PACKETS = frozenset({"dummy", "ifb"})
_NAMED = 3


def forwarding_devices(links: Iterable[Link], *, excluding: str | None = None) -> frozenset[str]:
    """Returns the names of the interfaces that a flowtable shall have.

    Not loopback, and not ports of a bridge, a bond or a VRF: these see packets before the rules of the bridge do. excluding: the service
    interface.
    """
    return frozenset(
        link.name
        for link in links
        if link.ifindex != LOOPBACK_INDEX
        and not link.master
        and link.kind not in _WITHOUT_PACKETS
        and link.name != excluding
    )


def read_links() -> list[Link]:
    """Returns all interfaces of this network namespace. Raises OSError."""
    with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
        return retry(lambda: [read_link(body) for body in netlink.dump(get_links())])


class FlowtableDevices:
    """Adds interfaces to the flowtables of our tables and removes them, as they come and go. netlink: the owner of owned tables.
    report: receives all problems after each look that changed something. links: reads the interfaces.
    """

    def __init__(
        self,
        netlink: Ruleset,
        families: Collection[Family],
        report: Callable[[Iterable[Problem]], None],
        *,
        excluding: str | None = None,
        links: Callable[[], Iterable[Link]] = read_links,
    ) -> None:
        self._netlink = netlink
        self._tables = {family: KernelTable(netlink, family, {}) for family in families}
        self._report = report
        self._excluding = excluding
        self._links = links
        self._news = asyncio.Event()
        self._generation: int | None = None

    async def run(self) -> None:
        """Looks when an interface has changed, or the ruleset, until cancelled. Raises OSError if the kernel's notifications cannot be
        received."""
        with following(Group.LINKS, lambda _: self._news.set(), self._news.set):
            self._news.set()
            while True:
                changed = self._news.is_set()
                self._news.clear()
                try:
                    await self.look(changed=changed)
                except (DataplaneError, OSError) as error:
                    logger.debug("the devices of the flowtables cannot be changed now: %s", error)
                    self._generation = None
                await asyncio.sleep(LOOK_SECONDS)

    async def look(self, *, changed: bool = True) -> None:
        """Compares the devices of each flowtable with the interfaces, and commits the difference; does nothing if neither changed since the
        last look. A table without a flowtable is left alone. Raises DataplaneError, OSError."""
        refused = await in_thread(lambda: self._look(changed=changed))
        if refused is not None:
            self._report(_problems(refused))

    def _look(self, *, changed: bool) -> dict[str, str] | None:
        """Returns the devices that the kernel refused, each with the reason; None: nothing was compared."""
        generation = self._netlink.generation()
        if generation == self._generation and not changed:
            return None
        wanted = forwarding_devices(self._links(), excluding=self._excluding)
        refused: dict[str, str] = {}
        for family, table in self._tables.items():
            held = {one.name: one.devices for one in repeated(table.flowtables)}.get(schema.FLOWTABLE)
            if held is not None:
                refused |= self._change(family, wanted - held, held - wanted)
        self._generation = None if refused else self._netlink.generation()
        return refused

    def _change(self, family: Family, come: frozenset[str], gone: frozenset[str]) -> dict[str, str]:
        """Commits all at once; if the kernel refuses that, each by itself, so that one does not keep out the others."""
        transaction = Transaction(family, {})
        transaction.change_devices(schema.FLOWTABLE, gone, remove=True)
        transaction.change_devices(schema.FLOWTABLE, come)
        try:
            self._netlink.commit(transaction)
        except CommitRejected as error:
            if len(come) + len(gone) == 1:
                return dict.fromkeys(come, error.rejections[0].reason)
        else:
            return {}
        refused: dict[str, str] = {}
        for name in sorted(gone):
            refused |= self._change(family, frozenset(), frozenset({name}))
        for name in sorted(come):
            refused |= self._change(family, frozenset({name}), frozenset())
        return refused


def _problems(refused: dict[str, str]) -> tuple[Problem, ...]:
    if not refused:
        return ()
    names = ", ".join(sorted(refused)[:_NAMED]) + (", …" if len(refused) > _NAMED else "")
    reason = next(iter(refused.values()))
    return (
        Problem(
            SUBJECT,
            REFUSED,
            f"the kernel takes no flowtable at {names} ({reason}): connections through there pass all chains, as without the option",
        ),
    )
