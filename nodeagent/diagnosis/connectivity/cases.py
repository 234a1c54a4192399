"""A case: one request from one source, and what is expected. Several cases form a row of the matrix (pure)."""

from collections.abc import Iterator
from enum import Enum

from msgspec import Struct

from nodeagent.diagnosis.connectivity.judgement import Expected
from nodeagent.diagnosis.connectivity.objects import PORT
from nodeagent.diagnosis.connectivity.requests import Request
from nodeagent.diagnosis.connectivity.stage import Addresses, DeployedNode, DeployedObjects, DeployedPod
from nodeagent.model.addresses import Family, Protocol

CONVERSATIONS = 3
"""Conversations per case: enough to hit a randomly chosen endpoint."""


class Column(Enum):
    """Where a connection begins. SAME_NODE also if the endpoint's node does not matter."""

    SAME_NODE = "pod, same node"
    OTHER_NODE = "pod, other node"
    NODE = "node"
    OUTSIDE = "outside"


class Caller(Struct, frozen=True):
    """The source of a connection. pod: empty for the machine that runs the command. node: its name. addresses: the
    source addresses, if known."""

    pod: str = ""
    node: str = ""
    addresses: Addresses = {}

    def __str__(self) -> str:
        return f"{self.pod} on {self.node}" if self.pod else "this machine"


class Trace(Struct, frozen=True):
    """A connection, and the node that translates it."""

    node: str
    source: str
    host: str
    port: int
    protocol: Protocol


class Case(Struct, frozen=True):
    """One request and its expected result. late: run it after the others have settled, because a Service that is not
    programmed yet has the same result."""

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


def pod_source(node: DeployedNode, pod: DeployedPod) -> Caller:
    return Caller(pod.name, node.name, pod.addresses)


def clients(
    stage: DeployedObjects, target: DeployedNode | None = None
) -> Iterator[tuple[Column, DeployedNode, Caller]]:
    """Yields the pods and the nodes, each with its column; target: the node that "same" refers to."""
    for node in stage.nodes:
        is_same = target is None or node.name == target.name
        yield Column.SAME_NODE if is_same else Column.OTHER_NODE, node, pod_source(node, node.client)
    for node in stage.nodes:
        yield Column.NODE, node, pod_source(node, node.host)


def titled(stage: DeployedObjects, family: Family, text: str) -> str:
    """Returns the name of a row, with the family if there are two."""
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
    """Returns a case: a connection to a Service's address. on: the node that translates it, if not the source's."""
    protocol, family, host, port = place
    trace = None
    if address := source.addresses.get(family):
        trace = Trace(on or source.node, address, host, port, protocol)
    elif on:
        trace = Trace(on, "", host, port, protocol)
    request = Request(KINDS[protocol], family, host, port, count, size)
    return Case(row, column, source, request, expected, trace, late)


def to_cluster_ip(
    stage: DeployedObjects, service: str, protocol: Protocol, family: Family
) -> tuple[Protocol, Family, str, int] | None:
    """Returns protocol, family, address and port of a Service; None if it has no address of that family."""
    address = stage.services[service].cluster_ips.get(family)
    return None if address is None else (protocol, family, address, PORT)
