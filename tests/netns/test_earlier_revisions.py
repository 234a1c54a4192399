"""Upgrades from every schema the tables ever had, and rollbacks to it: with the agents of those revisions, and no connection lost."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from nodeagent.lab.net.namespace_process import AgentProcess
from nodeagent.model.addresses import Protocol
from nodeagent.proxy.dataplane.program.schema import SCHEMA
from tests.harness.cluster import NODE, WITH_POD_CIDRS, Cluster, cluster_ips
from tests.harness.dns.lookups import lookups, until_all_say
from tests.harness.effort import at_length
from tests.harness.objects import service_port
from tests.harness.source_tree import ROOT
from tests.harness.uninterrupted import PODS, SHOP, uninterrupted


class Earlier(NamedTuple):
    """A revision of this tree, and the schema of its tables."""

    schema: int
    commit: str


LAST_OF_SCHEMA = (
    Earlier(6, "a4c5f0ac38"),
    *at_length(
        Earlier(1, "af733c365c"),
        Earlier(2, "30d0b4c0e7"),
        Earlier(3, "6778185d"),
        Earlier(5, "1dda255639"),
        Earlier(7, "8da88a9075"),
        Earlier(8, "1cd9bb41bf"),
    ),
)
"""The last commit of each schema. 4 was a step of one commit; 8 was taken back, so that here the older tables have the higher number."""

FIRST_WITH_NAMES = 5
"""Of those that hand lookups over without a loss: before commit 19fbbb44 a DNS process that ended closed connections with queries."""
NAMES = cluster_ips(10)
ANSWERING_NAMES = (
    *("--dns", "--dns-listen", ",".join(NAMES), "--dns-upstreams", "127.0.0.1:9"),
    *("--service-cidr", "10.96.0.0/16,fd00:10:96::/112"),
)


def command(tree: Path) -> list[str]:
    """Runs the package below `tree` with the libraries of this one."""
    return ["env", f"PYTHONPATH={tree}", sys.executable, "-P", "-m", "nodeagent"]


@pytest.fixture(params=LAST_OF_SCHEMA, ids=lambda earlier: f"schema {earlier.schema}")
def earlier(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Earlier, Path]:
    """An earlier revision, and where its files are."""
    revision: Earlier = request.param
    archive = subprocess.run(
        ["git", "archive", revision.commit, "nodeagent"], cwd=ROOT, capture_output=True, check=False, timeout=60
    )
    if archive.returncode:
        pytest.skip(f"this clone has no history: {archive.stderr.decode().strip()}")
    subprocess.run(["tar", "--extract", f"--directory={tmp_path}"], input=archive.stdout, check=True, timeout=60)
    return revision, tmp_path


@pytest.fixture(scope="module")
def served(cluster: Cluster) -> Cluster:
    for pod in PODS:
        for protocol in (Protocol.TCP, Protocol.UDP):
            cluster.world[pod].serve(8080, protocol)
    cluster.expose("shop", *SHOP, pods=PODS)
    ports = (service_port(53, Protocol.UDP, name="dns"), service_port(53, name="dns-tcp"))
    cluster.expose("kube-dns", *NAMES, ports=ports, target_port=53)
    return cluster


@pytest.fixture(params=["owned", *at_length("plain")])
def flags(served: Cluster, request: pytest.FixtureRequest) -> Iterator[tuple[str, ...]]:
    """How both agents run; what they programmed is removed in the end."""
    yield (*WITH_POD_CIDRS, "--table-ownership", request.param)
    served.call("cleanup")


def schema_of(cluster: Cluster, family: str) -> int:
    """The schema in the comment of the table that serves."""
    for line in cluster.world.nft(NODE, f"list table {family} nodeagent").splitlines():
        before, found, after = line.partition('comment "schema ')
        if found and not before.strip():
            return int(after.partition(":")[0])
    raise AssertionError(f"no schema in the table of {family}")


@contextmanager
def started(cluster: Cluster, tree: Path, flags: tuple[str, ...]) -> Iterator[AgentProcess]:
    """The agent of an earlier revision, ready; whatever runs in the end is ended."""
    agent = cluster.world.start(NODE, [*command(tree), "run", *cluster.sources(), *flags])
    try:
        agent.wait_for_line(" ready: ")
        yield agent
    finally:
        if agent.running:
            agent.kill()
        cluster.kill_agents()


def replace(cluster: Cluster, old: AgentProcess, flags: tuple[str, ...]) -> AgentProcess:
    """Stops the agent of the earlier revision, and starts one of this tree, which makes the tables anew."""
    assert old.stop() == 0
    new = cluster.start_agent(*flags)
    assert {schema_of(cluster, family) for family in ("ip", "ip6")} == {SCHEMA}
    return new


def give_back(new: AgentProcess, old: AgentProcess) -> None:
    """Stops the agent of this tree, and starts the earlier one again."""
    assert new.stop() == 0
    printed = len(old.lines)
    old.restart()
    old.wait_for_line(" ready: ", after=printed)


def test_nothing_is_lost_on_the_way_here_and_back(
    served: Cluster, flags: tuple[str, ...], earlier: tuple[Earlier, Path]
) -> None:
    revision, tree = earlier
    with started(served, tree, flags) as old, uninterrupted(served) as traffic:
        for _ in range(2):
            new = replace(served, old, flags)
            traffic.flow()
            give_back(new, old)
            assert {schema_of(served, family) for family in ("ip", "ip6")} == {revision.schema}
            traffic.flow()


def test_no_lookup_is_lost_on_the_way_here_and_back(
    served: Cluster, flags: tuple[str, ...], earlier: tuple[Earlier, Path]
) -> None:
    revision, tree = earlier
    if revision.schema < FIRST_WITH_NAMES:
        pytest.skip("it handed no lookups over, or lost some")
    flags = (*flags, *ANSWERING_NAMES)
    with (
        started(served, tree, flags) as old,
        lookups(served, ["caller", NODE], NAMES, "shop.default.svc.cluster.local.") as askers,
    ):
        until_all_say(askers, SHOP[0])
        for _ in range(2):
            new = replace(served, old, flags)
            until_all_say(askers, SHOP[0])
            give_back(new, old)
            until_all_say(askers, SHOP[0])
    assert [loss for asker in askers for loss in asker.lost] == []
    assert {answer for asker in askers for answer in asker.answers} == {SHOP[0]}
