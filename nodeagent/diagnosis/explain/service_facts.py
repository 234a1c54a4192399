"""Everything that is known of one Service on this node, before it is judged."""

from collections.abc import Sequence

from msgspec import Struct

from nodeagent.diagnosis.explain.endpoint_reasons import Account, account_endpoints
from nodeagent.diagnosis.explain.kernel import KernelService, NodeFault, Probe, StoppedConnection
from nodeagent.model.addresses_in_use import AddressesInUse
from nodeagent.model.frontend import Frontend, ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice, Service, ServicePort, key_of
from nodeagent.model.problem import Problem
from nodeagent.proxy.translate.context import Context

DNS_PORT = 53


def ports_of(service: Service, port: str) -> list[ServicePort]:
    """Returns the ports of a Service that have this name or number, or all if it is empty."""
    return [one for one in service.spec.ports or () if not port or port in (one.name or "", str(one.port))]


class ServiceFacts(Struct, frozen=True, kw_only=True):
    """The input of `explain_service`.

    state: the translation's result for the Service; None without a result.
    problems: all problems of the agent, of every object.
    kernel: the Service in each family's table; None if the kernel was not read.
    probes: results of connections to its endpoints.
    port: the name or number of the only port to explain; empty: all ports.
    client: the address of a client; empty: any client.
    astray: Services that slices name and that do not exist.
    agent_runs: whether an agent on this node repairs the kernel's tables.
    service_ranges, pod_ranges: the known CIDRs of ClusterIPs and of pods.
    taken: the addresses of all Services.
    node_port_ranges: CIDRs of addresses that answer node ports; None if unknown.
    stopped: connections to its addresses that this node stops.
    node_faults: faults of the node.
    names_at: addresses at which this node answers DNS itself.
    unseen: checks that were not made, so that connections may still be stopped.
    """

    service: Service
    slices: Sequence[EndpointSlice]
    context: Context
    state: ServiceState | None
    problems: Sequence[Problem] = ()
    kernel: Sequence[KernelService] | None = None
    probes: Sequence[Probe] = ()
    port: str = ""
    client: str = ""
    astray: Sequence[ObjectKey] = ()
    agent_runs: bool = True
    service_ranges: Sequence[str] = ()
    taken: AddressesInUse = AddressesInUse()
    pod_ranges: Sequence[str] = ()
    node_port_ranges: Sequence[str] | None = None
    stopped: Sequence[StoppedConnection] = ()
    node_faults: Sequence[NodeFault] = ()
    names_at: Sequence[str] = ()
    unseen: Sequence[str] = ()

    @property
    def key(self) -> ObjectKey:
        """The Service's namespace and name."""
        return key_of(self.service)

    @property
    def ports(self) -> list[ServicePort]:
        """The Service's ports, or the one that `port` names."""
        return ports_of(self.service, self.port)

    def is_answered_here(self, port: ServicePort) -> bool:
        """Returns whether this node answers DNS queries to that port itself, at every address of the Service."""
        spec = self.service.spec
        here = () if self.state is None else self.state.cluster_ips
        addresses = here or spec.cluster_ips or (spec.cluster_ip,)
        asked = port.port == DNS_PORT and (port.protocol or "TCP") in ("UDP", "TCP")
        return asked and all(address in self.names_at for address in addresses)

    def accounts(self) -> tuple[Account, ...]:
        """Returns every endpoint of the slices for those ports, with the reason why it is used or not."""
        names = {(one.name or "", one.protocol or "TCP") for one in self.ports}
        found = account_endpoints(self.service, self.slices, self.context)
        return tuple(one for one in found if not self.port or (one.service_port, one.protocol) in names)

    @property
    def frontends(self) -> list[Frontend]:
        """The addresses and node ports at which those ports are served on this node."""
        names = {one.name or "" for one in self.ports}
        state = self.state
        return [] if state is None else [one for one in state.frontends if one.service_port.port in names]

    @property
    def own_problems(self) -> list[Problem]:
        """The problems of the Service itself and of its slices."""
        if not self.problems:
            return []
        slices = {f"EndpointSlice {key_of(one)}" for one in self.slices}
        return [one for one in self.problems if one.subject == f"Service {self.key}" or one.subject in slices]
