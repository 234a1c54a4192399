"""What the engine needs of the others."""

from collections.abc import Awaitable, Iterable, Mapping
from typing import Protocol

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import NodeState, ServiceState, UdpPort
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem
from nodeagent.model.reports import InterfaceReport, PassReport, TableReport


class Table(Protocol):
    """The dataplane of one family. A pass enters it once, by `sync`.

    Three things are asked apart, for they have no pass or have to be known elsewhere in it:
    `changed_by_others` is asked between passes, ten times a second, and is a reason for one;
    `has_other_owner` decides before the tables change whether ClusterIPs leave the interface, and is asked only as long as
    the interface is not as it should be;
    `problems` is asked when `sync` raised, which returns them otherwise.
    """

    @property
    def family(self) -> Family: ...
    @property
    def problems(self) -> tuple[Problem, ...]: ...

    def sync(
        self, changes: Mapping[ObjectKey, ServiceState | None], node: NodeState, *, compare: bool = False
    ) -> Awaitable[TableReport]:
        """Take the changes in and commit what differs; after an exception a call without changes retries.

        compare: with what the kernel holds, not with what it is believed to hold.
        """
        ...

    def changed_by_others(self) -> Awaitable[bool]: ...

    def has_other_owner(self) -> bool:
        """Whether another process that lives owns the table in the kernel: nothing of ours will be in force."""
        ...


class Interface(Protocol):
    """Where ClusterIPs become local addresses."""

    def retain(self, vips: frozenset[str]) -> Awaitable[InterfaceReport]:
        """Whatever the kernel has there that is not among `vips` ceases to be local; nothing becomes local."""
        ...

    def sync(self, vips: frozenset[str], node_addresses: tuple[str, ...]) -> Awaitable[InterfaceReport]:
        """Exactly `vips` are local, from what the kernel has now. The node's connections to them have one of its addresses as their
        source, by which it is known (the best first) if it has one of these."""
        ...

    def apply(self, add: frozenset[str], remove: frozenset[str]) -> Awaitable[InterfaceReport]:
        """Some come and go, from what earlier calls left."""
        ...


class FlowCleaner(Protocol):
    """Who ends tracked UDP flows to endpoints that no longer serve, in its own time."""

    def submit(self, udp_ports: Iterable[UdpPort]) -> None:
        """Service ports as they are programmed now; a vanished one has nobody serving. Must not block."""
        ...

    def look_again(self, family: Family) -> None:
        """The table of a family was not what it should be: flows may have begun that nothing translated. Must not block."""
        ...


class Heartbeat(Protocol):
    """Who wants to know that the engine gets on; must not raise or block."""

    def beat(self) -> None:
        """A step is done, or the loop came round with nothing to do. A pass that hangs is silent."""
        ...


class Observer(Protocol):
    """Hears of every pass; must not raise or block."""

    def passed(self, report: PassReport) -> None: ...
