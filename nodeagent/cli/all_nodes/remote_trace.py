"""Runs `nodeagent trace` on the node where a connection begins, which it looks up at the API server."""

from collections.abc import Sequence

import click
import msgspec

from nodeagent.cli.all_nodes.agent_pods import AgentPlace, ClusterLister
from nodeagent.cli.all_nodes.asking import Agents, NoAnswer
from nodeagent.cli.all_nodes.cluster_options import ClusterTarget
from nodeagent.cli.all_nodes.cluster_question import run_with_agents
from nodeagent.cli.exit_codes import FAILED, UNUSABLE, Failure
from nodeagent.cli.named_pods import NODE_KINDS, POD_KINDS, NamedPod, decoded, pod_named, pod_with_address
from nodeagent.cli.service_argument import parse_service
from nodeagent.cli.trace_names import is_address
from nodeagent.diagnosis.trace.question import ARROWS
from nodeagent.model.addresses import parse_address
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import Node
from nodeagent.model.text import printable
from nodeagent.proxy.source.client.api_errors import KubeError
from nodeagent.proxy.source.pod_exec import ExecResult

_TWO = 2
NO_FAMILY = "have no family in common"
"""Part of an error of `trace_names`, on which the pod's other address is tried."""


def trace_at_source(
    cluster: ClusterTarget, connection: Sequence[str], namespace: str | None, options: Sequence[str]
) -> int:
    """Prints the output of the remote trace; returns its exit code. options: of the remote command. Raises Failure."""
    parts = [part for word in connection for part in word.replace("->", " -> ").split() if part not in ARROWS]
    if len(parts) != _TWO:
        raise Failure(f"{' '.join(connection)!r} is not a connection: write SRC -> DST", UNUSABLE)
    source, destination = parts
    if not is_address(destination):
        destination = str(parse_service(destination, namespace, cluster.default_namespace))
    ended: list[ExecResult | NoAnswer] = []

    async def work(lister: ClusterLister, agents: Agents, places: Sequence[AgentPlace]) -> None:
        node, addresses = await _locate(lister, source, namespace or cluster.default_namespace, cluster.nodes)
        place = next((one for one in places if one.node == node), None)
        if place is None:
            raise Failure(f"{source} is on node {node}, which --node or --selector leaves out", UNUSABLE)
        for address in addresses:
            ended.clear()
            await agents.ask([place], lambda _, at=address: ("trace", *options, at, destination), _keep)  # type: ignore[misc]
            if not (isinstance(ended[0], ExecResult) and NO_FAMILY in ended[0].errors):
                return

    def _keep(_: AgentPlace, came: ExecResult | NoAnswer) -> None:
        ended.append(came)

    run_with_agents(cluster, work)
    came = ended[0]
    if isinstance(came, NoAnswer):
        raise Failure(f"{source}: {came}", FAILED)
    for text, errors in ((came.output, False), (came.errors, True)):
        for line in text.splitlines():
            click.echo(printable(line), err=errors)
    return came.code


async def _locate(
    lister: ClusterLister, source: str, namespace: str, named: Sequence[str]
) -> tuple[str, Sequence[str]]:
    """Returns the node where connections from `source` begin, and the names of the source for the trace on that node.
    Raises Failure, KubeError."""
    kind, slash, name = source.partition("/")
    if slash and kind in NODE_KINDS:
        return name, (f"node/{name}",)
    if slash and kind in POD_KINDS:
        key = ObjectKey(namespace, name)
        pod = await pod_named(lister, key)
        if not (pod.node and pod.addresses):
            what = "has no address yet" if pod.node else "is on no node yet"
            raise Failure(f"pod {key} {what}: kubectl get pod {name} -n {key.namespace}", FAILED)
        return pod.node, pod.addresses
    address = parse_address(source.strip("[]"))
    if address is None:
        raise Failure(f"{source!r} is not a source: pod/NAME, node/NAME or an address", UNUSABLE)
    if len(named) == 1:
        return named[0], (address,)
    node = await _node_of(lister, address)
    if not node:
        raise Failure(f"no pod and no node has {address}: --node NAME says where the connection comes in", UNUSABLE)
    return node, (address,)


async def _node_of(lister: ClusterLister, address: str) -> str:
    try:
        pod: NamedPod | None = await pod_with_address(lister, address)
    except KubeError:
        pod = None  # the server lacks this field selector, or the user may not list pods in all namespaces
    if pod is not None:
        return pod.node
    listed = decoded(await lister.get("/api/v1/nodes"), _Nodes)
    for node in listed.items:
        if node.status is not None and any(one.address == address for one in node.status.addresses or ()):
            return node.metadata.name
    return ""


class _Nodes(msgspec.Struct):
    items: tuple[Node, ...] = ()
