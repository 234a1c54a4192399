"""An API server that says nothing more while its connections stay open is a problem within ten seconds; an idle one is not."""

import os
import re
import signal
import time
from collections.abc import Callable

import pytest

from tests.harness.api_cluster import CONTROL_ADDRESSES, PORT, ApiCluster
from tests.harness.cluster import NODE
from tests.harness.looking import look_later
from tests.harness.warm_start import AGENT
from tests.netns.faults.looks import LATEST_SECONDS, alerts

pytestmark = [pytest.mark.kernel, pytest.mark.slow]
PATIENCE_SECONDS = 60.0
IDLE_SECONDS = 12.0
HEALTHY = "healthy: no problems"


def problems(cluster: ApiCluster) -> str:
    """The first line."""
    return cluster.world.run(NODE, [*AGENT, "problems"], check=False).stdout.partition("\n")[0]


def firing(cluster: ApiCluster) -> set[str]:
    command = ["curl", "--silent", "--max-time", "2", "http://127.0.0.1:10249/metrics"]
    return alerts(cluster.world.run(NODE, command, check=False).stdout)


def connections(cluster: ApiCluster) -> set[str]:
    """The local ports of the agent's connections to the server."""
    listed = cluster.world.run(NODE, ["ss", "-Htn", "state", "established", "dport", "=", f":{PORT}"]).stdout
    return set(re.findall(r":(\d+) +\S+:6443", listed))


def seconds_until(cluster: ApiCluster, holds: Callable[[str], bool]) -> float:
    begun = time.monotonic()
    while not holds(line := problems(cluster)):
        assert time.monotonic() - begun < PATIENCE_SECONDS, line
        look_later(begun)
    return time.monotonic() - begun


def stop(cluster: ApiCluster) -> None:
    os.kill(cluster.server.pid, signal.SIGSTOP)


def go_on(cluster: ApiCluster) -> None:
    os.kill(cluster.server.pid, signal.SIGCONT)


def drop(cluster: ApiCluster) -> None:
    rule = f"ip daddr {CONTROL_ADDRESSES[0]} tcp dport {PORT} drop"
    cluster.world.nft(NODE, f"table inet hole {{ chain o {{ type filter hook output priority 0; {rule}; }}; }}")


def fill(cluster: ApiCluster) -> None:
    cluster.world.nft(NODE, "delete table inet hole")


@pytest.mark.parametrize(
    ("plant", "cure"), [(stop, go_on), (drop, fill)], ids=["a stopped process", "a hole on the way"]
)
def test_a_silent_server_is_a_problem_in_time(
    shaken: ApiCluster, plant: Callable[[ApiCluster], None], cure: Callable[[ApiCluster], None]
) -> None:
    """The rule that drops also stops connections of the node to the Service `kubernetes`, which may be found by then."""
    seconds_until(shaken, lambda line: line == HEALTHY)
    plant(shaken)
    try:
        took = seconds_until(shaken, lambda line: "no sign of life" in line)
        print(f"after {took:.1f} s")
        assert took < LATEST_SECONDS
        assert "see that the API server can be reached from this node" in problems(shaken)
        assert "NodeagentNotFollowed" in firing(shaken) <= {"NodeagentNotFollowed", "NodeagentConnectionsStopped"}
    finally:
        cure(shaken)
    seconds_until(shaken, lambda line: line == HEALTHY)
    assert firing(shaken) == set()


def test_an_idle_server_is_no_problem_and_its_watches_stay(shaken: ApiCluster) -> None:
    """Control: probes come between, and change nothing."""
    seconds_until(shaken, lambda line: line == HEALTHY)
    before, end = connections(shaken), time.monotonic() + IDLE_SECONDS
    assert before
    while time.monotonic() < end:
        assert problems(shaken) == HEALTHY
        time.sleep(0.5)
    assert len(before & connections(shaken)) >= len(before) - 1, "one of them carried a single answer"


def test_a_server_that_stops_for_a_moment_loses_no_watch(shaken: ApiCluster) -> None:
    """Its late answer ends the problem, and the watches go on."""
    seconds_until(shaken, lambda line: line == HEALTHY)
    before = connections(shaken)
    stop(shaken)
    try:
        seconds_until(shaken, lambda line: "no sign of life" in line)
    finally:
        go_on(shaken)
    assert seconds_until(shaken, lambda line: line == HEALTHY) < LATEST_SECONDS
    assert len(before & connections(shaken)) >= len(before) - 1
