"""Reports of what parts of the agent did, for the parts that show it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import NodeState, ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem


@dataclass(frozen=True, slots=True)
class TableReport:
    """What a pass did to the table of one family.

    touched: elements written or removed. messages: in the transaction. new_table: the table was rebuilt.
    read_back: it was read first, so what was written may repair changes of other programs.
    error: why it is not in its desired state, in one line; None if it is.
    problems: Services of which a part is not in the table; the rest is in effect.
    """

    touched: int = 0
    messages: int = 0
    new_table: bool = False
    seconds: float = 0.0
    error: str | None = None
    read_back: bool = False
    problems: tuple[Problem, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the table is in its desired state."""
        return self.error is None


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one pass did.

    changed: services whose state differs (None: deleted). services: the number of all. full: everything was compared.
    waited_seconds: age of the oldest change when the pass began. started, finished: loop time.
    node: the state of the node that was written to the tables. dirty: services that were dirty, whether or not their state changed.
    disturbed: what other programs had changed before: families, and ``interface``.
    interface_in_sync: the interface is in its desired state, or there is no interface.
    programmed: the families whose table is in its desired state. touched: elements written or removed in all families. Every observer
    reads these two, so they follow from `families` once.
    """

    started: float
    finished: float
    families: Mapping[Family, TableReport]
    changed: Mapping[ObjectKey, ServiceState | None] = field(default_factory=dict)
    services: int = 0
    full: bool = False
    waited_seconds: float = 0.0
    problems: tuple[Problem, ...] = ()
    node: NodeState = field(default_factory=NodeState)
    dirty: frozenset[ObjectKey] = frozenset()
    disturbed: frozenset[str] = frozenset()
    interface_in_sync: bool = True
    programmed: frozenset[Family] = field(init=False)
    touched: int = field(init=False)

    def __post_init__(self) -> None:
        """Sets what follows from the other fields."""
        families = self.families.items()
        object.__setattr__(self, "programmed", frozenset([family for family, table in families if table.ok]))
        object.__setattr__(self, "touched", sum([table.touched for _, table in families]))

    @property
    def seconds(self) -> float:
        """How long the pass took."""
        return self.finished - self.started

    @property
    def ok(self) -> bool:
        """Whether every family's table is in its desired state."""
        return len(self.programmed) == len(self.families)


@dataclass(frozen=True, slots=True)
class InterfaceReport:
    """What one call did to the service interface. added, removed: how many addresses and ranges. kind: ``dummy``, ``bridge``, or
    empty while there is no interface."""

    added: int = 0
    removed: int = 0
    kind: str = ""
    problems: tuple[Problem, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every ClusterIP of the kernel's families is local now; if not, a later call may repair it."""
        return all(problem.reason != "AddressNotProgrammed" for problem in self.problems)


@dataclass(frozen=True, slots=True)
class CleaningReport:
    """One walk over the tracked UDP flows of a family.

    places: how many were looked at. seen: flows the kernel returned. deleted: stale ones deleted; gone: stale ones that
    ended meanwhile; failed: stale ones the kernel kept (a later walk tries again).
    interrupted: how often the walk was restarted. error: why it was given up; empty if it was not.
    """

    family: Family
    places: int
    seen: int
    deleted: int
    gone: int
    failed: int
    interrupted: int
    seconds: float
    error: str = ""

    @property
    def complete(self) -> bool:
        """Whether no stale flow to the places is left that existed when the walk began."""
        return not self.error and not self.failed


@dataclass(frozen=True, slots=True)
class PurgeReport:
    """What was deleted of the learned affinity of a family. forgotten: entries deleted. looks: how often entries were read;
    the last look saw all entries and found none stale."""

    family: Family
    forgotten: int
    looks: int
    seconds: float


class DriftReport(NamedTuple):
    """Something in the kernel that was not as programmed any more; it is repaired next.

    object: `IPv4` or `IPv6` for a table, `interface`, or `sysctl`. kind: of what (`rules`, `elements`, `addresses`, …), one of few.
    detail: one line for users. reported: the kernel had reported a change; otherwise the audit found it.
    """

    object: str
    kind: str
    detail: str
    reported: bool = False


class FrontendCounts(NamedTuple):
    """New connections so far to all frontends of a map. by_key: address (if it has one), protocol and port in the kernel's form
    → (count, `namespace/service:port` as in the kernel)."""

    family: Family
    node_ports: bool
    by_key: Mapping[bytes, tuple[int, bytes]]


class MapFill(NamedTuple):
    """How many elements a set or map has. limit: its fixed size; None: it grows as needed."""

    family: Family
    name: str
    elements: int
    limit: int | None = None


class EndpointCounts(NamedTuple):
    """How often endpoints were picked. by_endpoint: (`namespace/service:port` as in the kernel, address and port in the kernel's
    form) → how often, through all frontends of the port."""

    family: Family
    by_endpoint: Mapping[tuple[bytes, bytes], int]


class KernelCounts(NamedTuple):
    """What the kernel has counted. learned: the affinity of clients."""

    frontends: tuple[FrontendCounts, ...] = ()
    learned: tuple[MapFill, ...] = ()
    endpoints: tuple[EndpointCounts, ...] = ()


@dataclass(frozen=True, slots=True)
class ConnectionTable:
    """The kernel's table of connections. entries, limit: present and maximal number. dropped, clashes: since the namespace was
    made; see `dropped_when_full`."""

    entries: int = 0
    limit: int = 0
    dropped: int = 0
    clashes: int = 0

    @property
    def dropped_when_full(self) -> int:
        """Drops without clashes: the kernel counts a clash, of two packets of one connection, as a drop, too (nf_ct_resolve_clash)."""
        return max(0, self.dropped - self.clashes)


@dataclass(frozen=True, slots=True)
class NodeReport:
    """The result of the last look at the node; None: it was not read.

    reverse_path_drops: packets, since the namespace was made. source_ports_taken: where most are taken; 0 if there are enough.
    chains_before_ours: chains of other programs that translate before ours. endpoints_lost: endpoints of the sample to which
    this node has no route. connections_stopped, long_packets_lost: kinds of clients and families, of the connections that were followed.
    times_followed: how often.
    """

    connection_table: ConnectionTable | None = None
    reverse_path_drops: int | None = None
    source_ports_taken: int = 0
    chains_before_ours: int = 0
    endpoints_lost: int = 0
    connections_stopped: int = 0
    long_packets_lost: int = 0
    times_followed: int = 0
