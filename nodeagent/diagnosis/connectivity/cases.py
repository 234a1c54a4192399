"""A case: one request from one source, and what must come of it. A row of the matrix is what several are about (pure)."""

from collections.abc import Iterator
from enum import Enum

from msgspec import Struct

from nodeagent.diagnosis.connectivity.judgement import Expected
from nodeagent.diagnosis.connectivity.objects import PORT
from nodeagent.diagnosis.connectivity.requests import Request
from nodeagent.diagnosis.connectivity.stage import Addresses, NodePlace, PodPlace, Stage
from nodeagent.model.addresses import Family, Protocol

CONVERSATIONS = 3
"""On each way, so that an endpoint that is chosen by chance is met."""


class Column(Enum):
    """Where a connection begins. SAME_NODE also where the node of the endpoint does not matter."""

    SAME_NODE = "pod, same node"
    OTHER_NODE = "pod, other node"
    NODE = "node"
    OUTSIDE = "outside"


class Caller(Struct, frozen=True):
    """pod: empty for the machine that the command runs on. node: its name. addresses: those it begins connections with, empty
    when they are not known before."""

    pod: str = ""
    node: str = ""
    addresses: Addresses = {}

    def __str__(self) -> str:
        return f"{self.pod} on {self.node}" if self.pod else "this machine"


class Trace(Struct, frozen=True):
    """On which node a connection is translated, and what it is."""

    node: str
    source: str
    host: str
    port: int
    protocol: Protocol


class Case(Struct, frozen=True):
    """late: run only once everything else has settled, because the outcome is that of a Service which is not served yet, too."""

    row: str
    column: Column
    source: Caller
    request: Request
    expected: Expected
    trace: Trace | None = None
    late: bool = False


class Skipped(Struct, frozen=True):
    """A field of the matrix that is not tried, and why."""

    row: str
    column: Column
    reason: str


Cases = Iterator[Case | Skipped]

KINDS = {Protocol.TCP: "tcp", Protocol.UDP: "udp"}


def pod_source(node: NodePlace, pod: PodPlace) -> Caller:
    return Caller(pod.name, node.name, pod.addresses)


def clients(stage: Stage, target: NodePlace | None = None) -> Iterator[tuple[Column, NodePlace, Caller]]:
    """The pods and the nodes, each with its column; target: the node that `same` means."""
    for node in stage.nodes:
        is_same = target is None or node.name == target.name
        yield Column.SAME_NODE if is_same else Column.OTHER_NODE, node, pod_source(node, node.client)
    for node in stage.nodes:
        yield Column.NODE, node, pod_source(node, node.host)


def titled(stage: Stage, family: Family, text: str) -> str:
    """The name of a row, with the family where there are two."""
    return f"{text}, {family.value}" if len(stage.families) > 1 else text


def to_service(
    row: str,
    column: Column,
    source: Caller,
    place: tuple[Protocol, Family, str, int],
    expected: Expected,
    *,
    on: str = "",
    count: int = CONVERSATIONS,
    size: int = 16,
    late: bool = False,
) -> Case:
    """A connection to an address of a Service. on: the node that translates it, if it is not the source's."""
    protocol, family, host, port = place
    trace = None
    if address := source.addresses.get(family):
        trace = Trace(on or source.node, address, host, port, protocol)
    elif on:
        trace = Trace(on, "", host, port, protocol)
    request = Request(KINDS[protocol], family, host, port, count, size)
    return Case(row, column, source, request, expected, trace, late)


def to_cluster_ip(
    stage: Stage, service: str, protocol: Protocol, family: Family
) -> tuple[Protocol, Family, str, int] | None:
    """The place of a Service; None when it has no address of that family."""
    address = stage.services[service].cluster_ips.get(family)
    return None if address is None else (protocol, family, address, PORT)
