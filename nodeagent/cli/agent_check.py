"""Checks whether an agent runs, which keeps the programmed rules up to date."""

from collections.abc import Iterator
from pathlib import Path

from nodeagent.diagnosis.checks.finding import Finding, Result
from nodeagent.proxy.observe.admin.admin_client import AgentHangs, NoAgent, find_agent
from nodeagent.proxy.observe.admin.place import DEFAULT_SOCKET, is_answered, namespaced_path, network_namespace
from nodeagent.proxy.observe.admin.presence import SEE_THEM, agents_here

_FIRST_PROCESS = Path("/proc/1/ns/net")


def agent_finding(place: Path | None) -> Finding:
    """Returns OK if one agent answers; FAILED if it hangs, died and left its socket, or is not alone; else a NOTE. place: the
    socket; None: the default."""
    try:
        _, status = find_agent(place, DEFAULT_SOCKET)
        if (count := agents_here()) > 1:
            detail = f"{count} agents run on this node: all program the same tables, and may undo what the others did"
            return Finding("agent", Result.FAILED, detail, f"stop all but one: {SEE_THEM}")
        return Finding("agent", Result.OK, f"it runs: node {status.node}, process {status.pid}")
    except AgentHangs as error:
        return Finding(
            "agent",
            Result.FAILED,
            f"{error}, and what is programmed stays as it was then, whatever becomes of endpoints",
            "restart it: systemctl restart nodeagent; what it did last: journalctl -u nodeagent",
        )
    except NoAgent as error:
        why = str(error)
    left = next((path for path in _places(place) if _is_left(path)), None)
    if left is None:
        detail = f"no agent runs: what is programmed, if anything, stays as it is ({why})"
        return Finding("agent", Result.NOTE, detail, "start it, or nothing after run --once")
    return Finding(
        "agent",
        Result.FAILED,
        f"no agent runs, one that died left {left}: what is programmed stays as it was then, whatever becomes of endpoints",
        "start it: systemctl start nodeagent; why it ended: journalctl -u nodeagent",
    )


def _places(place: Path | None) -> Iterator[Path]:
    """Yields the paths at which an agent of this network namespace may have its socket."""
    if place is not None:
        yield place
        return
    yield namespaced_path(DEFAULT_SOCKET)
    if _is_first_namespace():
        yield DEFAULT_SOCKET


def _is_first_namespace() -> bool:
    """Returns whether this is the host's network namespace. In others the default socket belongs to another agent."""
    try:
        return _FIRST_PROCESS.stat().st_ino == network_namespace()
    except OSError:
        return False


def _is_left(path: Path) -> bool:
    try:
        return path.is_socket() and not is_answered(path)
    except OSError:
        return False
