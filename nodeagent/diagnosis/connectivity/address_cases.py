"""Cases by address: ClusterIPs, node ports, load-balancer addresses and external IPs (pure)."""

from collections.abc import Iterator

from nodeagent.diagnosis.connectivity import cases
from nodeagent.diagnosis.connectivity.judgement import Expected
from nodeagent.diagnosis.connectivity.objects import BALANCER, EXTERNAL_IP, PORT, service_of_node
from nodeagent.diagnosis.connectivity.stage import DeployedNode, DeployedObjects
from nodeagent.model.addresses import Family, Protocol

BOTH = (Protocol.TCP, Protocol.UDP)
MEBIBYTE = 1 << 20
FRAGMENTED = 8192
"""Bytes of a datagram that needs several packets."""
OUTER = {BALANCER: "load-balancer address", EXTERNAL_IP: "external IP"}


def address_cases(stage: DeployedObjects) -> cases.Cases:
    for family in stage.families:
        for protocol in BOTH:
            yield from _cluster_ips(stage, family, protocol, f"ClusterIP, {protocol.name}")
        yield from _cluster_ips(stage, family, Protocol.TCP, "ClusterIP, TCP, 1 MiB", size=MEBIBYTE)
        yield from _cluster_ips(stage, family, Protocol.UDP, "ClusterIP, UDP, 8 KiB", size=FRAGMENTED)
        yield from _hairpin(stage, family)
        for number, node in enumerate(stage.nodes):
            for protocol in BOTH:
                yield from _node_port(stage, family, protocol, node, number)
        for service in OUTER:
            yield from _outer(stage, family, service)


def _cluster_ips(
    stage: DeployedObjects, family: Family, protocol: Protocol, text: str, *, size: int = 16
) -> cases.Cases:
    """Yields cases from everywhere to the Service of each node's server."""
    row = cases.titled(stage, family, text)
    for number, target in enumerate(stage.nodes):
        if (place := cases.to_cluster_ip(stage, service_of_node(number), protocol, family)) is None:
            continue
        expected = Expected((target.server.name,))
        for column, _, source in cases.clients(stage, target):
            count = 1 if size == MEBIBYTE else cases.CONVERSATIONS
            yield cases.to_service(row, column, source, place, expected, count=count, size=size)


def _hairpin(stage: DeployedObjects, family: Family) -> cases.Cases:
    """Yields cases from a pod to itself, through its Service."""
    row = cases.titled(stage, family, "ClusterIP, a pod to itself")
    for number, node in enumerate(stage.nodes):
        for protocol in BOTH:
            if place := cases.to_cluster_ip(stage, service_of_node(number), protocol, family):
                source = cases.pod_source(node, node.server)
                yield cases.to_service(row, cases.Column.SAME_NODE, source, place, Expected((node.server.name,)))


def outside(stage: DeployedObjects, family: Family, row: str) -> Iterator[cases.Caller | cases.Skipped]:
    """Yields this machine as a caller if it reaches the nodes, else the reason to skip."""
    reason = stage.unreachable.get(family, "")
    yield cases.Skipped(row, cases.Column.OUTSIDE, reason) if reason else cases.Caller()


def _node_port(
    stage: DeployedObjects, family: Family, protocol: Protocol, node: DeployedNode, number: int
) -> cases.Cases:
    """Yields cases to the port of one node for the server of the next one: connections that go on to another node."""
    row = cases.titled(stage, family, f"node port of {node.name}, {protocol.name}")
    number = (number + 1) % len(stage.nodes)
    port = stage.services[service_of_node(number)].node_ports.get(protocol)
    address = node.addresses.get(family)
    if port is None or address is None:
        return
    expected, place = Expected((stage.nodes[number].server.name,)), (protocol, family, address, port)
    for column, _, source in cases.clients(stage, node):
        yield cases.to_service(row, column, source, place, expected, on=node.name)
    for one in outside(stage, family, row):
        if isinstance(one, cases.Skipped):
            yield one
        else:
            yield cases.to_service(row, cases.Column.OUTSIDE, one, place, expected, on=node.name)


def _outer(stage: DeployedObjects, family: Family, service: str) -> cases.Cases:
    """Yields cases to an address that leads to the nodes from outside; pods and nodes reach it on their own node."""
    row = cases.titled(stage, family, OUTER[service])
    if reason := stage.refused.get(service):
        yield from (cases.Skipped(row, column, reason) for column in cases.Column)
        return
    address = stage.outer_addresses[service].get(family)
    if address is None:
        return
    expected = Expected((stage.nodes[0].server.name,))
    for protocol in BOTH:
        place = (protocol, family, address, PORT)
        for column, _, source in cases.clients(stage, stage.nodes[0]):
            yield cases.to_service(row, column, source, place, expected)
        if stage.outer_is_routed and service == BALANCER:
            yield cases.to_service(row, cases.Column.OUTSIDE, cases.Caller(), place, expected, on=stage.nodes[0].name)
    if not (stage.outer_is_routed and service == BALANCER):
        yield cases.Skipped(row, cases.Column.OUTSIDE, f"no route leads {address} to the nodes")
