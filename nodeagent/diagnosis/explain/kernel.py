"""Values that describe what was found in the kernel; a reader elsewhere fills them in."""

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct

from nodeagent.model.names import ObjectKey


class TableState(Enum):
    """The state of a family's table."""

    RIGHT = "right"
    MISSING = "not there"
    FOREIGN = "not as this version of the agent makes it"
    CHANGED = "there, without the rules that the agent writes"


class KernelFrontend(Struct, frozen=True):
    """An address of a service as the kernel has it.

    scope: the clients that it serves: `all`, or `pods and node`. action: `pick of 3`, `refuse`, `drop`. connections:
    how many were counted; None without a counter. picked: how many went to each of `backends`; None without counters.
    """

    kind: str
    place: str
    scope: str
    action: str
    backends: tuple[str, ...] = ()
    connections: int | None = None
    picked: tuple[int, ...] | None = None


class KernelService(Struct, frozen=True):
    """A service as one family's table has it.

    deviations: one line for each element that is missing, different or too many. affinity, flows: endpoint → clients
    that are bound to it, connections that are tracked to it. not_local: its ClusterIPs that the service interface lacks.
    """

    family: str
    table: TableState
    frontends: tuple[KernelFrontend, ...] = ()
    deviations: tuple[str, ...] = ()
    affinity: Mapping[str, int] = {}
    flows: Mapping[str, int] = {}
    not_local: tuple[str, ...] = ()


class ProbeResult(Enum):
    """The result of a connection from this node to an endpoint."""

    ACCEPTED = "accepts"
    REFUSED = "refuses"
    UNREACHABLE = "cannot be reached"
    SILENT = "does not answer"
    STOPPED = "is not sent to"
    NO_PORT = "was not tried"
    UNKNOWN = "says nothing, as UDP may"


class Probe(Struct, frozen=True):
    """A connection to an endpoint that is used. detail: the kernel's words."""

    endpoint: str
    answer: ProbeResult
    detail: str = ""


class StoppedConnection(Struct, frozen=True):
    """Connections to a Service that the rules or routes of this node stop.

    client: the source, in words. place: `10.96.0.10:80/TCP`. share: the stopped part, as `1/3`; empty: all. because, do:
    the reason and the cure. meant: a rule stops only these, which may be intended. of_node: the client is this node.
    """

    client: str
    place: str
    because: str
    do: str
    share: str = ""
    meant: bool = False
    of_node: bool = False


class NodeFault(Struct, frozen=True):
    """What is wrong with the node and concerns every Service. what, because, do: parts of a sentence. family:
    of the connections; empty: every one. broken: whether none of them works."""

    what: str
    because: str
    do: str
    family: str = ""
    broken: bool = False


class FollowedConnections(Struct, frozen=True):
    """Connections that were followed through this node's rules and routes. stopped: those that do not get through, by
    Service. unseen: notes on rules that were not evaluated."""

    stopped: Mapping[ObjectKey, tuple[StoppedConnection, ...]] = {}
    unseen: tuple[str, ...] = ()
