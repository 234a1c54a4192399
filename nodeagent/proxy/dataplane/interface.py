"""The service interface: ClusterIPs as addresses and local routes of ``nodeagent0``.

ARP. With the default ``arp_ignore=0`` a node answers ARP requests for any address that is local to it, on every interface, so also for
ClusterIPs. That is left unchanged: no host sends such requests, because a service CIDR is on no link, and if somebody put it on one, an
answer from any node leads to a node that balances the service. External and load-balancer addresses, for which one speaker must answer
alone (what kube-proxy's ``strictARP`` is for), are never put on the interface. ``arp_announce`` needs no change either: no packet that
leaves the node has a ClusterIP as its source. Both switches apply to the whole node and are used by others.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeVar

from nodeagent.model.addresses import Family, family_of
from nodeagent.model.problem import Problem, Retryable
from nodeagent.model.reports import InterfaceReport
from nodeagent.proxy.dataplane.interface_claim import DEFAULT_NAME, KINDS, MARK
from nodeagent.proxy.dataplane.interface_drift import (
    Drift,
    InterfaceNotifications,
    PartsDrift,
    Programmed,
    as_programmed,
    parts_drift,
)
from nodeagent.proxy.dataplane.interface_plan import (
    ADDRESS_LIMITS,
    InterfacePlan,
    Present,
    apply_plan,
    plan,
    plan_change,
)
from nodeagent.proxy.dataplane.interface_reading import (
    find_link,
    ipv6_missing,
    is_routed,
    lo_is_up,
    read_present,
    read_routes_over_lo,
    read_sources,
    why_not_ours,
)
from nodeagent.proxy.dataplane.interface_sources import Sources, with_sources
from nodeagent.proxy.dataplane.worker_thread import in_thread
from nodeagent.wire.netlink import rtnetlink
from nodeagent.wire.netlink.framing import Request
from nodeagent.wire.netlink.local_routes import LocalRoute
from nodeagent.wire.netlink.socket import Failure, NetlinkSocket, retry

logger = logging.getLogger(__name__)

T = TypeVar("T")

_ALREADY_THERE = {errno.EEXIST}
_ALREADY_GONE = {errno.ESRCH, errno.ENOENT, errno.EADDRNOTAVAIL}
_PROBLEMS_SHOWN = 20


class ForeignInterfaceError(Retryable):
    """An interface of our name exists, but nothing shows that it is ours; it is not touched."""


class ServiceInterface:
    """Owns one interface, if it is the agent's (`interface_claim`). Every method may be cancelled; a write in progress is finished first.

    Calls do not overlap: one waits for the other. Raises OSError if the kernel does not answer at all (no
    CAP_NET_ADMIN, out of memory); single addresses that fail are problems of the report instead.
    """

    def __init__(self, name: str = DEFAULT_NAME, *, address_limits: Mapping[Family, int] = ADDRESS_LIMITS) -> None:
        self._name = name
        self._limits = address_limits
        self._lock = asyncio.Lock()
        self._kind: str | None = None
        self._programmed: Programmed | None = None
        self._ipv6_route: tuple[Programmed | None, str | None] = None, None
        """What was programmed, and one of its IPv6 routes. Without one a search looks at all routes, and looks come twice a second."""
        self._node_addresses: tuple[str, ...] = ()
        self._reported = False
        self._creating = False
        """From the request for an interface until it is marked: what is found by its name was made by us, whatever was answered."""
        self.last_drift = PartsDrift("", "")
        """What was different when a look last found `Drift.CHANGED`."""

    @property
    def name(self) -> str:
        """The interface's name."""
        return self._name

    @property
    def kind(self) -> str | None:
        """``dummy``, or ``bridge`` if the kernel has no dummy; None before the first `sync` and after `remove`."""
        return self._kind

    async def sync(self, vips: frozenset[str], node_addresses: tuple[str, ...] = ()) -> InterfaceReport:
        """Makes exactly `vips` (canonical text, both families) local to the node, from what the kernel has now. IPv6 ranges among them
        (with a prefix length) are routed over the interface instead.

        node_addresses: addresses by which the node is known, the best first. In each family, the source of the node's own connections to
        `vips` is the first of them that the node has, or else the one with which it reaches other hosts.

        Creates the interface, or adopts what an earlier agent made. Writes nothing if nothing differs. Raises ForeignInterfaceError.
        """
        return await self._retried(lambda: self._sync(vips, node_addresses))

    async def apply(self, add: frozenset[str], remove: frozenset[str]) -> InterfaceReport:
        """Adds and removes some, trusting what earlier calls programmed; reads back first if one of them failed.

        An interface that was deleted meanwhile is created again with all it had. Raises ForeignInterfaceError.
        """
        async with self._lock:
            return await in_thread(lambda: self._apply(add, remove))

    async def retain(self, vips: frozenset[str]) -> InterfaceReport:
        """Removes all addresses on the kernel's interface that are not among `vips`. Creates nothing. Routes to ranges make
        nothing local, and stay until the next `sync`.

        Raises ForeignInterfaceError.
        """
        return await self._retried(lambda: self._retain(vips))

    async def differs(self, notifications: InterfaceNotifications) -> Drift | None:
        """Returns how the interface differs from what the last call programmed; only once until the next call.

        notifications: from the kernel, since then. The interface is read only if these contradict the belief.
        """
        return await self._drift(lambda programmed: self._check_notifications(programmed, notifications))

    async def ipv6_differs(self) -> Drift | None:
        """Like `differs` for IPv6, by a look at one route: all routes disappear together when IPv6 is switched off."""
        return await self._drift(self._ipv6_was_switched)

    async def audit(self) -> Drift | None:
        """Like `differs` by a comparison of everything, without a report of the kernel. Calls that program meanwhile do not wait for it
        and are no drift."""
        before = self._programmed
        if before is None or self._reported:
            return None
        found = await in_thread(lambda: self._read_parts(before))
        after = self._programmed
        if after is None or (found is not None and parts_drift(found, before.present, after.present) is None):
            return None
        return await self._drift(self._compare)

    async def _drift(self, look: Callable[[Programmed], Drift | None]) -> Drift | None:
        async with self._lock:
            programmed = self._programmed
            if programmed is None or self._reported:
                return None
            drift = await in_thread(lambda: look(programmed))
            self._reported = drift is not None
            return drift

    async def read(self) -> frozenset[str]:
        """Returns the addresses that are local because of the interface, read from the kernel; empty if it does not exist."""
        return await self._retried(self._read)

    async def exists(self) -> bool:
        """Returns whether an interface of this name exists."""
        return await self._retried(self._exists)

    async def remove(self) -> None:
        """Deletes the interface and the routes over ``lo``, and with them every ClusterIP. Does nothing if they do not exist.

        Raises ForeignInterfaceError.
        """
        await self._retried(self._remove)

    async def _retried(self, work: Callable[[], T]) -> T:
        """Returns the result of work that begins by reading the kernel, so that it can be tried again when it is half done."""
        async with self._lock:
            return await in_thread(lambda: retry(work))

    def _sync(self, vips: frozenset[str], node_addresses: tuple[str, ...]) -> InterfaceReport:
        self._programmed = None
        self._node_addresses = node_addresses
        self._reported = False
        with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
            link, problems = self._ensure_link(netlink)
            wanted = self._without_ipv6_if_disabled(vips, problems)
            sources = read_sources(netlink, link.ifindex, node_addresses)
            present = read_present(netlink, link.ifindex)
            change = plan(wanted, present, limits=self._limits)
            return self._program(netlink, link, present, change, problems, sources, without_ipv6=wanted != vips)

    def _apply(self, add: frozenset[str], remove: frozenset[str]) -> InterfaceReport:
        believed, self._programmed = self._programmed, None
        with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
            link, problems = self._ensure_link(netlink)
            wanted = self._without_ipv6_if_disabled(add, problems)
            without_ipv6 = wanted != add or (believed is not None and believed.without_ipv6)
            if believed is not None and believed.ifindex == link.ifindex:
                present, sources = believed.present, believed.sources
                change = plan_change(present, wanted, remove, limits=self._limits)
            else:
                present = read_present(netlink, link.ifindex)
                sources = read_sources(netlink, link.ifindex, self._node_addresses)
                base = present.vips if believed is None else believed.present.vips
                change = plan((base - remove) | wanted, present, limits=self._limits)
            return self._program(netlink, link, present, change, problems, sources, without_ipv6=without_ipv6)

    def _retain(self, vips: frozenset[str]) -> InterfaceReport:
        self._programmed = None
        with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
            link = find_link(netlink, self._name)
            if link is None:
                return InterfaceReport()
            _require_ours(netlink, link)
            present = read_present(netlink, link.ifindex)
            staying = vips & present.vips | present.ranges
            return self._program(netlink, link, present, plan(staying, present, limits=self._limits), [], None)

    def _check_notifications(self, programmed: Programmed, notifications: InterfaceNotifications) -> Drift | None:
        contradicted = notifications.contradicts(programmed)
        if not contradicted and not notifications.sources_in_doubt:
            return None
        with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
            if read_sources(netlink, programmed.ifindex, self._node_addresses) != programmed.sources:
                return Drift.SOURCE
            return self._compare_with_kernel(netlink, programmed) if contradicted else None

    def _read_parts(self, programmed: Programmed) -> Present | None:
        """Returns what the interface carries; None if it is another one, lacks a setting, or shall have other sources now."""
        with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
            link, ifindex = find_link(netlink, self._name), programmed.ifindex
            right = link is not None and link.ifindex == ifindex and as_programmed(link, self._name)
            right = right and read_sources(netlink, ifindex, self._node_addresses) == programmed.sources
            return read_present(netlink, ifindex) if right else None

    def _compare(self, programmed: Programmed) -> Drift | None:
        with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
            if read_sources(netlink, programmed.ifindex, self._node_addresses) != programmed.sources:
                return Drift.SOURCE
            return self._compare_with_kernel(netlink, programmed)

    def _compare_with_kernel(self, netlink: NetlinkSocket, programmed: Programmed) -> Drift | None:
        link = find_link(netlink, self._name)
        if link is None or link.ifindex != programmed.ifindex or not as_programmed(link, self._name):
            self.last_drift = PartsDrift(
                "link", "it is gone" if link is None else "it is another one, or lacks a setting"
            )
            return Drift.CHANGED
        present = read_present(netlink, link.ifindex)
        if (differs := parts_drift(present, programmed.present)) is None:
            return Drift.SOURCE if lo_is_up(netlink) and not programmed.lo else None
        self.last_drift = differs
        only_sources = present._replace(sourced=programmed.present.sourced) == programmed.present
        return Drift.SOURCE if only_sources else Drift.CHANGED

    def _ipv6_was_switched(self, programmed: Programmed) -> Drift | None:
        if programmed.without_ipv6:
            return Drift.IPV6 if ipv6_missing(self._name) is None else None
        if self._ipv6_route[0] is not programmed:
            self._ipv6_route = programmed, next((one for one in programmed.present.routes if ":" in one), None)
        route = self._ipv6_route[1]
        if route is None:
            return None
        with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
            return None if is_routed(netlink, route, programmed.ifindex) else Drift.IPV6

    def _program(
        self,
        netlink: NetlinkSocket,
        link: rtnetlink.Link,
        present: Present,
        change: InterfacePlan,
        problems: list[Problem],
        sources: Sources | None,
        *,
        without_ipv6: bool = False,
    ) -> InterfaceReport:
        lo = lo_is_up(netlink)
        change = with_sources(change, present, sources, lo=lo)
        failed = _perform(netlink, link.ifindex, change)
        if not failed and sources is not None:
            self._programmed = Programmed(link.ifindex, apply_plan(present, change), sources, lo, without_ipv6)
        problems += self._describe(failed)
        wrong = {address for address, _ in failed}
        gained, lost = change.gained - wrong, change.lost - wrong
        return InterfaceReport(len(gained), len(lost), link.kind, tuple(problems))

    def _ensure_link(self, netlink: NetlinkSocket) -> tuple[rtnetlink.Link, list[Problem]]:
        """Returns the interface, up and silent; creates it if it does not exist."""
        link = find_link(netlink, self._name)
        if link is None:
            self._creating = True
            self._creating = _create_link(netlink, self._name)
            link = rtnetlink.read_link(netlink.ask(rtnetlink.get_link(self._name)))
        _require_ours(netlink, link._replace(alias=MARK) if self._creating else link)
        problems = []
        if link.alias != MARK:
            _raise_on_failure(netlink.perform([rtnetlink.set_alias(link.ifindex, MARK)]))
        self._creating = False
        if link.generates_addresses and (
            failures := netlink.perform([rtnetlink.stop_address_generation(link.ifindex)])
        ):
            detail = f"the interface may get an IPv6 link-local address: {failures[0].detail}"
            problems.append(Problem(f"interface {self._name}", "AddressGeneration", detail))
        if not link.up or link.resolves:
            _raise_on_failure(netlink.perform([rtnetlink.set_link_up(link.ifindex)]))
        if link.kind != self._kind:
            self._kind = link.kind
            if link.kind != KINDS[0]:
                why = "this kernel has no dummy interfaces; it carries ClusterIPs as well"
                logger.info("interface %s is an empty %s, because %s", self._name, link.kind, why)
        return link, problems

    def _read(self) -> frozenset[str]:
        with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
            link = find_link(netlink, self._name)
            return read_present(netlink, link.ifindex).vips if link else frozenset()

    def _exists(self) -> bool:
        with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
            return find_link(netlink, self._name) is not None

    def _remove(self) -> None:
        self._programmed = None
        self._kind = None
        with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
            link = find_link(netlink, self._name)
            if link is not None:
                _require_ours(netlink, link)
            over_lo = read_present(netlink, link.ifindex).over_lo if link else read_routes_over_lo(netlink)
            requests = (rtnetlink.delete_route_over_lo(vip) for vips in over_lo.values() for vip in vips)
            _raise_on_failure(netlink.perform(requests), ignore=_ALREADY_GONE)
            if link is not None:
                _raise_on_failure(netlink.perform([rtnetlink.delete_link(link.ifindex)]), ignore={errno.ENODEV})

    def _without_ipv6_if_disabled(self, vips: frozenset[str], problems: list[Problem]) -> frozenset[str]:
        left_out = any(family_of(vip) is Family.IPV6 for vip in vips)
        reason = ipv6_missing(self._name) if left_out else None
        if reason is None:
            return vips
        detail = f"{reason}: IPv6 ClusterIPs are not reachable from the node itself"
        problems.append(Problem(f"interface {self._name}", "IPv6Disabled", detail))
        return frozenset(vip for vip in vips if family_of(vip) is Family.IPV4)

    def _describe(self, failed: Sequence[tuple[str, str]]) -> list[Problem]:
        subject = f"interface {self._name}"
        shown = [Problem(subject, "AddressNotProgrammed", f"{address}: {why}") for address, why in failed]
        if len(shown) > _PROBLEMS_SHOWN:
            rest = f"and {len(shown) - _PROBLEMS_SHOWN} more"
            shown = [*shown[:_PROBLEMS_SHOWN], Problem(subject, "AddressNotProgrammed", rest)]
        return shown


def _create_link(netlink: NetlinkSocket, name: str) -> bool:
    """Creates a dummy, or a bridge if the kernel does not know dummies (EOPNOTSUPP, net/core/rtnetlink.c). Returns whether it did:
    if another process was faster, the interface may be its own."""
    failures: list[Failure] = []
    for kind in KINDS:
        failures = netlink.perform([rtnetlink.create_link(name, kind)])
        if not failures or failures[0].errno != errno.EOPNOTSUPP:
            break
    _raise_on_failure(failures, ignore=_ALREADY_THERE)
    return not failures


def _require_ours(netlink: NetlinkSocket, link: rtnetlink.Link) -> None:
    if reason := why_not_ours(netlink, link):
        raise ForeignInterfaceError(
            f"interface {link.name} is not the agent's and is left alone: it {reason}."
            " Name another one in dataplane.interfaceName, or rename or delete this one"
        )


def _raise_on_failure(failures: Sequence[Failure], *, ignore: AbstractSet[int] = frozenset()) -> None:
    for failure in failures:
        if failure.errno not in ignore:
            raise OSError(failure.errno, failure.detail)


def _perform(netlink: NetlinkSocket, ifindex: int, change: InterfacePlan) -> list[tuple[str, str]]:
    """Carries out a plan; returns (address, why) for each step that failed."""
    failed: list[tuple[str, str]] = []

    def step(pack: Callable[[str, int], Request], vips: Sequence[str], ignore: AbstractSet[int]) -> None:
        for failure in netlink.perform(pack(vip, ifindex) for vip in vips):
            if failure.errno not in ignore:
                failed.append((vips[failure.position], failure.detail))

    def delete_over_lo(routes: Sequence[LocalRoute]) -> None:
        for failure in netlink.perform(rtnetlink.delete_route_over_lo(*route) for route in routes):
            if failure.errno not in _ALREADY_GONE:
                failed.append((routes[failure.position].destination, failure.detail))

    sources = dict(change.sourced)
    staying = sorted(sources.keys() - set(change.add_routes))
    delete_over_lo(change.doubled_over_lo)
    step(lambda vip, _: rtnetlink.add_route_over_lo(vip, change.source), change.add_over_lo, _ALREADY_THERE)
    step(rtnetlink.add_address, change.add_addresses, _ALREADY_THERE)
    step(lambda vip, at: rtnetlink.add_local_route(vip, at, sources.get(vip, "")), change.add_routes, _ALREADY_THERE)
    step(rtnetlink.delete_local_route, change.redundant_routes, _ALREADY_GONE)
    step(lambda vip, at: rtnetlink.replace_ipv6_route(vip, at, sources[vip]), staying, frozenset())
    step(rtnetlink.delete_local_route, change.remove_routes, _ALREADY_GONE)
    step(rtnetlink.delete_address, change.remove_addresses, _ALREADY_GONE)
    delete_over_lo(change.remove_over_lo)
    for stray in change.remove_strays:
        request = rtnetlink.delete_address(stray.address, ifindex, stray.prefix_length)
        failed += [(stray.address, failure.detail) for failure in netlink.perform([request])]
    return failed
