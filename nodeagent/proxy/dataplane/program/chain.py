"""Chains as values, and the options that decide which chains exist (pure)."""

from dataclasses import dataclass, field
from enum import Enum, IntEnum

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.schema import SetSpec
from nodeagent.wire.netlink.nf_tables.expressions import Rule


class PodDetection(Enum):
    """How the rules recognise traffic of pods."""

    NONE = "none"
    CIDR = "cidr"
    INTERFACE = "interface"
    INTERFACE_PREFIX = "interface-prefix"


@dataclass(frozen=True, slots=True)
class ProgramOptions:
    """What the rules depend on.

    interface: the bridge's name, or the prefix of pod interfaces. names: whether this node answers DNS queries.
    pod_range: the only pod range, if pods are detected by CIDR and the configuration has it; else the table's set is looked up.
    flowtable: whether established connections are offloaded.
    """

    pod_detection: PodDetection = PodDetection.NONE
    interface: str = ""
    masquerade_all: bool = False
    counters: bool = True
    names: bool = False
    endpoint_counters: bool = False
    pod_range: str = ""
    flowtable: bool = False

    def specs(self) -> dict[str, SetSpec]:
        """Returns the sets of its table, by name."""
        wanted = schema.set_specs(counters=self.counters, endpoint_counters=self.endpoint_counters)
        return {spec.name: spec for spec in wanted}


class HookNumber(IntEnum):
    """enum nf_inet_hooks."""

    PREROUTING = 0
    INPUT = 1
    FORWARD = 2
    OUTPUT = 3
    POSTROUTING = 4


class ChainType(Enum):
    """The type of a base chain.
    nat: sees the first packet of a connection, until some chain has translated it. filter: sees every packet."""

    NAT = "nat"
    FILTER = "filter"


@dataclass(frozen=True, slots=True)
class Hook:
    """Where a base chain is attached.

    The kernel enters all nat chains of a hook at one place, destination translation at -100 and source translation at
    100; their own priority orders them among each other (nf_nat_core.c, nf_nat_register_fn).
    """

    number: int
    priority: int
    type: ChainType = ChainType.NAT


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain and its rules, in order."""

    name: str
    rules: tuple[Rule, ...]
    hook: Hook | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """All chains of one family's table, and the elements of the verdict maps that lead to them. flowtable: the one that rules add
    connections to; empty: none do."""

    family: Family
    chains: tuple[Chain, ...]
    verdicts: dict[str, dict[bytes, str]] = field(default_factory=dict)
    flowtable: str = ""

    def chain(self, name: str) -> Chain:
        """Returns the chain of that name. Raises KeyError for an unknown name."""
        for chain in self.chains:
            if chain.name == name:
                return chain
        raise KeyError(name)
