"""Decides what the service interface carries: the ClusterIPs, or their ranges, of all Services whose family's table guards them."""

from collections import Counter
from collections.abc import Awaitable, Collection, Mapping
from itertools import chain

from nodeagent.model.addresses import Family, family_of
from nodeagent.model.carried import CarriedRange, carried_by, carried_ranges
from nodeagent.model.frontend import ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem, Retryable
from nodeagent.model.reports import InterfaceReport
from nodeagent.proxy.engine.needed_parts import Interface


class ClusterIps:
    """Keeps the addresses of the service interface equal to the ClusterIPs of the Services.

    interface: None if no interface carries ClusterIPs. own_addresses: what it carries besides them.
    failures: how many times in a row the interface could not be brought to its desired state.
    problems: why it could not, and which addresses other interfaces hold.
    """

    def __init__(self, interface: Interface | None, own_addresses: Collection[str]) -> None:
        self._interface = interface
        self._by_service: dict[ObjectKey, tuple[str, ...]] = {}
        self._own_addresses = tuple(own_addresses)
        self._counts = Counter(own_addresses)
        self._ranges: tuple[CarriedRange, ...] = ()
        self._node_addresses: tuple[str, ...] = ()
        self._outdated: frozenset[str] = frozenset()
        self._unguarded: frozenset[str] = frozenset()
        self._is_known = False
        self.problems: tuple[Problem, ...] = ()
        self.failures = 0

    @property
    def is_in_sync(self) -> bool:
        """Whether the interface is known to be in its desired state; also True without an interface."""
        return self._interface is None or self._is_known

    def distrust(self) -> None:
        """Makes the next call compare with the kernel, instead of with what is believed."""
        self._is_known = False

    def set_node_addresses(self, node_addresses: tuple[str, ...]) -> None:
        """Sets the addresses by which the node is known, the best first: one of them is the source of its connections to ClusterIPs."""
        if node_addresses != self._node_addresses:
            self._node_addresses = node_addresses
            self._is_known = False

    def set_service_cidrs(self, service_cidrs: tuple[str, ...]) -> None:
        """Sets the service ranges. What carries ClusterIPs now stays until what carries them from then on is there."""
        ranges = carried_ranges(service_cidrs)
        if ranges == self._ranges:
            return
        self._ranges = ranges
        carried = self._counts.keys() - self._unguarded
        waiting = {family_of(one) for one in self._unguarded}
        self._outdated |= self._counts.keys()
        self._counts = Counter(self._own_addresses)
        for cluster_ips in self._by_service.values():
            self._counts.update(self._carrying(cluster_ips))
        self._outdated -= self._counts.keys()
        self._unguarded = frozenset(one for one in self._counts.keys() - carried if family_of(one) in waiting)
        if self._by_service:
            self._is_known = False

    def note_changes(self, changed: Mapping[ObjectKey, ServiceState | None]) -> tuple[frozenset[str], frozenset[str]]:
        """Takes in the changed Services' ClusterIPs; returns what the interface need not carry any more, and what it shall newly
        carry."""
        counts, touched = self._counts, dict[str, bool]()
        for key, state in changed.items():
            cluster_ips = state.cluster_ips if state is not None else ()
            held = self._by_service.get(key, ())
            if held == cluster_ips:
                continue
            before = self._carrying(self._by_service.pop(key)) if held else ()
            after = self._carrying(cluster_ips)
            for ones, by in ((before, -1), (after, 1)):
                for one in ones:
                    count = counts.get(one, 0)
                    touched.setdefault(one, count > 0)
                    counts[one] = count + by
            if cluster_ips:
                self._by_service[key] = cluster_ips
        gone, new = set[str](), set[str]()
        for one, had in touched.items():
            has = counts[one] > 0
            if not has:
                del counts[one]
            if had is not has:
                (new if has else gone).add(one)
        return frozenset(gone), frozenset(new)

    async def remove_unused(self, gone: frozenset[str]) -> None:
        """Removes the ClusterIPs that no Service has any more from the interface, before the tables that guard them drop them.

        If it is not known what the interface holds, removes everything that no service has. ClusterIPs that are local, and shall
        be carried by their range, are left to `add_new`, which adds the route to the range first.
        """
        if self._interface is None or (self._is_known and not gone):
            return
        if self._is_known:
            await self._record(self._interface.apply(frozenset(), gone))
        else:
            await self._record(
                self._interface.retain(
                    self._outdated.union(self._counts, chain.from_iterable(self._by_service.values()))
                )
            )
            self._is_known = False

    async def add_new(self, new: frozenset[str], programmed: frozenset[Family], *, elsewhere: bool = False) -> None:
        """Adds new ClusterIPs of the families `programmed` to the interface, after the tables that guard them.

        If it is not known what the interface holds, it is brought to all that are guarded. elsewhere: another agent does that.
        """
        admitted = self._guarded(new, programmed)
        if self._interface is None or elsewhere or (self._is_known and not admitted):
            return
        if self._is_known:
            await self._record(self._interface.apply(admitted, frozenset()))
        else:
            vips = frozenset(self._counts.keys() - self._unguarded)
            await self._record(self._interface.sync(vips, self._node_addresses))
        self.failures = 0 if self._is_known else self.failures + 1
        if not self.failures:
            self._outdated = frozenset()

    def _carrying(self, cluster_ips: tuple[str, ...]) -> tuple[str, ...]:
        if not self._ranges:
            return cluster_ips
        return tuple(one for cluster_ip in cluster_ips for one in carried_by(cluster_ip, self._ranges))

    def _guarded(self, new: frozenset[str], programmed: frozenset[Family]) -> frozenset[str]:
        """Returns those that may be carried: no address before the table of its family protects the host's own daemons."""
        candidates = {one for one in new | self._unguarded if one in self._counts}
        admitted = frozenset(one for one in candidates if family_of(one) in programmed)
        self._unguarded = frozenset(candidates - admitted)
        return admitted

    async def _record(self, work: Awaitable[InterfaceReport]) -> None:
        """Waits for a change of the interface and keeps its result. A failure is only a Problem: traffic of pods does not need
        the interface."""
        try:
            report = await work
        except (Retryable, OSError) as error:
            self._is_known = False
            self.problems = (Problem("service interface", "NotProgrammed", str(error)),)
        else:
            self._is_known = report.complete
            self.problems = report.problems
