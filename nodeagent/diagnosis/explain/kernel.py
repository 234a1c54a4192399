"""Values that describe what was found in the kernel; a reader elsewhere fills them in."""

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct


class TableState(Enum):
    """The state of a family's table."""

    RIGHT = "right"
    MISSING = "not there"
    FOREIGN = "not as this version of the agent makes it"
    CHANGED = "there, without the rules that the agent writes"


class KernelFrontend(Struct, frozen=True):
    """An address of a service as the kernel has it.

    scope: whom it is for: `all`, or `pods and node`. action: `pick of 3`, `refuse`, `drop`. connections: counted; None
    without a counter. picked: how often each of `backends` was, likewise.
    """

    kind: str
    place: str
    scope: str
    action: str
    backends: tuple[str, ...] = ()
    connections: int | None = None
    picked: tuple[int, ...] | None = None


class InKernel(Struct, frozen=True):
    """What one family's table has of a service.

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


class StoppedWay(Struct, frozen=True):
    """Connections to the Service that do not get through this node, by its rules and routes.

    client: who connects, in words. place: `10.96.0.10:80/TCP`. share: of them all, as `1/3`; empty: every one. because, do: the reason
    and the cure. meant: a rule stops these and lets others through, which may be what its author wants. of_node: the client is
    this node itself.
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
