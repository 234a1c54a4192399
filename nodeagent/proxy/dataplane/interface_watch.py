"""Watches the changes of other programs to the service interface, so that it is repaired at once.

A tool that undoes every repair gets the next one later and later: the two must not keep the node busy.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Protocol

from nodeagent.model.backoff import Backoff
from nodeagent.model.reports import DriftReport
from nodeagent.proxy.dataplane.interface_drift import Drift, InterfaceNotifications, PartsDrift
from nodeagent.wire.netlink import local_routes, rtnetlink
from nodeagent.wire.netlink.framing import messages
from nodeagent.wire.netlink.notifications import Group, following
from nodeagent.wire.netlink.uapi.rtnetlink import (
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
_SHORT_PAUSE = Backoff(first_seconds=0.1, longest_seconds=0.5)
"""If no repair was undone: changes of the node's own addresses are followed at once, and twice a second while they do not stop."""
_CALM_SECONDS = 5.0
_RETRY_SECONDS = 1.0
AUDIT_SECONDS = 240.0
"""Between comparisons of everything, whatever the kernel reported."""
_IPV6_LOOK_SECONDS = 0.5
"""Between checks whether IPv6 is on: the kernel does not report that, and not every route that disappears with it
(fib6_clean_all_skip_notify)."""


class Watched(Protocol):
    """The part of the service interface that is watched."""

    @property
    def name(self) -> str: ...
    @property
    def last_drift(self) -> PartsDrift:
        """What was different when a look last found `Drift.CHANGED`."""
        ...

    async def audit(self) -> Drift | None:
        """Like `differs` by a comparison of everything, without a report of the kernel."""
        ...

    async def differs(self, notifications: InterfaceNotifications) -> Drift | None:
        """Returns how the interface differs from what was programmed, given what the kernel reported; reads the interface if that is not
        clear."""
        ...

    async def ipv6_differs(self) -> Drift | None:
        """Like `differs` for IPv6, without a report of the kernel."""
        ...


class RepairPace:
    """Decides how long to wait before the next repair: not at all, unless the last one was undone soon after.

    The n-th repair in a row comes 0.1 s · 2ⁿ⁻¹ after the one before, at most 10 s (or the maximum of `pauses`). A row ends when nothing
    was changed for 5 s more than twice the pause.
    """

    def __init__(self, pauses: Backoff = _PAUSE) -> None:
        self._pauses = pauses
        self._last: float | None = None
        self.in_a_row = 0

    def pause(self, now: float) -> float:
        """Returns the seconds from now until the next repair may begin."""
        return 0.0 if self._last is None else max(0.0, self._last + self._distance - now)

    def repaired(self, now: float) -> None:
        """Notes that a repair begins."""
        calm = self._last is None or now - self._last > 2 * self._distance + _CALM_SECONDS
        self.in_a_row = 0 if calm else self.in_a_row + 1
        self._last = now

    @property
    def _distance(self) -> float:
        return self._pauses.seconds(self.in_a_row) if self.in_a_row else 0.0


class InterfaceWatch:
    """Calls `changed` when the interface is no longer what was programmed and may be repaired again. found: called before, with what
    another process changed."""

    def __init__(
        self, interface: Watched, changed: Callable[[], None], found: Callable[[DriftReport], None] = lambda _: None
    ) -> None:
        self._interface = interface
        self._changed = changed
        self._found = found
        self._audit_at = 0.0
        self._paces = {drift: RepairPace(_PAUSE if drift is Drift.CHANGED else _SHORT_PAUSE) for drift in Drift}
        self._notifications = InterfaceNotifications(interface.name, None)
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Watches until cancelled. Raises OSError if the kernel's notifications cannot be received."""
        loop = asyncio.get_running_loop()
        self._audit_at = loop.time() + AUDIT_SECONDS
        with following(_GROUPS, self._take, self._lost):
            self._notifications = InterfaceNotifications(self._interface.name, _index_of(self._interface.name))
            while True:
                try:
                    if (drift := await self._drift()) is None:
                        continue
                    pace = self._paces[drift]
                    await asyncio.sleep(pace.pause(loop.time()))
                    self._notifications.clear()
                except OSError as error:
                    logger.warning("cannot look at interface %s, trying again: %s", self._interface.name, error)
                    await asyncio.sleep(_RETRY_SECONDS)
                    self._lost()
                    continue
                pace.repaired(loop.time())
                self._log_repair(drift)
                self._changed()

    async def _drift(self) -> Drift | None:
        """Waits for notifications, or until it is time to look without any; returns how the interface differs."""
        loop = asyncio.get_running_loop()
        if audits := loop.time() >= self._audit_at:
            self._audit_at = loop.time() + AUDIT_SECONDS
            drift = await self._interface.audit()
        else:
            try:
                async with asyncio.timeout(_IPV6_LOOK_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                return await self._interface.ipv6_differs()
            await self._quiet()
            drift = await self._interface.differs(self._notifications.take())
        if drift is Drift.CHANGED:
            self._found(DriftReport("interface", *self._interface.last_drift, reported=not audits))
        return drift

    def _log_repair(self, drift: Drift) -> None:
        again = self._paces[drift].in_a_row
        row = f", {again + 1} times in a row" if again else ""
        logger.warning("interface %s %s%s: repairing", self._interface.name, drift.value, row)

    async def _quiet(self) -> None:
        """Waits until the kernel has reported nothing for a moment."""
        loop = asyncio.get_running_loop()
        latest = loop.time() + _LONGEST_QUIET_SECONDS
        while self._news.is_set() and loop.time() < latest:
            self._news.clear()
            await asyncio.sleep(_QUIET_SECONDS)
        self._news.clear()

    def _lost(self) -> None:
        self._notifications.lose(_index_of(self._interface.name))
        self._news.set()

    def _take(self, datagram: memoryview) -> None:
        for kind, _, _, body in messages(datagram):
            if self._concerns_ours(kind, body):
                self._news.set()

    def _concerns_ours(self, kind: int, body: memoryview) -> bool:
        notifications = self._notifications
        if kind in {RTM_NEWROUTE, RTM_DELROUTE}:
            return self._takes_route(body, gone=kind == RTM_DELROUTE)
        if kind in {RTM_NEWADDR, RTM_DELADDR}:
            address = rtnetlink.read_address(body)
            return address is not None and notifications.address(address, gone=kind == RTM_DELADDR)
        if kind in {RTM_NEWLINK, RTM_DELLINK}:
            return notifications.link(rtnetlink.read_link(body), gone=kind == RTM_DELLINK)
        return False

    def _takes_route(self, body: memoryview, *, gone: bool) -> bool:
        notifications = self._notifications
        if notifications.incomplete:
            return True
        if rtnetlink.is_default_route(body):
            notifications.default_route()
            return True
        if notifications.ifindex is None or not local_routes.may_be_local_route(body):
            return False
        if (route := local_routes.read_local_route(body, notifications.ifindex)) is not None:
            notifications.route(route, gone=gone)
        elif (route := local_routes.read_route_over_lo(body)) is not None:
            notifications.route_over_lo(route, gone=gone)
        return route is not None


def _index_of(name: str) -> int | None:
    try:
        return socket.if_nametoindex(name)
    except OSError:
        return None
