"""The options that name a cluster and its nodes, the same for every command that can ask all of them."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click
from msgspec import Struct

from nodeagent.cli.all_nodes.agent_pods import NAMESPACE
from nodeagent.cli.exit_codes import UNUSABLE, Failure
from nodeagent.cli.known_names import ContextName, NodeName
from nodeagent.cli.user_kubeconfig import kubeconfig_path

Result = TypeVar("Result")
WITHIN_SECONDS = 60.0
NODE_SECONDS = 20.0
BRIEF = "--brief"
"""Of `explain`: agents that are older do not know it."""
OF_THIS_MACHINE = {
    "socket": "--socket",
    "place": "--socket",
    "config": "--config",
    "manifests": "--manifests",
    "node_name": "--node-name",
    "cluster_cidr": "--cluster-cidr",
    "watch": "--watch",
}
"""Options that make no sense if the agents of other nodes are asked."""


class AskedCluster(Struct, frozen=True):
    """The cluster and nodes to ask. kubeconfig, context: the cluster; empty: the one that kubectl finds. nodes: names; empty:
    all that match `selector`. namespace: that of the agents' pods. within, seconds: time limits for all nodes, and for one.
    default_namespace: that of the context."""

    kubeconfig: Path
    context: str | None
    nodes: tuple[str, ...]
    selector: str
    namespace: str
    within: float
    seconds: float = NODE_SECONDS
    default_namespace: str = "default"


def cluster_options(
    *, within: float = WITHIN_SECONDS, seconds: float = NODE_SECONDS, kubeconfig: bool = False
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Adds these options; the command gets ``cluster: AskedCluster | None``, None where this node alone is meant.

    within: the default of ``--within``. seconds: for one node. kubeconfig: add ``--kubeconfig`` too, where the command has none.
    """

    def decorate(command: Callable[..., Result]) -> Callable[..., Result]:
        @functools.wraps(command)
        def with_cluster(
            *arguments: object,
            all_nodes: bool,
            node: tuple[str, ...],
            selector: str,
            context: str | None,
            agents_namespace: str,
            within: float,
            **parameters: object,
        ) -> Result:
            named = parameters.pop("kubeconfig") if kubeconfig else parameters.get("kubeconfig")
            cluster = None
            if all_nodes or node or selector:
                _refuse(parameters)
                place = kubeconfig_path(None if named is None else Path(str(named)))
                cluster = AskedCluster(
                    place, context, node, selector, agents_namespace, within, seconds, _namespace(place, context)
                )
            elif context is not None:
                raise Failure("--context is of a cluster: give --all-nodes or --node NAME as well", UNUSABLE)
            return command(*arguments, cluster=cluster, **parameters)

        decorated: Callable[..., Result] = with_cluster
        decorated = click.option(
            "--within",
            type=click.FloatRange(1),
            default=within,
            show_default=True,
            help="Seconds for all nodes together.",
        )(decorated)
        decorated = click.option(
            "--agents-namespace",
            metavar="NAME",
            default=NAMESPACE,
            show_default=True,
            help="Where the agents' pods are.",
        )(decorated)
        decorated = click.option(
            "--context", metavar="NAME", type=ContextName(), help="Of the kubeconfig (default: the current one)."
        )(decorated)
        decorated = click.option(
            "-l", "--selector", metavar="LABELS", default="", help="Ask the agents of the nodes with these labels."
        )(decorated)
        decorated = click.option(
            "--node", metavar="NAME", multiple=True, type=NodeName(), help="Ask this node's agent; repeatable."
        )(decorated)
        if kubeconfig:
            text = "Which cluster, with --all-nodes (default: $KUBECONFIG, else ~/.kube/config)."
            decorated = click.option("--kubeconfig", metavar="FILE", help=text)(decorated)
        text = "Ask the agents of all nodes, through the API server."
        return click.option("--all-nodes", is_flag=True, help=text)(decorated)

    return decorate


def _namespace(kubeconfig: Path, context: str | None) -> str:
    """Of the context, where it can be read; else that is said when the cluster is asked."""
    from nodeagent.proxy.source.client.api_errors import KubeconfigError  # noqa: PLC0415 - loads a client of the API
    from nodeagent.proxy.source.client.kubeconfig import context_namespace  # noqa: PLC0415

    try:
        return context_namespace(kubeconfig, context) or "default"
    except KubeconfigError:
        return "default"


def _refuse(given: dict[str, object]) -> None:
    """Raises Failure."""
    wrong = [flag for name, flag in OF_THIS_MACHINE.items() if given.get(name) not in (None, False)]
    if wrong:
        do = "leave out either, agents of other nodes know what is theirs"
        raise Failure(f"{', '.join(wrong)} is for this node alone, and --all-nodes, --node for others: {do}", UNUSABLE)
