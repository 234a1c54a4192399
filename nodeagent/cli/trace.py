"""`nodeagent trace`: follows a new connection through the rules that are in the kernel now."""

from contextlib import closing
from functools import partial

import click
from msgspec import to_builtins

from nodeagent.cli.all_nodes.cluster_options import ClusterTarget, cluster_options
from nodeagent.cli.asking import access_options
from nodeagent.cli.exit_codes import CANNOT_PROGRAM, FAILED, UNUSABLE, Failure
from nodeagent.cli.kernel_reading import kernel_failures
from nodeagent.cli.known_names import complete_connection_end, complete_interface, complete_namespace
from nodeagent.cli.node_view import Access
from nodeagent.cli.other_tables import read_others
from nodeagent.cli.read_retries import read_with_retries
from nodeagent.cli.rows import output_option, print_document
from nodeagent.cli.trace_names import resolve_names
from nodeagent.diagnosis.trace.followed import TracedPacket, judge, packets_of, summary_of
from nodeagent.diagnosis.trace.live import follow
from nodeagent.diagnosis.trace.looking import look
from nodeagent.diagnosis.trace.question import Question, parse_question
from nodeagent.diagnosis.trace.report import Report
from nodeagent.model.text import printable
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.errors import DataplaneError
from nodeagent.runtime.interrupts import prompt_signal_handling

LIVE_SECONDS = 60.0
"""Time limit for the agent of another node, which may have to wait for packets."""
EXAMPLES = """\b
Examples:
  nodeagent trace 10.244.1.5 -> 10.96.0.10:80
  nodeagent trace 10.244.1.5 10.96.0.10:53/udp
  nodeagent trace fd00:244:1::5 [fd00:10:96::10]:443 -o json
  nodeagent trace 203.0.113.7 198.51.100.2:443 --from eth1
  nodeagent trace 10.244.1.5 10.96.0.10:80 --live 3
  nodeagent trace node/node-1 svc/web:http -n shop
  nodeagent trace pod/a svc/web --kubeconfig FILE
  nodeagent trace pod/a svc/web --all-nodes      on the node where the pod is
(quote the arrow for the shell: '->', or leave it out)"""


@click.command("trace", epilog=EXAMPLES, context_settings={"ignore_unknown_options": True})
@click.argument(
    "connection",
    nargs=-1,
    required=True,
    shell_complete=complete_connection_end,
    metavar="SRC [->] DST:PORT[/PROTOCOL]",
)
@click.option(
    "--from",
    "interface",
    default="",
    metavar="INTERFACE",
    shell_complete=complete_interface,
    help="The interface at which it arrives.",
)
@click.option("--all", "everything", is_flag=True, help="Show rules that did not apply as well.")
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    shell_complete=complete_namespace,
    help="Namespace of a pod or Service that is named without one (default: default).",
)
@output_option
@click.option(
    "--live", type=click.IntRange(1, 1000), metavar="N", help="Follow N real packets, and compare them with the result."
)
@click.option(
    "--wait", type=click.FloatRange(0.1), default=30.0, show_default=True, help="Seconds to wait for the packets."
)
@cluster_options(seconds=LIVE_SECONDS)
@access_options
def trace_command(
    connection: tuple[str, ...],
    interface: str,
    everything: bool,
    namespace: str | None,
    output: str,
    live: int | None,
    wait: float,
    access: Access,
    cluster: ClusterTarget | None,
) -> None:
    """Say what becomes of a new connection from SRC: every decision in order, with the rule and the element that made it.

    SRC may be pod/NAME or node/NAME, and DST a Service as for explain. The agent or the source resolves names.

    With --all-nodes the agent on the node of SRC is asked; --node names the node if that is not clear.

    Reads the rules and elements of all tables from the kernel; changes nothing. The first line is the verdict. With --live
    the kernel reports the rules that real packets meet; this needs a table, which is deleted at the end.

    Exit codes: 0 it arrives, 1 it does not (or not always), 2 no such connection, 3 no permission.
    """
    if cluster is not None:
        from nodeagent.cli.all_nodes.remote_trace import trace_at_source  # noqa: PLC0415 - loads a client of the API

        options = ["-o", output, *(["--all"] if everything else []), *(["--from", interface] if interface else [])]
        options += [] if live is None else ["--live", str(live), "--wait", str(wait)]
        click.get_current_context().exit(trace_at_source(cluster, connection, namespace, options))
    try:
        question = parse_question(resolve_names(connection, access, namespace))
    except ValueError as error:
        raise Failure(str(error), UNUSABLE) from error
    report = _report(question, interface)
    followed = None if live is None else _follow(report, live, wait)
    if output in ("json", "yaml"):
        seen = {} if followed is None else {"live": summary_of(followed), "packets": to_builtins(followed)}
        print_document(report.document() | seen, output)
    elif output == "name":
        if report.service:
            click.echo(printable(report.service))
    else:
        lines = [printable(line) for line in report.lines(everything=everything or output == "wide")]
        click.echo("\n".join([click.style(lines[0], bold=True), *lines[1:]]))
        if followed is not None:
            click.echo(printable(summary_of(followed)))
    otherwise = followed is not None and (not followed or any(one.agrees is False for one in followed))
    click.get_current_context().exit(0 if report.arrives and not otherwise else FAILED)


def _follow(report: Report, count: int, seconds: float) -> list[TracedPacket]:
    """Returns real packets of the connection, each with whether it went as the report says."""
    try:
        with prompt_signal_handling():
            events = follow(
                report.question, count, seconds, lambda: click.echo("nodeagent: following packets", err=True)
            )
    except PermissionError as error:
        raise Failure("nf_tables: not permitted: run as root or with CAP_NET_ADMIN", CANNOT_PROGRAM) from error
    except (DataplaneError, OSError) as error:
        raise Failure(str(error), FAILED) from error
    return [judge(packet, report.found, report.node.own) for packet in packets_of(events)]


def _report(question: Question, interface: str) -> Report:
    with kernel_failures(), closing(Ruleset()) as ruleset:
        return read_with_retries(partial(look, ruleset, question, read_others, interface))
