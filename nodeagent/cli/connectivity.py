"""`nodeagent connectivity`: tries every kind of connection to Services in a cluster, with test pods."""

import asyncio
import secrets
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TypeVar

import click

from nodeagent import __version__
from nodeagent.cli.columns import Column as TableColumn
from nodeagent.cli.examples import examples
from nodeagent.cli.exit_codes import FAILED, UNUSABLE, Failure
from nodeagent.cli.rows import output_option, print_document, print_table
from nodeagent.cli.user_kubeconfig import kubeconfig_paths
from nodeagent.diagnosis.connectivity.cases import Column
from nodeagent.diagnosis.connectivity.cluster import ClusterClient
from nodeagent.diagnosis.connectivity.deployment import ConnectivityError
from nodeagent.diagnosis.connectivity.matrix import Report
from nodeagent.diagnosis.connectivity.trial import TrialOptions, remove_leftovers, try_everything
from nodeagent.model.addresses import parse_address
from nodeagent.model.text import printable
from nodeagent.proxy.source.client.api_client import ApiClient, Timeouts
from nodeagent.proxy.source.client.api_errors import KubeError
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess, load_kubeconfig

Result = TypeVar("Result")

BALANCER_ADDRESSES = ("198.51.100.77", "2001:db8:ffff::77")
EXTERNAL_IPS = ("198.51.100.78", "2001:db8:ffff::78")
"""Addresses from the ranges for documentation, which no host has (RFC 5737, RFC 3849)."""
TIMEOUTS = Timeouts(connect=10.0, headers=30.0, body=30.0)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
COLUMNS = (TableColumn("way", "WAY"), *(TableColumn(one.value, one.value.upper()) for one in Column))


@click.command(
    "connectivity",
    epilog=examples(
        "nodeagent connectivity                        the cluster of your kubeconfig",
        "nodeagent connectivity --image registry.example/nodeagent:0.1.0 --nodes 5",
        "nodeagent connectivity -o json",
        "nodeagent connectivity --cleanup              what a killed run left",
    ),
)
@click.option(
    "--kubeconfig",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Which cluster (default: $KUBECONFIG, else ~/.kube/config).",
)
@click.option("--context", metavar="NAME", help="Context of the kubeconfig (default: the current one).")
@click.option(
    "--image",
    default="",
    help=f"Image of the test pods: any with Python 3.10 (default: that of nodeagent in the cluster, else nodeagent:{__version__}).",
)
@click.option("--nodes", type=click.IntRange(1, 20), default=3, show_default=True, help="The most nodes to use.")
@click.option(
    "--timeout", type=click.FloatRange(1), default=120.0, show_default=True, help="Seconds until the test pods run."
)
@click.option(
    "--settle",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    help="Seconds for new Services to be served before a failure counts.",
)
@click.option(
    "--load-balancer-address",
    "balancer",
    metavar="ADDRESS",
    multiple=True,
    help="A load balancer address that is routed from this machine to the nodes (default: an unrouted one, for pods and nodes).",
)
@click.option("--cleanup", is_flag=True, help="Only remove what earlier runs left.")
@output_option
def connectivity_command(
    kubeconfig: Path | None,
    context: str | None,
    image: str,
    nodes: int,
    timeout: float,
    settle: float,
    balancer: tuple[str, ...],
    output: str,
    *,
    cleanup: bool,
) -> None:
    """Test every kind of connection to Services in a cluster, from pods, nodes and this machine, with any service proxy.

    Test pods run in a new namespace, which is deleted at the end. For each failure it prints the expected and the actual
    result, and the output of `nodeagent trace` on that node if nodeagent runs there.

    Exit codes: 0 all as expected, 1 something failed, 2 wrong options or the cluster cannot be tested, 130 interrupted.
    """
    for address in balancer:
        if parse_address(address) is None:
            raise Failure(f"--load-balancer-address {address}: not an IP address", UNUSABLE)
    wanted = TrialOptions(
        suffix=secrets.token_hex(3),
        image=image,
        own_image=f"nodeagent:{__version__}",
        nodes=nodes,
        pod_seconds=timeout,
        settle_seconds=settle,
        balancer_addresses=balancer or BALANCER_ADDRESSES,
        external_ips=EXTERNAL_IPS,
        balancer_is_routed=bool(balancer),
    )
    try:
        access = load_kubeconfig(kubeconfig_paths(kubeconfig), context)
        if cleanup:
            gone = _run(_with(access, lambda cluster: remove_leftovers(cluster, _say)))
            click.get_current_context().exit(0 if gone else FAILED)
        report = _run(_with(access, lambda cluster: try_everything(cluster, wanted, _say)))
    except (ConnectivityError, KubeError) as error:
        raise Failure(str(error), UNUSABLE) from error
    _print(report, output)
    click.get_current_context().exit(FAILED if report.failures else 0)


async def _with(access: ClusterAccess, work: Callable[[ClusterClient], Coroutine[None, None, Result]]) -> Result:
    async with ApiClient(access, user_agent="nodeagent-connectivity", timeouts=TIMEOUTS) as client:
        return await work(ClusterClient(client))


def _run(work: Coroutine[None, None, Result]) -> Result:
    """Runs `work` until it ends or the first signal cancels it. Ignores further signals while `work` deletes what it created.
    Raises KeyboardInterrupt."""

    async def cancel_at_signal() -> Result:
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(work, name="connectivity")
        interrupted = False

        def interrupt() -> None:
            nonlocal interrupted
            if interrupted:
                return _say("still removing the test pods")
            interrupted = True
            _say("interrupted: removing the test pods")
            task.cancel()
            return None

        for number in SIGNALS:
            loop.add_signal_handler(number, interrupt)
        try:
            return await task
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    return asyncio.run(cancel_at_signal())


def _say(text: str) -> None:
    click.echo(f"nodeagent: {printable(text)}", err=True)


def _print(report: Report, output: str) -> None:
    if output in ("json", "yaml"):
        print_document(report.document(), output)
    elif output == "name":
        for name in dict.fromkeys(one.case.row for one in report.failures):
            click.echo(printable(name))
    else:
        print_table(COLUMNS, report.rows())
        lines = [*report.failure_lines(), *report.skipped_lines()]
        if output == "wide":
            lines += report.case_lines()
        click.echo("\n".join(printable(line) for line in [*lines, report.summary()]))
