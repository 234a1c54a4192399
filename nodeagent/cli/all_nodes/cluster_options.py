"""The options that select a cluster and its nodes, shared by all commands that can ask every node."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click
from msgspec import Struct

from nodeagent.cli.exit_codes import UNUSABLE, Failure
from nodeagent.cli.known_names import complete_context, complete_node
from nodeagent.cli.user_kubeconfig import kubeconfig_paths

Result = TypeVar("Result")
NAMESPACE = "kube-system"
"""The namespace of deploy/base. Other namespaces are not searched, because their owners can create pods with our label."""
WITHIN_SECONDS = 60.0
NODE_SECONDS = 20.0
BRIEF = "--brief"
"""An option of `explain` that older agents do not have."""
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


class ClusterTarget(Struct, frozen=True):
    """The cluster and nodes to ask.

    context: of the kubeconfig; None: the current one. nodes: names; empty: all that match `selector`. namespace: of the
    agents' pods. within, seconds: time limits for all nodes, and for one. default_namespace: for names without a namespace.
    """

    kubeconfigs: tuple[Path, ...]
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
    """Adds these options. The command gets ``cluster: ClusterTarget | None``; None: ask only this node.

    within: the default of ``--within``. seconds: time limit for one node. kubeconfig: whether to add ``--kubeconfig`` too.
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
                places = kubeconfig_paths(None if named is None else Path(str(named)))
                cluster = ClusterTarget(
                    places, context, node, selector, agents_namespace, within, seconds, _namespace(places, context)
                )
            elif context is not None:
                raise Failure("--context selects a cluster: give --all-nodes or --node NAME as well", UNUSABLE)
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
            "--context",
            metavar="NAME",
            shell_complete=complete_context,
            help="Context of the kubeconfig (default: the current one).",
        )(decorated)
        decorated = click.option(
            "-l", "--selector", metavar="LABELS", default="", help="Ask the agents of the nodes with these labels."
        )(decorated)
        decorated = click.option(
            "--node",
            metavar="NAME",
            multiple=True,
            shell_complete=complete_node,
            help="Ask this node's agent; repeatable.",
        )(decorated)
        if kubeconfig:
            text = "Which cluster, with --all-nodes (default: $KUBECONFIG, else ~/.kube/config)."
            decorated = click.option("--kubeconfig", metavar="FILE", help=text)(decorated)
        text = "Ask the agents of all nodes, through the API server."
        return click.option("--all-nodes", is_flag=True, help=text)(decorated)

    return decorate


def _namespace(kubeconfigs: tuple[Path, ...], context: str | None) -> str:
    """Returns the namespace of the context; `default` if it has none or cannot be read (a later request reports that)."""
    from nodeagent.proxy.source.client.api_errors import KubeconfigError  # noqa: PLC0415 - loads a client of the API
    from nodeagent.proxy.source.client.kubeconfig import context_namespace  # noqa: PLC0415

    try:
        return context_namespace(kubeconfigs, context) or "default"
    except KubeconfigError:
        return "default"


def _refuse(given: dict[str, object]) -> None:
    """Raises Failure if an option is given that concerns only this node."""
    wrong = [flag for name, flag in OF_THIS_MACHINE.items() if given.get(name) not in (None, False)]
    if wrong:
        do = "leave out one of them: agents of other nodes have their own configuration"
        raise Failure(f"{', '.join(wrong)} concerns only this node, and --all-nodes, --node ask others: {do}", UNUSABLE)
