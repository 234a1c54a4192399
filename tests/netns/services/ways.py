"""Services with an address of every kind, and where each is reached; all follow from the number of the Service."""

from collections.abc import Sequence

from nodeagent.model.addresses import Family, Protocol, family_of
from nodeagent.model.objects import Service, ServiceSpec
from tests.harness.cluster import cluster_ips
from tests.harness.objects import make_service, service_port

NODE_ADDRESSES = ("192.168.0.2", "2001:db8::2")
GATEWAYS = ("10.244.1.1", "fd00:244:1::1")
EXTERNAL = ("NodePort", "LoadBalancer", "ExternalIP")


def node_port(number: int) -> int:
    return 30000 + number


def vips(number: int) -> tuple[str, str]:
    return f"198.51.100.{number}", f"2001:db8:100::{number}"


def external_ips(number: int) -> tuple[str, str]:
    return f"198.51.100.{100 + number}", f"2001:db8:100::{100 + number}"


def build(name: str, number: int, *, external: str = "Cluster", internal: str = "Cluster") -> Service:
    ports = (
        service_port(80, name="http", node_port=node_port(number)),
        service_port(80, Protocol.UDP, name="dns", node_port=node_port(number)),
    )
    spec = ServiceSpec(
        external_ips=external_ips(number), external_traffic_policy=external, internal_traffic_policy=internal
    )
    return make_service(name, *cluster_ips(number), ports=ports, load_balancer_ips=vips(number), spec=spec)


def of(family: Family, addresses: Sequence[str]) -> str:
    return next(address for address in addresses if family_of(address) is family)


def place(kind: str, number: int, family: Family) -> tuple[str, int]:
    """Where a service is reached in this way."""
    if kind == "NodePort":
        return of(family, NODE_ADDRESSES), node_port(number)
    addresses = {"LoadBalancer": vips, "ExternalIP": external_ips, "ClusterIP": cluster_ips}[kind](number)
    return of(family, addresses), 80
