"""Names go from one agent to the next as in pods: both run for a while, and the old one's processes end with it (dns.handover)."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.cluster import NODE, Cluster, cluster_ips
from tests.harness.dns.lookups import lookups, until, until_all_say
from tests.harness.warm_start import AGENT
from tests.harness.worlds.process import AgentProcess

DNS = cluster_ips(10)
SHOP, SHOP6 = cluster_ips(820)
NAME = "shop.default.svc.cluster.local."
POD = "caller"
FLAGS = (
    *("--dns", "--dns-listen", ",".join(DNS), "--dns-upstreams", "127.0.0.1:9", "--dns-handover", "30s"),
    *("--table-ownership", "owned", "--service-cidr", "10.96.0.0/16,fd00:10:96::/112"),
)

CONTAINER = ("unshare", "--pid", "--mount-proc", "--fork", "--kill-child")
NOWHERE = """
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
contexts: [{name: x, context: {cluster: c}}]
current-context: x
"""


@pytest.fixture
def named(cluster: Cluster) -> Iterator[Cluster]:
    cluster.expose("shop", SHOP, SHOP6, pods=("web-0",))
    yield cluster
    cluster.kill_agents()
    cluster.call("cleanup")


@pytest.fixture
def run() -> Iterator[Path]:
    """Of the node, as both pods have it; a socket's path is short."""
    with tempfile.TemporaryDirectory(prefix="nodeagent-run-") as directory:
        yield Path(directory)


def test_the_next_agent_waits_for_the_tables_and_no_lookup_is_lost(named: Cluster) -> None:
    former = named.start_agent(*FLAGS)
    former.wait_for_line("started a DNS process")
    with lookups(named, [POD, NODE], DNS, NAME) as askers:
        until_all_say(askers, SHOP)
        following = named.start_agent(*FLAGS, line="waiting until it hands over")
        former.stop()  # returns when the process has ended: the following one has replaced what it holds
        following.wait_for_line("started a DNS process")
        until_all_say(askers, SHOP)
        assert [loss for asker in askers for loss in asker.lost] == []
    assert not handed_over_late(former)
    following.kill()


def test_the_next_agent_has_started_when_it_knows_all_that_is_to_be_programmed(named: Cluster, run: Path) -> None:
    """So that kubelet does not end the former one for an agent that cannot take its place."""
    (run / "kubeconfig").write_text(NOWHERE)

    def started() -> set[str]:
        """The agents that probes of their pods find."""
        return {path.name for path in run.glob("started-*.sock")}

    def pod(*source: str) -> AgentProcess:
        return named.world.start(
            NODE, [*CONTAINER, *AGENT, "run", *source, *FLAGS, "--socket", str(run / "agent.sock")]
        )

    former = pod(*named.sources())
    former.wait_for_line("started a DNS process")
    (first,) = started()

    lost = pod("--kubeconfig", str(run / "kubeconfig"), "--node-name", NODE)
    lost.wait_for_line("cannot reach|refused")
    assert started() == {first}
    lost.kill()

    following = pod(*named.sources())
    following.wait_for_line("waiting until it hands over")
    assert len(started()) == 2
    with lookups(named, [POD, NODE], DNS, NAME) as askers:
        until_all_say(askers, SHOP)
        os.kill(first_process(former), signal.SIGTERM)
        until(lambda: not former.running, "the former pod ends")
        until_all_say(askers, SHOP)
        assert [loss for asker in askers for loss in asker.lost] == []
    assert not handed_over_late(former)
    assert len(started() - {first}) == 1
    following.kill()


def first_process(container: AgentProcess) -> int:
    (child,) = Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text().split()
    return int(child)


def handed_over_late(agent: AgentProcess) -> bool:
    return any("no other agent has taken the names over" in line for line in agent.lines)
