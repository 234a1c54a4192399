"""What others do in the same kernel stays as it was: their tables, their translations, packet marks and priorities."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.model.addresses import Family, Protocol
from tests.harness.cluster import NODE, WITH_POD_CIDRS, Cluster, cluster_ips, of_family
from tests.harness.objects import service_port
from tests.harness.worlds.world import World

FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
PROTOCOLS = pytest.mark.parametrize("protocol", Protocol, ids=lambda protocol: protocol.name)

PORTS = tuple(service_port(80, protocol, name=protocol.name.lower()) for protocol in Protocol)
PAIR, LATER = cluster_ips(1), cluster_ips(2)
MARK, PRIORITY = 0x40C0FFEE, 5
WITHOUT_SOCKET = 0x40C0FFE0

OPERATORS = """
table inet operator {
  comment "of somebody else"
  set seen { type ipv4_addr; flags dynamic,timeout; timeout 1h; }
  map ports { type inet_service : inet_service; elements = { 1 : 2, 3 : 4 } }
  counter hits { }
  chain forward {
    type filter hook forward priority 0; policy accept
    tcp dport 2222 counter name hits
  }
}
table ip operator-nat {
  chain prerouting {
    type nat hook prerouting priority -110
    ip daddr 192.168.0.2 tcp dport 2200 dnat to 10.244.1.11:8080
  }
}
table ip nodeagent-lookalike {
  map frontends { type ipv4_addr . inet_proto . inet_service : classid; }
}
table arp nodeagent {
  chain input { type filter hook input priority 0; }
}
table inet nodeagent {
  chain forward { type filter hook forward priority 1; }
}
"""
"""Two tables have our name, in families that are not ours."""

FOREIGN = (
    "inet operator",
    "ip operator-nat",
    "ip nodeagent-lookalike",
    "arp nodeagent",
    "inet nodeagent",
)

WATCHER = f"""
table inet watcher {{
  chain arriving {{
    type filter hook prerouting priority -160
    iifname != "lo" meta mark 0 meta mark set {MARK} ct mark set {MARK}
  }}
  chain sent {{
    type filter hook output priority -160
    ct mark set {MARK}
  }}
  chain leaving {{
    type filter hook postrouting priority 300
    oifname != "lo" meta mark != {MARK} meta l4proto {{ tcp, udp, sctp }} counter comment "mark lost"
    oifname != "lo" ct mark != {MARK} meta l4proto {{ tcp, udp, sctp }} counter comment "connection mark lost"
    oifname != "lo" meta mark {MARK} ct status dnat meta l4proto {{ tcp, udp, sctp }} counter comment "seen"
  }}
}}
"""

PRIORITIES = f"""
table inet priorities {{
  chain sent {{
    type filter hook output priority -500
    tcp dport 8081 tcp flags & (fin | syn | psh) == 0 meta priority != 0:{PRIORITY} meta mark set {WITHOUT_SOCKET}
  }}
  chain leaving {{
    type filter hook postrouting priority 300
    ct status dnat ct state new meta priority != 0 counter comment "of a service, set"
    ct status dnat ct state new meta priority 0 counter comment "of a service, clear"
    meta mark {WITHOUT_SOCKET} counter accept comment "of the kernel, for a socket that is gone"
    th dport 8081 meta priority 0:{PRIORITY} counter comment "of nobody, kept"
    th dport 8081 meta priority != 0:{PRIORITY} counter comment "of nobody, changed"
  }}
  chain delivered {{
    type filter hook input priority 300
    ct status dnat ct state new meta priority != 0 counter comment "of a service, set"
  }}
}}
"""
"""What the kernel sends for a socket that its program has closed comes with another priority, before any rule: a RST, and over
IPv4 (Linux 6.18) the ACK of a FIN that the other side sends later. Such a packet has a mark when it comes to our rules; all
others must leave with the priority that they came with."""


@pytest.fixture(scope="module")
def served(cluster: Cluster) -> Cluster:
    """The agent runs beside an operator's tables."""
    prepare(cluster)
    cluster.start_agent(*WITH_POD_CIDRS)
    return cluster


@pytest.fixture
def watching(served: Cluster) -> Iterator[Cluster]:
    """Rules of the test look at packets before and behind those of the agent."""
    served.world.nft(NODE, WATCHER)
    served.world.nft(NODE, PRIORITIES)
    yield served
    served.world.nft(NODE, "delete table inet watcher; delete table inet priorities")


def prepare(cluster: Cluster) -> None:
    """An operator's tables, and a service with two endpoints."""
    world = cluster.world
    world.nft(NODE, OPERATORS)
    for pod in ("web-0", "web-1"):
        for protocol in Protocol:
            world[pod].serve(8080, protocol)
            world[pod].serve(8081, protocol)
    cluster.expose("pair", *PAIR, pods=["web-0", "web-1"], ports=PORTS)


def foreign_tables(cluster: Cluster) -> str:
    """Every table that is not ours, with handles: one that was rebuilt would have others."""
    return "".join(cluster.world.run(NODE, ["nft", "-a", "list", "table", *name.split()]).stdout for name in FOREIGN)


def counted(cluster: Cluster, table: str) -> dict[str, int]:
    """Packets by the comment of the rule that counted them, rules of the same comment together."""
    text = cluster.world.nft(NODE, f"list table inet {table}")
    counts: dict[str, int] = {}
    for packets, comment in re.findall(r'counter packets (\d+) bytes \d+ comment "([^"]*)"', text):
        counts[comment] = counts.get(comment, 0) + int(packets)
    return counts


def test_tables_of_others_are_left_alone_from_start_to_cleanup(world: World, tmp_path: Path) -> None:
    served = Cluster(world, tmp_path)
    prepare(served)
    before = foreign_tables(served)

    agent = served.start_agent(*WITH_POD_CIDRS)
    assert foreign_tables(served) == before
    service = served.expose("later", *LATER, pods=["web-0"])
    caller = served.world["caller"]
    agent.wait_until(lambda: not caller.ask(LATER[0], 80, timeout=0.2).failures, "the new service")
    served.withdraw(service)
    agent.wait_until(lambda: bool(caller.ask(LATER[0], 80, timeout=0.2).failures), "the service gone")
    assert foreign_tables(served) == before
    agent.kill()
    agent.restart()
    agent.wait_until(lambda: sum(" ready: " in line for line in agent.lines) == 2, "ready again")
    assert foreign_tables(served) == before
    agent.stop()
    served.call("cleanup")
    assert foreign_tables(served) == before
    assert "table ip nodeagent {" not in served.world.nft(NODE, "list ruleset")


def test_a_translation_of_others_works_beside_ours(watching: Cluster) -> None:
    answer = watching.world["outside"].ask("192.168.0.2", 2200).only

    assert (answer.name, answer.peer) == ("web-1", watching.world["outside"].address())


@PROTOCOLS
@FAMILIES
def test_marks_pass_unchanged(watching: Cluster, family: Family, protocol: Protocol) -> None:
    """All ways through the rules: pods, hairpins, hosts outside and the node, which sets the mark itself."""
    world = watching.world
    for client in ("caller", "web-0", "outside"):
        assert world[client].ask(of_family(family, PAIR), 80, protocol, count=20).names.total() == 20
    assert world[NODE].ask(of_family(family, PAIR), 80, protocol, count=20, mark=MARK).names.total() == 20

    counts = counted(watching, "watcher")
    assert counts["seen"] >= 80
    assert (counts["mark lost"], counts["connection mark lost"]) == (0, 0)


@PROTOCOLS
@FAMILIES
def test_no_scratch_value_leaves_the_rules(watching: Cluster, family: Family, protocol: Protocol) -> None:
    """The rules keep a number in skb->priority; queueing disciplines of the operator must not see it."""
    world = watching.world
    for client in ("caller", "web-0", "outside", NODE):
        assert world[client].ask(of_family(family, PAIR), 80, protocol, count=20).names.total() == 20

    counts = counted(watching, "priorities")
    assert counts["of a service, clear"] >= 60, "some source ports may still be known from an earlier test"
    assert counts["of a service, set"] == 0


@PROTOCOLS
@FAMILIES
def test_the_priority_of_other_packets_is_kept(watching: Cluster, family: Family, protocol: Protocol) -> None:
    world = watching.world
    endpoint = world["web-0"].address(family)
    survey = world[NODE].ask(endpoint, 8081, protocol, count=10, priority=PRIORITY)

    counts = counted(watching, "priorities")
    assert survey.names == {"web-0": 10}
    assert counts["of nobody, kept"] >= 10
    assert counts["of nobody, changed"] == 0


@PROTOCOLS
@FAMILIES
def test_a_priority_that_looks_like_a_scratch_value_misleads_nobody(
    watching: Cluster, family: Family, protocol: Protocol
) -> None:
    """The low numbers are pick chains, slots and verdicts when the rules set them."""
    world = watching.world
    for priority in range(7):
        there = world[NODE].ask(world["web-0"].address(family), 8080, protocol, priority=priority)
        assert there.names == {"web-0": 1}
        assert not world[NODE].ask(of_family(family, PAIR), 80, protocol, priority=priority).failures
