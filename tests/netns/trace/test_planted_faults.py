"""A classic reason why "my service does not work" is planted, and the first line of `trace` or `check` names it.

Around each stands its control: without the fault the connection works, and the same command finds nothing.
"""

import json
import subprocess
import sys
from typing import Any

import pytest

from nodeagent.lab.net.topology import NO_BRIDGE
from nodeagent.model.addresses import Protocol
from tests.harness.cluster import NODE, Cluster
from tests.harness.warm_start import AGENT
from tests.harness.worlds.world import World
from tests.netns.trace.planting import (
    BALANCER,
    CLIENT_PORT,
    FAR,
    GATEWAY,
    HOSTED,
    NODE_PORT,
    OPEN_BALANCER,
    PATIENCE_SECONDS,
    SILENCE_SECONDS,
    WEB,
    WEB6,
    Plant,
    as_if_pods_were,
    balanced,
    by_objects,
    by_shell,
    check_line,
    documented,
    emptied,
    first_line,
    flushed,
    forget_connections,
    missing_route,
    ranges,
    without_answer,
    works,
)

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

BRIDGE = NO_BRIDGE

FIREWALL = "table inet guard { chain f { type filter hook forward priority 0; tcp dport 8080 drop; }; }"
FAULTS = [
    pytest.param(
        by_shell(f"nft '{FIREWALL}'", "nft delete table inet guard"),
        ("caller", WEB, "tcp"), "inet guard, chain f: tcp dport 8080 drop", id="firewall of the host",
    ),
    pytest.param(
        by_shell("iptables -P FORWARD DROP", "iptables -P FORWARD ACCEPT; nft delete table ip filter"),
        ("caller", WEB, "tcp"), "ip filter, chain FORWARD: the policy of the chain", id="policy of FORWARD",
    ),
    pytest.param(
        by_shell("iptables-legacy -A FORWARD -p tcp --dport 8080 -j DROP", "iptables-legacy -F FORWARD"),
        ("caller", WEB, "tcp"), "iptables-legacy filter, chain FORWARD: -p tcp -m tcp --dport 8080 -j DROP",
        id="firewall of iptables-legacy",
    ),
    pytest.param(
        by_shell("iptables-legacy -P FORWARD DROP", "iptables-legacy -P FORWARD ACCEPT"),
        ("caller", WEB, "udp"), "iptables-legacy filter, chain FORWARD: the policy of the chain; "
        "change that rule: iptables-legacy -t filter -S FORWARD", id="policy of iptables-legacy",
    ),
    pytest.param(
        by_shell(f"iptables-legacy -t raw -A PREROUTING -d {OPEN_BALANCER} -j CT --notrack",
                 "iptables-legacy -t raw -F PREROUTING"),
        ("outside", OPEN_BALANCER, "tcp"), "default/open is not used, because the packet is not tracked: prerouting: "
        "iptables-legacy raw, chain PREROUTING", id="not tracked",
    ),
    pytest.param(
        by_shell("nft 'table inet guard { chain o { type filter hook output priority 0; ip daddr 10.244.1.10 reject; }; }'",
                 "nft delete table inet guard"),
        (NODE, WEB, "tcp"), "output: inet guard, chain o: ip daddr 10.244.1.10 reject", id="firewall for the node itself",
    ),
    pytest.param(
        by_shell("nft 'table ip guard { set bad { type ipv4_addr; elements = { 10.244.1.200 }; }; "
                 "chain p { type filter hook prerouting priority -200; ip saddr @bad drop; }; }'",
                 "nft delete table ip guard"),
        ("caller", WEB, "udp"), "prerouting: ip guard, chain p: ip saddr @bad drop", id="a set of banned clients",
    ),
    pytest.param(
        as_if_pods_were("203.0.113.0/24"),
        ("outside", FAR, "tcp"), "10.244.2.10:8080 and the client are both behind eth0: the answer does not come by this "
        "node, which would have to translate it back; rewrite its source", id="ranges of pods that are wrong",
    ),
    pytest.param(
        by_shell("ip rule add pref 5 to 10.244.1.10 blackhole", "ip rule del pref 5"),
        ("caller", WEB, "tcp"), "to 10.244.1.10: a route or rule of type blackhole applies to it", id="rule with a blackhole",
    ),
    pytest.param(
        by_shell("ip route add unreachable 10.244.2.10", "ip route del unreachable 10.244.2.10"),
        ("caller", FAR, "tcp"), "to 10.244.2.10: a route or rule of type unreachable applies to it", id="unreachable route",
    ),
    pytest.param(
        by_shell("ip rule add pref 5 iif caller prohibit", "ip rule del pref 5"),
        ("caller", WEB, "udp"), "a route or rule of type prohibit applies to it", id="rule that prohibits",
    ),
    pytest.param(
        missing_route,
        ("caller", FAR, "tcp"), "no route to 10.244.2.10", id="missing route",
    ),
    pytest.param(
        without_answer("web-0", "caller", WEB, "-4"),
        ("caller", WEB, "tcp"), "to 10.244.1.10: no host answers for 10.244.1.10 on web-0: it is down",
        id="missing neighbour",
    ),
    pytest.param(
        without_answer("web-0", "caller", WEB6, "-6"),
        ("caller", WEB6, "tcp"), "to fd00:244:1::a: no host answers for fd00:244:1::a on web-0", id="missing neighbour, IPv6",
    ),
    pytest.param(
        without_answer("web-0", NODE, WEB, "-4"),
        (NODE, WEB, "tcp"), "192.168.0.2 -> 10.96.0.1:80/TCP, because to 10.244.1.10: no host answers for 10.244.1.10 on web-0", id="missing neighbour of the node itself",
    ),
    pytest.param(
        by_shell(
            "ip link add gone type veth peer name gone-peer; ip link set gone up; ip route add 10.244.1.10 dev gone table 77; "
            "ip rule add pref 5 to 10.244.1.10 lookup 77",
            "ip rule del pref 5; ip link del gone",
        ),
        ("caller", WEB, "tcp"), "to 10.244.1.10: gone has no carrier: its other end is missing or down; see ip link show gone",
        id="no carrier",
    ),
    pytest.param(
        by_shell("sysctl -qw net.ipv4.ip_forward=0", "sysctl -qw net.ipv4.ip_forward=1"),
        ("caller", WEB, "tcp"), "forwarding is off on caller; sysctl -w net.ipv4.ip_forward=1", id="no forwarding",
    ),
    pytest.param(
        by_objects(lambda cluster: balanced(cluster, pods=("far-0",))),
        ("outside", BALANCER, "tcp"), "has no endpoint on this node, and its externalTrafficPolicy is Local",
        id="policy Local without a local pod",
    ),
    pytest.param(
        by_objects(lambda cluster: ranges(cluster, "192.0.2.0/24")),
        ("outside", OPEN_BALANCER, "tcp"), "203.0.113.2 is in none of the source ranges of default/open",
        id="source range",
    ),
    pytest.param(
        by_objects(emptied),
        ("caller", WEB, "tcp"), "default/web:http has no endpoints", id="no endpoints",
    ),
    pytest.param(flushed, ("caller", WEB, "tcp"), "there is no table nodeagent", id="table flushed by another"),
]  # fmt: skip


@pytest.mark.parametrize(("plant", "connection", "cause"), FAULTS)
def test_the_first_line_of_a_trace_names_the_cause(
    node: Cluster, plant: Plant, connection: tuple[str, str, str], cause: str
) -> None:
    world = node.world

    def finds_nothing() -> None:
        line, code = first_line(world, *connection)
        assert (line.partition(":")[0], code) == ("arrives", 0), line
        assert works(world, *connection, read_with_retries=True)

    finds_nothing()
    forget_connections(world)
    with plant(node):
        line, code = first_line(world, *connection)
        assert cause in line
        assert code == 1
        assert not works(world, *connection, read_with_retries=False)
    finds_nothing()


@pytest.mark.parametrize(
    ("arguments", "begins"), documented("docs/troubleshooting.md"), ids=lambda value: str(value)[-40:]
)
def test_the_document_says_what_a_trace_says(node: Cluster, arguments: list[str], begins: str) -> None:
    found: list[Any] = [fault.values[0] for fault in FAULTS if str(fault.values[2]) in begins]
    (plant,) = found
    with plant(node):
        done = node.world.run(NODE, [*AGENT, *arguments], check=False)
    assert done.stdout.startswith(begins)
    assert done.returncode == 1


def test_a_port_of_another_protocol_is_named_with_those_there_are(node: Cluster) -> None:
    line, code = first_line(node.world, "caller", FAR, "udp")
    assert "is a ClusterIP that serves nothing at 10.96.0.2:80/UDP; use a port it has: 80/TCP" in line
    assert code == 1
    assert not works(node.world, "caller", FAR, "udp", read_with_retries=True)


def test_a_node_port_at_an_address_without_node_ports(node: Cluster) -> None:
    world = node.world

    def asked(address: str) -> tuple[str, int]:
        done = world.run(NODE, [*AGENT, "trace", world["caller"].address(), f"{address}:{NODE_PORT}"], check=False)
        return done.stdout.splitlines()[0], done.returncode

    line, code = asked(GATEWAY)
    assert f"{GATEWAY}:{NODE_PORT}/TCP is a node port of default/opened:http, and node ports are answered at" in line
    assert f"at {world[NODE].address()} only; connect to one of those" in line
    assert code == 1
    assert world["caller"].ask(GATEWAY, NODE_PORT, timeout=PATIENCE_SECONDS).only.failure is not None
    with world[NODE].serve(NODE_PORT, addresses=("0.0.0.0",)):
        line, _ = asked(GATEWAY)
        assert "as it was sent, to no Service: a program of this node listens there; " in line
        assert line.endswith(
            f"{NODE_PORT} is a node port of default/opened:http, answered at {world[NODE].address()} only"
        )
        assert world["caller"].ask(GATEWAY, NODE_PORT, timeout=PATIENCE_SECONDS).only.name == NODE
        assert "default/opened:http: 10.244.1.10:8080" in asked(world[NODE].address())[0]
        assert world["caller"].ask(world[NODE].address(), NODE_PORT, timeout=PATIENCE_SECONDS).only.name == "web-0"
    assert asked(world[NODE].address())[1] == 0
    assert world["caller"].ask(world[NODE].address(), NODE_PORT, timeout=PATIENCE_SECONDS).only.failure is None


def test_a_target_port_that_nobody_listens_on(node: Cluster) -> None:
    connection = ("caller", HOSTED, "tcp")
    line, code = first_line(node.world, *connection)
    assert "no program of this node listens on 192.168.0.2:9100/TCP" in line
    assert code == 1
    assert not works(node.world, *connection, read_with_retries=True)
    with node.world[NODE].serve(9100, addresses=("127.0.0.1",)):
        line, _ = first_line(node.world, *connection)
        assert "192.168.0.2:9100/TCP, only on 127.0.0.1; let it listen on 192.168.0.2, or on all" in line
        assert not works(node.world, *connection, read_with_retries=True)
    server = node.world[NODE].serve(9100)
    assert first_line(node.world, *connection)[1] == 0
    assert works(node.world, *connection, read_with_retries=True)
    server.stop()


def test_rules_outside_of_ip_are_named_where_they_may_be_why(node: Cluster) -> None:
    """They are not evaluated: the first line says so, and the check names them."""
    world, connection = node.world, ("caller", WEB, "tcp")
    guard = "table netdev guard { chain i { type filter hook ingress device caller priority 0; tcp dport 80 drop; }; }"
    assert works(world, *connection, read_with_retries=True)
    assert "as far as is known" not in first_line(world, *connection)[0]
    with by_shell(f"nft '{guard}'", "nft delete table netdev guard")(node):
        line, _ = first_line(world, *connection)
        assert "as far as is known: table netdev guard is not evaluated" in line
        assert not works(world, *connection, read_with_retries=False)
    assert "as far as is known" not in first_line(world, *connection)[0]
    assert works(world, *connection, read_with_retries=True)


def test_a_reverse_path_filter(node: Cluster) -> None:
    """Packets whose route back uses another interface are dropped: trace predicts it, check counts it afterwards."""
    world, connection = node.world, ("outside", BALANCER, "tcp")
    assert first_line(world, *connection, "--from", "eth0")[1] == 0
    assert works(world, *connection, read_with_retries=True)
    assert check_line(world) == "healthy"
    strict = by_shell(
        "sysctl -qw net.ipv4.conf.eth0.rp_filter=1; ip route add 203.0.113.2 dev caller",
        "sysctl -qw net.ipv4.conf.eth0.rp_filter=0; ip route del 203.0.113.2 dev caller",
    )
    with strict(node):
        line, code = first_line(world, *connection, "--from", "eth0")
        assert "rp_filter (strict) of eth0 drops packets from 203.0.113.2" in line
        assert code == 1
        assert not works(world, *connection, read_with_retries=False)
        assert check_line(world).startswith("not healthy: rp_filter, because the reverse path filter has dropped")
    assert check_line(world) == "healthy"


def test_a_stale_flow_of_udp(node: Cluster) -> None:
    """A client that keeps its port goes on sending to an endpoint that is no longer one."""
    world = node.world
    client = world["caller"].address()
    conntrack(world, "-D", "-p", "udp", "-s", client)
    assert works(world, "caller", WEB, "udp", read_with_retries=True)
    assert first_line(world, "caller", WEB, "udp")[1] == 0
    original = ["-s", client, "-d", WEB, "--sport", str(CLIENT_PORT), "--dport", "80"]
    reply = ["-r", "10.244.1.99", "-q", client, "--reply-port-src", "8080", "--reply-port-dst", str(CLIENT_PORT)]
    conntrack(world, "-I", "-p", "udp", "-t", "300", "-u", "SEEN_REPLY", *original, *reply)
    line, code = first_line(world, "caller", WEB, "udp")
    assert line.startswith("stale: ")
    assert f"the tracked flow of {client}:{CLIENT_PORT} still goes to 10.244.1.99:8080" in line
    assert code == 1
    stuck = world["caller"].ask(WEB, 80, Protocol.UDP, timeout=SILENCE_SECONDS, source_port=CLIENT_PORT)
    assert stuck.only.failure is not None
    cure = line.rpartition("; ")[2].split()
    assert cure[0] == "conntrack"
    world.run(NODE, cure)
    assert first_line(world, "caller", WEB, "udp")[1] == 0
    freed = world["caller"].ask(WEB, 80, Protocol.UDP, timeout=PATIENCE_SECONDS, source_port=CLIENT_PORT)
    assert freed.only.failure is None


def conntrack(world: World, *arguments: str) -> subprocess.CompletedProcess[str]:
    return world.run(NODE, ["conntrack", *arguments], check=False)


def test_a_full_connection_table(node: Cluster) -> None:
    world, connection = node.world, ("caller", WEB, "tcp")
    assert first_line(world, *connection)[1] == 0
    filler = world.start(NODE, [sys.executable, "-u", "-m", "nodeagent.lab.full_conntrack"])
    filler.wait_for_line("full", seconds=240)
    line, code = first_line(world, *connection)
    assert line.startswith("dropped: ")
    assert "the connection table is full" in line
    assert code == 1
    assert not works(world, *connection, read_with_retries=False)
    assert check_line(world).startswith("not healthy: connection table, because it is full")
    filler.stop()
    assert first_line(world, *connection)[1] == 0
    assert works(world, *connection, read_with_retries=True)


SHUT = [
    pytest.param(
        "iptables-legacy -A FORWARD -m comment --comment shut -j DROP", "iptables-legacy -F FORWARD",
        "iptables-legacy filter, chain FORWARD: -m comment --comment shut -j DROP", id="iptables-legacy",
    ),
    pytest.param(
        "iptables-legacy -t mangle -A OUTPUT -j DROP", "iptables-legacy -t mangle -F OUTPUT",
        "output: iptables-legacy mangle, chain OUTPUT: -j DROP", id="iptables-legacy, what this node sends",
    ),
    pytest.param(
        "nft 'table inet guard { chain f { type filter hook forward priority 0; policy drop; }; }'",
        "nft delete table inet guard",
        "inet guard, chain f: the policy of the chain", id="policy of nft",
    ),
    pytest.param(
        "ip rule add pref 5 to 10.244.1.10 unreachable", "ip rule del pref 5",
        "to 10.244.1.10: no route to 10.244.1.10; see ip rule", id="a rule for one endpoint",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("script", "undo", "cause"), SHUT)
def test_the_first_line_of_a_check_names_what_stops_connections_of_everybody(
    node: Cluster, script: str, undo: str, cause: str
) -> None:
    assert check_line(node.world) == "healthy"
    with by_shell(script, undo)(node):
        assert not works(node.world, "caller" if "OUTPUT" not in script else NODE, WEB, "tcp", read_with_retries=False)
        line = check_line(node.world)
        assert line.startswith("not healthy: IPv4 connections, because ")
        assert cause in line
    assert check_line(node.world) == "healthy"


def test_a_rule_that_stops_some_connections_is_a_note(node: Cluster) -> None:
    with by_shell(f"nft '{FIREWALL}'", "nft delete table inet guard")(node):
        assert check_line(node.world) == "healthy"
        traced = json.loads(node.world.run(NODE, [*AGENT, "check", "-o", "json"]).stdout)
    details = [one["detail"] for one in traced["checks"] if one["check"] == "IPv4 connections"]
    assert any("inet guard, chain f: tcp dport 8080 drop" in detail for detail in details)


def test_a_daemon_that_answers_in_the_place_of_a_service_is_a_note(node: Cluster) -> None:
    """Others exempt its ClusterIP from connection tracking, so nothing translates it, and it is an address of the node."""
    rule = f"ip daddr {WEB} notrack"
    guard = f"nft 'table inet guard {{ chain f {{ type filter hook output priority -300; {rule}; }}; }}'"
    with by_shell(guard, "nft delete table inet guard")(node), node.world[NODE].serve(80, addresses=("0.0.0.0",)):
        assert check_line(node.world).startswith("not healthy: IPv4 connections"), "nobody answers its port of UDP"
        with node.world[NODE].serve(80, Protocol.UDP, addresses=("0.0.0.0",)):
            assert node.world[NODE].ask(WEB, 80).only.name == NODE
            assert check_line(node.world) == "healthy"
            traced = json.loads(node.world.run(NODE, [*AGENT, "check", "-o", "json"]).stdout)
    details = [one["detail"] for one in traced["checks"] if one["check"] == "IPv4 connections"]
    assert any(
        f"default/web:http is not used, because the packet is not tracked: output: inet guard, chain f: {rule}"
        in detail
        for detail in details
    )
