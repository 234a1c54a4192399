"""`nodeagent lab load` and `nodeagent lab fault`: traffic, and faults under traffic."""

import math
import sys
from contextlib import suppress
from pathlib import Path

import click

from nodeagent.cli import lab_screen
from nodeagent.cli.examples import examples
from nodeagent.cli.exit_codes import FAILED, INTERRUPTED, UNUSABLE, Failure
from nodeagent.cli.lab_access import pass_lab
from nodeagent.lab import caller
from nodeagent.lab import supervisor_messages as messages
from nodeagent.lab.directory import LabDirectory
from nodeagent.lab.fault_kinds import CONTROL_KINDS, KINDS, FaultTarget
from nodeagent.lab.fault_verdict import NotDone
from nodeagent.lab.net.network_namespaces import LabError
from nodeagent.lab.report.folder import ReportFolder
from nodeagent.lab.report_tables import fault_table, shortcomings

EVERY = "all"
SERVICE = click.option(
    "--service", default="default/echo", show_default=True, help="NAMESPACE/NAME of the Service to connect to."
)
RATE = click.option(
    "--rate", default=100.0, show_default=True, help="New connections per second, of all clients together."
)
UDP = click.option("--udp", is_flag=True, help="UDP instead of TCP; each request uses a new source port.")


def check_number(option: str, value: float | None) -> float:
    """Returns the value of an option, or 0 if it was not given. Raises Failure if it is not finite and above 0."""
    if value is None:
        return 0.0
    if not 0 < value < math.inf:
        raise Failure(f"{option} {value:g} is not above 0", UNUSABLE)
    return value


@click.command(
    "load",
    epilog=examples(
        "nodeagent lab load",
        "nodeagent lab load --rate 200 --for 10",
    ),
)
@SERVICE
@RATE
@UDP
@click.option("--for", "seconds", type=float, help="Seconds until it ends (default: Ctrl-C ends it).")
@pass_lab
def load_command(directory: LabDirectory, *, service: str, rate: float, udp: bool, seconds: float | None) -> None:
    """Connect to a Service from every pod, node and the client; show which endpoint answers, how fast, and what fails.

    Exit code 1 when a connection failed.
    """
    duration = check_number("--for", seconds) or math.inf
    request = messages.StartLoad(service, check_number("--rate", rate), protocol_of(udp))
    sample: messages.LoadSample | None = None
    ended_early = False
    with (
        lab_screen.LiveTable() as screen,
        suppress(KeyboardInterrupt),  # Ctrl-C is the normal end
        caller.conversation(directory, request) as answers,
    ):
        for answer in answers:
            if isinstance(answer, messages.LoadSample):
                sample = answer
                screen.show(sample)
                if sample.seconds >= duration:
                    break
        else:
            ended_early = True
    if sample is not None:
        screen.print_total(sample)
    if ended_early:
        raise caller.ended_early(directory)
    sys.exit(FAILED if sample is not None and sample.failed else 0)


@click.command(
    "fault",
    epilog=examples(
        "nodeagent lab fault restart",
        "nodeagent lab fault all",
    ),
)
@click.argument("kind", type=click.Choice([*KINDS, EVERY]), metavar="KIND")
@click.argument("node", default="")
@click.option("--for", "seconds", type=float, help="Seconds that the fault lasts (default: depends on the fault).")
@click.option("--amount", type=float, help="`delay`: milliseconds (20); `drop`: percent (5); `clock`: seconds (3600).")
@SERVICE
@RATE
@UDP
@click.option(
    "--report",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="A directory for index.html, a picture of each fault over time, and every connection as CSV.",
)
@pass_lab
def fault_command(
    directory: LabDirectory,
    *,
    kind: str,
    node: str,
    seconds: float | None,
    amount: float | None,
    service: str,
    rate: float,
    udp: bool,
    folder: Path | None,
) -> None:
    """Break something under load, repair it, and report the failed connections and delays.

    NODE: the first one, if not given. The last six lines before `all` are for a lab with several control planes; NODE is one
    of those there.

    \b
    KIND is one of
      restart    the agent of the node is stopped and started
      kill       the agent is killed (SIGKILL), and started again
      dns        the process that answers names is killed
      freeze     the agent is stopped in its tracks (SIGSTOP)
      api        the API server is down
      rollover   every pod is replaced
      flush      `nft flush ruleset` on the node
      delay      frames to and from the node take longer
      drop       packets to and from the node are lost
      conntrack  the node's connection table is full
      cut        the node's link is down
      leader-kill, leader-freeze, leader-cut, follower-kill, follower-freeze, follower-cut
                 a member of etcd is killed, frozen, cut off from the others
      server-kill, server-freeze, server-cut
                 an API server is killed, frozen, cut off
      clock      an API server's clock is ahead
      space      etcd has no space left
      all        all of these, one after the other

    Exit code 1 when it cost what it must not, did not recover, or was not done.
    """
    every = kind == EVERY
    if every and amount is not None:
        raise Failure("--amount is for one fault that knows it, not for all faults", UNUSABLE)
    lasting, share = check_number("--for", seconds), check_number("--amount", amount)
    kinds = [kind]
    if every:
        has_etcd = caller.ask(directory, messages.GetStatus(), messages.Status).settings.several
        kinds = [each for each in KINDS if has_etcd or each not in CONTROL_KINDS]
    requests = [
        messages.InjectFault(
            each,
            service,
            node if not every or KINDS[each].target is FaultTarget.NODE else "",
            lasting if not every or KINDS[each].seconds else 0.0,
            check_number("--rate", rate),
            share,
            protocol_of(udp),
            folder is not None,
        )
        for each in kinds
    ]
    report = ReportFolder(folder) if folder is not None else None
    results: list[messages.FaultReport | NotDone] = []
    interrupted = False
    try:
        for request in requests:
            result = attempt(directory, request, report) if every else carry_out(directory, request, report)
            results.append(result)
    except KeyboardInterrupt:
        interrupted = True
    if results:
        click.echo(fault_table(results))
        if report is not None:
            report.finish(results)
            click.echo(f"report: {report.index}")
    if interrupted:
        sys.exit(INTERRUPTED)
    if wrong := shortcomings(results):
        raise Failure(wrong, FAILED)


def attempt(
    directory: LabDirectory, request: messages.InjectFault, report: ReportFolder | None
) -> messages.FaultReport | NotDone:
    """Returns the report of the fault, or why there is no report. Raises RequestRefused for an invalid request."""
    try:
        return carry_out(directory, request, report)
    except caller.RequestRefused as refused:
        if refused.unusable:
            raise
        return NotDone(request.kind, str(refused))
    except LabError as error:
        return NotDone(request.kind, str(error))


def carry_out(
    directory: LabDirectory, request: messages.InjectFault, report: ReportFolder | None
) -> messages.FaultReport:
    """Injects a fault and returns its report, which is also added to `report`. Raises LabError if the lab ends early."""
    cost: messages.FaultReport | None = None
    with caller.conversation(directory, request) as answers:
        for answer in answers:
            match answer:
                case messages.FaultProgress(text):
                    click.echo(f"{text} …", err=True)
                case messages.FaultReport():
                    cost = answer
                    if not request.record:
                        return cost
                case messages.FaultRecord() if report is not None and cost is not None:
                    report.add(cost, answer)
                    return cost
    raise caller.ended_early(directory)


def protocol_of(udp: bool) -> str:
    """Returns the name of the protocol for requests to a lab."""
    return "UDP" if udp else "TCP"
