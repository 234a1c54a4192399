"""`kubectl nodeagent`: the commands that can ask all nodes of a cluster, from an administrator's machine.

kubectl starts `kubectl-nodeagent` with the arguments after the plugin's name, and `kubectl_complete-nodeagent` to complete
them. The commands are those of `nodeagent`, with `--all-nodes`.
"""

import sys
from collections.abc import Sequence

import click
from click.shell_completion import ShellComplete

from nodeagent import __version__
from nodeagent.cli.examples import examples
from nodeagent.cli.main import COMMANDS, Commands

PLUGGED = ("explain", "check", "problems", "trace", "bundle")
ALL_NODES = "--all-nodes"
NAME = "kubectl nodeagent"
NO_FILES = ":4"
"""cobra's ShellCompDirectiveNoFileComp: the shell does not add file names."""
FILES = ":0"


class Plugin(Commands):
    """The commands of `nodeagent` that can ask the agents of a cluster. Other commands work only on a node."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return [*PLUGGED, "version", "help"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) if cmd_name in self.list_commands(ctx) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[:1] and args[0] in COMMANDS and args[0] not in self.list_commands(ctx):
            raise click.UsageError(f"{args[0]} works only on the node itself: run nodeagent {args[0]} there", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][2]) for name in self.list_commands(ctx)])


@click.group(
    NAME,
    cls=Plugin,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "kubectl nodeagent explain                        what does not work, on which nodes",
        "kubectl nodeagent explain web -n shop            one Service, on all nodes",
        "kubectl nodeagent check --node node-1 --context test",
        "kubectl nodeagent trace pod/a svc/web            on the node where the pod is",
        "kubectl nodeagent bundle report.tar              a bundle of each node",
    ),
)
@click.version_option(__version__, prog_name=NAME)
def plugin() -> None:
    """Ask the agents of all nodes of a cluster about Services."""


def of_all_nodes(words: Sequence[str]) -> list[str]:
    """Returns the words of the command line with the option that asks all nodes, if the command knows it."""
    given = list(words)
    return [given[0], ALL_NODES, *given[1:]] if given[:1] and given[0] in PLUGGED else given


def main() -> None:
    """Runs the command line of this process as `kubectl nodeagent`."""
    plugin.main(args=of_all_nodes(sys.argv[1:]), prog_name=NAME)


def complete() -> None:
    """Prints the completions of the last word and a directive line: the protocol of `kubectl_complete-` programs."""
    *words, incomplete = sys.argv[1:] or [""]
    found = ShellComplete(plugin, {}, NAME, "").get_completions(of_all_nodes(words), incomplete)
    names = [f"{one.value}\t{one.help}" if one.help else str(one.value) for one in found if one.type == "plain"]
    files = any(one.type != "plain" for one in found)
    sys.stdout.write("\n".join([*names, FILES if files else NO_FILES, ""]))
