"""Cases by policy: which endpoint is chosen, and which client address it sees (pure)."""

from nodeagent.diagnosis.connectivity import objects
from nodeagent.diagnosis.connectivity.address_cases import BOTH, outside
from nodeagent.diagnosis.connectivity.cases import Cases, Column, Skipped, clients, titled, to_cluster_ip, to_service
from nodeagent.diagnosis.connectivity.judgement import Expected
from nodeagent.diagnosis.connectivity.stage import DeployedNode, DeployedObjects
from nodeagent.model.addresses import Family, Protocol

FOR_EACH_ENDPOINT = 12
"""Connections: with three endpoints, all of them miss one by chance once in 700,000 runs."""


def policy_cases(stage: DeployedObjects) -> Cases:
    for family in stage.families:
        yield from _source_kept(stage, family)
        yield from _every_endpoint(stage, family)
        yield from _affinity(stage, family)
        yield from _internal_policy(stage, family)
        yield from _no_endpoints(stage, family)
        for node in stage.nodes:
            yield from _external_policy(stage, family, node)
        for node in stage.nodes[1:]:
            yield from _no_endpoint_there(stage, family, node)


def _all_servers(stage: DeployedObjects) -> tuple[str, ...]:
    return tuple(node.server.name for node in stage.nodes)


def _source_kept(stage: DeployedObjects, family: Family) -> Cases:
    row = titled(stage, family, "ClusterIP, client's address kept")
    for number, target in enumerate(stage.nodes):
        if place := to_cluster_ip(stage, objects.service_of_node(number), Protocol.TCP, family):
            for column, _, source in clients(stage, target):
                if column is not Column.NODE:
                    expected = Expected((target.server.name,), own_address=True)
                    yield to_service(row, column, source, place, expected)


def _every_endpoint(stage: DeployedObjects, family: Family) -> Cases:
    row = titled(stage, family, "ClusterIP, every endpoint")
    expected = Expected(_all_servers(stage), every=True)
    count = FOR_EACH_ENDPOINT * len(stage.nodes)
    if place := to_cluster_ip(stage, objects.EVERY, Protocol.TCP, family):
        for column, _, source in clients(stage):
            yield to_service(row, column, source, place, expected, count=count)


def _affinity(stage: DeployedObjects, family: Family) -> Cases:
    row = titled(stage, family, "ClusterIP, session affinity")
    place = to_cluster_ip(stage, objects.STICKY, Protocol.TCP, family)
    if place is None:
        return
    if len(stage.nodes) == 1:
        yield from (Skipped(row, column, "one node has one endpoint") for column in (Column.SAME_NODE, Column.NODE))
        return
    for column, _, source in clients(stage):
        yield to_service(row, column, source, place, Expected(_all_servers(stage), one=True), count=FOR_EACH_ENDPOINT)


def _internal_policy(stage: DeployedObjects, family: Family) -> Cases:
    row = titled(stage, family, "ClusterIP, internal policy Local")
    if place := to_cluster_ip(stage, objects.INTERNAL, Protocol.TCP, family):
        for column, node, source in clients(stage):
            yield to_service(row, column, source, place, Expected((node.server.name,)))


def _no_endpoints(stage: DeployedObjects, family: Family) -> Cases:
    row = titled(stage, family, "ClusterIP, no endpoints: refused")
    for protocol in BOTH:
        if place := to_cluster_ip(stage, objects.EMPTY, protocol, family):
            for column, _, source in clients(stage):
                yield to_service(row, column, source, place, Expected(refused=True), count=1)


def _external_policy(stage: DeployedObjects, family: Family, node: DeployedNode) -> Cases:
    """From outside: the endpoint of that node, which sees the client. From inside any endpoint may answer.

    Not from pods of other nodes: that node may pick an endpoint on the pod's own node, whose answer does not return
    through it. kube-proxy behaves the same: half of such connections fail.
    """
    row = titled(stage, family, f"node port of {node.name}, policy Local")
    port, address = stage.services[objects.EXTERNAL].node_ports.get(Protocol.TCP), node.addresses.get(family)
    if port is None or address is None:
        return
    place = (Protocol.TCP, family, address, port)
    for column, _, source in clients(stage, node):
        if column is not Column.OTHER_NODE:
            yield to_service(row, column, source, place, Expected(_all_servers(stage)), on=node.name)
    for one in outside(stage, family, row):
        if isinstance(one, Skipped):
            yield one
        else:
            expected = Expected((node.server.name,), own_address=True)
            yield to_service(row, Column.OUTSIDE, one, place, expected, on=node.name)


def _no_endpoint_there(stage: DeployedObjects, family: Family, node: DeployedNode) -> Cases:
    row = titled(stage, family, f"node port of {node.name}, policy Local, no endpoint there")
    port, address = stage.services[objects.ELSEWHERE].node_ports.get(Protocol.TCP), node.addresses.get(family)
    if port is None or address is None:
        return
    for one in outside(stage, family, row):
        if isinstance(one, Skipped):
            yield one
        else:
            place = (Protocol.TCP, family, address, port)
            expected = Expected(silent=True)
            yield to_service(row, Column.OUTSIDE, one, place, expected, on=node.name, count=1, late=True)
