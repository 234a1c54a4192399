"""How `nodeagent lab` looks: lines and tables as text."""

from collections.abc import Iterable, Sequence
from typing import Self

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from nodeagent.lab.caller import Line
from nodeagent.lab.directory import LabDirectory
from nodeagent.lab.report_tables import load_line, load_text, table
from nodeagent.lab.supervisor_messages import ControlStatus, LoadSample, NodeStatus, Status


def show_step(line: Line) -> None:
    """Print one step of building."""
    click.echo(f"{line.at:5.1f} s  {line.text}")


def after_up(directory: LabDirectory) -> str:
    """What one does next."""
    lab = "nodeagent lab" if directory.name == "lab" else f"nodeagent lab --name {directory.name}"
    page = directory.read_page()
    return "\n".join(
        [
            "",
            *([f"{page}   to look at it, and to cut nodes off", ""] if page else []),
            f"{lab} status                      who is there, where the service answers",
            f"export KUBECONFIG=$({lab} kubeconfig)",
            f"{lab} exec client -- bash         a shell outside; also node-1, echo-1-1, …",
            f"{lab} load                        connections from everywhere, live",
            f"{lab} fault all                   break everything in turn, under load",
            f"{lab} down",
        ]
    )


def status_text(status: Status, page: str) -> str:
    """A lab, in tables. page: its address; empty: without a page."""
    settings = status.settings
    families = "IPv4 and IPv6" if settings.ipv6 else "IPv4"
    head = f"lab {settings.name}: {families}, up for {status.up_seconds:.0f} s, API server {status.api}, supervisor {status.pid}"
    head += f"\npage {page}" if page else ""
    control = table(
        ("CONTROL PLANE", "ADDRESSES", "API SERVER", "READY", "CONTROLLERS", "ETCD", "ROLE"),
        ((one.name, *_of_control(one)) for one in status.control),
    )
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
    return "\n\n".join([head, *faults, *([control] if status.control else []), nodes, pods, services])


def _of_control(one: ControlStatus) -> Sequence[str]:
    role = "leader" if one.leads else "follower" if one.etcd == "running" else "-"
    return (_listed(one.addresses), one.server, _yes(one.ready), "here" if one.elected else "-", one.etcd, role)


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


class LiveTable:
    """A load while it goes on: a table that stays in place on a terminal, a line for each look into a pipe.

    On a small terminal ways of the same kind are one row; the table that stays in the end has them all.
    """

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._previous: LoadSample | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, sample: LoadSample) -> None:
        """Show this sample in place of the last one; nothing where the output is no terminal."""
        if self._console.is_terminal:
            text = load_text(sample, self._previous)
            if text.count("\n") >= self._console.height:
                text = load_text(sample, self._previous, grouped=True)
            self._live.update(Text(text, no_wrap=True), refresh=True)
        else:
            click.echo(load_line(sample))
        self._previous = sample

    def finish(self, sample: LoadSample) -> None:
        """What it was, to stay."""
        click.echo(load_text(sample, None))
