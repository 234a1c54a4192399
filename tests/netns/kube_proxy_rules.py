"""The rules of kube-proxy 1.36 on a node, in the shape of each of its modes, with the kubelet's beside them.

Sources: pkg/proxy/nftables/proxier.go, pkg/proxy/iptables/proxier.go. They serve `default/web` by the pods they are given.
"""

import base64
import hashlib
import re
from dataclasses import dataclass

from nodeagent.model.addresses import Family
from tests.harness.cluster import NODE, TARGET_PORT, cluster_ips
from tests.harness.worlds.topology import POD_CIDRS, SERVICE_CIDRS
from tests.harness.worlds.world import World

CLUSTER_IPS = cluster_ips(10)
EXTERNAL_IPS = ("198.51.100.10", "2001:db8:100::10")
NODE_PORT = 30080
PODS = ("web-0", "web-1", "web-2")
OLD_PODS = PODS[:2]

KUBELET = """
*mangle
:KUBE-IPTABLES-HINT - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
COMMIT
*filter
:KUBE-FIREWALL - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
-A INPUT -j KUBE-FIREWALL
-A OUTPUT -j KUBE-FIREWALL
COMMIT
*nat
:KUBE-KUBELET-CANARY - [0:0]
COMMIT
"""


@dataclass(frozen=True)
class Port:
    """A port of the service `default/web`."""

    name: str
    protocol: str
    number: int
    node_port: int | None = None


PORTS = (Port("http", "tcp", 80, NODE_PORT), Port("dns", "udp", 53))


@dataclass(frozen=True)
class Shape:
    """What the rules of one family are about."""

    family: Family
    cluster_ip: str
    external_ip: str
    node_ip: str
    pods: tuple[str, ...]

    def to(self, pod: str) -> str:
        return f"[{pod}]:{TARGET_PORT}" if self.family is Family.IPV6 else f"{pod}:{TARGET_PORT}"


def shapes(world: World, pods: tuple[str, ...]) -> list[Shape]:
    return [
        Shape(
            family,
            CLUSTER_IPS[number],
            EXTERNAL_IPS[number],
            world[NODE].address(family),
            tuple(world[pod].address(family) for pod in pods),
        )
        for number, family in enumerate(Family)
    ]


def code(*parts: str, length: int = 16) -> str:
    """The part of a chain's name that kube-proxy computes."""
    return base64.b32encode(hashlib.sha256("".join(parts).encode()).digest()).decode()[:length]


def nftables_rules(shape: Shape) -> str:
    """The table `kube-proxy` of one family, as `nft -f` takes it."""
    ip, kind = ("ip", "ipv4_addr") if shape.family is Family.IPV4 else ("ip6", "ipv6_addr")
    number = list(Family).index(shape.family)
    chains, dispatch, node_ports = [], [], []
    for port in PORTS:
        base = f"{port.protocol}/{port.name}"
        service = f"service-{code(base, length=8)}-default/web/{base}"
        external = service.replace("service-", "external-", 1)
        ends = [
            f"endpoint-{code(base, pod, length=8)}-default/web/{base}__{pod.replace(':', '.')}/{TARGET_PORT}"
            for pod in shape.pods
        ]
        for end, pod in zip(ends, shape.pods, strict=True):
            chains.append(
                f"chain {end} {{\n {ip} saddr {pod} jump mark-for-masquerade\n"
                f" meta l4proto {port.protocol} dnat to {shape.to(pod)}\n}}"
            )
        choice = ", ".join(f"{slot} : goto {end}" for slot, end in enumerate(ends))
        chains.append(
            f"chain {service} {{\n"
            f" {ip} daddr {shape.cluster_ip} {ip} saddr != {POD_CIDRS[number]} jump mark-for-masquerade\n"
            f" numgen random mod {len(ends)} vmap {{ {choice} }}\n}}"
        )
        chains.append(f"chain {external} {{\n jump mark-for-masquerade\n goto {service}\n}}")
        dispatch += [
            f"{shape.cluster_ip} . {port.protocol} . {port.number} : goto {service}",
            f"{shape.external_ip} . {port.protocol} . {port.number} : goto {external}",
        ]
        if port.node_port:
            node_ports.append(f"{port.protocol} . {port.node_port} : goto {external}")
    services = "\n".join(chains)
    return f"""
table {ip} kube-proxy {{
  comment "rules for kube-proxy"
  set cluster-ips {{ type {kind}; comment "Active ClusterIPs"; elements = {{ {shape.cluster_ip} }}; }}
  set nodeport-ips {{ type {kind}; elements = {{ {shape.node_ip} }}; }}
  map firewall-ips {{ type {kind} . inet_proto . inet_service : verdict; }}
  map no-endpoint-services {{ type {kind} . inet_proto . inet_service : verdict; }}
  map no-endpoint-nodeports {{ type inet_proto . inet_service : verdict; }}
  map service-ips {{ type {kind} . inet_proto . inet_service : verdict; elements = {{ {", ".join(dispatch)} }}; }}
  map service-nodeports {{ type inet_proto . inet_service : verdict; elements = {{ {", ".join(node_ports)} }}; }}
  chain mark-for-masquerade {{ mark set mark or 0x4000; }}
  chain masquerading {{
    mark and 0x4000 == 0 return
    mark set mark xor 0x4000
    masquerade fully-random
  }}
{services}
  chain services {{
    {ip} daddr . meta l4proto . th dport vmap @service-ips
    {ip} daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
  }}
  chain firewall-check {{ {ip} daddr . meta l4proto . th dport vmap @firewall-ips; }}
  chain service-endpoints-check {{ {ip} daddr . meta l4proto . th dport vmap @no-endpoint-services; }}
  chain nodeport-endpoints-check {{ {ip} daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports; }}
  chain cluster-ips-check {{
    {ip} daddr @cluster-ips reject comment "Reject traffic to invalid ports of ClusterIPs"
    {ip} daddr {{ {SERVICE_CIDRS[number]} }} drop comment "Drop traffic to unallocated ClusterIPs"
  }}
  chain filter-prerouting-pre-dnat {{
    type filter hook prerouting priority -110
    ct state new jump firewall-check
  }}
  chain filter-output-pre-dnat {{
    type filter hook output priority -110
    ct state new jump firewall-check
  }}
  chain filter-input {{
    type filter hook input priority 0
    ct state new jump nodeport-endpoints-check
    ct state new jump service-endpoints-check
  }}
  chain filter-forward {{
    type filter hook forward priority 0
    ct state new jump service-endpoints-check
    ct state new jump cluster-ips-check
  }}
  chain filter-output {{
    type filter hook output priority 0
    ct state new jump service-endpoints-check
    ct state new jump cluster-ips-check
  }}
  chain nat-prerouting {{
    type nat hook prerouting priority -100
    jump services
  }}
  chain nat-output {{
    type nat hook output priority -100
    jump services
  }}
  chain nat-postrouting {{
    type nat hook postrouting priority 100
    jump masquerading
  }}
}}
"""


def iptables_rules(shape: Shape) -> str:
    """The tables nat, filter and mangle of one family, as iptables-restore takes them."""
    pods = POD_CIDRS[list(Family).index(shape.family)]
    mask = shape.family.address_length * 8
    fixed = ("SERVICES", "NODEPORTS", "POSTROUTING", "MARK-MASQ", "PROXY-CANARY")
    chains = [f"KUBE-{name}" for name in fixed]
    rules = []
    for port in PORTS:
        key, label = code(f"default/web:{port.name}", port.protocol), f"default/web:{port.name}"
        service, external = f"KUBE-SVC-{key}", f"KUBE-EXT-{key}"
        ends = [f"KUBE-SEP-{code(label, port.protocol, pod)}" for pod in shape.pods]
        chains += [service, external, *ends]
        match = f"-p {port.protocol} -m {port.protocol} --dport {port.number}"
        say = f'-m comment --comment "{label}'
        rules += [
            f'-A KUBE-SERVICES -d {shape.cluster_ip}/{mask} {match} {say} cluster IP" -j {service}',
            f'-A KUBE-SERVICES -d {shape.external_ip}/{mask} {match} {say} external IP" -j {external}',
            f'-A {external} {say} external destinations, masquerade" -j KUBE-MARK-MASQ',
            f"-A {external} -j {service}",
            f'-A {service} ! -s {pods} -d {shape.cluster_ip}/{mask} {match} {say} cluster IP" -j KUBE-MARK-MASQ',
        ]
        if port.node_port:
            to_node_port = f"-p {port.protocol} -m {port.protocol} --dport {port.node_port}"
            rules.append(f'-A KUBE-NODEPORTS {to_node_port} {say}" -j {external}')
        for left, end, pod in zip(range(len(ends), 0, -1), ends, shape.pods, strict=True):
            chance = f"-m statistic --mode random --probability {1 / left:.10f} " if left > 1 else ""
            translate = f"-p {port.protocol} -m {port.protocol} -j DNAT --to-destination {shape.to(pod)}"
            rules += [
                f'-A {service} {say} -> {shape.to(pod)}" {chance}-j {end}',
                f'-A {end} -s {pod}/{mask} {say}" -j KUBE-MARK-MASQ',
                f"-A {end} {translate}",
            ]
    declared = "\n".join(f":{chain} - [0:0]" for chain in chains)
    added = "\n".join(rules)
    new = "-m conntrack --ctstate NEW -m comment --comment"
    return f"""
*mangle
:KUBE-PROXY-CANARY - [0:0]
COMMIT
*filter
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-PROXY-CANARY - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-SERVICES - [0:0]
-A INPUT {new} "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-A INPUT -m comment --comment "kubernetes health check service ports" -j KUBE-NODEPORTS
-A INPUT {new} "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES
-A FORWARD {new} "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD {new} "kubernetes service portals" -j KUBE-SERVICES
-A FORWARD {new} "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES
-A OUTPUT {new} "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-A OUTPUT {new} "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
*nat
{declared}
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
{added}
-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
COMMIT
"""


def install(world: World, mode: str, pods: tuple[str, ...] = OLD_PODS) -> None:
    """The rules of one mode in both families, leading to these pods; with the kubelet's in the iptables modes."""
    for shape in shapes(world, pods):
        if mode == "nftables":
            world.nft(NODE, nftables_rules(shape))
            continue
        tool = ("iptables" if shape.family is Family.IPV4 else "ip6tables") + mode.removeprefix("iptables")
        for text in (KUBELET, iptables_rules(shape)):
            world.run(NODE, [f"{tool}-restore", "--noflush"], stdin=text)


def rules_of_node(world: World) -> str:
    """Everything in the tables of the node, without what counts packets and without dates."""
    texts = [world.run(NODE, [f"{tool}-legacy-save"]).stdout for tool in ("iptables", "ip6tables")]
    texts.append(world.run(NODE, ["nft", "list", "ruleset"]).stdout)
    lines = [re.sub(r"\[\d+:\d+\]|packets \d+ bytes \d+", "", line) for text in texts for line in text.splitlines()]
    return "\n".join(line for line in lines if not line.startswith("#"))
