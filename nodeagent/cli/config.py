"""`nodeagent config`: prints the configuration with its origins, and checks it."""

import os
from pathlib import Path

import click

from nodeagent.cli.config_options import ConfigRejected, config_options
from nodeagent.cli.examples import examples
from nodeagent.cli.exit_codes import UNUSABLE, Failure
from nodeagent.cli.host_checks import check_files, refuse_overlaps, startup_warnings
from nodeagent.cli.manifest_check import problems_in
from nodeagent.config.config_problems import ConfigError
from nodeagent.config.config_text import notes, render_json, render_yaml
from nodeagent.config.load import LoadedConfig
from nodeagent.daemon.part_options import describe_way
from nodeagent.model.text import printable


@click.group(
    "config",
    epilog=examples(
        "nodeagent config show",
        "nodeagent config check --config nodeagent.yaml",
    ),
)
def config_command() -> None:
    """Show and check the configuration."""


@config_command.command(
    "show",
    epilog=examples(
        "nodeagent config show",
        "nodeagent config show --config kube-proxy.conf      what becomes of a file of kube-proxy",
        "nodeagent config show -o json",
    ),
)
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
@config_options
def show(output: str, loaded: LoadedConfig) -> None:
    """Print every option with its value and the origin of the value.

    The YAML is a configuration file: with --config it gives the same configuration.
    """
    render = render_json if output == "json" else render_yaml
    click.echo(render(loaded, _remarks(loaded)), nl=False)


@config_command.command(
    "check",
    epilog=examples(
        "nodeagent config check --config nodeagent.yaml",
        "nodeagent config check --manifests DIR --node-name NODE",
    ),
)
@config_options
def check(loaded: LoadedConfig) -> None:
    """Check whether the configuration can be used on this machine; if not, exit with 2 and print one line per problem.

    Configured files must exist, the objects in the directory of --manifests must be valid, and service ranges must not
    contain an address or gateway of this machine.
    """
    try:
        refuse_overlaps(loaded)
        problems = list(check_files(loaded))
    except ConfigError as error:
        problems = [*error.problems, *check_files(loaded)]
    if problems:
        raise ConfigRejected(ConfigError(problems))
    for note in (*notes(loaded), *_remarks(loaded), *(f"warning: {caution}" for caution in startup_warnings(loaded))):
        click.echo(note)
    changed = sum(origin != "default" for origin in loaded.origins.values())
    click.echo(f"ok: {changed} of {len(loaded.origins)} options set, the others at their default")
    if loaded.config.source.manifests is not None:
        _check_manifests(loaded.config.source.manifests, loaded.config.node.name)


def _check_manifests(directory: Path, node_name: str) -> None:
    """Prints a line for each problem; raises Failure if there are any."""
    try:
        problems = problems_in(directory, node_name)
    except OSError as error:
        raise Failure(f"manifest directory {directory}: {error.strerror or error}", UNUSABLE) from error
    for problem in problems:
        click.echo(printable(str(problem)), err=True)
    if problems:
        raise Failure(f"manifest directory {directory}: {len(problems)} problem{'s' * (len(problems) > 1)}", UNUSABLE)
    click.echo(f"ok: manifest directory {directory}")


def _remarks(loaded: LoadedConfig) -> tuple[str, ...]:
    """Returns remarks on how the agent will reach its source in this environment."""
    way = describe_way(loaded.config, os.environ)
    return () if way is None else (way,)
