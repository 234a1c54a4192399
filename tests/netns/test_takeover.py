"""Taking over from kube-proxy on a live node: connections run on its rules while the agent starts and the rules go.

The rules are shaped like those of kube-proxy 1.36 (pkg/proxy/nftables/proxier.go, pkg/proxy/iptables/proxier.go), with
the kubelet's own chains beside them. They know web-0 and web-1; the agent knows web-2 too, so an answer of web-2 shows
whose word counts for a new connection.
"""

import base64
import hashlib
import re
import shutil
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from nodeagent.lab.net.member import Holding
from nodeagent.lab.net.topology import POD_CIDRS, SERVICE_CIDRS
from nodeagent.lab.net.world import World
from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.objects import ServiceSpec
from tests.harness.cluster import NODE, TARGET_PORT, WITH_POD_CIDRS, Cluster, cluster_ips
from tests.harness.links import Links
from tests.harness.objects import service_port
from tests.harness.warm_start import AGENT

CLUSTER_IPS = cluster_ips(10)
EXTERNAL_IPS = ("198.51.100.10", "2001:db8:100::10")
NODE_PORT = 30080
PODS = ("web-0", "web-1", "web-2")
OLD_PODS = PODS[:2]
HELD = 4
SYN_SENT_AGAIN = 1.0
"""Seconds after which the kernel repeats a SYN (TCP_TIMEOUT_INIT): a slower connection lost a packet."""

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


class Client(NamedTuple):
    """Who connects to what."""

    member: str
    address: str
    port: int
    protocol: Protocol = Protocol.TCP


CLIENTS = [
    client
    for cluster_ip, external_ip, node_ip in zip(CLUSTER_IPS, EXTERNAL_IPS, ("192.168.0.2", "2001:db8::2"), strict=True)
    for client in (
        Client("caller", cluster_ip, 80),
        Client("caller", cluster_ip, 53, Protocol.UDP),
        Client(NODE, cluster_ip, 80),
        Client("outside", external_ip, 80),
        Client("outside", node_ip, NODE_PORT),
    )
]
MODES = pytest.mark.parametrize("mode", ["nftables", "iptables-nft", "iptables-legacy"])


@pytest.fixture
def cluster(world: World, tmp_path: Path) -> Cluster:
    """The pods serve, and the manifests know all of them."""
    made = Cluster(world, tmp_path)
    for pod in PODS:
        for protocol in (Protocol.TCP, Protocol.UDP):
            world[pod].serve(TARGET_PORT, protocol)
    expose(made, PODS)
    return made


def expose(cluster: Cluster, pods: tuple[str, ...]) -> None:
    """The service, with these endpoints."""
    ports = [
        service_port(port.number, Protocol[port.protocol.upper()], name=port.name, node_port=port.node_port)
        for port in PORTS
    ]
    cluster.expose("web", *CLUSTER_IPS, pods=pods, ports=ports, spec=ServiceSpec(external_ips=EXTERNAL_IPS))


def hold_all(world: World, stack: ExitStack, *, timeout: float = 3.0) -> list[Holding]:
    """Open connections of every client, until the stack is closed. timeout: of each question, in seconds."""
    return [
        stack.enter_context(
            world[client.member].hold(client.address, client.port, client.protocol, count=HELD, timeout=timeout)
        )
        for client in CLIENTS
    ]


def who_answers(holding: Holding) -> list[tuple[str, str, str]]:
    """Server, client as the server sees it, and failure, of each held connection."""
    return [(answer.name, answer.peer, answer.detail) for answer in holding.ask()]


def new_connections(world: World) -> Counter[str]:
    """Who answers ten new connections of each client; every one is answered."""
    names: Counter[str] = Counter()
    for client in CLIENTS:
        survey = world[client.member].ask(client.address, client.port, client.protocol, count=10)
        assert not survey.failures, client
        names += survey.names
    return names


@MODES
def test_no_connection_is_lost(cluster: Cluster, mode: str) -> None:
    world = cluster.world
    install(world, mode)
    with ExitStack() as stack:
        held = hold_all(world, stack)
        loads = [
            stack.enter_context(world[client.member].load(client.address, client.port, client.protocol, interval=0.02))
            for client in CLIENTS
        ]
        opened = [who_answers(holding) for holding in held]
        assert {name for answers in opened for name, _, _ in answers} == set(OLD_PODS)

        cluster.start_agent(*WITH_POD_CIDRS)
        beside = [who_answers(holding) for holding in held]
        chosen_beside = new_connections(world)
        removed = cluster.call("cleanup", "--of", "kube-proxy")
        after = [who_answers(holding) for holding in held]
        chosen_after = new_connections(world)
        reports = [load.stop() for load in loads]

    assert removed
    assert "kube-proxy" not in rules_of_node(world)
    assert "KUBE-S" not in rules_of_node(world)
    assert beside == opened
    assert after == opened
    assert set(chosen_beside) == set(chosen_after) == set(PODS)
    for client, report in zip(CLIENTS, reports, strict=True):
        assert not report.failures, f"{client}: {report.failed[0]}"
        assert report.slowest < SYN_SENT_AGAIN, client


@MODES
def test_the_agent_decides_for_new_connections_as_soon_as_it_runs(cluster: Cluster, mode: str) -> None:
    """Its chains come before dstnat, and the first mapping of a connection stands (nf_nat_core.c)."""
    install(cluster.world, mode, PODS[:1])
    assert set(new_connections(cluster.world)) == set(PODS[:1])
    expose(cluster, PODS[1:])

    cluster.start_agent(*WITH_POD_CIDRS)

    assert set(new_connections(cluster.world)) == set(PODS[1:])


@MODES
def test_a_udp_flow_to_an_endpoint_that_is_gone_finds_another(cluster: Cluster, mode: str) -> None:
    install(cluster.world, mode, PODS[:1])
    expose(cluster, PODS[1:])
    with cluster.world["caller"].hold(CLUSTER_IPS[0], 53, Protocol.UDP) as held:
        assert set(held.opened.names) == set(PODS[:1])

        agent = cluster.start_agent(*WITH_POD_CIDRS)
        agent.wait_for_line(r"conntrack IPv4: ended \d+ UDP flow")

        assert set(held.ask().names) <= set(PODS[1:])


@MODES
def test_the_agent_decides_beside_a_kube_proxy_that_comes_later(cluster: Cluster, mode: str) -> None:
    """Whose chains were registered last does not matter, and neither of the two breaks a connection."""
    world = cluster.world
    cluster.start_agent(*WITH_POD_CIDRS)
    with ExitStack() as stack:
        held = hold_all(world, stack)
        opened = [who_answers(holding) for holding in held]

        install(world, mode, PODS[:1])
        chosen_beside = new_connections(world)
        beside = [who_answers(holding) for holding in held]
        cluster.call("cleanup", "--of", "kube-proxy")
        after = [who_answers(holding) for holding in held]

    assert set(chosen_beside) == set(PODS)
    assert beside == after == opened
    assert set(new_connections(world)) == set(PODS)


@MODES
def test_a_dry_run_names_what_would_go_and_changes_nothing(world: World, tmp_path: Path, mode: str) -> None:
    cluster = Cluster(world, tmp_path)
    install(world, mode)
    before = rules_of_node(world)

    would = cluster.call("cleanup", "--of", "kube-proxy", "--dry-run")
    assert rules_of_node(world) == before
    did = cluster.call("cleanup", "--of", "kube-proxy", "--force")
    again = cluster.call("cleanup", "--of", "kube-proxy")

    assert would.replace("would remove ", "removed ") == did
    assert again == "nothing of kube-proxy was here\n"


def test_beside_a_running_kube_proxy_there_is_only_a_dry_run(world: World, tmp_path: Path) -> None:
    """It would write its rules again. Any program of that name will do."""
    install(world, "nftables")
    program = tmp_path / "kube-proxy"
    shutil.copy("/bin/sleep", program)
    kube_proxy = world.start(NODE, [str(program), "60"])
    command = [*AGENT, "cleanup", "--of", "kube-proxy"]

    refused = world.run(NODE, command, check=False)
    told = world.run(NODE, [*command, "--dry-run"])
    left = rules_of_node(world)
    kube_proxy.kill()
    world.run(NODE, [*command, "--force"])

    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"nodeagent: kube-proxy runs here (process {kube_proxy.pid}) and would write its rules again: stop it\n"
    )
    assert told.stdout.count("would remove") == 2
    assert left.count("table ip") == 2
    assert "table ip" not in rules_of_node(world)


def test_without_capability_the_command_says_so(world: World) -> None:
    result = world.run(
        NODE, ["setpriv", "--bounding-set=-all", *AGENT, "cleanup", "--of", "kube-proxy", "--dry-run"], check=False
    )

    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr == "nodeagent: nf_tables: not permitted: run as root or with CAP_NET_ADMIN\n"


@pytest.mark.parametrize("mode", ["iptables-nft", "iptables-legacy"])
def test_what_the_kubelet_made_stays(world: World, tmp_path: Path, mode: str) -> None:
    cluster = Cluster(world, tmp_path)
    install(world, mode)

    cluster.call("cleanup", "--of", "kube-proxy", "--force")

    left = set(re.findall(r"KUBE-[A-Z-]+", rules_of_node(world)))
    assert left == {"KUBE-FIREWALL", "KUBE-KUBELET-CANARY", "KUBE-IPTABLES-HINT"}


def test_without_an_agent_the_same_removal_ends_connections_and_is_warned_of(cluster: Cluster) -> None:
    """What keeps them alive in the other tests is the agent's table: without a NAT chain nothing is translated."""
    world = cluster.world
    install(world, "nftables")
    with world["caller"].hold(CLUSTER_IPS[0], 80, timeout=0.5) as held:
        result = world.run(NODE, [*AGENT, "cleanup", "--of", "kube-proxy", "--force"])

        assert held.ask().failures
    assert "there is no table nodeagent: without kube-proxy's rules no service is reachable" in result.stderr


def test_addresses_of_kube_ipvs0_stay_local_when_it_goes(cluster: Cluster) -> None:
    """The ipvs mode keeps ClusterIPs on an interface of its own; the agent's has them too, and takes over."""
    world = cluster.world
    Links(world, NODE).add_bridge("kube-ipvs0", *CLUSTER_IPS)
    cluster.start_agent(*WITH_POD_CIDRS)
    with ExitStack() as stack:
        held = hold_all(world, stack)
        opened = [who_answers(holding) for holding in held]

        removed = cluster.call("cleanup", "--of", "kube-proxy")

        assert [who_answers(holding) for holding in held] == opened
    assert removed == "removed ipvs interface kube-ipvs0\n"
    assert set(new_connections(world)) == set(PODS)
    for address in CLUSTER_IPS:
        assert not world["caller"].ping(address).failures


def test_the_way_back_loses_only_what_the_node_itself_connected(cluster: Cluster) -> None:
    """A node that reaches an IPv4 ClusterIP on its own interface has it as its source, and that interface goes."""
    world = cluster.world
    agent = cluster.start_agent(*WITH_POD_CIDRS)
    with ExitStack() as stack:
        held = hold_all(world, stack, timeout=0.5)
        opened = [who_answers(holding) for holding in held]
        install(world, "nftables")
        agent.stop()
        cluster.call("cleanup")
        after = [who_answers(holding) for holding in held]

    lost = [client for client, before, now in zip(CLIENTS, opened, after, strict=True) if before != now]
    assert [(client.member, client.address) for client in lost] == [(NODE, CLUSTER_IPS[0])]
    assert set(new_connections(world)) == set(OLD_PODS)
