"""Decides the members of a lab: names, addresses and ranges, from a few numbers. Pure."""

from urllib.parse import urlsplit

from msgspec import Struct

from nodeagent.lab.net.topology import POD_BRIDGE, Node, OutsideHost, Pod, Topology
from nodeagent.model.addresses import family_of

PROGRAMS = ("ip", "nft", "setpriv", "openssl")
"""Programs that a machine needs for a lab."""
MOST_NODES = 50
MOST_PODS = 100
EMBEDDED = "embedded"

CONTROL = "control"
CLIENT = "client"
CONTROL_ADDRESSES = ("192.168.0.2", "2001:db8::a2")
"""Those of the first control-plane host; the others follow."""
CONTROL_PLANES = (1, 3, 5)
"""Allowed numbers; an even number of etcd members has no advantage."""
CLIENT_ADDRESSES = ("203.0.113.2", "2001:db8:ffff::2")
API_PORT = 6443
ETCD_PORT = 2379
ETCD_PEER_PORT = 2380
HEALTH_PORT = 10256

CLUSTER_CIDRS = ("10.244.0.0/16", "fd00:244::/32")
SERVICE_CIDRS = ("10.96.0.0/16", "fd00:10:96::/112")
DNS_ADDRESSES = ("10.96.0.10", "fd00:10:96::a")
"""Those of the DNS Service, if the API server is the lab's. Otherwise names are answered at OWN_DNS_ADDRESSES."""
OWN_DNS_ADDRESSES = ("169.254.20.10", "fd00:20::10")
DNS_PORT = 53
ZONE = "cluster.local"
LOAD_BALANCER_CIDRS = ("198.51.100.0/24", "2001:db8:100::/112")
ZONES = ("zone-a", "zone-b")

SERVICE = "echo"
SERVICE_PORT = 80
TARGET_PORT = 8080
LABELS = {"app": "echo"}
"""Labels of every pod, and selector of the lab's own service."""

FIRST_POD_HOST = 10
LAST_POD_HOST = 249
CALLER_HOST = 250


class Settings(Struct, frozen=True):
    """How a lab is built; `check` validates it.

    api: ``embedded``, or the URL of a running server; then credentials may be a kubeconfig to take them from.
    agent_options: additional options of every node's `nodeagent run`. dns: whether nodes answer names. page: whether
    there is a page. control_planes: hosts with an API server; if there are several, each has an etcd member, run by the
    program `etcd`. faketime: the preload library that changes the clock of one of them; empty: the machine's, if it is
    installed.
    """

    name: str = "lab"
    nodes: int = 3
    pods: int = 2
    ipv6: bool = False
    api: str = EMBEDDED
    credentials: str = ""
    agent_options: tuple[str, ...] = ()
    dns: bool = True
    page: bool = True
    control_planes: int = 1
    etcd: str = ""
    faketime: str = ""

    @property
    def embedded(self) -> bool:
        return self.api == EMBEDDED

    def check(self) -> None:
        """Raises ValueError for the first invalid setting."""
        if not 1 <= self.nodes <= MOST_NODES:
            raise ValueError(f"--nodes {self.nodes}: from 1 to {MOST_NODES}")
        if not 0 <= self.pods <= MOST_PODS:
            raise ValueError(f"--pods {self.pods}: from 0 to {MOST_PODS}, on each node")
        if not self.embedded and not is_server(self.api):
            raise ValueError(f"--api {self.api!r} is neither 'embedded' nor an http:// or https:// URL of a server")
        if self.credentials and self.embedded:
            raise ValueError("--api-kubeconfig is for a server given with --api; the embedded one makes its own")
        if self.control_planes not in CONTROL_PLANES:
            raise ValueError(f"--control-planes {self.control_planes}: 1, 3 or 5")
        if self.several and not self.embedded:
            raise ValueError("--control-planes is for API servers of the lab, not for one given with --api")

    @property
    def several(self) -> bool:
        """Whether there are several control-plane hosts, with etcd."""
        return self.control_planes > 1

    @property
    def dns_addresses(self) -> tuple[str, ...]:
        """The addresses of the DNS servers; empty in a lab without DNS."""
        return self.of_families(DNS_ADDRESSES if self.embedded else OWN_DNS_ADDRESSES) if self.dns else ()

    def of_families(self, pair: tuple[str, str]) -> tuple[str, ...]:
        """Returns the IPv4 item of a pair; in a dual-stack lab also the IPv6 item."""
        return pair if self.ipv6 else pair[:1]


def is_server(url: str) -> bool:
    """Returns whether the URL has a host and, if it has a port, a valid one."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def node_name(number: int) -> str:
    """Returns a node's name; nodes are counted from 1."""
    return f"node-{number}"


def pod_name(node: int, number: int) -> str:
    """Returns a pod's name; the pods of a node are counted from 1, and a number is not used again."""
    return f"{SERVICE}-{node}-{number}"


def caller_name(node: int) -> str:
    """Returns the name of the node's pod that only sends requests."""
    return f"caller-{node}"


def pod_at(settings: Settings, node: int, number: int, taken: frozenset[str] = frozenset()) -> Pod:
    """Returns pod `number` of a node, at the first free address. Raises ValueError if no address is free."""
    for host in range(FIRST_POD_HOST, LAST_POD_HOST):
        addresses = settings.of_families((f"10.244.{node}.{host}", f"fd00:244:{node:x}::{host:x}"))
        if not taken.intersection(addresses):
            return Pod(pod_name(node, number), addresses)
    raise ValueError(f"no address is left on {node_name(node)}")


def node_at(settings: Settings, number: int, pod_bridge: str) -> Node:
    """Returns node `number` with its first pods, and one more pod that is not an endpoint and only sends requests."""
    pods: list[Pod] = []
    for each in range(1, settings.pods + 1):
        taken = frozenset(address for pod in pods for address in pod.addresses)
        pods.append(pod_at(settings, number, each, taken))
    caller = (f"10.244.{number}.{CALLER_HOST}", f"fd00:244:{number:x}::{CALLER_HOST:x}")
    pods.append(Pod(caller_name(number), settings.of_families(caller)))
    return Node(
        node_name(number),
        settings.of_families((f"192.168.0.{10 + number}", f"2001:db8::{10 + number:x}")),
        settings.of_families((f"10.244.{number}.1", f"fd00:244:{number:x}::1")),
        tuple(pods),
        settings.of_families(LOAD_BALANCER_CIDRS),
        settings.of_families((f"10.244.{number}.0/24", f"fd00:244:{number:x}::/64")),
        pod_bridge,
    )


def control_hosts(settings: Settings) -> tuple[OutsideHost, ...]:
    """Returns the control-plane hosts: `control`, or `control-1` …"""
    if not settings.several:
        return (OutsideHost(CONTROL, settings.of_families(CONTROL_ADDRESSES)),)
    return tuple(
        OutsideHost(
            f"{CONTROL}-{number}", settings.of_families((f"192.168.0.{1 + number}", f"2001:db8::a{1 + number}"))
        )
        for number in range(1, settings.control_planes + 1)
    )


def member_name(host: str) -> str:
    """Returns the name of the etcd member on a control-plane host."""
    return f"etcd-{host.rpartition('-')[2]}"


def plan(settings: Settings, pod_bridge: str = POD_BRIDGE) -> Topology:
    """Returns nodes with pods, control-plane hosts, the client outside. pod_bridge: of each node, or NO_BRIDGE."""
    nodes = tuple(node_at(settings, number, pod_bridge) for number in range(1, settings.nodes + 1))
    client = OutsideHost(CLIENT, settings.of_families(CLIENT_ADDRESSES))
    return Topology(nodes, (*control_hosts(settings), client))


def resolv_conf(server: str, namespace: str) -> str:
    """Returns what a container runtime writes for a pod of this namespace with dnsPolicy ClusterFirst."""
    search = " ".join((f"{namespace}.svc.{ZONE}", f"svc.{ZONE}", ZONE))
    return f"search {search}\nnameserver {server}\noptions ndots:5\n"


def api_address() -> str:
    """Returns the address inside the lab of the API server, of several the first one."""
    return CONTROL_ADDRESSES[0]


def api_urls(settings: Settings) -> tuple[str, ...]:
    """Returns the URLs of the lab's own API servers, for the inside."""
    return tuple(f"https://{host.addresses[0]}:{API_PORT}" for host in control_hosts(settings))


def families_of(settings: Settings) -> tuple[str, ...]:
    """Returns the names of the IP families."""
    return tuple(family_of(address).value for address in settings.of_families(CLIENT_ADDRESSES))
