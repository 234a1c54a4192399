"""Follows what others do to the service interface, so that it is repaired at once.

A tool that undoes every repair gets the next one later and later: neither of the two may keep the node busy.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Protocol

from nodeagent.dataplane.interface_drift import Told
from nodeagent.model.backoff import Backoff
from nodeagent.netlink import rtnetlink
from nodeagent.netlink.framing import messages
from nodeagent.netlink.notifications import Group, following
from nodeagent.netlink.uapi.rtnetlink import (
    RTM_DELADDR,
    RTM_DELLINK,
    RTM_DELROUTE,
    RTM_NEWADDR,
    RTM_NEWLINK,
    RTM_NEWROUTE,
)

logger = logging.getLogger(__name__)

_GROUPS = Group.LINKS | Group.IPV4_ADDRESSES | Group.IPV4_ROUTES | Group.IPV6_ADDRESSES | Group.IPV6_ROUTES
_QUIET_SECONDS = 0.02
_LONGEST_QUIET_SECONDS = 0.2
_PAUSE = Backoff(first_seconds=0.1, longest_seconds=10.0)
_CALM_SECONDS = 5.0
_RETRY_SECONDS = 1.0


class Watched(Protocol):
    """The service interface."""

    @property
    def name(self) -> str: ...

    async def differs(self, told: Told) -> bool:
        """Whether it is not what was programmed, given what was told; looks itself when that is not clear."""
        ...


class RepairPace:
    """How long to wait before the next repair: not at all, unless the one before was undone soon after.

    The n-th in a row comes 0.1 s · 2ⁿ⁻¹ after the one before, 10 s at most. A row ends when nothing was changed for
    5 s more than twice the pause.
    """

    def __init__(self) -> None:
        self._last: float | None = None
        self.in_a_row = 0

    def pause(self, now: float) -> float:
        """Seconds from now until the next repair may begin."""
        return 0.0 if self._last is None else max(0.0, self._last + self._distance - now)

    def repaired(self, now: float) -> None:
        """A repair begins."""
        calm = self._last is None or now - self._last > 2 * self._distance + _CALM_SECONDS
        self.in_a_row = 0 if calm else self.in_a_row + 1
        self._last = now

    @property
    def _distance(self) -> float:
        return _PAUSE.seconds(self.in_a_row) if self.in_a_row else 0.0


class InterfaceWatch:
    """Calls `changed` when the interface is no longer what was programmed and may be repaired again."""

    def __init__(self, interface: Watched, changed: Callable[[], None]) -> None:
        self._interface = interface
        self._changed = changed
        self._pace = RepairPace()
        self._told = Told(interface.name, None)
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled. Raises OSError when the kernel cannot be listened to."""
        loop = asyncio.get_running_loop()
        with following(_GROUPS, self._take, self._lost):
            self._told = Told(self._interface.name, _index_of(self._interface.name))
            while True:
                await self._quiet()
                try:
                    if not await self._interface.differs(self._told):
                        self._told.clear()
                        continue
                    await asyncio.sleep(self._pace.pause(loop.time()))
                    self._told.clear()
                except OSError as error:
                    logger.warning("cannot look at interface %s, trying again: %s", self._interface.name, error)
                    await asyncio.sleep(_RETRY_SECONDS)
                    self._lost()
                    continue
                self._pace.repaired(loop.time())
                self._tell()
                self._changed()

    def _tell(self) -> None:
        again = self._pace.in_a_row
        row = f", {again + 1} times in a row" if again else ""
        logger.warning("interface %s was changed by another process%s: repairing", self._interface.name, row)

    async def _quiet(self) -> None:
        """Until something was told, and then until nothing more was for a moment."""
        await self._news.wait()
        loop = asyncio.get_running_loop()
        latest = loop.time() + _LONGEST_QUIET_SECONDS
        while self._news.is_set() and loop.time() < latest:
            self._news.clear()
            await asyncio.sleep(_QUIET_SECONDS)
        self._news.clear()

    def _lost(self) -> None:
        self._told.lose(_index_of(self._interface.name))
        self._news.set()

    def _take(self, datagram: memoryview) -> None:
        for kind, _, _, body in messages(datagram):
            if self._concerns_ours(kind, body):
                self._news.set()

    def _concerns_ours(self, kind: int, body: memoryview) -> bool:
        told = self._told
        if kind in {RTM_NEWROUTE, RTM_DELROUTE}:
            if told.ifindex is None or not rtnetlink.may_be_local_route(body):
                return False
            gone = kind == RTM_DELROUTE
            if (route := rtnetlink.read_local_route(body, told.ifindex)) is not None:
                told.route(route, gone=gone)
            elif (route := rtnetlink.read_route_over_lo(body)) is not None:
                told.route_over_lo(route, gone=gone)
            return route is not None
        if kind in {RTM_NEWADDR, RTM_DELADDR}:
            address = rtnetlink.read_address(body)
            return address is not None and told.address(address, gone=kind == RTM_DELADDR)
        if kind in {RTM_NEWLINK, RTM_DELLINK}:
            return told.link(rtnetlink.read_link(body), gone=kind == RTM_DELLINK)
        return False


def _index_of(name: str) -> int | None:
    try:
        return socket.if_nametoindex(name)
    except OSError:
        return None
