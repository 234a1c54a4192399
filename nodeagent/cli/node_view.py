"""What commands look at: the objects, what they lead to on this node, and where all that was learned (values)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nodeagent.model.addresses import Family
from nodeagent.model.addresses_in_use import AddressesInUse
from nodeagent.model.frontend import NodeState, ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice, Service
from nodeagent.model.problem import Problem
from nodeagent.model.unwatched import UnwatchedService
from nodeagent.proxy.dataplane.program.chain import ProgramOptions
from nodeagent.proxy.observe.admin.admin_documents import Status
from nodeagent.proxy.translate.context import Context

LeftOut = Mapping[ObjectKey, tuple[Service, Collection[EndpointSlice]]]


@dataclass(frozen=True, slots=True)
class Access:
    """Where a command gets objects from. socket: of the agent; None: the default. file: the configuration; None: that of
    the environment, if any. manifests, kubeconfig, node_name, cluster_cidr: override the configuration."""

    socket: Path | None = None
    file: Path | None = None
    manifests: str | None = None
    kubeconfig: str | None = None
    node_name: str | None = None
    cluster_cidr: str | None = None

    @property
    def names_source(self) -> bool:
        """Whether the user named a source other than the agent."""
        return self.manifests is not None or self.kubeconfig is not None


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node's objects and the state translated from them.

    origin: the source, for output.
    agent: the status of the agent; None if the objects do not come from it.
    agent_runs: whether an agent answers, also if the objects do not come from it.
    program: options of the constant rules, by family; None if unknown.
    others: names of further Services, if the view contains only one.
    interface: name of the service interface; None if none is wanted.
    own_addresses: addresses that the interface carries in addition to ClusterIPs.
    names_at: addresses at which this node answers DNS itself.
    strays: Services that slices name and that do not exist.
    taken: the addresses of all Services, if the agent reported them.
    left_out: Services of the source that this agent does not serve, with their slices.
    unwatched: the source's answer about the wanted Service, if the agent does not have it.
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
