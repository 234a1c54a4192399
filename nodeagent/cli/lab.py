"""`nodeagent lab`: a cluster of network namespaces on this machine, to try and to break."""

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

"""A command that is not there is 127, one that cannot be run 126; `ip` would make both 255."""


@click.group(
    "lab",
    epilog=examples(
        "nodeagent lab up",
        "nodeagent lab status",
        "nodeagent lab down",
    ),
)
@click.option("--name", default="lab", show_default=True, help="Which lab; any number may exist side by side.")
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
@click.option("--nodes", default=3, show_default=True, help="How many nodes.")
@click.option("--pods", default=2, show_default=True, help="How many pods on each.")
@click.option("--ipv6", is_flag=True, help="Both families; without it, IPv4 only.")
@click.option("--api", default=EMBEDDED, show_default=True, help="`embedded`, or the URL of a running API server.")
@click.option(
    "--api-kubeconfig",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, resolve_path=True),
    help="Whose credentials to use with the URL; without it, none.",
)
@click.option(
    "--control-planes",
    default=1,
    show_default=True,
    help="How many hosts with an API server; with 3 or 5 each has a member of etcd, too.",
)
@click.option("--etcd", default="etcd", show_default=True, help="The program, with several control planes.")
@click.option(
    "--libfaketime",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    help="libfaketimeMT.so.1 for the fault `clock`, if it is not installed.",
)
@click.option("--dns/--no-dns", default=True, show_default=True, help="Nodes answer names; pods ask them.")
@click.option("--page/--no-page", default=True, show_default=True, help="A page to look at, on a port of 127.0.0.1.")
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
    """Build a lab. It stays until `down`; interrupted or failed, it leaves nothing."""
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
    click.echo(lab_screen.after_up(directory))


def find_etcd(program: str) -> str:
    """Its path. Raises Failure."""
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
    """Print nodes with their agents, pods, services, and what is broken on purpose."""
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
    """The caller's, with the lab's kubeconfig and this `nodeagent` on the path."""
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
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on.")
@click.option(
    "--tail", default=200, show_default=True, type=click.IntRange(min=0), help="How many lines to begin with."
)
@pass_lab
def logs_command(directory: LabDirectory, *, member: str, follow: bool, tail: int) -> None:
    """Print what the agent of a node has written, an API server (`control`, `control-1`) or a member of etcd (`etcd-1`)."""
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
    """Remove a lab, or what a killed one left."""
    there = caller.take_down(directory)
    click.echo(f"removed lab {directory.name}" if there else f"there was no lab {directory.name}")


lab_command.add_command(load_command)
lab_command.add_command(fault_command)
