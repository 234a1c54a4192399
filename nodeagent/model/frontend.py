"""Frontends and backends: what the translation decides and the dataplane programs."""

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct

from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.model.problem import Problem


class FrontendKind(Enum):
    """How a client addresses the service."""

    CLUSTER_IP = "ClusterIP"
    EXTERNAL_IP = "ExternalIP"
    LOAD_BALANCER = "LoadBalancer"
    NODE_PORT = "NodePort"


class Scope(Enum):
    """Which of a service port's two endpoint lists a route uses."""

    CLUSTER = "Cluster"
    LOCAL = "Local"


class Unserved(Enum):
    """What happens to a new connection if there is no backend."""

    REFUSE = "refuse"
    DROP = "drop"


class Backend(Struct, frozen=True, gc=False, order=True):
    """One endpoint of one service port: canonical address text, port number, whether it is on this node."""

    address: str
    port: int
    local: bool = False


if TYPE_CHECKING:
    BackendList = Sequence[Backend]
    """Decoded, they are a tuple; those of a state that is held are packed (`packed_backends`)."""
else:
    BackendList = tuple[Backend, ...]


class Route(Struct, frozen=True, gc=False):
    """Where connections go: to a random one of `backends` (uniformly), or `otherwise` without backends.

    `backends` has no duplicates (by address and port); its order has no meaning.
    """

    backends: BackendList
    scope: Scope = Scope.CLUSTER
    otherwise: Unserved = Unserved.REFUSE


class Frontend(Struct, frozen=True, gc=False):
    """One address and port at which a service port is reached, in one family.

    address: canonical text; None for a node port (any accepted address of the node).
    route: for every source, except those of `short_circuit`.
    short_circuit: for pods and the node itself (externalTrafficPolicy=Local); None: they use `route`.
    masquerade: every connection through this frontend gets its source rewritten (externalTrafficPolicy=Cluster).
    affinity_seconds: timeout of client-IP affinity; None: no affinity.
    allowed_sources: CIDRs (canonical, this family) that may connect; None: every source. An empty tuple: no source.
    """

    kind: FrontendKind
    family: Family
    address: str | None
    protocol: Protocol
    port: int
    service_port: ServicePortName
    route: Route
    short_circuit: Route | None = None
    masquerade: bool = False
    affinity_seconds: int | None = None
    allowed_sources: tuple[str, ...] | None = None

    @property
    def place(self) -> tuple[Family, str | None, Protocol, int]:
        """The key that at most one frontend may have."""
        return (self.family, self.address, self.protocol, self.port)


class HealthCheck(Struct, frozen=True, gc=False):
    """healthCheckNodePort of a service: its port and, per family, how many local ready endpoint addresses there are."""

    port: int
    local_endpoints: dict[Family, int]


class UdpPort(Struct, frozen=True, gc=False):
    """A UDP service port in one family and the endpoints whose conntrack entries stay (all serving ones, anywhere).

    `addresses`: ClusterIP, external and load-balancer addresses of the port; `node_port`: 0 for none.
    """

    service_port: ServicePortName
    family: Family
    addresses: tuple[str, ...]
    port: int
    node_port: int
    serving: frozenset[tuple[str, int]]


class ServiceState(Struct, frozen=True, gc=False):
    """The desired state of one Service on this node. `created` (RFC 3339 or empty) and `key` resolve conflicts."""

    key: ObjectKey
    created: str = ""
    cluster_ips: tuple[str, ...] = ()
    frontends: tuple[Frontend, ...] = ()
    health_check: HealthCheck | None = None
    udp_ports: tuple[UdpPort, ...] = ()
    problems: tuple[Problem, ...] = ()


def have_same_places(ones: Sequence[Frontend], others: Sequence[Frontend]) -> bool:
    """Returns whether two services' frontends have the same places and kinds, in this order."""
    if len(ones) != len(others):
        return False
    for one, other in zip(ones, others, strict=True):
        if (
            one.port != other.port
            or one.address != other.address
            or one.kind is not other.kind
            or one.protocol is not other.protocol
            or one.family is not other.family
        ):
            return False
    return True


class NamesHere(Struct, frozen=True, gc=False):
    """Where this node answers DNS queries itself: addresses (canonical text) and ports. answering: a process reads the queries now.
    former: addresses that served queries under the previous configuration, whose last answers are still sent."""

    places: tuple[tuple[str, int], ...] = ()
    answering: bool = False
    former: tuple[tuple[str, int], ...] = ()


class NodeState(Struct, frozen=True, gc=False):
    """What the dataplane needs to know besides services; all CIDRs canonical, both families in one tuple.

    service_cidrs: packets to addresses in them that belong to no service are dropped.
    pod_cidrs: sources that count as pods (empty with detection by interface, and without detection).
    node_port_cidrs: destinations at which node ports answer (must be local to the node too).
    """

    service_cidrs: tuple[str, ...] = ()
    pod_cidrs: tuple[str, ...] = ()
    node_port_cidrs: tuple[str, ...] = ()
    names: NamesHere = NamesHere()
