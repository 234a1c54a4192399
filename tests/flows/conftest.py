"""The recorded flows as test parameters: `scenario` is each of them, by name."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodeagent.lab.net.topology import POD_BRIDGE, Node, OutsideHost, Pod, Topology
from nodeagent.model.addresses import Family, Protocol, parse_address
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import LABEL_ZONE, EndpointSlice, Service, key_of, service_of

ALL: list[dict[str, Any]] = json.loads((Path(__file__).parent / "flows.json").read_text())["scenarios"]


def canonical(address: str) -> str:
    found = parse_address(address)
    assert found is not None, address
    return found


@dataclass(frozen=True)
class Flow:
    """One connection and what was recorded to become of it. endpoints: (address, port)."""

    name: str
    source: str
    protocol: Protocol
    destination: str
    port: int
    expect: str
    endpoints: frozenset[tuple[str, int]]
    masquerade: bool | None

    @classmethod
    def of(cls, raw: dict[str, Any]) -> "Flow":
        endpoints = (text.rpartition(":") for text in raw.get("endpoints", ()))
        return cls(
            raw["name"],
            canonical(raw["sourceIP"]),
            Protocol[raw["protocol"]],
            canonical(raw["destIP"]),
            int(raw["destPort"]),
            raw["expect"],
            frozenset((canonical(address.strip("[]")), int(port)) for address, _, port in endpoints),
            raw["masquerade"],
        )

    def masquerades(self, address: str) -> bool:
        """Whether the source is rewritten when the endpoint at `address` is chosen: always for the client itself."""
        return bool(self.masquerade) or address == self.source


class Scenario:
    """Objects, configuration and flows; a Snapshot for the translation."""

    node = None
    service_cidrs = ()

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw
        config = raw["config"]
        self.name: str = raw["name"]
        self.family = Family(config["ipFamily"])
        self.node_name: str = config["nodeName"]
        self.zone: str | None = config["topologyLabels"].get(LABEL_ZONE)
        self.labels: dict[str, str] = config["topologyLabels"]
        self.node_address = canonical(config["nodeIP"])
        self.cluster_cidrs = tuple(filter(None, [config["detectLocal"].get("clusterCIDR")]))
        self.node_port_addresses: tuple[str, ...] = tuple(config["nodePortAddresses"])
        self.masquerade_all: bool = config["masqueradeAll"]
        self.service_cidr_texts: tuple[str, ...] = tuple(config["serviceCIDRs"])
        self.local_addresses = frozenset(canonical(address) for address in config["localIPs"])
        services = [msgspec.convert(item, Service) for item in raw["services"]]
        self.services = {key_of(service): service for service in services}
        self.slices = [msgspec.convert(item, EndpointSlice) for item in raw["endpointSlices"]]
        self.flows = [Flow.of(item) for item in raw["flows"]]

    def slices_of(self, service: ObjectKey) -> list[EndpointSlice]:
        return [item for item in self.slices if service_of(item) == service]

    @property
    def endpoint_places(self) -> dict[str, bool]:
        """First address of each endpoint → whether any slice has it on this node."""
        places: dict[str, bool] = {}
        for endpoint in (endpoint for item in self.slices for endpoint in item.endpoints or ()):
            if endpoint.addresses:
                address = canonical(endpoint.addresses[0])
                places[address] = places.get(address, False) or endpoint.node_name == self.node_name
        return places

    @property
    def cluster_ips(self) -> set[str]:
        """Of all services."""
        specs = [service.spec for service in self.services.values()]
        texts = [text for spec in specs for text in (*(spec.cluster_ips or ()), spec.cluster_ip)]
        return {address for text in texts if text and (address := parse_address(text))}

    @property
    def balancer_ips(self) -> set[str]:
        """Load-balancer addresses of all services."""
        statuses = [service.status.load_balancer for service in self.services.values() if service.status]
        entries = [entry for status in statuses if status for entry in status.ingress or ()]
        return {canonical(entry.ip) for entry in entries if entry.ip}


NODE, PODS, CLIENT, FAR, OUTSIDE, ELSEWHERE = "test-node", "pods", "client", "far", "outside", "elsewhere"
"""Members: the node, all endpoints on it, pods on it that only ask, other endpoints, hosts outside, and a host that has
every address which is nobody's here, reached only through the node."""


Roles = dict[str, str]


def within(address: str, cidrs: Iterable[str]) -> bool:
    return any(ip_address(address) in ip_network(cidr) for cidr in cidrs)


def roles_of(scenario: Scenario) -> Roles:
    """Address → member."""
    roles: Roles = dict.fromkeys(scenario.local_addresses, NODE)
    for address, local in scenario.endpoint_places.items():
        roles.setdefault(address, PODS if local else FAR)
    for flow in scenario.flows:
        # Who sends from a load-balancer address is the node that has it.
        pod = within(flow.source, scenario.cluster_cidrs)
        roles.setdefault(flow.source, NODE if flow.source in scenario.balancer_ips else CLIENT if pod else OUTSIDE)
    for flow in scenario.flows:
        if not (flow.destination in scenario.cluster_ips or within(flow.destination, scenario.service_cidr_texts)):
            roles.setdefault(flow.destination, ELSEWHERE)
    return roles


@dataclass
class Plan:
    """Scenarios that agree on who has which address, and so can play in one world."""

    roles: Roles = field(default_factory=dict)
    scenarios: list[Scenario] = field(default_factory=list)
    gateways: tuple[str, ...] = ("10.255.255.254", "fd00:10:ffff::fe")

    def takes(self, roles: Roles) -> bool:
        return all(self.roles.get(address, role) == role for address, role in roles.items())

    def addresses(self, role: str) -> tuple[str, ...]:
        """Of one member, without loopback; those of the Node object first, as they are the node's to send from."""
        primary = {scenario.node_address for scenario in self.scenarios}
        mine = [address for address, held in self.roles.items() if held == role and not ip_address(address).is_loopback]
        return tuple(sorted(mine, key=lambda address: (address not in primary, address)))

    def attracted(self) -> tuple[str, ...]:
        """What the underlay brings to the node: service CIDRs, and ClusterIPs outside of them."""
        cidrs = {cidr for scenario in self.scenarios for cidr in scenario.service_cidr_texts}
        targets = {flow.destination for scenario in self.scenarios for flow in scenario.flows} - set(self.roles)
        lone = {str(ip_network(address)) for address in targets if not within(address, cidrs)}
        return tuple(sorted(cidrs | lone))

    def topology(self) -> Topology:
        pods = tuple(Pod(name, self.addresses(name)) for name in (PODS, CLIENT) if self.addresses(name))
        node = Node(NODE, self.addresses(NODE), self.gateways, pods, self.attracted(), pod_bridge=POD_BRIDGE)
        hosts = (FAR, OUTSIDE, ELSEWHERE)
        return Topology(
            (node,), tuple(OutsideHost(name, self.addresses(name)) for name in hosts if self.addresses(name))
        )


def plans(scenarios: list[Scenario]) -> list[Plan]:
    """As few worlds as a first fit finds."""
    made: list[Plan] = []
    for scenario in scenarios:
        roles = roles_of(scenario)
        plan = next((plan for plan in made if plan.takes(roles)), None)
        if plan is None:
            made.append(plan := Plan())
        plan.roles |= roles
        plan.scenarios.append(scenario)
    return made


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`scenario`: each one. `placed`: each one with its plan, world by world."""
    if "scenario" in metafunc.fixturenames:
        metafunc.parametrize("scenario", [pytest.param(Scenario(raw), id=raw["name"]) for raw in ALL])
    if "placed" in metafunc.fixturenames:
        pairs = [(plan, scenario) for plan in plans([Scenario(raw) for raw in ALL]) for scenario in plan.scenarios]
        metafunc.parametrize("placed", [pytest.param(pair, id=pair[1].name) for pair in pairs])


@pytest.fixture(scope="session")
def all_scenarios() -> list[Scenario]:
    return [Scenario(raw) for raw in ALL]


@pytest.fixture(scope="session")
def worlds(all_scenarios: list[Scenario]) -> list[Plan]:
    return plans(all_scenarios)
