"""What must become of a connection: the rules of a Kubernetes service proxy, written down a second time.

Straight-line and slow on purpose: every question is answered from the objects as they come, as JSON-shaped dicts, with
nothing prepared and nothing shared with the program under test. Sources: the API reference of Service, EndpointSlice
and Node, the KEPs named below, kube-proxy 1.36 in nftables mode, and this project's decisions 0010 (source ranges),
0011 (address conflicts) and 0012 (node ports) where they differ from it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

import pytest

Json = dict[str, Any]
Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Place = tuple[Address, str, int]
LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))


@dataclass(frozen=True)
class Client:
    """Who connects. kind: `pod` (through an interface of a pod on this node), `node` (this node), `outside`."""

    address: str
    kind: str


@dataclass(frozen=True)
class Settings:
    """detector: `none`, `cluster-cidr`, `node-cidr` or `interface`. local_addresses: what the node's interfaces hold."""

    node_name: str
    detector: str = "none"
    cluster_cidrs: tuple[str, ...] = ()
    node_port_addresses: tuple[str, ...] = ()
    service_cidrs: tuple[str, ...] = ()
    masquerade_all: bool = False
    external_ips_enabled: bool = True
    local_addresses: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Answer:
    """`endpoints`, `refuse`, `drop` or `none`. endpoints: (address, port) → whether the source is rewritten.

    affinity: under what the client's endpoint is remembered (a list of a service port); None: it is not.
    """

    verdict: str
    endpoints: Mapping[tuple[str, int], bool] = field(default_factory=dict)
    affinity: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Endpoint:
    """An endpoint of one service port, its conditions with their defaults."""

    address: Address
    port: int
    ready: bool
    serving: bool
    terminating: bool
    local: bool
    zones: tuple[str, ...]
    nodes: tuple[str, ...]


class Semantics:
    """One family's half of the proxy on one node."""

    def __init__(
        self, family: str, services: Sequence[Json], slices: Sequence[Json], node: Json | None, settings: Settings
    ) -> None:
        self.family = family
        self.version = 4 if family == "IPv4" else 6
        self.settings = settings
        self.slices = slices
        self.node: Json = node or {}
        self.local = {ip_address(text) for text in settings.local_addresses}
        self.services = [service for service in services if self.cluster_ip(service)]
        self.services.sort(key=seniority)

    def answer(self, client: Client, destination: str, protocol: str, port: int) -> Answer:
        """What becomes of a connection's first packet."""
        source, target = ip_address(client.address), ip_address(destination)
        for kind in ("cluster", "address"):
            for service in self.services:
                for service_port in service["spec"].get("ports") or ():
                    if (service_port.get("protocol") or "TCP", service_port["port"]) != (protocol, port):
                        continue
                    if kind == "cluster" and target == self.cluster_ip(service):
                        return self.internal(client, source, service, service_port)
                    if kind == "address" and not self.is_cluster_ip(target):
                        if target in self.load_balancer_ips(service):
                            if not self.admits(service, source):
                                return Answer("drop")
                            return self.external(client, source, service, service_port)
                        if target in self.external_ips(service):
                            return self.external(client, source, service, service_port)
        if self.is_cluster_ip(target):
            return Answer("refuse")
        if any(target in cidr for cidr in self.service_ranges()):
            return Answer("drop")
        if self.takes_node_ports(target):
            for service in self.services:
                for service_port in service["spec"].get("ports") or ():
                    if (service_port.get("protocol") or "TCP", service_port.get("nodePort") or 0) == (protocol, port):
                        return self.external(client, source, service, service_port)
        return Answer("none")

    # Services and their addresses.

    def cluster_ip(self, service: Json) -> Address | None:
        """Of this family; None: this half does not see the service at all, its other addresses included."""
        spec = service["spec"]
        if "service.kubernetes.io/service-proxy-name" in (service["metadata"].get("labels") or {}):
            return None
        if spec.get("type") == "ExternalName" or spec.get("clusterIP") in (None, "", "None"):
            return None
        if not spec.get("ipFamilies"):
            return self.parsed(spec["clusterIP"])
        for text, family in zip(spec.get("clusterIPs") or (), spec["ipFamilies"], strict=False):
            if family == self.family:
                return self.parsed(text)
        return None

    def is_cluster_ip(self, address: Address) -> bool:
        """A ClusterIP is its Service's alone, with all ports (decision 0011)."""
        return any(address == self.cluster_ip(service) for service in self.services)

    def external_ips(self, service: Json) -> set[Address]:
        if not self.settings.external_ips_enabled:
            return set()
        return set(self.usable(service["spec"].get("externalIPs") or ()))

    def load_balancer_ips(self, service: Json) -> set[Address]:
        """Those the load balancer leaves to us (KEP-1860)."""
        ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
        return set(self.usable(i["ip"] for i in ingress if i.get("ip") and i.get("ipMode") in (None, "VIP")))

    def admits(self, service: Json, source: Address) -> bool:
        """loadBalancerSourceRanges; none of this family that is valid: anyone (decision 0010)."""
        ranges = self.networks(service["spec"].get("loadBalancerSourceRanges") or ())
        if not ranges or any(source in network for network in ranges):
            return True
        node_may = any(address in network for address in self.node_addresses()[:1] for network in ranges)
        return node_may and source in self.load_balancer_ips(service)

    def takes_node_ports(self, target: Address) -> bool:
        """Decision 0012."""
        if target not in self.local or any(
            target in network for network in LOOPBACK if network.version == self.version
        ):
            return False
        texts = [text.strip() for text in self.settings.node_port_addresses]
        if texts == ["all"]:
            return True
        if texts in ([], ["primary"]):
            return target in self.node_addresses()[:1]
        mine = self.networks(texts)
        return any(target in network for network in mine) if mine else any(map(network_of, texts))

    def node_addresses(self) -> list[Address]:
        """The Node's, internal ones first; the first one is its address in this family."""
        listed = (self.node.get("status") or {}).get("addresses") or ()
        by_kind = [a["address"] for kind in ("InternalIP", "ExternalIP") for a in listed if a["type"] == kind]
        return [address for address in map(self.parsed, by_kind) if address is not None]

    # Endpoints.

    def endpoints(self, service: Json, service_port: Json) -> list[Endpoint]:
        """The union of all slices; of equals, one that is not terminating wins."""
        found: dict[tuple[Address, int], Endpoint] = {}
        for endpoint in self.listed(service, service_port.get("name") or "", service_port.get("protocol") or "TCP"):
            key = (endpoint.address, endpoint.port)
            if key not in found or found[key].terminating:
                found[key] = endpoint
        return list(found.values())

    def listed(self, service: Json, name: str, protocol: str) -> Iterator[Endpoint]:
        metadata = service["metadata"]
        for each in self.slices:
            labels = each["metadata"].get("labels") or {}
            named = (each["metadata"]["namespace"], labels.get("kubernetes.io/service-name"))
            belongs = named == (metadata["namespace"], metadata["name"])
            if not belongs or "service.kubernetes.io/headless" in labels or each["addressType"] != self.family:
                continue
            for port in each.get("ports") or ():
                if port.get("name") != name or (port.get("protocol") or "TCP") != protocol or not port.get("port"):
                    continue
                for item in each.get("endpoints") or ():
                    for address in self.usable((item.get("addresses") or ())[:1]):
                        yield self.endpoint(item, address, port["port"])

    def endpoint(self, item: Json, address: Address, port: int) -> Endpoint:
        conditions, hints = item.get("conditions") or {}, item.get("hints") or {}
        return Endpoint(
            address,
            port,
            ready=conditions.get("ready") in (None, True),
            serving=conditions.get("serving") in (None, True),
            terminating=conditions.get("terminating") is True,
            local=item.get("nodeName") == self.settings.node_name,
            zones=tuple(hint["name"] for hint in hints.get("forZones") or ()),
            nodes=tuple(hint["name"] for hint in hints.get("forNodes") or ()),
        )

    def narrow_by_topology(self, ready: list[Endpoint]) -> list[Endpoint]:
        """Topology: node hints, else zone hints, else all (KEP-2433, KEP-3015)."""
        zone = ((self.node.get("metadata") or {}).get("labels") or {}).get("topology.kubernetes.io/zone")
        on_node = [e for e in ready if self.settings.node_name in e.nodes]
        if on_node and all(e.nodes for e in ready):
            return on_node
        in_zone = [e for e in ready if zone and zone in e.zones]
        if in_zone and all(e.zones for e in ready):
            return in_zone
        return ready

    def everywhere(self, endpoints: list[Endpoint]) -> list[Endpoint]:
        ready = [e for e in endpoints if e.ready]
        return self.narrow_by_topology(ready) if ready else [e for e in endpoints if e.serving and e.terminating]

    def here(self, endpoints: list[Endpoint]) -> list[Endpoint]:
        ready = [e for e in endpoints if e.local and e.ready]
        return ready or [e for e in endpoints if e.local and e.serving and e.terminating]

    # Policies and masquerade.

    def internal(self, client: Client, source: Address, service: Json, service_port: Json) -> Answer:
        all_endpoints = self.endpoints(service, service_port)
        local = service["spec"].get("internalTrafficPolicy") == "Local"
        if not self.everywhere(all_endpoints):
            return Answer("refuse")
        chosen = self.here(all_endpoints) if local else self.everywhere(all_endpoints)
        rewrite = self.settings.masquerade_all or (self.detects() and not self.is_pod(client, source))
        # A source that is a ClusterIP is this node's, which holds it; no answer from elsewhere would come to it.
        rewrite = rewrite or (client.kind == "node" and source.version == 4 and self.is_cluster_ip(source))
        affinity = self.affinity(service, service_port, "here" if local else "everywhere")
        return self.towards(client, source, chosen, affinity, rewrite=rewrite)

    def external(self, client: Client, source: Address, service: Json, service_port: Json) -> Answer:
        all_endpoints = self.endpoints(service, service_port)
        spec = service["spec"]
        honoured = spec.get("type") in ("NodePort", "LoadBalancer") or bool(spec.get("externalIPs"))
        if not self.everywhere(all_endpoints):
            return Answer("refuse")
        cluster_wide = self.everywhere(all_endpoints), self.affinity(service, service_port, "everywhere")
        if not (honoured and spec.get("externalTrafficPolicy") == "Local"):
            return self.towards(client, source, *cluster_wide, rewrite=True)
        # kube-proxy asks for pods first; a node that sends from the gateway address of its pods is still the node.
        if source in self.local:
            return self.towards(client, source, *cluster_wide, rewrite=True)
        if self.is_pod(client, source):
            return self.towards(client, source, *cluster_wide, rewrite=False)
        affinity = self.affinity(service, service_port, "here")
        return self.towards(client, source, self.here(all_endpoints), affinity, rewrite=False)

    @staticmethod
    def affinity(service: Json, service_port: Json, which: str) -> tuple[str, ...] | None:
        """All addresses of a service port share what is remembered; its two lists do not."""
        if service["spec"].get("sessionAffinity") != "ClientIP":
            return None
        protocol = service_port.get("protocol") or "TCP"
        return (service["metadata"]["name"], service_port.get("name") or "", protocol, which)

    def detects(self) -> bool:
        if self.settings.detector == "cluster-cidr":
            return bool(self.networks(self.settings.cluster_cidrs))
        return self.settings.detector != "none"

    def is_pod(self, client: Client, source: Address) -> bool:
        """Of a list of cluster CIDRs the first one of a family counts."""
        if self.settings.detector == "interface":
            return client.kind == "pod"
        if self.settings.detector == "cluster-cidr":
            return any(source in network for network in self.networks(self.settings.cluster_cidrs)[:1])
        if self.settings.detector == "node-cidr":
            return any(source in n for n in self.networks((self.node.get("spec") or {}).get("podCIDRs") or ()))
        return False

    def towards(
        self,
        client: Client,
        source: Address,
        chosen: list[Endpoint],
        affinity: tuple[str, ...] | None,
        *,
        rewrite: bool,
    ) -> Answer:
        """The list, or a drop: who gets an empty one knows that there are endpoints elsewhere."""
        if not chosen:
            return Answer("drop")
        answers = {}
        for endpoint in chosen:
            hairpin = endpoint.local and endpoint.address == source
            rewritten = rewrite or hairpin
            stays = endpoint.address in self.local and client.kind != "node"
            answers[(str(endpoint.address), endpoint.port)] = rewritten and not stays
        return Answer("endpoints", answers, affinity)

    # Texts.

    def parsed(self, text: str) -> Address | None:
        address = address_of(text)
        return address if address is not None and address.version == self.version else None

    def usable(self, texts: Any) -> Iterator[Address]:
        """Valid addresses of this family that can be a service's or an endpoint's (validation of the API server)."""
        for address in map(self.parsed, texts):
            special = address is None or address.is_loopback or address.is_unspecified or address.is_multicast
            if address is not None and not special and not address.is_link_local:
                yield address

    def service_ranges(self) -> list[Network]:
        """Without those that would cut pods off."""
        spec = self.node.get("spec") or {}
        of_node = spec.get("podCIDRs") or (spec.get("podCIDR") or "",)
        pods = self.networks((*self.settings.cluster_cidrs, *of_node))
        ranges = self.networks(self.settings.service_cidrs)
        return [each for each in ranges if not any(each.overlaps(other) for other in pods)]

    def networks(self, texts: Sequence[str]) -> list[Network]:
        return [n for n in map(network_of, texts) if n is not None and n.version == self.version]


def seniority(service: Json) -> tuple[bool, str, str, str]:
    """Who goes first where two Services claim the same (decision 0011)."""
    metadata = service["metadata"]
    created = metadata.get("creationTimestamp")
    return (created is None, created or "", metadata["namespace"], metadata["name"])


def address_of(text: str) -> Address | None:
    """Leading zeros are decimal."""
    if "." in text and ":" not in text:
        text = ".".join(part.lstrip("0") or "0" for part in text.split("."))
    try:
        return ip_address(text)
    except ValueError:
        return None


def network_of(text: str) -> Network | None:
    address, slash, length = text.strip().partition("/")
    parsed = address_of(address)
    if parsed is None or not slash:
        return None
    try:
        return ip_network(f"{parsed}/{length}", strict=False)
    except ValueError:
        return None


@pytest.fixture(scope="session")
def semantics() -> type[Semantics]:
    """The model itself."""
    return Semantics


@pytest.fixture(scope="session")
def client() -> type[Client]:
    return Client


@pytest.fixture(scope="session")
def settings_of_model() -> type[Settings]:
    return Settings
