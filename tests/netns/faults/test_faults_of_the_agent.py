"""Faults of the agent itself: each is named, its alert fires, connections go on as they were programmed, and the cure ends it."""

import os
import resource
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from nodeagent.lab.net.topology import NO_BRIDGE
from tests.harness.cluster import NODE, TARGET_PORT, WITH_POD_CIDRS, Cluster, cluster_ips
from tests.harness.objects import make_service, make_slices
from tests.harness.warm_start import AGENT, WarmLauncher
from tests.harness.worlds.process import AgentProcess
from tests.netns.commands.following import WatchedNode, wait_for
from tests.netns.faults.looks import alerts, appears, first_line, is_healthy, problems, scrape, works
from tests.netns.faults.scenes import POD_TO_WEB

pytestmark = [
    pytest.mark.slow,
    pytest.mark.calm_kernel(
        "a scene takes the agent's descriptors by their number, which a socket that is opened again changes"
    ),
]

BRIDGE = NO_BRIDGE
ALERT = "NodeagentImpaired"


@pytest.fixture(scope="module")
def watched(cluster: Cluster, warm_launcher: WarmLauncher, tmp_path_factory: pytest.TempPathFactory) -> WatchedNode:
    watched = WatchedNode(cluster, warm_launcher, tmp_path_factory.mktemp("s"))
    watched.world["web-0"].serve(TARGET_PORT)
    service = make_service("web", *cluster_ips(1))
    places = [(watched.world["web-0"].addresses, NODE)]
    cluster.manifests.put(*make_slices(service, places, target_port=TARGET_PORT), service)
    watched.start()
    assert works(watched, POD_TO_WEB, 20.0)
    wait_for(lambda: is_healthy(watched), lambda: problems(watched))
    assert alerts(scrape(watched)) == set()
    return watched


def process_of(watched: WatchedNode) -> AgentProcess:
    assert watched.agent is not None
    return watched.agent


def is_quiet(watched: WatchedNode) -> bool:
    return is_healthy(watched) and alerts(scrape(watched)) == set() and first_line(watched, "check") == (0, "healthy")


def open_files(process: int) -> int:
    time.sleep(0.02)  # while a command or a scrape is answered there are more
    return len(os.listdir(f"/proc/{process}/fd"))


@contextmanager
def few_files(process: int) -> Iterator[None]:
    """The process may not open more files than it has open."""
    before, hard = resource.prlimit(process, resource.RLIMIT_NOFILE)
    resource.prlimit(process, resource.RLIMIT_NOFILE, (min(open_files(process) for _ in range(20)), hard))
    try:
        yield
    finally:
        resource.prlimit(process, resource.RLIMIT_NOFILE, (before, hard))


def flush(watched: WatchedNode) -> None:
    """Another program flushes a table; the agent repairs it."""
    agent = process_of(watched)
    printed = len(agent.lines)
    watched.world.nft(NODE, "flush table ip nodeagent")
    agent.wait_for_line("was changed by another process", after=printed)
    wait_for(lambda: works(watched, POD_TO_WEB), lambda: "it is repaired")


def hold(watched: WatchedNode) -> None:
    """The event loop stands still, and goes on."""
    process_of(watched).signal(signal.SIGSTOP)
    time.sleep(0.9)
    process_of(watched).signal(signal.SIGCONT)
    time.sleep(0.3)


def test_an_event_loop_that_is_late_again_and_again(watched: WatchedNode) -> None:
    """Control: once is no problem."""
    hold(watched)
    assert is_healthy(watched), problems(watched)
    for _ in range(4):
        hold(watched)
    line = appears(watched, "LoopLate", ALERT)
    assert line.startswith("not healthy: agent, because its event loop was late"), line
    wait_for(lambda: is_quiet(watched), lambda: problems(watched))


def test_two_agents_on_one_node(watched: WatchedNode) -> None:
    directory = watched.socket.parent
    places = (f"--socket={directory}/b.sock", "--metrics-bind-address=", "--healthz-bind-address=")
    source = ("--manifests", str(watched.cluster.manifests.path), "--node-name", NODE)
    second = watched.world.start(NODE, [*AGENT, "run", *source, *places, *WITH_POD_CIDRS, "--table-ownership=plain"])
    try:
        second.wait_for_line(" ready: ")
        assert first_line(watched, "check")[1].startswith("not healthy: agent, because 2 agents run on this node")
        assert "because another agent runs on this node" in appears(watched, "SecondAgent", ALERT)
        assert works(watched, POD_TO_WEB)
    finally:
        second.stop()
    wait_for(lambda: is_quiet(watched), lambda: problems(watched))


def test_no_file_can_be_opened(watched: WatchedNode) -> None:
    with few_files(process_of(watched).pid):
        line = appears(watched, "FilesShort", ALERT)
        assert line.startswith("not healthy: agent, because it may open hardly another file (RLIMIT_NOFILE): raise ")
        assert works(watched, POD_TO_WEB)
    wait_for(lambda: is_quiet(watched), lambda: problems(watched))


def test_an_agent_that_stands_still(watched: WatchedNode) -> None:
    """`check` names it, and no command says that a Service is broken; nothing answers the scrape, so `up` is 0."""
    agent = process_of(watched)
    agent.signal(signal.SIGSTOP)
    try:
        with ThreadPoolExecutor() as threads:
            checked, explained, scraped = (
                threads.submit(first_line, watched, "check"),
                threads.submit(first_line, watched, "explain", "web"),
                threads.submit(scrape, watched),
            )
            assert works(watched, POD_TO_WEB)
        code, line = checked.result()
        assert (code, line.startswith(f"not healthy: agent, because the agent at {watched.socket} exists")) == (1, True)
        assert "it hangs, and what is programmed stays as it was then" in line
        assert "restart it: systemctl restart nodeagent" in line
        code, line = explained.result()
        assert (code, "it hangs" in line, "broken" in line, "restart it" in line) == (1, True, False, True), line
        assert scraped.result() == ""
    finally:
        agent.signal(signal.SIGCONT)
    wait_for(lambda: is_quiet(watched), lambda: problems(watched))


def test_a_table_that_is_flushed_again_and_again(watched: WatchedNode) -> None:
    """Control: once is repaired, and no problem. It stays one for an hour, or until the agent starts again: see the next scene."""
    flush(watched)
    assert is_healthy(watched), problems(watched)
    for _ in range(3):
        flush(watched)
    line = appears(watched, "ChangedRepeatedly", ALERT)
    assert line.startswith("not healthy: table nodeagent (IPv4), because "), line
    assert "to find the program: nft monitor" in line


def test_an_agent_that_was_killed(watched: WatchedNode) -> None:
    """The last of this file, and of this agent: Services go on, and the lines say that no agent runs, not that they are broken."""
    agent = process_of(watched)
    agent.signal(signal.SIGKILL)
    wait_for(lambda: not agent.running, lambda: "it ends")
    assert works(watched, POD_TO_WEB)
    code, line = first_line(watched, "check")
    assert (code, line.startswith("not healthy: agent, because no agent runs, one that died left ")) == (1, True), line
    assert "start it: systemctl start nodeagent" in line
    code, line = first_line(watched, "explain", "web")
    assert (code, "what is programmed stays as it is" in line, "start it" in line) == (1, True, True), line
    source = ("--manifests", str(watched.cluster.manifests.path), "--node-name", NODE)
    assert first_line(watched, "explain", "web", *source) == (0, "healthy: 2 of 2 endpoints used")
    assert scrape(watched) == ""
    watched.start()
    wait_for(lambda: is_quiet(watched), lambda: problems(watched))
