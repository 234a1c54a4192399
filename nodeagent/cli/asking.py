"""Options that the commands share which explain, compare and list; and the style of their first line."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from nodeagent.cli.known_names import complete_node
from nodeagent.cli.node_view import Access
from nodeagent.proxy.observe.admin.place import DEFAULT_SOCKET

Result = TypeVar("Result")


def access_options(command: Callable[..., Result]) -> Callable[..., Result]:
    """Adds the options that select the source of objects; the command gets ``access: Access``."""

    @functools.wraps(command)
    def with_access(
        *arguments: object,
        socket: str | None,
        config: str | None,
        manifests: str | None,
        kubeconfig: str | None,
        node_name: str | None,
        cluster_cidr: str | None,
        **parameters: object,
    ) -> Result:
        access = Access(
            None if socket is None else Path(socket),
            None if config is None else Path(config),
            manifests,
            kubeconfig,
            node_name,
            cluster_cidr,
        )
        return command(*arguments, access=access, **parameters)

    decorated: Callable[..., Result] = with_access
    text = "The name of this node, if no agent answers (default: the host's name)."
    decorated = click.option("--node-name", metavar="NAME", shell_complete=complete_node, help=text)(decorated)
    for flags, metavar, text in (
        (
            "--cluster-cidr",
            "CIDRS",
            "The pod networks of the cluster, if no agent answers; as for nodeagent run.",
        ),
        ("--config", "FILE", "The agent's configuration file, if no agent answers."),
        ("--kubeconfig", "FILE", "Read the objects from this API server instead of asking the agent."),
        ("--manifests", "DIRECTORY", "Read the objects from this directory instead of asking the agent."),
    ):
        decorated = click.option(flags, metavar=metavar, help=text)(decorated)
    return socket_option(decorated)


def socket_option(command: Callable[..., Result]) -> Callable[..., Result]:
    """Adds ``--socket``."""
    text = f"The agent's socket (default: {DEFAULT_SOCKET}, or beside it that of this network namespace)."
    return click.option("--socket", metavar="PATH", help=text)(command)


def verdict_style(text: str, *, good: bool) -> str:
    """Returns the verdict line in bold green or red; click removes colours if the output is no terminal."""
    return click.style(text, fg="green" if good else "red", bold=True)
