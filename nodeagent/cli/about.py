"""`nodeagent version` and `nodeagent help`, like those of kubectl."""

from pathlib import Path

import click

from nodeagent import __version__
from nodeagent.cli.asking import socket_option
from nodeagent.cli.columns import Column
from nodeagent.cli.examples import examples
from nodeagent.cli.rows import output_option, print_document, print_table
from nodeagent.model.text import did_you_mean
from nodeagent.proxy.observe.admin.admin_client import NoAgent, find_agent
from nodeagent.proxy.observe.admin.place import DEFAULT_SOCKET

COLUMNS = (Column("part", "PART"), Column("version", "VERSION"), Column("where", "WHERE"))


@click.command("version", epilog=examples("nodeagent version", "nodeagent version -o json"))
@output_option
@socket_option
def version_command(output: str, socket: str | None) -> None:
    """Print the version of this command, and of the agent where one answers.

    Exit codes: 0.
    """
    rows: list[dict[str, object]] = [
        {"part": "command", "version": __version__, "where": str(Path(__file__).parents[1])}
    ]
    try:
        _, status = find_agent(None if socket is None else Path(socket), DEFAULT_SOCKET)
        rows.append({"part": "agent", "version": status.version, "where": f"node {status.node}, process {status.pid}"})
    except NoAgent as error:
        rows.append({"part": "agent", "version": "", "where": str(error)})
    if output in ("json", "yaml"):
        print_document(rows, output)
    elif output == "name":
        click.echo(__version__)
    else:
        print_table(COLUMNS, rows)


def _commands(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Completes names of commands; after a group, those of its subcommands."""
    assert ctx.parent is not None, "it is a command of nodeagent"
    command: click.Command | None = ctx.parent.command
    for word in ctx.params.get("words") or ():
        command = command.get_command(ctx, word) if isinstance(command, click.Group) else None
    listed = command.list_commands(ctx) if isinstance(command, click.Group) else []
    return [name for name in listed if name.startswith(incomplete)]


@click.command("help", epilog=examples("nodeagent help", "nodeagent help explain", "nodeagent help lab fault"))
@click.argument("words", nargs=-1, metavar="[COMMAND]...", shell_complete=_commands)
@click.pass_context
def help_command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Print the help of a command: the same as COMMAND --help.

    Exit codes: 0, 2 there is no such command.
    """
    assert ctx.parent is not None, "it is a command of nodeagent"
    named, command = ctx.parent, ctx.parent.command
    for word in words:
        child = command.get_command(named, word) if isinstance(command, click.Group) else None
        if child is None:
            known = command.list_commands(named) if isinstance(command, click.Group) else ()
            raise click.UsageError(f"No such command {word!r}{did_you_mean(word, known)}", named)
        named, command = click.Context(child, named, word), child
    click.echo(command.get_help(named))
