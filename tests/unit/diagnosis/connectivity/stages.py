"""A cluster as values: nodes with their three pods, and every Service."""

from nodeagent.diagnosis.connectivity.objects import (
    BALANCER,
    ELSEWHERE,
    EMPTY,
    EVERY,
    EXTERNAL,
    EXTERNAL_IP,
    HEADLESS,
    INTERNAL,
    STICKY,
    service_of_node,
)
from nodeagent.diagnosis.connectivity.stage import (
    Addresses,
    ClusterResolver,
    DeployedNode,
    DeployedObjects,
    DeployedPod,
    DeployedService,
)
from nodeagent.model.addresses import Family, Protocol

NAMESPACE = "nodeagent-connectivity-test"
IPV4 = (Family.IPV4,)
BOTH_FAMILIES = (Family.IPV4, Family.IPV6)
RESOLVER = ClusterResolver("10.96.0.10", "cluster.local")


def addresses(families: tuple[Family, ...], ipv4: str, ipv6: str) -> Addresses:
    """One of each of these families."""
    return {family: ipv4 if family is Family.IPV4 else ipv6 for family in families}


def node(number: int, families: tuple[Family, ...]) -> DeployedNode:
    own = addresses(families, f"192.0.2.{number}", f"2001:db8::{number}")

    def pod(role: str, last: int) -> DeployedPod:
        return DeployedPod(
            f"{role}-{number}", addresses(families, f"10.244.{number}.{last}", f"fd00:244:0:{number}::{last}")
        )

    return DeployedNode(f"n{number}", own, pod("server", 1), pod("client", 2), DeployedPod(f"host-{number}", own))


def stage(
    count: int = 2,
    families: tuple[Family, ...] = IPV4,
    *,
    resolver: ClusterResolver = RESOLVER,
    refused: dict[str, str] | None = None,
    unreachable: dict[Family, str] | None = None,
    outer_is_routed: bool = False,
) -> DeployedObjects:
    """Nodes n1, n2, …; Services with ClusterIPs 10.96.0.100, 101, … and the node ports 30100, …"""
    names = [*map(service_of_node, range(count)), EVERY, STICKY, HEADLESS, EMPTY, INTERNAL, EXTERNAL, ELSEWHERE]
    services = {}
    for place, name in enumerate(names, 100):
        ips = {} if name == HEADLESS else addresses(families, f"10.96.0.{place}", f"fd00:10:96::{place}")
        ports = {Protocol.TCP: 30000 + place, Protocol.UDP: 31000 + place}
        has_ports = name in (EXTERNAL, ELSEWHERE) or name.startswith("server-")
        services[name] = DeployedService(name, ips, ports if has_ports else {})
    return DeployedObjects(
        namespace=NAMESPACE,
        nodes=tuple(node(number, families) for number in range(1, count + 1)),
        services=services,
        families=families,
        outer_addresses={
            BALANCER: addresses(families, "198.51.100.77", "2001:db8:ffff::77"),
            EXTERNAL_IP: addresses(families, "198.51.100.78", "2001:db8:ffff::78"),
        },
        resolver=resolver,
        refused=refused or {},
        unreachable=unreachable or {},
        outer_is_routed=outer_is_routed,
    )
