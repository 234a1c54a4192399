"""Names go from one agent to the next as in pods: both run for a while, and the old one's processes end with it (dns.handover)."""

from collections.abc import Iterator

import pytest

from nodeagent.lab.net.namespace_process import AgentProcess
from tests.harness.cluster import NODE, Cluster, cluster_ips
from tests.harness.dns.lookups import lookups, until_all_say

DNS = cluster_ips(10)
SHOP, SHOP6 = cluster_ips(820)
NAME = "shop.default.svc.cluster.local."
POD = "caller"
FLAGS = (
    *("--dns", "--dns-listen", ",".join(DNS), "--dns-upstreams", "127.0.0.1:9", "--dns-handover", "30s"),
    *("--table-ownership", "owned", "--service-cidr", "10.96.0.0/16,fd00:10:96::/112"),
)


@pytest.fixture
def named(cluster: Cluster) -> Iterator[Cluster]:
    cluster.expose("shop", SHOP, SHOP6, pods=("web-0",))
    yield cluster
    cluster.kill_agents()
    cluster.call("cleanup")


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


def handed_over_late(agent: AgentProcess) -> bool:
    return any("no other agent has taken the names over" in line for line in agent.lines)
