"""The output of `nodeagent lab` as text: lines and tables."""

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


def next_commands(directory: LabDirectory) -> str:
    """Returns the commands to try after `up`."""
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
    """Returns the status of a lab as tables. page: the URL of its page; empty: it has none."""
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
    """Shows a running load: on a terminal a table that is redrawn, into a pipe a line for each sample.

    On a small terminal, connections of the same kind share a row; the final table has a row for each.
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
        """Shows a sample in place of the previous one; into a pipe, prints one line."""
        if self._console.is_terminal:
            text = load_text(sample, self._previous)
            if text.count("\n") >= self._console.height:
                text = load_text(sample, self._previous, grouped=True)
            self._live.update(Text(text, no_wrap=True), refresh=True)
        else:
            click.echo(load_line(sample))
        self._previous = sample

    def print_total(self, sample: LoadSample) -> None:
        """Prints the final table."""
        click.echo(load_text(sample, None))
