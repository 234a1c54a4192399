"""Which ClusterIPs the service interface carries: those of all Services whose family's table guards them."""

from collections import Counter
from collections.abc import Awaitable, Collection, Mapping

from nodeagent.engine.ports import Interface
from nodeagent.model.addresses import Family, family_of
from nodeagent.model.frontend import ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem, Retryable
from nodeagent.model.reports import InterfaceReport


class ClusterIps:
    """interface None: there is none to carry them. own_addresses: what it carries beside them.

    failures: how often in a row it could not be brought to what it shall carry. problems: why, and what others hold.
    """

    def __init__(self, interface: Interface | None, own_addresses: Collection[str]) -> None:
        self._interface = interface
        self._by_service: dict[ObjectKey, tuple[str, ...]] = {}
        self._counts = Counter(own_addresses)
        self._unguarded: frozenset[str] = frozenset()
        self._is_known = False
        self.problems: tuple[Problem, ...] = ()
        self.failures = 0

    @property
    def are_right(self) -> bool:
        """Whether the interface is known to carry what it shall; so it is where there is none."""
        return self._interface is None or self._is_known

    def doubt(self) -> None:
        """Compare with the kernel the next time, instead of with what is believed."""
        self._is_known = False

    def take_in(self, changed: Mapping[ObjectKey, ServiceState | None]) -> tuple[frozenset[str], frozenset[str]]:
        """Note the changed Services' ClusterIPs; returns those that no Service has any more, and those that are new."""
        touched: dict[str, bool] = {}
        for key, state in changed.items():
            before = self._by_service.pop(key, ())
            after = state.cluster_ips if state is not None else ()
            for vip in (*before, *after):
                touched.setdefault(vip, self._counts[vip] > 0)
            self._counts.subtract(before)
            self._counts.update(after)
            if after:
                self._by_service[key] = after
        for vip in touched:
            if not self._counts[vip]:
                del self._counts[vip]
        gone = frozenset(vip for vip, had in touched.items() if had and vip not in self._counts)
        new = frozenset(vip for vip, had in touched.items() if not had and vip in self._counts)
        return gone, new

    async def release(self, gone: frozenset[str]) -> None:
        """ClusterIPs that nobody has any more leave the interface, before the tables that guard them forget them.

        When it is not known what the interface holds, whatever no service has leaves.
        """
        if self._interface is None or (self._is_known and not gone):
            return
        if self._is_known:
            await self._settle(self._interface.apply(frozenset(), gone))
        else:
            await self._settle(self._interface.retain(frozenset(self._counts)))
            self._is_known = False

    async def occupy(self, new: frozenset[str], programmed: frozenset[Family], *, elsewhere: bool = False) -> None:
        """New ClusterIPs appear on the interface, after the tables that guard them: those of the families `programmed`.

        When it is not known what the interface holds, it is brought to all that are guarded. elsewhere: another agent does that.
        """
        admitted = self._admit(new, programmed)
        if self._interface is None or elsewhere or (self._is_known and not admitted):
            return
        if self._is_known:
            await self._settle(self._interface.apply(admitted, frozenset()))
        else:
            await self._settle(self._interface.sync(frozenset(self._counts.keys() - self._unguarded)))
        self.failures = 0 if self._is_known else self.failures + 1

    def _admit(self, new: frozenset[str], programmed: frozenset[Family]) -> frozenset[str]:
        """New ClusterIPs that may become local: not before the table of their family keeps the host's daemons off."""
        candidates = {vip for vip in new | self._unguarded if vip in self._counts}
        admitted = frozenset(vip for vip in candidates if family_of(vip) in programmed)
        self._unguarded = frozenset(candidates - admitted)
        return admitted

    async def _settle(self, work: Awaitable[InterfaceReport]) -> None:
        """A failure is a Problem and no more: traffic of pods does not depend on the interface."""
        try:
            report = await work
        except (Retryable, OSError) as error:
            self._is_known = False
            self.problems = (Problem("service interface", "NotProgrammed", str(error)),)
        else:
            self._is_known = report.complete
            self.problems = report.problems
