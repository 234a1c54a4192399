"""`nodeagent lab`: a cluster of network namespaces on this machine, for experiments and faults."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
from msgspec.structs import replace

from nodeagent.cli import lab_screen
from nodeagent.cli.examples import examples
from nodeagent.cli.exit_codes import CANNOT_PROGRAM, Failure
from nodeagent.cli.lab_access import pass_lab
from nodeagent.cli.lab_traffic import fault_command, load_command
from nodeagent.lab import caller
from nodeagent.lab.directory import LabDirectory
from nodeagent.lab.lab_plan import EMBEDDED, Settings
from nodeagent.lab.net.network_namespaces import LabError
from nodeagent.lab.supervisor_messages import GetLog, GetStatus, Locate, LogLines, MemberPlace, Status


@click.group(
    "lab",
    epilog=examples(
        "nodeagent lab up",
        "nodeagent lab status",
        "nodeagent lab down",
    ),
)
@click.option(
    "--name", default="lab", show_default=True, help="Name of the lab; several labs can run at the same time."
)
@click.pass_context
def lab_command(ctx: click.Context, *, name: str) -> None:
    """A cluster on this machine: nodes, pods and a client outside, each a network namespace.

    Exit codes: 0, 1 failed or there is no such lab, 2 unusable options, 3 not root, 130 interrupted; `exec`: the command's.
    """
    ctx.obj = name


@lab_command.command(
    "up",
    epilog=examples(
        "nodeagent lab up",
        "nodeagent lab up --nodes 5 --pods 3 --ipv6",
    ),
)
@click.option("--nodes", default=3, show_default=True, help="Number of nodes.")
@click.option("--pods", default=2, show_default=True, help="Number of pods on each node.")
@click.option("--ipv6", is_flag=True, help="IPv4 and IPv6; without it, only IPv4.")
@click.option("--api", default=EMBEDDED, show_default=True, help="`embedded`, or the URL of a running API server.")
@click.option(
    "--api-kubeconfig",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, resolve_path=True),
    help="Kubeconfig with credentials for the URL (default: no credentials).",
)
@click.option(
    "--control-planes",
    default=1,
    show_default=True,
    help="How many hosts with an API server; with 3 or 5 each has a member of etcd, too.",
)
@click.option("--etcd", default="etcd", show_default=True, help="The etcd program, for several control planes.")
@click.option(
    "--libfaketime",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    help="libfaketimeMT.so.1 for the fault `clock`, if it is not installed.",
)
@click.option("--dns/--no-dns", default=True, show_default=True, help="Whether nodes answer DNS for pods.")
@click.option("--page/--no-page", default=True, show_default=True, help="Serve a status page on a port of 127.0.0.1.")
@click.option("--agent-option", multiple=True, help="One more option of every `nodeagent run`; repeatable.")
@pass_lab
def up_command(
    directory: LabDirectory,
    *,
    nodes: int,
    pods: int,
    ipv6: bool,
    api: str,
    api_kubeconfig: Path | None,
    control_planes: int,
    etcd: str,
    libfaketime: str | None,
    dns: bool,
    page: bool,
    agent_option: tuple[str, ...],
) -> None:
    """Build a lab, which runs until `down`. After an interruption or failure nothing is left."""
    settings = Settings(
        name=directory.name,
        nodes=nodes,
        pods=pods,
        ipv6=ipv6,
        api=api,
        credentials=str(api_kubeconfig or ""),
        agent_options=agent_option,
        dns=dns,
        page=page,
        control_planes=control_planes,
        faketime=libfaketime or "",
    )
    if settings.several:
        settings.check()
        settings = replace(settings, etcd=find_etcd(etcd))
    caller.start(directory, settings, os.environ, lab_screen.show_step)
    click.echo(lab_screen.next_commands(directory))


def find_etcd(program: str) -> str:
    """Returns the path of the program. Raises Failure if it is not found."""
    found = shutil.which(program)
    if found is None:
        raise Failure(
            f"--etcd {program}: there is no such program; Debian has it in the package etcd-server", CANNOT_PROGRAM
        )
    return str(Path(found).absolute())


@lab_command.command(
    "status",
    epilog=examples(
        "nodeagent lab status",
        "nodeagent lab --name other status",
    ),
)
@pass_lab
def status_command(directory: LabDirectory) -> None:
    """Print nodes with their agents, pods, services, and the faults in effect."""
    click.echo(lab_screen.status_text(caller.ask(directory, GetStatus(), Status), directory.read_page()))


@lab_command.command(
    "exec",
    context_settings={"ignore_unknown_options": True},
    epilog=examples(
        "nodeagent lab exec client curl http://web.demo",
        "nodeagent lab exec node-1 nodeagent explain web",
    ),
)
@click.argument("member")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
@pass_lab
def exec_command(directory: LabDirectory, *, member: str, command: tuple[str, ...]) -> None:
    """Run COMMAND in the namespace of a node, a pod, a control-plane host, `client` or `underlay`; KUBECONFIG is set."""
    with caller.conversation(directory, Locate(member)) as answers:
        place = next(answers, None)
        if not isinstance(place, MemberPlace):
            raise LabError(f"lab {directory.name} ended")
        environment = _environment_inside(place, os.environ)
        # The program ends with this process, and this process with the lab.
        argv = ["setpriv", "--pdeathsig", "KILL", *place.command(command)]
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


def _environment_inside(place: MemberPlace, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the caller's environment with the lab's kubeconfig, and with this `nodeagent` first in $PATH."""
    path = f"{Path(sys.executable).parent}:{environment.get('PATH', os.defpath)}"
    return {**environment, "KUBECONFIG": place.kubeconfig, "PATH": path}


@lab_command.command(
    "kubeconfig",
    epilog=examples(
        "nodeagent lab kubeconfig",
        "export KUBECONFIG=$(nodeagent lab kubeconfig)",
    ),
)
@pass_lab
def kubeconfig_command(directory: LabDirectory) -> None:
    """Print the path of a kubeconfig that works on this machine: export KUBECONFIG=$(nodeagent lab kubeconfig)."""
    caller.check_there(directory)
    click.echo(directory.kubeconfig)


@lab_command.command(
    "logs",
    epilog=examples(
        "nodeagent lab logs node-1",
        "nodeagent lab logs control -f --tail 20",
    ),
)
@click.argument("member")
@click.option("-f", "--follow", is_flag=True, help="Continue with new lines as they are written.")
@click.option(
    "--tail", default=200, show_default=True, type=click.IntRange(min=0), help="Number of earlier lines to print first."
)
@pass_lab
def logs_command(directory: LabDirectory, *, member: str, follow: bool, tail: int) -> None:
    """Print the log of a node's agent, an API server (`control`, `control-1`) or a member of etcd (`etcd-1`)."""
    with caller.conversation(directory, GetLog(member, tail, follow)) as answers:
        for answer in answers:
            if isinstance(answer, LogLines):
                for line in answer.lines:
                    click.echo(line)


@lab_command.command(
    "down",
    epilog=examples(
        "nodeagent lab down",
    ),
)
@pass_lab
def down_command(directory: LabDirectory) -> None:
    """Remove a lab, also one that was killed."""
    there = caller.take_down(directory)
    click.echo(f"removed lab {directory.name}" if there else f"there was no lab {directory.name}")


lab_command.add_command(load_command)
lab_command.add_command(fault_command)
