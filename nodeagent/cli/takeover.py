"""`nodeagent takeover`: replaces kube-proxy in a running cluster, and gives the nodes back to it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from nodeagent.cli.columns import Column, lay_out
from nodeagent.cli.examples import examples
from nodeagent.cli.exit_codes import FAILED, UNUSABLE, Failure
from nodeagent.cli.migration.back import take_back
from nodeagent.cli.migration.found import ClusterState
from nodeagent.cli.migration.kubectl import Kubectl, KubectlFailed
from nodeagent.cli.migration.manifests import known_components
from nodeagent.cli.migration.outlook import Outlook, outlook
from nodeagent.cli.migration.reading import read_cluster
from nodeagent.cli.migration.steps import MEANING, Step, canary_of, is_done, next_step, steps_until
from nodeagent.cli.migration.work import ManagedCluster, TakeoverOptions, TakeoverStopped, do
from nodeagent.config.durations import parse_duration

COLUMNS = (
    Column("node", "NODE"),
    Column("agent", "AGENT"),
    Column("kube_proxy", "KUBE-PROXY"),
    Column("rules", "RULES OF KUBE-PROXY"),
)
BACK = "`nodeagent takeover back` gives the nodes back to kube-proxy; the same command again goes on"


@click.group(
    "takeover",
    epilog=examples(
        "nodeagent takeover plan",
        "nodeagent takeover start --until canary",
        "nodeagent takeover start",
        "nodeagent takeover back",
    ),
)
@click.option("--kubeconfig", metavar="FILE", help="The kubeconfig, as for kubectl.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig (default: the current one).")
@click.pass_context
def takeover_command(current: click.Context, /, kubeconfig: str | None, context: str | None) -> None:
    """Take kube-proxy's place in a running cluster, step by step, with a way back at every step.

    Needs kubectl, and the rights of a cluster administrator. The progress is read from the cluster itself.
    """
    chosen = (("--kubeconfig", kubeconfig), ("--context", context))
    current.obj = [f"{name}={value}" for name, value in chosen if value is not None]


@takeover_command.command(
    "plan",
    epilog=examples(
        "nodeagent takeover plan",
        "nodeagent takeover plan --node node-3        node-3 would be the first",
    ),
)
@click.option("--node", metavar="NAME", help="The first node to take over.")
@click.pass_obj
def plan_command(flags: list[str], /, node: str | None) -> None:
    """Print the state of the cluster, what will be different, and what each step does. Changes nothing.

    Exit codes: 0, 1 something must be changed first, or failed.
    """
    with failures():
        found = read_cluster(Kubectl(flags))
    seen = outlook(found)
    for line in seen.facts:
        click.echo(line)
    for line in seen.notes:
        click.echo(f"different: {line}")
    _print_steps(found, canary_of(found, node))
    _refuse_blockers(seen)


@takeover_command.command(
    "start",
    epilog=examples(
        "nodeagent takeover start --until canary       one node, then stop",
        "nodeagent takeover start                      every step that is left",
        "nodeagent takeover start --image registry.example/nodeagent:0.1.0 --component names",
    ),
)
@click.option(
    "--until",
    "last",
    type=click.Choice([step.value for step in Step]),
    default=Step.CLEAN.value,
    help="Stop after this step.",
)
@click.option("--node", metavar="NAME", help="The first node to take over.")
@click.option(
    "--image",
    metavar="NAME:TAG",
    help="Image of the agents; the nodes must be able to pull it (default: nodeagent and the version).",
)
@click.option(
    "--component", "components", multiple=True, metavar="NAME", help="One of deploy/components, such as names."
)
@click.option(
    "--kustomization",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A kustomization to apply instead of deploy/base with the component kubeadm.",
)
@click.option("--timeout", default="5m", show_default=True, help="How long each change may take until it is in effect.")
@click.pass_obj
def start_command(
    flags: list[str],
    /,
    last: str,
    node: str | None,
    image: str | None,
    components: tuple[str, ...],
    kustomization: Path | None,
    timeout: str,
) -> None:
    """Do the remaining steps: canary, everywhere, kube-proxy-out, clean. Each is checked before the next.

    Exit codes: 0, 1 a step stopped (nothing is undone), 2 unusable options.
    """
    if unknown := set(components) - set(known_components()):
        raise click.UsageError(f"no component {min(unknown)}: there are {', '.join(known_components())}")
    wanted = TakeoverOptions(image, components, kustomization, _seconds(timeout))
    with failures():
        cluster = _cluster(flags, wanted.seconds)
        found = cluster.read()
        _refuse_blockers(outlook(found))
        canary = canary_of(found, node)
        if canary is None:
            raise Failure(f"no node {node} that runs Linux" if node else "no node is ready", UNUSABLE)
        for step in steps_until(Step(last), found):
            click.echo(f"{step}: {MEANING[step]}")
            with stopping_at(step):
                do(step, cluster, wanted, canary)
            click.echo(f"{step}: done")
        following = next_step(cluster.read())
    click.echo("kube-proxy's place is taken" if following is None else f"next: {following}: {MEANING[following]}")


@takeover_command.command(
    "status",
    epilog=examples(
        "nodeagent takeover status",
    ),
)
@click.pass_obj
def status_command(flags: list[str], /) -> None:
    """Print which steps are done, and the state of each node. Changes nothing. Exit codes: 0, 1 failed."""
    with failures():
        found = read_cluster(Kubectl(flags))
    _print_steps(found, None)
    for line in lay_out(COLUMNS, outlook(found).rows, None).lines:
        click.echo(line)


@takeover_command.command(
    "back",
    epilog=examples(
        "nodeagent takeover back",
        "nodeagent takeover back --timeout 10m",
    ),
)
@click.option("--timeout", default="5m", show_default=True, help="How long each change may take until it is in effect.")
@click.pass_obj
def back_command(flags: list[str], /, timeout: str) -> None:
    """Return every node to kube-proxy, then remove the agents and what they programmed.

    Exit codes: 0 (also if there was nothing to do), 1 failed (the same command continues).
    """
    with failures(), stopping_at("back"):
        take_back(_cluster(flags, _seconds(timeout)))
    click.echo("kube-proxy serves every node; nothing of nodeagent is left")


@contextmanager
def failures() -> Iterator[None]:
    """Turns an error of kubectl into a Failure: one line and an exit code (context manager)."""
    try:
        yield
    except KubectlFailed as error:
        raise Failure(str(error), FAILED) from error


@contextmanager
def stopping_at(step: str) -> Iterator[None]:
    """Adds to the error of a step how to continue and how to go back (context manager)."""
    try:
        yield
    except (TakeoverStopped, KubectlFailed) as error:
        again = "the same command again goes on" if step == "back" else BACK
        raise Failure(f"{step}: {error}; {again}", FAILED) from error


def _cluster(flags: list[str], seconds: float) -> ManagedCluster:
    say: Callable[[str], None] = lambda line: click.echo(f"  {line}")  # noqa: E731 - as a value
    return ManagedCluster(Kubectl(flags), say, seconds)


def _seconds(text: str) -> float:
    try:
        return parse_duration(text).seconds
    except ValueError as error:
        raise click.UsageError(f"--timeout: {error}") from error


def _print_steps(found: ClusterState, canary: str | None) -> None:
    following = next_step(found)
    for step in Step:
        state = "next" if step == following else "done" if is_done(step, found) else "later"
        first = f" ({canary})" if step is Step.CANARY and canary and step == following else ""
        click.echo(f"{state:6}{step:16}{MEANING[step]}{first}")


def _refuse_blockers(seen: Outlook) -> None:
    if seen.blockers:
        more = "".join(f"; {line}" for line in seen.blockers[1:])
        raise Failure(f"first: {seen.blockers[0]}{more}", FAILED)
