"""The command `nodeagent`. Subcommands are imported on use, so that the daemon does not load the interactive ones."""

import importlib
from typing import Any

import click

from nodeagent import __version__
from nodeagent.cli.examples import examples
from nodeagent.cli.exit_codes import INTERRUPTED
from nodeagent.cli.lacking import missing_resource
from nodeagent.cli.output import failing_output
from nodeagent.model.text import did_you_mean
from nodeagent.runtime.imports import import_all

COMMANDS = {
    "run": ("nodeagent.cli.run", "run_command", "Program services until stopped."),
    "show": ("nodeagent.cli.show", "show_command", "Print what is programmed, read from the kernel."),
    "trace": ("nodeagent.cli.trace", "trace_command", "Follow a connection through the rules, one by one."),
    "explain": ("nodeagent.cli.explain", "explain_command", "Explain why a Service works on this node, or why not."),
    "diff": ("nodeagent.cli.diff", "diff_command", "Compare the wanted rules with those in the kernel."),
    "plan": ("nodeagent.cli.plan", "plan_command", "Print what a directory of manifests would change."),
    "problems": ("nodeagent.cli.problems", "problems_command", "List problems, and since when they exist."),
    "journal": ("nodeagent.cli.problems", "journal_command", "Print what the agent's last passes did."),
    "log-level": ("nodeagent.cli.problems", "log_level_command", "Print or change the level of the agent's log."),
    "top": ("nodeagent.cli.top", "top_command", "Show Services by new connections a second."),
    "bundle": ("nodeagent.cli.bundle", "bundle_command", "Write one archive for a bug report."),
    "replay": ("nodeagent.cli.replay", "replay_command", "Program the tables of a bundle in a network namespace."),
    "check": ("nodeagent.cli.check", "check_command", "Check the kernel, the settings and the programmed rules."),
    "dns": ("nodeagent.cli.dns", "dns_command", "Answer a name as cluster DNS does, and say why."),
    "cleanup": ("nodeagent.cli.cleanup", "cleanup_command", "Remove everything that nodeagent made on this node."),
    "takeover": (
        "nodeagent.cli.takeover",
        "takeover_command",
        "Replace kube-proxy in a cluster, or return to it.",
    ),
    "apiserver": ("nodeagent.cli.apiserver", "apiserver_command", "Serve the Kubernetes API for services."),
    "connectivity": (
        "nodeagent.cli.connectivity",
        "connectivity_command",
        "Test every kind of connection to Services in a cluster.",
    ),
    "demo": ("nodeagent.cli.demo", "demo_command", "Show a cluster on this machine for half a minute."),
    "lab": ("nodeagent.cli.lab", "lab_command", "Run a test cluster of network namespaces."),
    "config": ("nodeagent.cli.config", "config_command", "Show and check the configuration."),
    "version": ("nodeagent.cli.about", "version_command", "Print the version, of this command and of the agent."),
    "help": ("nodeagent.cli.about", "help_command", "Print the help of a command."),
}


class Commands(click.Group):
    """Imports a command's module when the command is used. The help text needs no import."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if any(argument.startswith("-") and "=-" in argument for argument in args):
            importlib.import_module("nodeagent.cli.config_options").refuse_dashed_values(args)
        with failing_output():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with failing_output():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except (OSError, MemoryError) as error:
            if (known := missing_resource(error)) is not None:
                raise known from error
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, name, _ = COMMANDS[cmd_name]
        import_all([module])
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's method, but the error for an unknown command suggests a similar name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            raise click.UsageError(f"{error.message.rstrip(chr(46))}{did_you_mean(args[0], COMMANDS)}", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, _, help_text) in COMMANDS.items()])


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "nodeagent run --manifests DIR --node-name NODE",
        "nodeagent explain shop/web      why a Service works here, or why not",
        "nodeagent trace 10.244.1.5 10.96.0.10:80      what becomes of a connection",
        "nodeagent check",
    ),
)
@click.version_option(__version__, prog_name="nodeagent")
def main() -> None:
    """A node-local service proxy: Kubernetes Services as nftables map elements."""
