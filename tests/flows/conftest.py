"""The recorded flows as test parameters: `scenario` is each of them, by name."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

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
    def pod_side_endpoints(self) -> frozenset[str]:
        """First addresses of all endpoints on this node."""
        return frozenset(
            canonical(endpoint.addresses[0])
            for item in self.slices
            for endpoint in item.endpoints or ()
            if endpoint.addresses and endpoint.node_name == self.node_name
        )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "scenario" in metafunc.fixturenames:
        metafunc.parametrize("scenario", [pytest.param(Scenario(raw), id=raw["name"]) for raw in ALL])


@pytest.fixture(scope="session")
def all_scenarios() -> list[Scenario]:
    return [Scenario(raw) for raw in ALL]
