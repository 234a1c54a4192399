"""Every recorded flow as a real connection through a node that runs the agent.

Who sends is who was recorded to send: pods, hosts outside, the node itself, each with that very address. Scenarios in
which addresses have the same places share a world; the agent runs once per scenario and finds the table of the one
before.

Before anybody sends, `nodeagent trace` is asked, and what it says must be what happens.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent.diagnosis.trace.journey import End, Journey, journeys
from nodeagent.diagnosis.trace.kernel_routes import KernelRoutes
from nodeagent.diagnosis.trace.looking import read_node
from nodeagent.diagnosis.trace.question import Question
from nodeagent.lab.net.actor_messages import Answer, Failure
from nodeagent.lab.net.network_namespaces import inside
from nodeagent.model.addresses import Protocol
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from tests.harness.lost_packets import PATIENT
from tests.harness.plain_api_server import plain_api_server
from tests.harness.stopwatch import once_within
from tests.harness.warm_start import AGENT, WarmLauncher
from tests.harness.worlds.world import World

pytestmark = pytest.mark.kernel

AS_WRITTEN = frozenset({"slice port with nil name ignored"})
"""Scenarios with fields that a manifest cannot leave out: its port without a name has the empty one. A server gives them."""

NODE, ELSEWHERE = "test-node", "elsewhere"
RUN_ONCE = (*AGENT, "run", "--once", "--allow-problems", "--node-name", NODE, "--conntrack-max-per-core", "0")
VIA_NODE = 100
FATES = {"ENDPOINTS": End.ARRIVED, "REJECT": End.REFUSED, "DROP": End.DROPPED, "NONE": End.ARRIVED}
DROPPED_AFTER = 0.25
REFUSED_WITHIN = 0.2
CHANCE_TO_MISS = 1e-7


class Stage:
    """The world of one plan, the servers in it, and the agent on its node."""

    def __init__(self, plan: Any, world: World, manifests: Path) -> None:
        self.plan = plan
        self._world = world
        self._manifests = manifests
        self._served: set[tuple[Protocol, str, int]] = set()
        self._lead_through_node()

    def _lead_through_node(self) -> None:
        """Traffic to an address elsewhere passes the node, as if the node announced it; the node gets out."""
        for address in self.plan.addresses(ELSEWHERE):
            node = next(mine for mine in self.plan.addresses(NODE) if (":" in mine) == (":" in address))
            for command in (
                f"route add {address} via {node} dev {NODE} onlink table {VIA_NODE}",
                f"rule add pref 1 to {address} iif {NODE} lookup main",
                f"rule add pref 2 to {address} lookup {VIA_NODE}",
            ):
                self._world.run("underlay", ["ip", "-6" if ":" in address else "-4", *command.split()])

    def perform(self, scenario: Any) -> None:
        """Let everybody serve, write the manifests, run the agent to its end."""
        self.keeps_node_source = bool(scenario.cluster_cidrs) and not scenario.masquerade_all
        for flow in scenario.flows:
            for address, port in flow.endpoints:
                self._serve(flow.protocol, address, port)
            self._serve_on_node(flow)
            if flow.expect == "NONE" and self.plan.roles[flow.destination] != NODE:
                self._serve(flow.protocol, flow.destination, flow.port)
        options = [
            *("--cluster-cidr", ",".join(scenario.cluster_cidrs)),
            *("--nodeport-addresses", ",".join(scenario.node_port_addresses)),
            *("--masquerade-all", str(scenario.masquerade_all).lower()),
        ]
        if scenario.name in AS_WRITTEN:
            kubeconfig = self._manifests.with_name(f"{self._manifests.name}.kubeconfig")
            with plain_api_server(self._world.namespace(NODE), documents(scenario), kubeconfig):
                self._world.run(NODE, [*RUN_ONCE, "--kubeconfig", str(kubeconfig), *options])
            return
        for old in self._manifests.iterdir():
            old.unlink()
        for number, document in enumerate(documents(scenario)):
            (self._manifests / f"{number}.yaml").write_text(yaml.safe_dump(document))
        self._world.run(NODE, [*RUN_ONCE, "--manifests", str(self._manifests), *options])

    def _serve(self, protocol: Protocol, address: str, port: int) -> None:
        """Once per world."""
        if (protocol, address, port) not in self._served:
            self._served.add((protocol, address, port))
            self._world[self.plan.roles[address]].serve(port, protocol, addresses=(address,))

    def _serve_on_node(self, flow: Any) -> None:
        """A daemon of the host that listens on all its addresses: nothing of a service may ever end there."""
        anywhere = "::" if ":" in flow.destination else "0.0.0.0"
        if (flow.protocol, anywhere, flow.port) not in self._served:
            self._served.add((flow.protocol, anywhere, flow.port))
            self._world[NODE].serve(flow.port, flow.protocol, addresses=(anywhere,))

    def traced(self, scenario: Any) -> list[tuple[Journey, ...]]:
        """What `nodeagent trace` says of each flow, out of what the kernel of the node holds."""

        def look() -> list[tuple[Journey, ...]]:
            with closing(Ruleset()) as ruleset, KernelRoutes() as routes:
                node, _ = read_node(ruleset, scenario.family, lambda *_: ((), ()), routes.addresses_at_interfaces())
                return [journeys(question_of(flow), node, routes) for flow in scenario.flows]

        return inside(self._world.namespace(NODE), look)

    def ask(self, flow: Any, *, count: int, timeout: float) -> list[Answer]:
        client = self._world[self.plan.roles[flow.source]]
        asked = client.ask(
            flow.destination, flow.port, flow.protocol, count=count, timeout=timeout, source_address=flow.source
        )
        return list(asked)

    @property
    def node_addresses(self) -> set[str]:
        return {*self.plan.addresses(NODE), *self.plan.gateways}


def question_of(flow: Any) -> Question:
    return Question(flow.source, flow.destination, flow.port, flow.protocol)


def documents(scenario: Any) -> Iterator[dict[str, Any]]:
    """The scenario's objects, its Node and its service CIDRs as manifests."""
    for item in scenario.raw["services"]:
        yield {"apiVersion": "v1", "kind": "Service", **item}
    for item in scenario.raw["endpointSlices"]:
        yield {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", **item}
    addresses = [{"type": "InternalIP", "address": scenario.node_address}]
    metadata = {"name": NODE, "labels": scenario.labels}
    yield {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"addresses": addresses}}
    spec = {"cidrs": list(scenario.service_cidr_texts)}
    yield {"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "all"}, "spec": spec}


def connections_for(choices: int) -> int:
    """So many that missing one of the choices is less likely than CHANCE_TO_MISS."""
    return 2 if choices == 1 else math.ceil(math.log(CHANCE_TO_MISS / choices) / math.log(1 - 1 / choices))


@pytest.fixture(scope="session")
def stage_of(warm_launcher: WarmLauncher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Any], Stage]]:
    """The stage of a plan; the one before is taken down when another is wanted."""
    standing: list[tuple[Stage, World]] = []

    def build(plan: Any) -> Stage:
        if not standing or standing[0][0].plan is not plan:
            take_down()
            world = World(plan.topology(), fork_server=warm_launcher.actors, launcher=warm_launcher).__enter__()
            standing.append((Stage(plan, world, tmp_path_factory.mktemp("manifests")), world))
        return standing[0][0]

    def take_down() -> None:
        while standing:
            standing.pop()[1].close()

    yield build
    take_down()


def test_every_connection_ends_as_recorded(placed: Any, stage_of: Callable[[Any], Stage]) -> None:
    plan, scenario = placed
    stage = stage_of(plan)
    stage.perform(scenario)
    for flow, traced in zip(scenario.flows, stage.traced(scenario), strict=True):
        match flow.expect:
            case "ENDPOINTS":
                reaches_its_endpoints(stage, flow, traced)
            case "REJECT":
                is_refused_at_once(stage, flow)
            case "DROP":
                is_dropped(stage, flow)
            case "NONE":
                reaches_whom_it_was_sent_to(stage, flow)
        assert {one.end for one in traced} == {FATES[flow.expect]}, (flow, traced)


def reaches_its_endpoints(stage: Stage, flow: Any, traced: tuple[Journey, ...]) -> None:
    answers = stage.ask(flow, count=connections_for(len(flow.endpoints)), timeout=PATIENT)
    assert [answer.detail for answer in answers if answer.failure] == [], flow
    assert {(answer.local, answer.local_port) for answer in answers} == flow.endpoints, flow
    predicted = {one.endpoint: one for one in traced}
    assert predicted.keys() == flow.endpoints, (flow, traced)
    assert {one.probability for one in traced} == {Fraction(1, len(flow.endpoints))}, (flow, traced)
    for answer in answers:
        masqueraded = flow.masquerades(answer.local)
        # The node keeps a source that it would get anyway; what the endpoint sees is the same.
        kept = stage.keeps_node_source and flow.source in stage.node_addresses and answer.peer == flow.source
        rewritten = predicted[answer.local, answer.local_port].packet.rewritten
        assert rewritten == (masqueraded and not kept), (flow, answer, traced)
        seen = stage.node_addresses if masqueraded else {flow.source}
        assert answer.peer in seen, (flow, answer)
        assert not masqueraded or answer.peer != flow.source or flow.source in stage.node_addresses, (flow, answer)


def is_refused_at_once(stage: Stage, flow: Any) -> None:
    def attempt() -> float:
        (answer,) = stage.ask(flow, count=1, timeout=PATIENT)
        assert answer.failure is Failure.REFUSED, (flow, answer)
        return answer.seconds

    once_within(REFUSED_WITHIN, attempt, f"refusal of {flow}")


def is_dropped(stage: Stage, flow: Any) -> None:
    (answer,) = stage.ask(flow, count=1, timeout=DROPPED_AFTER)
    assert answer.failure is Failure.TIMEOUT, (flow, answer)


def reaches_whom_it_was_sent_to(stage: Stage, flow: Any) -> None:
    (answer,) = stage.ask(flow, count=1, timeout=PATIENT)
    found = (answer.name, answer.local, answer.local_port, answer.peer)
    assert found == (stage.plan.roles[flow.destination], flow.destination, flow.port, flow.source), (flow, answer)


def test_no_scenario_is_left_out(worlds: list[Any], all_scenarios: list[Any]) -> None:
    names = [scenario.name for scenario in all_scenarios]
    assert len(names) == len(set(names)) == 64
    assert sorted(scenario.name for plan in worlds for scenario in plan.scenarios) == sorted(names)
    assert set(names) >= AS_WRITTEN
    assert {flow.expect for scenario in all_scenarios for flow in scenario.flows} == {
        "ENDPOINTS",
        "REJECT",
        "DROP",
        "NONE",
    }


def test_scenarios_share_a_handful_of_worlds(worlds: list[Any]) -> None:
    assert len(worlds) <= 8
    for plan in worlds:
        plan.topology().check()
