"""The option `dataplane.flowtable`: where the kernel has no flowtables, the agent says so and serves as without it.

tests/boot/vm holds what it does where the kernel has them.
"""

import pytest

from tests.harness.cluster import NODE, WITH_POD_CIDRS, Cluster, cluster_ips
from tests.harness.warm_start import AGENT
from tests.harness.worlds.process import AgentProcess

WEB = cluster_ips(1)


@pytest.fixture(scope="module")
def agent(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> AgentProcess:
    config = tmp_path_factory.mktemp("config") / "config.yaml"
    head = "apiVersion: nodeagent.io/v1alpha1\nkind: NodeAgentConfiguration\n"
    config.write_text(f"{head}dataplane: {{flowtable: true}}\n")
    cluster.world["web-0"].serve(8080)
    cluster.expose("web", *WEB, pods=["web-0"])
    return cluster.start_agent(*WITH_POD_CIDRS, "--config", str(config))


@pytest.fixture
def offloads(cluster: Cluster, agent: AgentProcess) -> bool:
    """Whether this kernel has flowtables: then the rules add connections to one."""
    return "flow add @established" in cluster.world.run(NODE, ["nft", "list", "table", "ip", "nodeagent"]).stdout


def test_the_agent_is_ready_and_the_service_answers(cluster: Cluster, agent: AgentProcess) -> None:
    for address in WEB:
        assert cluster.world["caller"].ask(address, 80, count=5).names == {"web-0": 5}


def test_a_kernel_without_flowtables_is_a_problem_of_one_line_for_each_family(
    cluster: Cluster, agent: AgentProcess, offloads: bool
) -> None:
    printed = cluster.world.run(NODE, [*AGENT, "problems"], check=False).stdout
    problems = [line for line in printed.splitlines() if "NoFlowtables" in line]

    assert len(problems) == (0 if offloads else 2)
    for family, line in zip(("IPv4", "IPv6"), problems, strict=False):
        assert "configuration dataplane.flowtable" in line
        assert f"this kernel refuses a {family} flowtable" in line
        assert "established connections pass all chains" in line


def test_a_restart_writes_nothing(cluster: Cluster, agent: AgentProcess) -> None:
    agent.stop()
    printed = len(agent.lines)
    agent.restart()

    assert "elements=0" in agent.wait_for_line(r"sync done .* elements=\d+", after=printed)
