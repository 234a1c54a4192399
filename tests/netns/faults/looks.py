"""What people and Prometheus see of a node: first lines, problems, and which alerts fire."""

import re
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import yaml

from nodeagent.proxy.observe.admin.admin_client import AgentClient, NoAgent
from nodeagent.proxy.observe.admin.admin_documents import KnownProblem
from tests.harness.cluster import NODE
from tests.harness.effort import PUNCTUAL
from tests.netns.commands.following import WatchedNode, wait_for
from tests.netns.faults.scenes import Connection

ALERTS = Path(__file__).parents[3] / "docs" / "observability" / "alerts.yaml"
SILENCE_SECONDS = 0.4
LATEST_SECONDS = 10.0 if PUNCTUAL else 20.0
"""Until a problem is known. Ten are promised; on a machine of half the speed, beside other work, all takes longer."""
_OF_PROBLEMS = re.compile(r'nodeagent_problems\{job="nodeagent",reason=~?"([^"]+)"\} > 0')
_FIGURE = re.compile(r'^nodeagent_problems\{reason="(\w+)"\} [1-9]', re.MULTILINE)


def works(watched: WatchedNode, connection: Connection, seconds: float = SILENCE_SECONDS) -> bool:
    client, address, protocol = connection
    return watched.world[client].ask(address, 80, protocol, timeout=seconds).only.failure is None


def first_line(watched: WatchedNode, *command: str) -> tuple[int, str]:
    done = watched.run(*command, "--socket", str(watched.socket))
    return done.returncode, (done.stdout or done.stderr).partition("\n")[0]


def problems(watched: WatchedNode) -> str:
    return watched.run("problems", "--socket", str(watched.socket)).stdout


def known_problems(watched: WatchedNode) -> str | None:
    """Reason, subject and detail of each problem, as the agent itself lists them; None if it does not answer. It costs a tenth of the
    command, so that waits ask it first."""
    try:
        known = AgentClient(watched.socket).ask("problems", tuple[KnownProblem, ...])
    except NoAgent:
        return None
    return "\n".join(f"{one.reason} {one.subject} {one.detail}" for one in known)


def problems_once(watched: WatchedNode, has_it: Callable[[str], bool]) -> str:
    """What `problems` prints if the agent has such problems, or does not answer; else what it has."""
    known = known_problems(watched)
    return problems(watched) if known is None or has_it(known) else known


def is_healthy(watched: WatchedNode) -> bool:
    return not known_problems(watched) and problems(watched).startswith("healthy: no problems\n")


def scrape(watched: WatchedNode) -> str:
    """The figures that Prometheus would read; empty if nothing answers."""
    command = ["curl", "--silent", "--max-time", "2", "http://127.0.0.1:10249/metrics"]
    return watched.world.run(NODE, command, check=False).stdout


def alerts(scraped: str) -> set[str]:
    """The alerts on problems whose expression these figures satisfy; that on every problem is none of them."""
    present = _FIGURE.findall(scraped)
    return {name for name, reasons in _alerts_on_problems() if any(re.fullmatch(reasons, one) for one in present)}


@cache
def _alerts_on_problems() -> tuple[tuple[str, str], ...]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    found = ((rule["alert"], _OF_PROBLEMS.fullmatch(rule["expr"].strip())) for rule in group["rules"])
    return tuple((name, match[1]) for name, match in found if match)


def appears(watched: WatchedNode, reason: str, alert: str = "", seconds: float = LATEST_SECONDS) -> str:
    """Waits until `problems` has it, in time, and an alert fires: that one, or any. Returns the first line of `problems`."""
    begun, found = time.monotonic(), ""

    def has_it() -> bool:
        nonlocal found
        found = problems_once(watched, lambda known: reason in known)
        return reason in found

    wait_for(has_it, lambda: f"{reason} in {found}")
    took = time.monotonic() - begun
    print(f"{reason} after {took:.1f} s")
    assert took < seconds
    firing = alerts(scrape(watched))
    assert firing, reason
    assert not alert or alert in firing
    return found.partition("\n")[0]
