"""What commands look at: the objects, what they lead to on this node, and where all that was learned (values)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import NodeState, ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice, Service
from nodeagent.model.problem import Problem
from nodeagent.model.taken import AddressesInUse
from nodeagent.model.unwatched import UnwatchedService
from nodeagent.proxy.dataplane.program.chain import ProgramOptions
from nodeagent.proxy.observe.admin.admin_documents import Status
from nodeagent.proxy.translate.context import Context

LeftOut = Mapping[ObjectKey, tuple[Service, Collection[EndpointSlice]]]


@dataclass(frozen=True, slots=True)
class Access:
    """Whom a command may ask. socket: of the agent; None: at the usual place. file: a configuration; None: none, or that
    of the environment. manifests, kubeconfig, node_name, cluster_cidr: in place of what the configuration says."""

    socket: Path | None = None
    file: Path | None = None
    manifests: str | None = None
    kubeconfig: str | None = None
    node_name: str | None = None
    cluster_cidr: str | None = None

    @property
    def names_source(self) -> bool:
        """Whether the objects shall not come from the agent."""
        return self.manifests is not None or self.kubeconfig is not None


@dataclass(frozen=True, slots=True)
class NodeView:
    """origin: where it was learned, for a person. agent: None when it was not asked.

    program: how the constant rules are made, by family; None where nobody said. others: Services that there are besides.
    interface: the service interface's name; None: there shall be none. own_addresses: what it carries beside ClusterIPs. names_at: where this node answers names itself.
    agent_runs: one answers, whether it was asked for the objects or not. strays: the names of Services that only slices carry.
    taken: addresses that lead to Services, where somebody else found them out. left_out: Services that the source has and this agent does not serve, with their slices. unwatched: what the source says of the one
    Service that was asked for and that the agent does not hold.
    """

    origin: str
    context: Context
    node: NodeState
    services: Mapping[ObjectKey, Service]
    slices: Mapping[ObjectKey, Collection[EndpointSlice]]
    states: Mapping[ObjectKey, ServiceState]
    problems: tuple[Problem, ...]
    families: tuple[Family, ...]
    agent: Status | None = None
    agent_runs: bool = True
    program: Mapping[Family, ProgramOptions] | None = None
    since: Mapping[Problem, str] = field(default_factory=dict)
    others: tuple[ObjectKey, ...] = ()
    interface: str | None = None
    own_addresses: Collection[str] = ()
    names_at: Collection[str] = ()
    strays: Collection[ObjectKey] = ()
    taken: AddressesInUse | None = None
    left_out: LeftOut = field(default_factory=dict)
    unwatched: UnwatchedService | None = None


def left_out_by(key: ObjectKey | None, found: UnwatchedService | None) -> LeftOut:
    return {} if key is None or found is None or found.service is None else {key: (found.service, found.slices)}
