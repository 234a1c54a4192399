"""Somebody else writes rules all the time: tables of their own come and go, and now and then everything is flushed.

The agent goes on with its work: what changes in the cluster reaches the packets, connections lose nothing that the other
writer did not take away, and whatever the other writer took is put back.
"""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodeagent.lab.net.namespace_process import PATIENCE
from tests.harness.cluster import NODE, WITH_POD_CIDRS, Cluster, cluster_ips
from tests.harness.lost_packets import PATIENT, nothing_resent
from tests.harness.worlds.process import AgentProcess
from tests.harness.worlds.world import World

SHOP, CHANGING = cluster_ips(1), cluster_ips(2)
PODS = ("web-0", "web-1")
CLIENTS = ("caller", "outside", NODE)
OWNERSHIPS = pytest.mark.parametrize("ownership", ["plain", "owned"])
TURNS = 4

ROUND = """
add table inet churn
delete table inet churn
table inet churn {
  set seen { type ipv4_addr; elements = { 192.0.2.1, 192.0.2.2 }; }
  chain forward { type filter hook forward priority 5; ip saddr @seen counter; }
}
add table ip churn-nat
delete table ip churn-nat
table ip churn-nat {
  chain prerouting { type nat hook prerouting priority dstnat; ip daddr 192.0.2.3 dnat to 192.0.2.4; }
  chain postrouting { type nat hook postrouting priority srcnat; ip saddr 192.0.2.5 masquerade; }
}
"""
"""Rebuilds two tables, with their hooks."""


class Writer:
    """Writes a round of rules after the other until it is stopped."""

    def __init__(self, world: World) -> None:
        self.rounds = 0
        self._world = world
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._write, name="writer")
        self._thread.start()

    def _write(self) -> None:
        while not self._stopped.is_set():
            self._world.nft(NODE, ROUND)
            self.rounds += 1

    def stop(self) -> None:
        """Return when the last round is over."""
        self._stopped.set()
        self._thread.join()


@pytest.fixture
def served(build_world: Callable[[], World], tmp_path: Path) -> Cluster:
    """A service, and another writer beside it."""
    cluster = Cluster(build_world(), tmp_path)
    for pod in PODS:
        cluster.world[pod].serve(8080)
    cluster.expose("shop", *SHOP, pods=PODS)
    return cluster


@pytest.fixture
def writer(served: Cluster) -> Iterator[Writer]:
    made = Writer(served.world)
    yield made
    made.stop()


def reaches(cluster: Cluster, pod: str) -> Callable[[], bool]:
    """Whether the changing service leads to this pod, in both families."""
    caller = cluster.world["caller"]
    return lambda: all(caller.ask(address, 80, timeout=0.3).names == {pod: 1} for address in CHANGING)


def change_services(cluster: Cluster, agent: AgentProcess) -> None:
    """A service moves from pod to pod; every move reaches the packets."""
    for turn in range(TURNS):
        pod = PODS[turn % 2]
        cluster.expose("changing", *CHANGING, pods=[pod])
        agent.wait_until(reaches(cluster, pod), f"the service at {pod}")


@OWNERSHIPS
def test_services_change_and_no_connection_is_lost(served: Cluster, writer: Writer, ownership: str) -> None:
    agent = served.start_agent(*WITH_POD_CIDRS, "--table-ownership", ownership)
    members = [served.world[client] for client in CLIENTS]
    loads = [member.load(address, 80, interval=0.02, timeout=PATIENT) for member in members for address in SHOP]
    before = writer.rounds

    with nothing_resent(served.world, CLIENTS):
        change_services(served, agent)
        agent.wait_until(lambda: writer.rounds > before + 60, "60 rounds of the other writer")
        agent.wait_until(lambda: all(load.report().attempts > 50 for load in loads), "some load")
        reports = [load.stop() for load in loads]

    assert [report.failures for report in reports] == [{}] * len(loads)
    assert all(report.names.keys() <= set(PODS) for report in reports)
    assert agent.running


@OWNERSHIPS
def test_an_agent_that_comes_later_starts_beside_it(served: Cluster, writer: Writer, ownership: str) -> None:
    """Reading back goes on, too, while rules change under it."""
    agent = served.start_agent(*WITH_POD_CIDRS, "--table-ownership", ownership)
    for _ in range(2):
        printed = len(agent.lines)
        agent.restart()
        agent.wait_for_line(" ready: ", after=printed)

    change_services(served, agent)


def test_flushed_rules_come_back_while_it_keeps_flushing(served: Cluster, writer: Writer) -> None:
    """A plain table; an owned one cannot be flushed (test_clusterip_owned.py)."""
    agent = served.start_agent(*WITH_POD_CIDRS, "--table-ownership", "plain")
    for damage in ("flush chain ip nodeagent prerouting", "flush ruleset", "delete table ip6 nodeagent"):
        printed = len(agent.lines)
        served.world.nft(NODE, damage)
        agent.wait_for_line("was changed by another process", after=printed)
        change_services(served, agent)


def test_the_writer_does_write(served: Cluster, writer: Writer) -> None:
    """The control: its tables are in the kernel, rebuilt all the time (a new one has another handle)."""
    handles: set[str] = set()
    deadline = time.monotonic() + PATIENCE
    while len(handles) < 3 and time.monotonic() < deadline:
        listing = served.world.run(NODE, ["nft", "-a", "list", "table", "inet", "churn"], check=False).stdout
        handles |= {line for line in listing.splitlines() if line.startswith("table ")}

    assert len(handles) >= 3
