"""The Protocols of the parts that the engine uses."""

from collections.abc import Awaitable, Iterable, Mapping
from typing import Protocol

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import NodeState, ServiceState, UdpPort
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem
from nodeagent.model.reports import InterfaceReport, PassReport, TableReport


class Table(Protocol):
    """The dataplane of one family. A pass calls it once, by `sync`.

    Three calls are separate, because they belong to no pass or must be known at another time in it: `changed_by_others` is called between
    passes, ten times a second, and starts a pass if it is True; `has_other_owner` decides before the tables change whether ClusterIPs are
    removed from the interface, and is called only while the interface is not in its desired state; `problems` is read when `sync` raised;
    otherwise `sync` returns them.
    """

    @property
    def family(self) -> Family: ...
    @property
    def problems(self) -> tuple[Problem, ...]: ...

    def sync(
        self, changes: Mapping[ObjectKey, ServiceState | None], node: NodeState, *, compare: bool = False
    ) -> Awaitable[TableReport]:
        """Takes in the changes and commits what differs; after an exception a call without changes retries.

        compare: with what the kernel holds, not with what it is believed to hold.
        """
        ...

    def changed_by_others(self) -> Awaitable[bool]: ...

    def has_other_owner(self) -> bool:
        """Returns whether another living process owns the table in the kernel: then nothing of ours is in force."""
        ...


class Interface(Protocol):
    """The interface that makes ClusterIPs local addresses."""

    def retain(self, vips: frozenset[str]) -> Awaitable[InterfaceReport]:
        """Removes everything from the kernel's interface that is not among `vips`; adds nothing."""
        ...

    def sync(self, vips: frozenset[str], node_addresses: tuple[str, ...]) -> Awaitable[InterfaceReport]:
        """Makes exactly `vips` local, starting from what the kernel has now. `node_addresses` are the addresses by which the node
        is known, the best first: connections of the node to `vips` have the first of them that it has as their source."""
        ...

    def apply(self, add: frozenset[str], remove: frozenset[str]) -> Awaitable[InterfaceReport]:
        """Makes `add` local and `remove` not, starting from what earlier calls left."""
        ...


class FlowCleaner(Protocol):
    """Ends tracked UDP flows to endpoints that no longer serve, in its own time."""

    def submit(self, udp_ports: Iterable[UdpPort]) -> None:
        """Submits service ports as they are programmed now; a deleted one has no serving endpoints. Must not block."""
        ...

    def look_again(self, family: Family) -> None:
        """Looks at all flows of a family, because its table was wrong: untranslated flows may have begun. Must not block."""
        ...


class Heartbeat(Protocol):
    """Receives a sign of life from the engine; must not raise or block."""

    def beat(self) -> None:
        """Called when a step is done, or when the loop found nothing to do. A pass that hangs does not call it."""
        ...


class Observer(Protocol):
    """Receives the report of every pass; must not raise or block."""

    def passed(self, report: PassReport) -> None: ...
