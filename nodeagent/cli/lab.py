"""`nodeagent lab`: a cluster of network namespaces on this machine, to try and to break."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from nodeagent.cli import lab_screen
from nodeagent.cli.exit_codes import CANNOT_PROGRAM, FAILED, UNUSABLE, Failure
from nodeagent.lab.live import caller
from nodeagent.lab.live.directory import LabDirectory, base_directory
from nodeagent.lab.live.faults import KINDS
from nodeagent.lab.live.plan import EMBEDDED, Settings
from nodeagent.lab.live.requests import (
    FaultProgress,
    FaultReport,
    GetLog,
    GetStatus,
    InjectFault,
    LoadSample,
    Locate,
    LogLines,
    Place,
    StartLoad,
    Status,
)
from nodeagent.lab.live.tables import fault_table
from nodeagent.lab.namespaces import LabError

PROGRAMS = ("ip", "nft", "setpriv")
INTERRUPTED = 130
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""SIGINT too: it may have been ignored by whoever started this in the background."""


@contextmanager
def _failures() -> Iterator[None]:
    """Whatever goes wrong becomes one line and an exit code."""
    try:
        yield
    except caller.RequestRefused as error:
        raise Failure(str(error), UNUSABLE if error.unusable else FAILED) from error
    except ValueError as error:
        raise Failure(str(error), UNUSABLE) from error
    except LabError as error:
        raise Failure(str(error), FAILED) from error
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(INTERRUPTED)


def _require_root() -> None:
    if os.geteuid():
        raise Failure("a lab is made of network namespaces: run it as root", CANNOT_PROGRAM)
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing:
        raise Failure(f"missing programs: {', '.join(missing)}", CANNOT_PROGRAM)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@click.group("lab")
@click.option("--name", default="lab", show_default=True, help="Which lab; any number may exist side by side.")
@click.pass_context
def lab_command(ctx: click.Context, *, name: str) -> None:
    """A cluster on this machine: nodes, pods and a client outside, each a network namespace.

    Exit codes: 0, 1 failed or there is no such lab, 2 unusable options, 3 not root; `exec`: the command's.
    """
    _require_root()
    for number in ENDING:
        signal.signal(number, _interrupt)
    with _failures():
        ctx.obj = LabDirectory(base_directory(os.environ), name)


@lab_command.command("up")
@click.option("--nodes", default=3, show_default=True, help="How many nodes.")
@click.option("--pods", default=2, show_default=True, help="How many pods on each.")
@click.option("--ipv6", is_flag=True, help="Both families; without it, IPv4 only.")
@click.option("--api", default=EMBEDDED, show_default=True, help="`embedded`, or the URL of a running API server.")
@click.option(
    "--api-kubeconfig",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, resolve_path=True),
    help="Whose credentials to use with the URL; without it, none.",
)
@click.option("--agent-option", multiple=True, help="One more option of every `nodeagent run`; repeatable.")
@click.pass_obj
def up_command(
    directory: LabDirectory,
    *,
    nodes: int,
    pods: int,
    ipv6: bool,
    api: str,
    api_kubeconfig: Path | None,
    agent_option: tuple[str, ...],
) -> None:
    """Build a lab. It stays until `down`; interrupted or failed, it leaves nothing."""
    settings = Settings(
        name=directory.name,
        nodes=nodes,
        pods=pods,
        ipv6=ipv6,
        api=api,
        credentials=str(api_kubeconfig or ""),
        agent_options=agent_option,
    )
    with _failures():
        caller.start(directory, settings, os.environ, lab_screen.show_step)
    click.echo(lab_screen.after_up(directory))


@lab_command.command("status")
@click.pass_obj
def status_command(directory: LabDirectory) -> None:
    """Print nodes with their agents, pods, services, and what is broken on purpose."""
    with _failures():
        status = caller.ask(directory, GetStatus(), Status)
    click.echo(lab_screen.status_text(status))


@lab_command.command("exec", context_settings={"ignore_unknown_options": True})
@click.argument("member")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
@click.pass_obj
def exec_command(directory: LabDirectory, *, member: str, command: tuple[str, ...]) -> None:
    """Run COMMAND in the namespace of a node, a pod, `client`, `control` or `underlay`; KUBECONFIG is set."""
    with _failures(), caller.conversation(directory, Locate(member)) as answers:
        place = next(answers, None)
        if not isinstance(place, Place):
            raise LabError(f"lab {directory.name} ended")
        environment = _environment_inside(place, os.environ)
        # The program ends with this process, and this process with the lab.
        argv = ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", place.namespace, *command]
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with subprocess.Popen(argv, env=environment, preexec_fn=_heed_interrupts) as process:  # noqa: S603, PLW1509
            threading.Thread(target=_end_with_the_lab, args=(answers, process), daemon=True).start()
            status = process.wait()
    sys.exit(128 - status if status < 0 else status)


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _end_with_the_lab(answers: Iterator[object], process: "subprocess.Popen[bytes]") -> None:
    try:
        for _ in answers:
            pass
    except (LabError, ValueError):
        return  # this side closed it
    process.kill()


def _environment_inside(place: Place, environment: Mapping[str, str]) -> dict[str, str]:
    """The caller's, with the lab's kubeconfig and this `nodeagent` on the path."""
    path = f"{Path(sys.executable).parent}:{environment.get('PATH', os.defpath)}"
    return {**environment, "KUBECONFIG": place.kubeconfig, "PATH": path}


@lab_command.command("kubeconfig")
@click.pass_obj
def kubeconfig_command(directory: LabDirectory) -> None:
    """Print the path of a kubeconfig that works on this machine: export KUBECONFIG=$(nodeagent lab kubeconfig)."""
    with _failures():
        caller.check_there(directory)
    click.echo(directory.kubeconfig)


@lab_command.command("logs")
@click.argument("member")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on.")
@click.option("--tail", default=200, show_default=True, help="How many lines to begin with.")
@click.pass_obj
def logs_command(directory: LabDirectory, *, member: str, follow: bool, tail: int) -> None:
    """Print what the agent of a node has written, or the API server (`control`)."""
    with _failures(), caller.conversation(directory, GetLog(member, tail, follow)) as answers:
        for answer in answers:
            if isinstance(answer, LogLines):
                for line in answer.lines:
                    click.echo(line)


@lab_command.command("down")
@click.pass_obj
def down_command(directory: LabDirectory) -> None:
    """Remove a lab, or what a killed one left."""
    with _failures():
        there = caller.take_down(directory)
    click.echo(f"removed lab {directory.name}" if there else f"there was no lab {directory.name}")


@lab_command.command("load")
@click.option("--service", default="default/echo", show_default=True, help="NAMESPACE/NAME of what is connected to.")
@click.option("--rate", default=100.0, show_default=True, help="New connections a second, all clients together.")
@click.option("--udp", is_flag=True, help="UDP; a connection is a question from a port of its own.")
@click.option("--for", "seconds", type=float, help="End after so many seconds; without it, with Ctrl-C.")
@click.pass_obj
def load_command(directory: LabDirectory, *, service: str, rate: float, udp: bool, seconds: float | None) -> None:
    """Connect from everywhere, and show who answers, how fast, and what fails.

    Exit code 1 when a connection failed.
    """
    if rate <= 0:
        raise Failure(f"--rate {rate:g} is not above 0", UNUSABLE)
    request = StartLoad(service, rate, "UDP" if udp else "TCP")
    sample: LoadSample | None = None
    with _failures(), lab_screen.LiveTable() as screen:
        try:
            with caller.conversation(directory, request) as answers:
                for answer in answers:
                    if isinstance(answer, LoadSample):
                        sample = answer
                        screen.show(sample)
                        if seconds is not None and sample.seconds >= seconds:
                            break
        except KeyboardInterrupt:
            pass  # the way it is meant to end
    if sample is not None:
        screen.finish(sample)
        sys.exit(FAILED if sample.failed else 0)


@lab_command.command("fault")
@click.argument("kind", type=click.Choice([*KINDS, "all"]))
@click.argument("node", default="")
@click.option("--for", "seconds", default=0.0, help="How many seconds it lasts; each fault has its own usual time.")
@click.option("--amount", default=0.0, help="`delay`: milliseconds, 20; `drop`: percent, 5.")
@click.option("--service", default="default/echo", show_default=True, help="NAMESPACE/NAME of what is connected to.")
@click.option("--rate", default=100.0, show_default=True, help="New connections a second meanwhile.")
@click.pass_obj
def fault_command(
    directory: LabDirectory, *, kind: str, node: str, seconds: float, amount: float, service: str, rate: float
) -> None:
    """Break something under load, put it right, and report what that cost. NODE: the first one, if not given.

    Exit code 1 when a connection failed during a fault that must not cost any.
    """
    if rate <= 0 or seconds < 0:
        raise Failure("--rate and --for are above 0", UNUSABLE)
    reports: list[FaultReport] = []
    kinds = list(KINDS) if kind == "all" else [kind]
    with _failures():
        for each in kinds:
            request = InjectFault(each, service, node, seconds, rate, amount if kind != "all" else 0.0)
            with caller.conversation(directory, request) as answers:
                for answer in answers:
                    match answer:
                        case FaultProgress(text):
                            click.echo(f"{text} …", err=True)
                        case FaultReport():
                            reports.append(answer)
    click.echo(fault_table(reports))
    lost = [report.kind for report in reports if KINDS[report.kind].lossless and report.failed]
    if lost:
        raise Failure(f"connections failed that must not: {', '.join(lost)}", FAILED)
