"""Further reasons why "my service does not work", planted one after the other on one node; each first line names its own.

Where all are gone again the same commands find nothing. They share a world: building one costs more than a fault.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from nodeagent.lab.net.topology import NO_BRIDGE
from tests.harness.cluster import NODE, Cluster
from tests.harness.warm_start import AGENT
from tests.harness.worlds.world import World
from tests.netns.trace.planting import (
    FAR,
    HOSTED,
    PATIENCE_SECONDS,
    WEB,
    WEB6,
    by_shell,
    check_line,
    first_line,
    forget_connections,
    program_again,
    works,
    works_again,
)

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

BRIDGE = NO_BRIDGE

HOSTED_PORT = 9100
CLIENT = ("caller", WEB, "tcp")
GONE = "nft delete table inet guard"
FILTER_GONE = "iptables -F FORWARD; nft delete table ip filter"


def guard(hook: str, rule: str, *, priority: int = 0, policy: str = "accept") -> str:
    chain = f"chain f {{ type filter hook {hook} priority {priority}; policy {policy}; {rule}; }};"
    return f"nft 'table inet guard {{ {chain} }}'"


SILENT = [
    pytest.param(guard("forward", "tcp sport 8080 drop"), GONE, CLIENT,
                 "the answer of 10.244.1.10:8080 is stopped: forward: inet guard, chain f: tcp sport 8080 drop",
                 id="answers dropped"),
    pytest.param(guard("forward", "tcp dport 8080 accept", policy="drop"), GONE, CLIENT,
                 "is stopped: forward: inet guard, chain f: the policy of the chain", id="established not accepted"),
    pytest.param(guard("postrouting", 'iifname "web-0" drop'), GONE, CLIENT,
                 'is stopped: postrouting: inet guard, chain f: iifname "web-0" drop', id="answers dropped late"),
    pytest.param(guard("input", "tcp sport 8080 drop"), GONE, (NODE, WEB, "tcp"),
                 "is stopped: input: inet guard, chain f: tcp sport 8080 drop", id="answers to the node"),
    pytest.param(guard("output", f"tcp sport {HOSTED_PORT} drop"), GONE, ("caller", HOSTED, "tcp"),
                 f"is stopped: output: inet guard, chain f: tcp sport {HOSTED_PORT} drop", id="answers of the node"),
    pytest.param(guard("input", f"tcp dport {HOSTED_PORT} drop"), GONE, ("caller", HOSTED, "tcp"),
                 f"input: inet guard, chain f: tcp dport {HOSTED_PORT} drop", id="endpoint on the host's network"),
    pytest.param(guard("prerouting", "iifname web-0 notrack", priority=-300), GONE, CLIENT,
                 "is not translated back, because it is not tracked: prerouting: inet guard", id="answers not tracked"),
    pytest.param(guard("prerouting", "iifname caller ct zone set 5", priority=-300), GONE, CLIENT,
                 "it is in zone 0 of connection tracking, and the connection in zone 5", id="zone of nft"),
    pytest.param("iptables -t raw -A PREROUTING -i web-0 -j CT --zone 6", "nft delete table ip raw", CLIENT,
                 "it is in zone 6 of connection tracking, and the connection in zone 0", id="zone of iptables"),
    pytest.param("iptables-legacy -t raw -A PREROUTING -i caller -j CT --zone 7",
                 "iptables-legacy -t raw -F PREROUTING", CLIENT,
                 "it is in zone 0 of connection tracking, and the connection in zone 7", id="zone of iptables-legacy"),
    pytest.param("ip rule add pref 5 iif web-0 blackhole", "ip rule del pref 5", CLIENT,
                 "does not come back: to 10.244.1.200: a route or rule of type blackhole applies to it", id="rule for answers"),
    pytest.param("sysctl -qw net.ipv4.conf.web-0.forwarding=0", "sysctl -qw net.ipv4.conf.web-0.forwarding=1", CLIENT,
                 "forwarding is off on web-0; sysctl -w net.ipv4.conf.web-0.forwarding=1", id="no forwarding of answers"),
    pytest.param("sysctl -qw net.ipv4.conf.caller.forwarding=0", "sysctl -qw net.ipv4.conf.caller.forwarding=1", CLIENT,
                 "to 10.244.1.10: forwarding is off on caller; sysctl -w net.ipv4.conf.caller.forwarding=1",
                 id="no forwarding of one interface"),
    pytest.param("sysctl -qw net.ipv6.conf.all.forwarding=0", "sysctl -qw net.ipv6.conf.all.forwarding=1",
                 ("caller", WEB6, "tcp"), "forwarding is off on caller; sysctl -w net.ipv6.conf.all.forwarding=1",
                 id="no forwarding of IPv6"),
    pytest.param("ip rule add pref 5 from 10.244.1.200 lookup 99; ip route add default via 192.168.0.77 dev eth0 onlink "
                 "table 99", "ip rule del pref 5; ip route flush table 99", CLIENT,
                 "no host answers for 192.168.0.77 on eth0", id="another table for the client"),
    pytest.param(guard("prerouting", "ip saddr 10.244.1.200 meta mark set 7", priority=-300)
                 + "; ip rule add pref 5 fwmark 7 blackhole", GONE + "; ip rule del pref 5", CLIENT,
                 "to 10.244.1.10: a route or rule of type blackhole applies to it", id="mark with a rule"),
    pytest.param(guard("forward", "tcp sport 1024-65535 tcp dport 8080 drop"), GONE, CLIENT,
                 "forward: inet guard, chain f: tcp sport 1024-65535 tcp dport 8080 drop", id="ports of clients"),
    pytest.param(guard("prerouting", f"ip daddr {WEB} notrack", priority=-300), GONE, CLIENT,
                 f"default/web:http is not used, because the packet is not tracked: prerouting: inet guard, chain f: ip daddr {WEB}",
                 id="requests not tracked"),
    pytest.param(f"iptables -I FORWARD -m conntrack --ctorigdst {WEB} --ctorigdstport 80 -j DROP", FILTER_GONE, CLIENT,
                 f"forward: ip filter, chain FORWARD: ct original daddr {WEB}", id="the address before translation"),
    pytest.param("iptables -I FORWARD -p tcp --dport 8080 -j NFQUEUE --queue-num 7", FILTER_GONE, CLIENT,
                 "queue num 7 (cannot be evaluated: xt target NFQUEUE)", id="a queue that nobody reads"),
    pytest.param("ip rule add pref 5 ipproto tcp sport 8080 blackhole", "ip rule del pref 5", CLIENT,
                 "the answer of 10.244.1.10:8080 does not come back: to 10.244.1.200: a route or rule of type blackhole applies to it",
                 id="rule for the port of answers"),
    pytest.param("iptables -t nat -I POSTROUTING -d 10.244.2.10 -j SNAT --to-source 192.0.2.9", "nft delete table ip nat",
                 ("caller", FAR, "tcp"), "answers are sent to 192.0.2.9, which is not an address of this node (postrouting: ip nat",
                 id="a source of others"),
    pytest.param("ip address add 10.244.1.10/32 dev lo", "ip address del 10.244.1.10/32 dev lo", CLIENT,
                 "10.244.1.10 is an address of this node, and in the ranges of pods", id="the address of a pod on the node"),
    pytest.param("nft insert rule ip nodeagent prerouting ip saddr 10.244.1.200 drop", "", CLIENT,
                 "prerouting: ip nodeagent, chain prerouting: ip saddr == 10.244.1.200, drop (the agent has no such rule",
                 id="a rule in our table"),
    pytest.param("nft delete element ip nodeagent dispatch '{ 0:1 }'", "", CLIENT,
                 "default/web:http is not used: ip nodeagent has lost what leads to its endpoints", id="a class removed"),
    pytest.param("nft flush map ip nodeagent frontends", "", CLIENT,
                 f"{WEB} is a ClusterIP, and no port of it is programmed: elements of table ip nodeagent are missing",
                 id="elements removed"),
    pytest.param("nft flush table ip nodeagent", "", CLIENT,
                 "default/web:http is not used (table ip nodeagent has lost its rules: restart the agent",
                 id="rules removed"),
    pytest.param(f"nft 'table ip guard {{ chain f {{ type nat hook prerouting priority -150; ip daddr {WEB} "
                 "dnat to 192.0.2.99; }; }'", "nft delete table ip guard", CLIENT,
                 f"translated by other rules before default/web:http is used (prerouting: ip guard, chain f: ip daddr {WEB} dnat",
                 id="an earlier translation"),
    pytest.param(guard("forward", "tcp dport 8080 meta length > 30 drop"), GONE, CLIENT,
                 "as far as is known: forward: inet guard, chain f: tcp dport 8080 meta length > 30 drop (cannot be evaluated",
                 id="what cannot be evaluated"),
    pytest.param("ip xfrm policy add dir out src 10.244.1.200 dst 10.244.1.10 action block", "ip xfrm policy flush", CLIENT,
                 "as far as is known: 1 policies of IPsec (1 block) are not evaluated: see ip xfrm policy", id="IPsec"),
]  # fmt: skip


@pytest.fixture(scope="module")
def hosting(node: Cluster) -> Cluster:
    node.world[NODE].serve(HOSTED_PORT)
    return node


CONNECTIONS = (CLIENT, (NODE, WEB, "tcp"), ("caller", HOSTED, "tcp"), ("caller", WEB6, "tcp"))


def finds_nothing(world: World) -> None:
    """What worked just now: that a connection got no answer while there was a fault is reported until one does."""
    for connection in CONNECTIONS:
        assert works(world, *connection, read_with_retries=True)
        line, code = first_line(world, *connection)
        assert (line.partition(":")[0], code, "as far as" in line) == ("arrives", 0, False), line


def test_without_a_fault_nothing_is_named(hosting: Cluster) -> None:
    finds_nothing(hosting.world)


@pytest.mark.parametrize(("script", "undo", "connection", "cause"), SILENT)
def test_the_first_line_names_it(
    hosting: Cluster, script: str, undo: str, connection: tuple[str, str, str], cause: str
) -> None:
    world = hosting.world
    forget_connections(world)
    try:
        with by_shell(script, undo)(hosting):
            assert not works(world, *connection, read_with_retries=False)
            line, code = first_line(world, *connection)
            assert cause in line
            assert code == (0 if line.startswith("arrives: ") else 1)
    finally:
        if not undo:
            program_again(hosting)


def test_when_all_are_gone_nothing_is_named_again(hosting: Cluster) -> None:
    """But for connections that were made meanwhile and go elsewhere until their clients give up."""
    forget_connections(hosting.world)
    finds_nothing(hosting.world)


def test_a_client_with_an_address_of_the_node(hosting: Cluster) -> None:
    """Its packets are taken for forged (accept_local), unless that is allowed."""
    world, node = hosting.world, hosting.world[NODE].address()

    def asked() -> str:
        done = world.run(NODE, [*AGENT, "trace", node, f"{WEB}:80", "--from", "caller"], check=False)
        return done.stdout.splitlines()[0]

    assert f"{node} is an address of this node, and caller drops packets from it (accept_local is 0)" in asked()
    with by_shell("sysctl -qw net.ipv4.conf.caller.accept_local=1", "sysctl -qw net.ipv4.conf.caller.accept_local=0")(
        hosting
    ):
        assert "accept_local" not in asked()


@contextmanager
def without_default_route(world: World, pod: str) -> Iterator[None]:
    route = world.run(pod, ["ip", "route", "show", "default"]).stdout.split()
    world.run(pod, ["ip", "route", "del", "default"])
    try:
        yield
    finally:
        world.run(pod, ["ip", "route", "add", *route])


@contextmanager
def a_firewall_of_its_own(world: World, pod: str) -> Iterator[None]:
    rule = f"ip saddr {world['caller'].address()} drop"
    world.nft(pod, f"table inet own {{ chain i {{ type filter hook input priority 0; {rule}; }}; }}")
    try:
        yield
    finally:
        world.nft(pod, "delete table inet own")


@pytest.mark.parametrize("fault", [without_default_route, a_firewall_of_its_own], ids=lambda fault: fault.__name__)
def test_a_pod_that_does_not_answer_this_client(
    hosting: Cluster, fault: Callable[[World, str], AbstractContextManager[None]]
) -> None:
    """What is wrong there no command of the node can see; that nothing came back the connection tracker knows."""
    world = hosting.world
    silence = "got no answer from 10.244.1.10:8080: see the firewall and the routes there"
    assert works(world, *CLIENT, read_with_retries=True)
    assert silence not in first_line(world, *CLIENT)[0]
    with fault(world, "web-0"):
        assert not works(world, *CLIENT, read_with_retries=False)
        end = time.monotonic() + PATIENCE_SECONDS
        while silence not in (line := first_line(world, *CLIENT)[0]):
            assert time.monotonic() < end, line
            time.sleep(0.2)
        assert line.startswith("arrives: ")
        assert f"as far as is known: the last connection of {world['caller'].address()}, " in line
    assert works(world, *CLIENT, read_with_retries=True)
    assert silence not in first_line(world, *CLIENT)[0]


def test_a_node_that_nobody_finds(hosting: Cluster) -> None:
    world = hosting.world
    mute = by_shell("sysctl -qw net.ipv4.conf.caller.arp_ignore=8", "sysctl -qw net.ipv4.conf.caller.arp_ignore=0")
    with mute(hosting):
        world.run("caller", ["ip", "neigh", "flush", "all"])
        assert not works(world, *CLIENT, read_with_retries=False)
        assert check_line(world).startswith("not healthy: arp_ignore, because 8 for caller: nobody there who asks")
    assert works_again(world, *CLIENT)
    assert check_line(world) == "healthy"
