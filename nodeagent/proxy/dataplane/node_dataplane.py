"""What the agent programs on this node: a table for each family, and the service interface."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from nodeagent.model.addresses import Family
from nodeagent.model.problem import Problem, Retryable, Unusable
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.driver.driver import TableDriver, TableListener
from nodeagent.proxy.dataplane.driver.early_reading import EarlyReading
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.flowtable_devices import FlowtableDevices
from nodeagent.proxy.dataplane.interface import ServiceInterface
from nodeagent.proxy.dataplane.interface_watch import InterfaceWatch
from nodeagent.proxy.dataplane.program.chain import ProgramOptions

logger = logging.getLogger(__name__)


class NodeDataplane:
    """The node's tables and its service interface. netlink: owns owned tables. options: of the families that are programmed.
    interface_name: None for no interface. early: tables that were read already. report_devices: receives the problems of the flowtables'
    devices."""

    def __init__(
        self,
        netlink: Ruleset,
        ownership: Ownership,
        options: Mapping[Family, ProgramOptions],
        listener: TableListener,
        *,
        interface_name: str | None,
        early: Mapping[Family, EarlyReading],
        report_devices: Callable[[Iterable[Problem]], None] = lambda _: None,
    ) -> None:
        self.tables = tuple(
            TableDriver(family, netlink, constant, ownership, listener, early.get(family))
            for family, constant in options.items()
        )
        self._listener = listener
        self.interface = ServiceInterface(interface_name) if interface_name is not None else None
        offloading = [family for family, constant in options.items() if constant.flowtable]
        self._devices = FlowtableDevices(netlink, offloading, report_devices, excluding=interface_name)
        self._offloads = bool(offloading)

    async def look_after(self, interface_changed: Callable[[], None]) -> None:
        """Runs the tasks beside the passes, until cancelled. interface_changed: called when another process changed the
        service interface."""
        async with asyncio.TaskGroup() as tasks:
            for table in self.tables:
                tasks.create_task(table.run_purge(), name=f"affinity {table.family.value}")
            if self.interface is not None:
                watch = InterfaceWatch(self.interface, interface_changed, self._listener.drift_found)
                tasks.create_task(watch.run(), name="interface watch")
            if self._offloads:
                tasks.create_task(self._devices.run(), name="devices of the flowtables")

    async def add_devices(self) -> None:
        """Adds the node's interfaces to the flowtables, once. Raises DataplaneError, OSError."""
        if self._offloads:
            await self._devices.look()

    async def purge(self) -> None:
        """Deletes the learned affinity of all endpoints that left, once."""
        for table in self.tables:
            await table.purge()

    async def with_counts_settled(self, passes: Awaitable[object]) -> None:
        """Awaits all passes of an agent. When they end, also by an error, writes all counts into the kernel if possible, where the
        next agent finds them."""
        try:
            await passes
        finally:
            for table in self.tables:
                try:
                    await table.settle_counts()
                except (Retryable, Unusable) as error:
                    logger.debug("counts of %s: %s", table.family.value, error)
