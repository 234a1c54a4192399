"""How `nodeagent lab` looks: lines and tables as text."""

from collections.abc import Iterable, Sequence

import click
from rich.console import Console
from rich.table import Table

from nodeagent.lab.live.caller import Line
from nodeagent.lab.live.directory import LabDirectory
from nodeagent.lab.live.requests import NodeStatus, Status

PIPE_WIDTH = 1000


def show_step(line: Line) -> None:
    """Print one step of building."""
    click.echo(f"{line.at:5.1f} s  {line.text}")


def after_up(directory: LabDirectory) -> str:
    """What one does next."""
    lab = "nodeagent lab" if directory.name == "lab" else f"nodeagent lab --name {directory.name}"
    return "\n".join(
        [
            "",
            f"{lab} status                      who is there, where the service answers",
            f"export KUBECONFIG=$({lab} kubeconfig)",
            f"{lab} exec client -- bash         a shell outside; also node-1, echo-1-1, …",
            f"{lab} load                        connections from everywhere, live",
            f"{lab} fault all                   break everything in turn, under load",
            f"{lab} down",
        ]
    )


def status_text(status: Status) -> str:
    """A lab, in three tables."""
    settings = status.settings
    families = "IPv4 and IPv6" if settings.ipv6 else "IPv4"
    head = f"lab {settings.name}: {families}, up for {status.up_seconds:.0f} s, API server {status.api}, supervisor {status.pid}"
    nodes = table(
        ("NODE", "ADDRESSES", "POD CIDRS", "AGENT", "RESTARTS", "HEALTHY", "ENDPOINTS"),
        ((node.name, *_of_node(node)) for node in status.nodes),
    )
    pods = table(
        ("POD", "NODE", "ADDRESSES", "READY"),
        ((pod.name, pod.node, _listed(pod.addresses), _yes(pod.ready)) for pod in status.pods),
    )
    services = table(
        ("SERVICE", "TYPE", "ENDPOINTS", "ADDRESSES"),
        ((one.name, one.kind, str(one.endpoints), _listed(one.addresses)) for one in status.services),
    )
    faults = [f"broken on purpose: {', '.join(status.faults)}"] if status.faults else []
    return "\n\n".join([head, *faults, nodes, pods, services])


def _of_node(node: NodeStatus) -> Sequence[str]:
    have, want = node.programmed
    endpoints = f"{have} of {want}" if want else "?"
    return (
        _listed(node.addresses),
        _listed(node.pod_cidrs),
        node.agent,
        str(node.restarts),
        _yes(node.healthy),
        endpoints,
    )


def _listed(values: Iterable[str]) -> str:
    return ", ".join(values)


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Aligned columns; those of `right` (by number) are numbers."""
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, heading in enumerate(headings):
        grid.add_column(heading, justify="right" if number in right else "left", no_wrap=True, overflow="ignore")
    for row in rows:
        grid.add_row(*row)
    console = Console(highlight=False, markup=False, width=PIPE_WIDTH)
    with console.capture() as capture:
        console.print(grid)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())
