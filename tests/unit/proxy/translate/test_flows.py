"""The recorded packet flows, answered from the translation alone.

Each packet is taken through the frontends of the scenario's services the way the dataplane would: source ranges,
dispatch by destination, policy by source, masquerade. What the kernel makes of it is tested elsewhere with the same
data.
"""

import json
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodeagent.model.addresses import Family, Protocol, family_of, parse_address
from nodeagent.model.frontend import Frontend, FrontendKind, Route, ServiceState, Unserved
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import LABEL_ZONE, EndpointSlice, Service, key_of, service_of
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.node_ports import node_port_cidrs
from nodeagent.proxy.translate.translator import Translator

Scenario = dict[str, Any]
Outcome = tuple[str, frozenset[str], bool | None]

SCENARIOS: list[Scenario] = json.loads((Path(__file__).parents[3] / "flows" / "flows.json").read_text())["scenarios"]


class ScenarioSnapshot:
    """The objects of one scenario."""

    node = None
    service_cidrs = ()

    def __init__(self, scenario: Scenario) -> None:
        services = [msgspec.convert(item, Service) for item in scenario["services"]]
        self.services = {key_of(service): service for service in services}
        self._slices = [msgspec.convert(item, EndpointSlice) for item in scenario["endpointSlices"]]

    def slices_of(self, service: ObjectKey) -> list[EndpointSlice]:
        return [item for item in self._slices if service_of(item) == service]


class Node:
    """A node that does with a packet what the translated frontends say."""

    def __init__(self, scenario: Scenario) -> None:
        config = scenario["config"]
        self.detector: str | None = config["detectLocal"].get("clusterCIDR")
        self.masquerade_all: bool = config["masqueradeAll"]
        self.local: set[str] = {str(parse_address(address)) for address in config["localIPs"]}
        self.service_cidrs: list[str] = config["serviceCIDRs"]
        context = Context(
            node_name=config["nodeName"],
            zone=config["topologyLabels"].get(LABEL_ZONE),
            families=(Family(config["ipFamily"]),),
            node_addresses=(config["nodeIP"],),
            detects_pods=self.detector is not None,
        )
        self.node_port_cidrs = node_port_cidrs(config["nodePortAddresses"], context, [])
        translator = Translator()
        translator.update(ScenarioSnapshot(scenario), None, context)
        self.states: list[ServiceState] = list(translator.states.values())
        self.frontends: dict[Any, Frontend] = {f.place: f for state in self.states for f in state.frontends}

    def receive(self, source: str, protocol: Protocol, destination: str, port: int) -> Outcome:
        """What becomes of the first packet of a connection."""
        frontend = self.frontend(protocol, destination, port)
        if frontend is None:
            return self.unclaimed(destination), frozenset(), None
        allowed = frontend.allowed_sources
        if allowed is not None and not within(source, allowed):
            return "DROP", frozenset(), None
        pod = self.detector is not None and within(source, [self.detector])
        route, short_circuited = frontend.route, False
        if frontend.short_circuit is not None and (pod or source in self.local):
            route, short_circuited = frontend.short_circuit, True
        if not route.backends:
            return {Unserved.REFUSE: "REJECT", Unserved.DROP: "DROP"}[route.otherwise], frozenset(), None
        if frontend.kind is FrontendKind.CLUSTER_IP:
            masquerade = self.masquerade_all or (self.detector is not None and not pod)
        else:
            masquerade = frontend.masquerade or (short_circuited and not pod)
        return "ENDPOINTS", spelled(route), masquerade

    def frontend(self, protocol: Protocol, destination: str, port: int) -> Frontend | None:
        family = family_of(destination)
        found = self.frontends.get((family, destination, protocol, port))
        if found is None and destination in self.local and within(destination, self.node_port_cidrs):
            return self.frontends.get((family, None, protocol, port))
        return found

    def unclaimed(self, destination: str) -> str:
        if any(destination in state.cluster_ips for state in self.states):
            return "REJECT"
        return "DROP" if within(destination, self.service_cidrs) else "NONE"


def within(address: str, cidrs: Any) -> bool:
    return any(ip_address(address) in ip_network(cidr) for cidr in cidrs)


def spelled(route: Route) -> frozenset[str]:
    return frozenset(f"[{b.address}]:{b.port}" if ":" in b.address else f"{b.address}:{b.port}" for b in route.backends)


@pytest.mark.parametrize("scenario", [pytest.param(scenario, id=scenario["name"]) for scenario in SCENARIOS])
def test_every_packet_of_a_recorded_scenario_has_the_recorded_outcome(scenario: Scenario) -> None:
    node = Node(scenario)
    for flow in scenario["flows"]:
        source, destination = (str(parse_address(flow[end])) for end in ("sourceIP", "destIP"))
        outcome, endpoints, masquerade = node.receive(
            source, Protocol[flow["protocol"]], destination, int(flow["destPort"])
        )
        assert (outcome, endpoints) == (flow["expect"], frozenset(flow.get("endpoints", ()))), flow["name"]
        if outcome == "ENDPOINTS":
            hairpin = any(endpoint.rpartition(":")[0].strip("[]") == source for endpoint in endpoints)
            assert masquerade == flow["masquerade"] or (hairpin and flow["masquerade"]), flow["name"]


@pytest.mark.parametrize(
    "scenario",
    [pytest.param(scenario, id=scenario["name"]) for scenario in SCENARIOS if "healthCheckNodePorts" in scenario],
)
def test_a_health_check_port_reports_the_recorded_number_of_local_endpoints(scenario: Scenario) -> None:
    states = {str(state.key): state.health_check for state in Node(scenario).states if state.health_check}
    assert {name: check.port for name, check in states.items()} == scenario["healthCheckNodePorts"]
    local = {name: check.local_endpoints[Family(scenario["config"]["ipFamily"])] for name, check in states.items()}
    assert {name: count for name, count in local.items() if count} == scenario["localReadyEndpoints"]
