"""The agent comes and goes, its rules stay: no connection is lost, open or new."""

from collections.abc import Iterator

import pytest

from nodeagent.model.addresses import Protocol
from tests.harness.cluster import NODE, WITH_POD_CIDRS, Cluster, cluster_ips, elements_written
from tests.harness.links import Links
from tests.harness.uninterrupted import PODS, SHOP, uninterrupted

OWNERSHIPS = pytest.mark.parametrize("ownership", ["owned", "plain"])


@pytest.fixture(scope="module")
def served(cluster: Cluster) -> Cluster:
    for pod in PODS:
        for protocol in (Protocol.TCP, Protocol.UDP):
            cluster.world[pod].serve(8080, protocol)
    cluster.expose("shop", *SHOP, pods=PODS)
    return cluster


@pytest.fixture
def flags(served: Cluster, ownership: str) -> Iterator[tuple[str, ...]]:
    """How the agent is run; what it programmed is removed in the end."""
    yield (*WITH_POD_CIDRS, "--table-ownership", ownership)
    served.call("cleanup")


@OWNERSHIPS
@pytest.mark.parametrize("killed", [pytest.param(False, id="SIGTERM"), pytest.param(True, id="kill -9")])
def test_a_restart_loses_nothing_and_writes_nothing(served: Cluster, flags: tuple[str, ...], killed: bool) -> None:
    agent = served.start_agent(*flags)
    with uninterrupted(served) as traffic:
        for _ in range(2):
            if killed:
                agent.kill()
            else:
                assert agent.stop() == 0
            traffic.flow()
            printed = len(agent.lines)
            agent.restart()
            agent.wait_for_line(" ready: ", after=printed)
            assert elements_written(agent, after=printed) == 0
            assert "new" not in agent.wait_for_line("sync done", after=printed)
    agent.stop()


@OWNERSHIPS
def test_once_then_run(served: Cluster, flags: tuple[str, ...]) -> None:
    served.program_once(*flags)
    with uninterrupted(served):
        agent = served.start_agent(*flags)
        assert elements_written(agent) == 0
        agent.stop()
        served.program_once(*flags)


@pytest.mark.parametrize("ownership", ["owned"])
def test_a_change_of_table_ownership_loses_nothing(served: Cluster, flags: tuple[str, ...]) -> None:
    """The table is rebuilt, twice in each family."""
    agent = served.start_agent(*flags)
    with uninterrupted(served):
        agent.stop()
        for ownership in ("plain", "owned"):
            agent = served.start_agent(*WITH_POD_CIDRS, "--table-ownership", ownership)
            assert "new" in agent.wait_for_line("sync done")
            agent.stop()


@pytest.mark.parametrize("ownership", ["owned"])
def test_a_change_of_options_loses_nothing(served: Cluster, flags: tuple[str, ...]) -> None:
    """The rules are replaced in place, and no element with them."""
    agent = served.start_agent(*flags)
    with uninterrupted(served):
        agent.stop()
        agent = served.start_agent("--masquerade-all")
        agent.stop()
        agent = served.start_agent(*flags)
        agent.stop()


@OWNERSHIPS
def test_changes_while_no_agent_ran_are_caught_up(served: Cluster, flags: tuple[str, ...]) -> None:
    agent = served.start_agent(*flags)
    gone = served.expose("gone", *cluster_ips(2), pods=["web-0"])
    caller = served.world["caller"]
    agent.wait_until(lambda: not caller.ask(cluster_ips(2)[0], 80, timeout=0.2).failures, "the second service")
    with uninterrupted(served):
        agent.kill()
        served.withdraw(gone)
        new = served.expose("new", *cluster_ips(3), pods=["web-1"])
        printed = len(agent.lines)
        agent.restart()
        agent.wait_for_line(" ready: ", after=printed)

        assert caller.ask(cluster_ips(3)[1], 80).names == {"web-1": 1}
        assert caller.ask(cluster_ips(2)[1], 80, timeout=0.2).failures.total() == 1
    served.withdraw(new)
    agent.stop()


@OWNERSHIPS
def test_cleanup_removes_all_and_a_fresh_start_brings_it_back(served: Cluster, flags: tuple[str, ...]) -> None:
    agent = served.start_agent(*flags)
    agent.stop()
    assert served.world["caller"].ask(SHOP[0], 80).names.total() == 1

    served.call("cleanup")
    assert "nodeagent" not in served.world.nft(NODE, "list ruleset")
    assert "nodeagent0" not in Links(served.world, NODE).names
    assert served.world["caller"].ask(SHOP[0], 80, timeout=0.2).failures.total() == 1
    assert "nothing of ours" in served.call("cleanup")

    printed = len(agent.lines)
    agent.restart()
    agent.wait_for_line(" ready: ", after=printed)
    assert served.world["caller"].ask(SHOP[0], 80).names.total() == 1
    agent.stop()
