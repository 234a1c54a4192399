"""Options and manners that all commands share which explain, compare and list."""

import functools
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import click
import msgspec
import yaml
from click.shell_completion import CompletionItem

from nodeagent.cli.columns import Column
from nodeagent.cli.node_view import Access
from nodeagent.cli.show import print_table
from nodeagent.config.options import DEFAULT_SOCKET
from nodeagent.model.text import printable
from nodeagent.observe.admin.client import NoAgent, find_agent

Result = TypeVar("Result")


class ServiceName(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.3 on, for type checkers only
    """`[NAMESPACE/]NAME[:PORT]`; the shell completes the names that the agent knows."""

    name = "service"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """The Services that begin so; those of the namespace `default` without it, too."""
        given = ctx.params.get("socket")
        try:
            client, _ = find_agent(Path(given) if given else None, DEFAULT_SOCKET)
            names = client.ask("services", list[str])
        except (NoAgent, OSError, msgspec.MsgspecError):
            return []
        short = [name.removeprefix("default/") for name in names if name.startswith("default/")]
        return [CompletionItem(name) for name in (*names, *short) if name.startswith(incomplete)]


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
        **parameters: object,
    ) -> Result:
        access = Access(
            None if socket is None else Path(socket),
            None if config is None else Path(config),
            manifests,
            kubeconfig,
            node_name,
        )
        return command(*arguments, access=access, **parameters)

    decorated: Callable[..., Result] = with_access
    for flags, metavar, text in (
        ("--node-name", "NAME", "Which node this is, where no agent says so (default: the host's name)."),
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


def output_option(*forms: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Adds ``-o``; the first form is the default."""
    return click.option("-o", "--output", type=click.Choice(forms), default=forms[0], show_default=True)


def print_document(value: object, output: str) -> None:
    """As JSON or YAML, its fields in their order."""
    plain = msgspec.to_builtins(value, str_keys=True)
    if output == "yaml":
        click.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, default_flow_style=False), nl=False)
    else:
        click.echo(json.dumps(plain, indent=2, ensure_ascii=False))


def print_rows(
    columns: Sequence[Column], rows: Sequence[dict[str, object]], output: str, *, wide: frozenset[str], name: str
) -> None:
    """A table without the columns of `wide` unless that was asked for, a document, or the values of `name` alone."""
    if output in ("json", "yaml"):
        print_document(list(rows), output)
    elif output == "name":
        for row in rows:
            click.echo(printable(str(row[name])))
    else:
        rows = [
            {key: printable(value) if isinstance(value, str) else value for key, value in row.items()} for row in rows
        ]
        print_table([one for one in columns if output == "wide" or one.key not in wide], rows)


def examples(*lines: str) -> str:
    """The end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def is_terminal() -> bool:
    """Whether a person watches standard output."""
    return sys.stdout is not None and sys.stdout.isatty()


def verdict_style(text: str, *, good: bool) -> str:
    """The first line, in colour where there are colours."""
    return click.style(text, fg="green" if good else "red", bold=True)
