"""Faults as people meet them: how each is planted and cured, which connection it breaks, and what commands say of it."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from nodeagent.model.addresses import Protocol
from tests.harness.cluster import NODE, cluster_ips

WEB, FAR, HOSTED, BALANCED = (cluster_ips(number)[0] for number in (1, 2, 3, 4))
FAR6 = cluster_ips(5)[1]
VIP = "198.51.100.9"
HOSTED_PORT = 9100
Connection = tuple[str, str, Protocol]
POD_TO_WEB: Connection = ("caller", WEB, Protocol.TCP)
NODE_TO_WEB: Connection = (NODE, WEB, Protocol.TCP)
POD_TO_FAR: Connection = ("caller", FAR, Protocol.TCP)
OUTSIDE: Connection = ("outside", VIP, Protocol.TCP)
CURE = "nft delete table inet guard"
SAVED = f"/tmp/nodeagent-test-{os.getpid()}-routes"


@dataclass(frozen=True)
class Fault:
    """plant, cure: for a shell at `where`. breaks: the connection that fails meanwhile. command: whose first line says it, begins
    with `verdict` and has `says`. problem: the reason of a problem that the agent has within ten seconds; empty: it is no condition
    that the agent watches."""

    plant: str
    cure: str
    breaks: Connection
    command: Sequence[str]
    verdict: str
    says: Sequence[str]
    problem: str = ""
    where: str = NODE


def guard(hook: str, rule: str, priority: int = 0, *, kind: str = "filter", policy: str = "accept") -> str:
    """A table of others with one chain."""
    chain = f"chain f {{ type {kind} hook {hook} priority {priority}; policy {policy}; {rule}; }};"
    return f"nft 'table inet guard {{ {chain} }}'"


def off(name: str) -> tuple[str, str]:
    return f"sysctl -qw {name}=0", f"sysctl -qw {name}=1"


ARP_GUARD = "table arp guard { chain i { type filter hook input priority 0; arp operation reply drop; }; }"
EXPLAIN_WEB, EXPLAIN_FAR, CHECK = ("explain", "web"), ("explain", "far"), ("check",)
UNREACHABLE, FORWARDING = "EndpointsUnreachable", "ForwardingOff"

OF_ROUTES = {
    "a gateway for the pods of another node that is not there": Fault(
        "ip route add 10.244.2.0/24 via 192.168.0.77 dev eth0 onlink", "ip route del 10.244.2.0/24",
        POD_TO_FAR, EXPLAIN_FAR, "broken: ", ("no host answers for 192.168.0.77 on eth0",),
        UNREACHABLE,
    ),
    "a pod's route to the interface of another pod": Fault(
        "ip route replace 10.244.1.10 dev web-1", "ip route replace 10.244.1.10 dev web-0",
        POD_TO_WEB, EXPLAIN_WEB, "broken: ", ("no host answers for 10.244.1.10 on web-1",), UNREACHABLE,
    ),
    "rules that drop the answers of ARP": Fault(
        f"nft '{ARP_GUARD}'; ip neigh flush dev web-0", "nft delete table arp guard",
        POD_TO_WEB, EXPLAIN_WEB, "broken: ",
        ("no host answers for 10.244.1.10 on web-0: table arp guard drops packets of ARP: nft list table arp guard",), UNREACHABLE,
    ),
    "rules of arptables that drop the answers of ARP, as check says it": Fault(
        "arptables -A INPUT --opcode 2 -j DROP; ip neigh flush dev web-0", "nft delete table arp filter",
        POD_TO_WEB, CHECK, "not healthy: IPv4 connections, because ", ("table arp filter drops packets of ARP: nft list table arp filter",),
    ),
    "a pod's own interface down, so that the default route takes it": Fault(
        "ip link set web-0 down", "ip link set web-0 up; ip route add 10.244.1.10 dev web-0",
        POD_TO_WEB, EXPLAIN_WEB, "broken: ",
        ("10.244.1.10 is on this node, and the route to it leads out by eth0", "its own interface or route is gone"),
        UNREACHABLE,
    ),
    "that interface down, as check says it": Fault(
        "ip link set web-0 down", "ip link set web-0 up; ip route add 10.244.1.10 dev web-0",
        NODE_TO_WEB, CHECK, "not healthy: IPv4 connections, because ",
        ("10.244.1.10 is on this node, and the route to it leads out by eth0",),
    ),
    "a blackhole for the pods of another node": Fault(
        "ip route add blackhole 10.244.2.0/24", "ip route del blackhole 10.244.2.0/24",
        POD_TO_FAR, ("explain",), "not healthy: 1 of 5 Services, because default/far is broken: ",
        ("to 10.244.2.10: a route or rule of type blackhole applies to it; find it: ip rule",), UNREACHABLE,
    ),
    "a rule that prohibits them": Fault(
        "ip rule add pref 5 to 10.244.2.0/24 prohibit", "ip rule del pref 5",
        POD_TO_FAR, EXPLAIN_FAR, "broken: ", ("to 10.244.2.10: a route or rule of type prohibit applies to it",), UNREACHABLE,
    ),
    "no way to them by IPv6": Fault(
        "ip -6 route add unreachable fd00:244:2::/64", "ip -6 route del unreachable fd00:244:2::/64",
        ("caller", FAR6, Protocol.TCP), ("explain", "far6"), "broken: ",
        ("to fd00:244:2::a: a route or rule of type unreachable applies to it",), UNREACHABLE,
    ),
    "a rule for the Services before the table local": Fault(
        "ip rule add pref 10 lookup local; ip rule add pref 1 to 10.96.0.0/16 blackhole; ip rule del pref 0",
        "ip rule add pref 0 lookup local; ip rule del pref 1; ip rule del pref 10",
        NODE_TO_WEB, EXPLAIN_WEB, "broken: connections of this node to ",
        ("a route or rule of type blackhole applies to it",),
    ),
    "no rule any more that looks up the main table": Fault(
        "ip rule del pref 32766", "ip rule add pref 32766 lookup main",
        POD_TO_WEB, EXPLAIN_WEB, "broken: connections of this node to ",
        ("to 10.244.1.10: no route to 10.244.1.10; see ip rule",), UNREACHABLE,
    ),
    "the interface to other nodes down": Fault(
        f"ip route save > {SAVED}4; ip -6 route save > {SAVED}6; ip link set eth0 down",
        f"ip link set eth0 up; for f in 4 6; do ip -$f route restore < {SAVED}$f; done; rm {SAVED}[46]",
        POD_TO_FAR, EXPLAIN_FAR, "broken: connections of this node to ",
        ("to 10.244.2.10: no route to 10.244.2.10",), UNREACHABLE,
    ),
    "the range of another node's pods on an interface here, too": Fault(
        "ip address add 10.244.2.1/24 dev web-1", "ip address del 10.244.2.1/24 dev web-1",
        POD_TO_FAR, EXPLAIN_FAR, "broken: connections of this node to ",
        ("no host answers for 10.244.2.10 on web-1",), UNREACHABLE,
    ),
    "a link address of a pod that somebody entered": Fault(
        "ip neigh replace 10.244.1.10 lladdr 02:00:00:00:00:99 dev web-0 nud permanent", "ip neigh del 10.244.1.10 dev web-0",
        POD_TO_WEB, EXPLAIN_WEB, "impaired: 1 of 1 endpoints do not answer this node",
        ("the link address of 10.244.1.10 on web-0 was entered by a program or by hand: ip neigh show 10.244.1.10",),
    ),
    "the address of a pod on the node": Fault(
        "ip address add 10.244.1.10/32 dev lo", "ip address del 10.244.1.10/32 dev lo",
        POD_TO_WEB, EXPLAIN_WEB, "broken: ",
        ("no program of this node listens on 10.244.1.10:8080/TCP: 10.244.1.10 is an address of this node",),
    ),
    "a pod without a route back": Fault(
        "ip route del default", "ip route add default via 10.244.1.1 dev eth0 onlink",
        POD_TO_WEB, EXPLAIN_WEB, "impaired: 1 of 1 endpoints do not answer this node",
        ("10.244.1.10 is there: what drops it is there or behind",), where="web-0",
    ),
    "another node that forwards nothing": Fault(
        *off("net.ipv4.ip_forward"), POD_TO_FAR, EXPLAIN_FAR, "impaired: 1 of 1 endpoints do not answer this node",
        ("nothing came back: the pod hangs, it or its host is gone",), where="node-b",
    ),
    "an interface to everybody outside that forwards nothing": Fault(
        *off("net.ipv4.conf.eth0.forwarding"), OUTSIDE, ("explain", "balanced"),
        "impaired: some IPv4 connections by way of this node may fail, because IPv4 forwarding: off for eth0",
        ("; sysctl -w net.ipv4.conf.eth0.forwarding=1",), FORWARDING,
    ),
    "an interface of an endpoint that forwards nothing": Fault(
        *off("net.ipv4.conf.web-0.forwarding"), POD_TO_WEB, EXPLAIN_WEB, "broken: connections of pods of this node",
        ("forwarding is off on web-0; sysctl -w net.ipv4.conf.web-0.forwarding=1",), FORWARDING,
    ),
    "an interface of a client that forwards nothing": Fault(
        *off("net.ipv4.conf.caller.forwarding"), POD_TO_WEB, CHECK,
        "not healthy: IPv4 forwarding, because off for caller, which leads to pods",
        ("; sysctl -w net.ipv4.conf.caller.forwarding=1",),
    ),
    "strict filtering of the reverse path, and another way back": Fault(
        "sysctl -qw net.ipv4.conf.eth0.rp_filter=1; ip route add 203.0.113.2 dev caller",
        "sysctl -qw net.ipv4.conf.eth0.rp_filter=0; ip route del 203.0.113.2",
        OUTSIDE, CHECK, "not healthy: rp_filter, because the reverse path filter has dropped ",
        ("; sysctl -w net.ipv4.conf.all.rp_filter=2",), "ReversePathDrops",
    ),
}  # fmt: skip

OF_RULES = {
    "a policy of iptables-legacy, beside a server of the node itself that is reached": Fault(
        "iptables-legacy -P FORWARD DROP", "iptables-legacy -P FORWARD ACCEPT",
        POD_TO_WEB, EXPLAIN_WEB, "broken: connections of pods of this node",
        ("forward: iptables-legacy filter, chain FORWARD: the policy of the chain; change that rule: iptables-legacy",),
    ),
    "a policy of nft, as check says it": Fault(
        guard("forward", "ct state established accept", policy="drop"), CURE,
        POD_TO_WEB, CHECK, "not healthy: IPv4 connections, because from pods of this node",
        ("forward: inet guard, chain f: the policy of the chain",),
    ),
    "a policy of nft, as explain says it of all": Fault(
        guard("forward", "ct state established accept", policy="drop"), CURE,
        POD_TO_FAR, ("explain",), "not healthy: ", ("forward: inet guard, chain f: the policy of the chain",),
    ),
    "a firewall before a server of the node itself": Fault(
        guard("input", f"tcp dport {HOSTED_PORT} drop"), CURE, ("caller", HOSTED, Protocol.TCP), ("explain", "hosted"),
        "broken: connections of this node to ", (f"input: inet guard, chain f: tcp dport {HOSTED_PORT} drop",),
    ),
    "one endpoint that the node may not send to": Fault(
        guard("output", "ip daddr 10.244.1.10 drop"), CURE, NODE_TO_WEB, EXPLAIN_WEB,
        "broken: connections of this node to ", ("output: inet guard, chain f: ip daddr 10.244.1.10 drop",),
    ),
    "one endpoint that nothing may leave to": Fault(
        guard("postrouting", 'oifname "web-0" drop', 300), CURE, POD_TO_WEB, EXPLAIN_WEB,
        "broken: connections of this node to ", ('postrouting: inet guard, chain f: oifname "web-0" drop',),
    ),
    "what was translated is dropped": Fault(
        guard("prerouting", "ct status dnat drop"), CURE, POD_TO_WEB, EXPLAIN_WEB,
        "broken: ", ("prerouting: inet guard, chain f: ct status dnat drop",),
    ),
    "Services that are not tracked, from the node": Fault(
        guard("output", "ip daddr 10.96.0.0/16 notrack", -300), CURE, NODE_TO_WEB, CHECK,
        "not healthy: IPv4 connections, because from this node", ("the packet is not tracked: output: inet guard, chain f",),
    ),
    "one Service that is not tracked, from pods": Fault(
        guard("prerouting", f"ip daddr {WEB} notrack", -300), CURE, POD_TO_WEB, EXPLAIN_WEB,
        "broken: connections of pods of this node", ("the packet is not tracked: prerouting: inet guard, chain f",),
    ),
    "answers that are not tracked": Fault(
        guard("prerouting", "ip saddr 10.244.1.10 notrack", -300), CURE, POD_TO_WEB, EXPLAIN_WEB,
        "broken: ", ("the answer of 10.244.1.10:8080 is not translated back, because it is not tracked: prerouting",),
    ),
    "a chain that gives connections another source before ours": Fault(
        guard("postrouting", "ip daddr 10.244.2.10 snat ip to 192.0.2.9", 90, kind="nat"), CURE, POD_TO_FAR, CHECK,
        "not healthy: hook order, because inet guard, chain f translates in postrouting at 90", ("; give it a priority above",),
        "TranslatedBefore",
    ),
    "a chain that gives connections a source which no host here has, after ours": Fault(
        guard("postrouting", "ip daddr 10.244.2.10 snat ip to 192.0.2.9", 110, kind="nat"), CURE, POD_TO_FAR, EXPLAIN_FAR,
        "broken: connections of this node to ",
        ("answers are sent to 192.0.2.9, which is not an address of this node (postrouting: inet guard, chain f: ",
         "; change that rule: nft -a list chain inet guard f"),
    ),
    "the second packet of each connection is dropped": Fault(
        guard("forward", "tcp flags & (syn|ack) == syn|ack drop"), CURE, POD_TO_WEB, EXPLAIN_WEB,
        "broken: connections of pods of this node",
        ("the answer of 10.244.1.10:8080 is stopped: forward: inet guard, chain f: tcp flags syn,ack / syn,ack drop",),
    ),
    "answers in another zone of connection tracking": Fault(
        guard("prerouting", "iifname web-0 ct zone set 6", -300), CURE, POD_TO_WEB, EXPLAIN_WEB,
        "broken: connections of this node to ", ("is not translated back: it is in zone 6 of connection tracking",),
    ),
    "a rule that nobody here can evaluate": Fault(
        guard("forward", "tcp dport 8080 meta length > 30 drop"), CURE, POD_TO_WEB, EXPLAIN_WEB,
        "healthy: 1 of 1 endpoints used; as far as is known: forward: inet guard, chain f: tcp dport 8080 meta length > 30 drop", (" (cannot be evaluated: ",),
    ),
    "that rule, as check says it": Fault(
        guard("forward", "tcp dport 8080 meta length > 30 drop"), CURE, POD_TO_WEB, CHECK,
        "healthy; as far as is known: forward: inet guard, chain f: tcp dport 8080 meta length > 30 drop", (" (cannot be evaluated: ",),
    ),
    "a table of others that nobody here evaluates": Fault(
        "nft 'table netdev guard { chain i { type filter hook ingress device caller priority 0; ip daddr 10.96.0.0/16 drop; }; }'",
        "nft delete table netdev guard", POD_TO_WEB, EXPLAIN_WEB,
        "healthy: 1 of 1 endpoints used; as far as is known: table netdev guard is not evaluated", (),
    ),
    "that table, as check says it": Fault(
        "nft 'table netdev guard { chain i { type filter hook ingress device caller priority 0; ip daddr 10.96.0.0/16 drop; }; }'",
        "nft delete table netdev guard", POD_TO_WEB, CHECK, "healthy; as far as is known: table netdev guard: ", (),
    ),
}  # fmt: skip
