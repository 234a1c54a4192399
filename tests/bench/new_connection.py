"""What the first packet of a connection costs, beside other ways to do services: `make bench-connections`, as root.

Each way has a router of its own between a client and a sink, in network namespaces; all have the same services, and a bridge, as CNI plugins
make one: where the kernel has no dummy interfaces the agent's is one too, and br_netfilter then meets every packet of the namespace. A row's
times are medians, in nanoseconds of processor time; rows take turns every 400 packets, so that other work on the machine
meets all alike.
Ratios are to one dnat rule that never changes. kube-proxy's layout is that of 1.36 in mode nftables
(pkg/proxy/nftables/proxier.go): its hooks, priorities, maps and one chain for each service.

With `--price-of-counters` there are two more rows, nodeagent without the counters of frontends and with those of endpoints, and what
each counter costs. With `--parts` each part of the rules has a row, the table without it (packet_parts.py), and what it costs is how much cheaper that is;
a row of the same table shows the noise, one of the static rule beside the routes of ClusterIPs what these cost.
Exits with 1 when nodeagent costs more than `--most` times kube-proxy's layout in any column.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from operator import sub
from pathlib import Path
from statistics import median

from nodeagent.lab.net.network_namespaces import create_namespaces, namespace_name, remove_namespace, run_ip
from nodeagent.model.addresses import Family
from tests.bench.packet_parts import PARTS

HERE = Path(__file__).parent
COLUMNS = ("pod, cold", "pod, hot", "pod, no service", "node, cold")
ROUNDS = 100
PACKETS = 400
AGENT, UNCOUNTED, PICKS = "nodeagent", "without counters", "endpoints counted"
AGAIN, ROUTES = "the same again", "routes of ClusterIPs"
COUNTED = {AGENT: ("true", "false"), UNCOUNTED: ("false", "false"), PICKS: ("true", "true")}
"""Whether frontends are counted, and endpoints."""


@dataclass(frozen=True)
class Plan:
    """Addresses of one family. services, pods: the first address and the prefix; node: of the router to the sink."""

    family: Family
    type: str
    services: str
    service_prefix: str
    pods: str
    pod_prefix: str
    client: str
    gateway: str
    client_prefix: int
    node: str
    sink: str
    sink_prefix: int

    @property
    def nft(self) -> str:
        """The family as nft calls it."""
        return "ip" if self.family is Family.IPV4 else "ip6"

    def service(self, index: int) -> str:
        return str(ip_address(self.services) + index)

    def pod(self, index: int) -> str:
        return str(ip_address(self.pods) + index)


PLANS = {
    Family.IPV4: Plan(
        family=Family.IPV4,
        type="ipv4_addr",
        services="10.97.0.0",
        service_prefix="10.97.0.0/16",
        pods="10.128.0.0",
        pod_prefix="10.128.0.0/9",
        client="10.255.0.2",
        gateway="10.255.0.1",
        client_prefix=16,
        node="172.31.0.1",
        sink="172.31.0.2",
        sink_prefix=24,
    ),
    Family.IPV6: Plan(
        family=Family.IPV6,
        type="ipv6_addr",
        services="fd00:97::",
        service_prefix="fd00:97::/108",
        pods="fd00:128::",
        pod_prefix="fd00:128::/32",
        client="fd00:128:ffff::2",
        gateway="fd00:128:ffff::1",
        client_prefix=64,
        node="fd00:31::1",
        sink="fd00:31::2",
        sink_prefix=64,
    ),
}


@dataclass(frozen=True)
class Router:
    """A way to do services: the namespaces of its client, of its router, and of the hosts behind it."""

    client: str
    node: str
    sink: str


@dataclass
class Table:
    """Times in ns by way and column."""

    times: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def median(self, way: str, column: str) -> float:
        return median(self.times[way, column])

    def ratio(self, way: str, other: str, column: str) -> float:
        """The median of the turns' ratios."""
        return median(one / base for one, base in zip(self.times[way, column], self.times[other, column], strict=True))


def inside(namespace: str, *command: str, stdin: str | None = None, check: bool = True) -> str:
    done = subprocess.run(
        ["ip", "netns", "exec", namespace, *command], input=stdin, capture_output=True, text=True, check=False
    )
    if check and done.returncode:
        sys.exit(f"{' '.join(command)[:100]}: {done.stderr.strip()[:400]}")
    return done.stdout


@contextmanager
def router(plan: Plan, number: int, *, swallows: bool = True) -> Iterator[Router]:
    """A client and a sink on two sides of a router; the sink drops whatever arrives, if it swallows."""
    client, node, sink = (namespace_name(os.getpid(), f"{number:x}", part) for part in ("client", "node", "sink"))
    six = plan.family is Family.IPV6
    create_namespaces([client, node, sink])
    try:
        for name in (client, node, sink):
            run_ip(["-n", name], ["link set lo up"])
        for host, port in ((client, "c0"), (sink, "s0")):
            run_ip(["-n", node], [f"link add {port} type veth peer name eth0 netns {host}", f"link set {port} up"])
            run_ip(["-n", host], ["link set eth0 up"])
        late = " nodad" if six else ""
        run_ip(["-n", client], [f"addr add {plan.client}/{plan.client_prefix} dev eth0{late}"])
        run_ip(["-n", client], [f"route add default via {plan.gateway}"])
        run_ip(["-n", sink], [f"addr add {plan.sink}/{plan.sink_prefix} dev eth0{late}"])
        run_ip(
            ["-n", node],
            [
                f"addr add {plan.gateway}/{plan.client_prefix} dev c0{late}",
                f"addr add {plan.node}/{plan.sink_prefix} dev s0{late}",
                f"route add default via {plan.sink}",
                f"route add {plan.service_prefix} via {plan.sink}",
                "link add bridge type bridge",
            ],
        )
        switches = ["net.ipv6.conf.all.forwarding=1"] if six else ["net.ipv4.ip_forward=1"]
        switches += [f"net.ipv4.conf.{name}.rp_filter=0" for name in ("all", "c0", "s0")]
        inside(node, "sysctl", "-qw", *switches)
        for host, port, peer, peer_port, address in (
            (node, "s0", sink, "eth0", plan.sink),
            (client, "eth0", node, "c0", plan.gateway),
        ):
            mac = inside(peer, "cat", f"/sys/class/net/{peer_port}/address").strip()
            run_ip(["-n", host], [f"neigh replace {address} lladdr {mac} dev {port} nud permanent"])
        drop = (
            'table netdev sink {\nchain swallow { type filter hook ingress device "eth0" priority 0; policy drop; }\n}'
        )
        if swallows:
            inside(sink, "nft", "-f", "-", stdin=drop)
        yield Router(client, node, sink)
    finally:
        for name in (client, node, sink):
            remove_namespace(name)


def no_nat(plan: Plan, services: int, endpoints: int) -> str:
    """Connection tracking only."""
    del services, endpoints
    chains = (
        f"chain {at} {{\ntype filter hook {at} priority 0;\nct state new counter\n}}" for at in ("forward", "output")
    )
    return f"table {plan.nft} bench {{\n{chr(10).join(chains)}\n}}"


def static_rule(plan: Plan, services: int, endpoints: int) -> str:
    """One rule for everything."""
    del services, endpoints
    ip, target = plan.nft, plan.pod(65541)
    to = f"[{target}]" if plan.family is Family.IPV6 else target
    rule = f"{ip} daddr {plan.service_prefix} meta l4proto tcp dnat to {to}:8080"
    return (
        f"table {ip} bench {{\n"
        f"chain prerouting {{\ntype nat hook prerouting priority -100;\n{rule}\n}}\n"
        f"chain output {{\ntype nat hook output priority -100;\n{rule}\n}}\n"
        "chain postrouting {\ntype nat hook postrouting priority 100;\n}\n}"
    )


def kube_proxy(plan: Plan, services: int, endpoints: int) -> str:
    """kube-proxy's base chains and maps, and a chain for each service with its endpoints in an anonymous map."""
    ip, kind = plan.nft, plan.type
    chains, elements = [], []
    for index in range(services):
        targets = ", ".join(f"{slot} : {plan.pod(index * endpoints + slot)} . 8080" for slot in range(endpoints))
        pick = f"meta l4proto tcp dnat {ip} to numgen random mod {endpoints} map {{ {targets} }}"
        chains.append(f"chain service-{index} {{\n{pick}\n}}")
        elements.append(f"{plan.service(index)} . tcp . 80 : goto service-{index}")
    addresses = ", ".join(plan.service(index) for index in range(services))
    key, node_port = f"{ip} daddr . meta l4proto . th dport", "meta l4proto . th dport"
    bases = {
        "filter-prerouting-pre-dnat": ("filter", "prerouting", -110, "ct state new jump firewall-check"),
        "filter-output-pre-dnat": ("filter", "output", -110, "ct state new jump firewall-check"),
        "filter-input": (
            "filter",
            "input",
            0,
            "ct state new jump nodeport-endpoints-check\nct state new jump service-endpoints-check",
        ),
        "filter-forward": (
            "filter",
            "forward",
            0,
            "ct state new jump service-endpoints-check\nct state new jump cluster-ips-check",
        ),
        "filter-output": (
            "filter",
            "output",
            0,
            "ct state new jump service-endpoints-check\nct state new jump cluster-ips-check",
        ),
        "nat-prerouting": ("nat", "prerouting", -100, "jump services"),
        "nat-output": ("nat", "output", -100, "jump services"),
        "nat-postrouting": ("nat", "postrouting", 100, "jump masquerading"),
    }
    inner = {
        "nodeport-endpoints-check": f"{ip} daddr @nodeport-ips {node_port} vmap @no-endpoint-nodeports",
        "service-endpoints-check": f"{key} vmap @no-endpoint-services",
        "firewall-check": f"{key} vmap @firewall-ips",
        "cluster-ips-check": f"{ip} daddr @cluster-ips reject\n{ip} daddr {{ {plan.service_prefix} }} drop",
        "mark-for-masquerade": "meta mark set meta mark | 0x4000",
        "services": (
            f"{ip} daddr @cluster-ips {ip} saddr != {plan.pod_prefix} jump mark-for-masquerade\n"
            f"{key} vmap @service-ips\n{ip} daddr @nodeport-ips {node_port} vmap @service-nodeports"
        ),
        "masquerading": (
            f"{ip} saddr . {ip} daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random\n"
            "meta mark & 0x4000 != 0 meta mark set meta mark ^ 0x4000 masquerade fully-random"
        ),
    }
    maps = [
        f"set hairpin-connections {{ type {kind} . {kind} . inet_proto . inet_service; }}",
        f"set cluster-ips {{ type {kind}; elements = {{ {addresses} }} }}",
        f"set nodeport-ips {{ type {kind}; elements = {{ {plan.node} }} }}",
        f"map no-endpoint-services {{ type {kind} . inet_proto . inet_service : verdict; }}",
        "map no-endpoint-nodeports { type inet_proto . inet_service : verdict; }",
        f"map firewall-ips {{ type {kind} . inet_proto . inet_service : verdict; }}",
        "map service-nodeports { type inet_proto . inet_service : verdict; }",
        *chains,
        f"map service-ips {{ type {kind} . inet_proto . inet_service : verdict; elements = {{ {', '.join(elements)} }} }}",
    ]
    maps += (f"chain {name} {{\n{rules}\n}}" for name, rules in inner.items())
    maps += (
        f"chain {name} {{\ntype {kind} hook {hook} priority {priority};\n{rules}\n}}"
        for name, (kind, hook, priority, rules) in bases.items()
    )
    return f"table {ip} kube-proxy {{\n{chr(10).join(maps)}\n}}"


def manifests(plan: Plan, services: int, endpoints: int) -> str:
    """The same services as objects."""
    items: list[dict[str, object]] = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n"},
            "status": {"addresses": [{"type": "InternalIP", "address": plan.node}]},
        },
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "ServiceCIDR",
            "metadata": {"name": "kubernetes"},
            "spec": {"cidrs": [plan.service_prefix]},
        },
    ]
    for index in range(services):
        address = plan.service(index)
        ports = [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]
        spec = {"clusterIP": address, "clusterIPs": [address], "ipFamilies": [plan.family.value], "ports": ports}
        metadata = {"name": f"s{index}", "namespace": "default"}
        items.append({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
        items.append(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": f"s{index}-x",
                    "namespace": "default",
                    "labels": {"kubernetes.io/service-name": f"s{index}"},
                },
                "addressType": plan.family.value,
                "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
                "endpoints": [
                    {
                        "addresses": [plan.pod(index * endpoints + slot)],
                        "conditions": {"ready": True},
                        "nodeName": f"n{slot}",
                    }
                    for slot in range(endpoints)
                ],
            }
        )
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


WAYS: Mapping[str, Callable[[Plan, int, int], str]] = {
    "no NAT": no_nat,
    "one static rule": static_rule,
    "kube-proxy's layout": kube_proxy,
}


def program_agent(plan: Plan, node: str, manifests: Path, way: str) -> None:
    frontends, endpoints = COUNTED.get(way, COUNTED[AGENT])
    settings = (
        "env",
        f"NODEAGENT_DATAPLANE_COUNTERS={frontends}",
        f"NODEAGENT_DATAPLANE_ENDPOINT_COUNTERS={endpoints}",
    )
    agent = (str(HERE / "packet_parts.py"), way) if way in PARTS else ("-m", "nodeagent")
    arguments = f"run --once --manifests {manifests} --node-name n --cluster-cidr {plan.pod_prefix}"
    inside(node, *settings, sys.executable, *agent, *arguments.split())


def program_routes(plan: Plan, node: str, manifests: Path, layout: str) -> None:
    """The routes and addresses of the agent, with this table in place of its own."""
    program_agent(plan, node, manifests, ROUTES)
    inside(node, "nft", "delete", "table", plan.nft, "nodeagent")
    inside(node, "nft", "-f", "-", stdin=layout)


def send(plan: Plan, column: str, sender: Path, scratch: Path, routers: Collection[Router]) -> list[float]:
    """What the first packet of a connection takes by each router, the median of some rounds in which they take turns."""
    for ends in routers:
        inside(ends.node, "conntrack", "-F", check=False)
    from_node = column.startswith("node")
    spaces = [f"/run/netns/{ends.node if from_node else ends.client}" for ends in routers]
    source = "any" if from_node else plan.client
    command = [str(sender), source, str(scratch / column), str(ROUNDS), str(PACKETS), *spaces]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.split()]


def measure(options: argparse.Namespace, plan: Plan, sender: Path, scratch: Path) -> Table:
    services, endpoints = options.services, options.endpoints
    lists = {
        "pod, cold": [plan.service(index) for index in range(services)],
        "pod, hot": [plan.service(index) for index in range(min(100, services))],
        "pod, no service": [plan.pod(services * endpoints + index) for index in range(10_000)],
        "node, cold": [plan.service(index) for index in range(services)],
    }
    for column, addresses in lists.items():
        (scratch / column).write_text("\n".join(addresses) + "\n")
    objects = scratch / "manifests"
    objects.mkdir()
    (objects / "all.json").write_text(manifests(plan, services, endpoints))
    table = Table()
    with ExitStack() as stack:
        rows: dict[str, Router] = {}
        for number, (way, make) in enumerate(WAYS.items(), 1):
            rows[way] = stack.enter_context(router(plan, number))
            inside(rows[way].node, "nft", "-f", "-", stdin=make(plan, services, endpoints))
        agents = tuple(COUNTED) if options.price_of_counters else (AGENT,)
        for number, way in enumerate((*agents, *((AGAIN, UNCOUNTED, *PARTS) if options.parts else ())), len(WAYS) + 1):
            rows[way] = stack.enter_context(router(plan, number))
            program_agent(plan, rows[way].node, objects, way)
        if options.parts:
            rows[ROUTES] = stack.enter_context(router(plan, len(rows) + 1))
            program_routes(plan, rows[ROUTES].node, objects, static_rule(plan, services, endpoints))
        for _ in range(options.turns):
            for column in COLUMNS:
                for way, printed in zip(rows, send(plan, column, sender, scratch, rows.values()), strict=True):
                    table.times.setdefault((way, column), []).append(printed)
    return table


def show(table: Table, title: str) -> float:
    """Print it; the greatest ratio of nodeagent to kube-proxy's layout."""
    ways = list(dict.fromkeys(way for way, _ in table.times))
    print(f"\n{title:22}" + "".join(f"{column:>18}" for column in COLUMNS))
    for way in ways:
        cells = (f"{table.median(way, c):.0f} ({table.ratio(way, 'one static rule', c):.2f})" for c in COLUMNS)
        print(f"{way:22}" + "".join(f"{cell:>18}" for cell in cells))
    ratios = [table.ratio(AGENT, "kube-proxy's layout", c) for c in COLUMNS]
    print(f"{'to kube-proxy':22}" + "".join(f"{ratio:>18.2f}" for ratio in ratios))
    if AGAIN in ways:
        for c in COLUMNS:
            both = zip(table.times[AGENT, c], table.times[AGAIN, c], strict=True)
            table.times["whole", c] = [(one + other) / 2 for one, other in both]
        print("what each part costs, ns")
        differences = [("noise", AGENT, AGAIN), (ROUTES, ROUTES, "one static rule"), ("counting", "whole", UNCOUNTED)]
        for name, dear, cheap in (*differences, *((part, "whole", part) for part in PARTS)):
            prices = (f"{median(map(sub, table.times[dear, c], table.times[cheap, c])):+.0f}" for c in COLUMNS)
            print(f"  {name:20}" + "".join(f"{price:>18}" for price in prices))
    elif UNCOUNTED in ways:
        for name, dear, cheap in (("of the frontend, ns", AGENT, UNCOUNTED), ("of the endpoint, ns", PICKS, AGENT)):
            prices = (f"{median(map(sub, table.times[dear, c], table.times[cheap, c])):+.0f}" for c in COLUMNS)
            print(f"{name:22}" + "".join(f"{price:>18}" for price in prices))
    return max(ratios)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=int, default=10_000)
    parser.add_argument("--endpoints", type=int, default=10)
    parser.add_argument("--turns", type=int, default=5, help="how often each row is measured")
    parser.add_argument("--most", type=float, default=0.97, help="exit with 1 above this ratio")
    parser.add_argument(
        "--price-of-counters",
        action="store_true",
        help="measure nodeagent without counters and with those of endpoints, too",
    )
    parser.add_argument("--parts", action="store_true", help="measure what each part of the rules costs, too")
    parser.add_argument("--family", choices=[family.value for family in Family], action="append")
    options = parser.parse_args()
    worst = 0.0
    for family in map(Family, options.family or [family.value for family in Family]):
        with tempfile.TemporaryDirectory() as directory:
            scratch = Path(directory)
            sender = scratch / "first_packets"
            subprocess.run(["cc", "-O2", "-o", sender, HERE / "first_packets.c"], check=True)
            table = measure(options, PLANS[family], sender, scratch)
        title = f"{family.value} {options.services} x {options.endpoints}"
        worst = max(worst, show(table, title))
    print(f"\nnodeagent takes {worst:.2f} times what kube-proxy's layout takes, at worst")
    return int(worst > options.most)


if __name__ == "__main__":
    sys.exit(main())
