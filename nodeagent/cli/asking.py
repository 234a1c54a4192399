"""Options and manners that all commands share which explain, compare and list."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click
import msgspec
from click.shell_completion import CompletionItem

from nodeagent.cli.node_view import Access
from nodeagent.config.options import DEFAULT_SOCKET
from nodeagent.proxy.observe.admin.admin_client import NoAgent, find_agent

Result = TypeVar("Result")


class ServiceName(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.3 on, for type checkers only
    """`[NAMESPACE/]NAME[:PORT]`; the shell completes the names that the agent knows."""

    name = "service"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """The Services that begin so; those of the namespace `default` without it, too."""
        names = _told(ctx, "services")
        short = [name.removeprefix("default/") for name in names if name.startswith("default/")]
        return [CompletionItem(name) for name in (*names, *short) if name.startswith(incomplete)]


class NodeName(click.ParamType):  # type: ignore[type-arg]  # as above
    """The name of a node; the shell completes those that the agent knows."""

    name = "node"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """The nodes that begin so."""
        return [CompletionItem(name) for name in _told(ctx, "nodes") if name.startswith(incomplete)]


def _told(ctx: click.Context, what: str) -> list[str]:
    """What the agent says; nothing where none answers."""
    given = ctx.params.get("socket")
    try:
        client, _ = find_agent(Path(given) if given else None, DEFAULT_SOCKET)
        return client.ask(what, list[str])
    except (NoAgent, OSError, msgspec.MsgspecError):
        return []


def asking_options(command: Callable[..., Result]) -> Callable[..., Result]:
    """Adds who is asked; the command gets ``access: Access``."""

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
    told = "Which node this is, where no agent says so (default: the host's name)."
    decorated = click.option("--node-name", metavar="NAME", type=NodeName(), help=told)(decorated)
    for flags, metavar, text in (
        (
            "--cluster-cidr",
            "CIDRS",
            "The pod networks of the cluster, where no agent says so; as given to nodeagent run.",
        ),
        ("--config", "FILE", "The agent's configuration, where no agent says what is in it."),
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
    """The first line, in colour where there are colours."""
    return click.style(text, fg="green" if good else "red", bold=True)
