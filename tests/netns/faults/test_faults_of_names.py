"""Faults of the process that answers names: `problems` has them in time where they last, and what is healed at once is no problem."""

import os
import signal
import socket
import time
from collections.abc import Iterator

import dns.message
import pytest

from nodeagent.lab.net.network_namespaces import inside
from tests.harness.cluster import NODE, WITH_POD_CIDRS, Cluster
from tests.harness.warm_start import WarmLauncher
from tests.netns.commands.following import WatchedNode, wait_for
from tests.netns.faults.looks import alerts, appears, is_healthy, problems, scrape

pytestmark = pytest.mark.kernel

SERVER = "169.254.20.10"
PORT = 53
ALERT = "NodeagentDnsNotAnswered"
STARTED = "started a DNS process pid="


@pytest.fixture(scope="module")
def watched(
    cluster: Cluster, warm_launcher: WarmLauncher, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WatchedNode]:
    watched = WatchedNode(cluster, warm_launcher, tmp_path_factory.mktemp("s"))
    yield watched
    cluster.kill_agents()
    cluster.call("cleanup")


def answers(watched: WatchedNode) -> bool:
    """Whether a pod gets an answer about a name of the cluster."""
    query = dns.message.make_query("nothing.default.svc.cluster.local.", "A").to_wire()

    def ask() -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(0.5)
            sock.sendto(query, (SERVER, PORT))
            try:
                return sock.recv(512)[:2] == query[:2]
            except OSError:
                return False

    return inside(watched.world.namespace("caller"), ask)


def process(watched: WatchedNode) -> int:
    """The present DNS process."""
    assert watched.agent is not None
    return int(next(line for line in reversed(watched.agent.lines) if STARTED in line).rpartition("=")[2])


def is_quiet(watched: WatchedNode) -> bool:
    return is_healthy(watched) and not alerts(scrape(watched)) and answers(watched)


def test_another_program_has_the_port(watched: WatchedNode) -> None:
    def take() -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("0.0.0.0", PORT))
        return sock

    with inside(watched.world.namespace(NODE), take):
        ours = ("--dns", "--dns-listen", SERVER, "--dns-upstreams", "127.0.0.1:9")
        watched.agent = watched.cluster.start_agent(
            *WITH_POD_CIDRS, "--table-ownership=plain", f"--socket={watched.socket}", *ours
        )
        line = appears(watched, "CannotListen", ALERT)
        assert line.startswith(
            f"not healthy: dns, because cannot answer names at {SERVER}:{PORT}: Address already in use"
        )
        assert "see who has it: ss -lnup" in line
        assert not answers(watched)
    wait_for(lambda: is_quiet(watched), lambda: problems(watched))


def end(watched: WatchedNode, sent: signal.Signals) -> None:
    """The process ends or hangs, and another one answers."""
    pid = process(watched)
    os.kill(pid, sent)
    begun = time.monotonic()
    wait_for(lambda: process(watched) != pid and answers(watched), lambda: problems(watched))
    print(f"answered again after {time.monotonic() - begun:.1f} s")


def test_a_process_that_ends_or_hangs_again_and_again(watched: WatchedNode) -> None:
    """Control: once is healed at once."""
    end(watched, signal.SIGKILL)
    wait_for(lambda: is_healthy(watched), lambda: problems(watched))
    for sent, reason in ((signal.SIGKILL, "ProcessGone"), (signal.SIGSTOP, "ProcessHung")):
        for _ in range(2):
            end(watched, sent)
        line = appears(watched, reason, ALERT)
        assert line.startswith("not healthy: dns, because its process ends again and again, and names are not answered")
        assert "see who ends it: journalctl -u nodeagent" in line
    wait_for(lambda: is_quiet(watched), lambda: problems(watched))
