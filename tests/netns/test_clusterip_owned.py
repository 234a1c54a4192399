"""The kernel protects an owned table while the agent lives: nobody can flush or change it, and nothing is lost."""

from pathlib import Path

import pytest

from nodeagent.lab.net.network_namespaces import LabError
from tests.harness.cluster import NODE, WITH_POD_CIDRS, Cluster, cluster_ips
from tests.harness.links import Links
from tests.harness.lost_packets import PATIENT, nothing_resent
from tests.harness.warm_start import AGENT
from tests.harness.worlds.process import AgentProcess

SHOP = cluster_ips(1)
PODS = ("web-0", "web-1")
CLIENTS = ("caller", "outside", NODE)


@pytest.fixture(scope="module")
def agent(cluster: Cluster) -> AgentProcess:
    for pod in PODS:
        cluster.world[pod].serve(8080)
    cluster.expose("shop", *SHOP, pods=PODS)
    return cluster.start_agent(*WITH_POD_CIDRS, "--table-ownership", "owned")


def test_flushing_the_ruleset_loses_nothing(cluster: Cluster, agent: AgentProcess) -> None:
    members = [cluster.world[client] for client in CLIENTS]
    loads = [member.load(address, 80, interval=0.01, timeout=PATIENT) for member in members for address in SHOP]
    lossless = nothing_resent(cluster.world, CLIENTS)
    with lossless, cluster.world["caller"].hold(SHOP[0], 80, count=10) as held:
        for _ in range(30):
            cluster.world.nft(NODE, "add table inet another")
            cluster.world.nft(NODE, "flush ruleset")
            assert not held.ask().failures
        agent.wait_until(lambda: all(load.report().attempts > 30 for load in loads), "some load")
        reports = [load.stop() for load in loads]

    assert "another" not in cluster.world.nft(NODE, "list ruleset")
    assert [report.failures for report in reports] == [{}] * len(loads)
    assert all(report.names.keys() == set(PODS) for report in reports)


@pytest.mark.parametrize("ownership", ["owned", "plain"])
def test_a_second_agent_ends_and_takes_nothing_from_the_first(
    cluster: Cluster, agent: AgentProcess, ownership: str, tmp_path: Path
) -> None:
    """It knows other Services, none; the addresses of the first one's stay local all the time."""
    printed = len(agent.lines)
    quiet = ("--metrics-bind-address", "", "--healthz-bind-address", "", "--socket", "")
    source = ("--manifests", str(tmp_path), "--node-name", NODE, "--table-ownership", ownership)
    ended = cluster.world.run(NODE, [*AGENT, "run", *source, *WITH_POD_CIDRS, *quiet], check=False)

    assert ended.returncode == 3
    assert "owned by another process: stop the nodeagent that runs here first" in ended.stderr.splitlines()[-1]
    Links(cluster.world, NODE).remove_addresses("nodeagent0", SHOP[0])
    agent.wait_for_line("interface nodeagent0 was changed by another process.*: repairing", after=printed)
    repairs = [line for line in agent.lines[printed:] if "was changed by another process" in line]
    assert len(repairs) == 1, "only what was taken away here"


@pytest.mark.parametrize(
    "command",
    [
        "delete table ip nodeagent",
        "flush table ip6 nodeagent",
        "flush chain ip nodeagent prerouting",
        "flush map ip nodeagent backends",
        "add element ip nodeagent cluster-ips { 10.96.0.9 }",
    ],
)
def test_nobody_else_may_change_it(cluster: Cluster, agent: AgentProcess, command: str) -> None:
    with pytest.raises(LabError, match="Operation not permitted"):
        cluster.world.nft(NODE, command)

    assert cluster.world["caller"].ask(SHOP[0], 80, count=10).names.keys() <= set(PODS)
    assert agent.running
