"""Pods and Services whose connections rules of other programs meet."""

from nodeagent.model.addresses import Family
from tests.harness.cluster import NODE, TARGET_PORT, UNTHROTTLED, cluster_ips
from tests.harness.objects import service_port
from tests.netns.commands.following import WatchedNode

PODS = {"web": "web-0", "near": "web-1", "far": "far-0"}
NAMES, NAMES_PORT = cluster_ips(9), 53
"""Of a Service that a program of the node answers instead, where it is not tracked: NodeLocal DNSCache."""
NARROW, USUAL = 1400, 1500
SILENCE = "icmp type destination-unreachable icmp code frag-needed drop; icmpv6 type packet-too-big drop"


def width(interface: str, mtu: int) -> str:
    return f"ip link set {interface} mtu {mtu}"


def put_services(watched: WatchedNode) -> None:
    watched.world.write_sysctls(NODE, UNTHROTTLED)
    for number, (name, pod) in enumerate(PODS.items(), start=1):
        watched.world[pod].serve(TARGET_PORT)
        watched.cluster.expose(name, *cluster_ips(number), pods=(pod,))
    watched.world[NODE].serve(NAMES_PORT, addresses=("0.0.0.0", "::"))
    watched.cluster.expose("names", *NAMES, pods=("web-0",), ports=(service_port(NAMES_PORT),))


def placed(watched: WatchedNode, text: str) -> str:
    """With the names of this kind of pods."""
    bridge = watched.cluster.world.topology.nodes[0].pod_bridge
    pods = sorted(watched.world[pod].address(Family.IPV4) for pod in ("web-0", "web-1"))
    pods6 = sorted(watched.world[pod].address(Family.IPV6) for pod in ("web-0", "web-1"))
    for name, value in (("pod6", pods6[0]), ("pod", pods[0]), ("wide", bridge or "web-0")):
        text = text.replace(f"{{{name}}}", value)
    return text
