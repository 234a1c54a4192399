"""Every recorded flow through the translation, the rendered elements and the very rules the kernel gets."""

from fractions import Fraction
from typing import Any

import pytest

from nodeagent.diagnosis.simulator.interpreter import Interpreter
from nodeagent.diagnosis.simulator.packet import Fate, Outcome, Packet
from nodeagent.model.frontend import NodeState
from nodeagent.proxy.dataplane.image.desired import DesiredImage
from nodeagent.proxy.dataplane.image.image import classes_in, empty_image, timeouts_in
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from nodeagent.proxy.dataplane.program.program import build_program
from nodeagent.proxy.dataplane.program.schema import AFFINITY, DATA_SETS, set_specs
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.node_ports import node_port_cidrs
from nodeagent.proxy.translate.translator import Translator

SPECS = {spec.name: spec for spec in set_specs(counters=True)}
EXPECTED_FATE = {
    "ENDPOINTS": Fate.TRANSLATED,
    "REJECT": Fate.REFUSED,
    "DROP": Fate.DROPPED,
    "NONE": Fate.UNTOUCHED,
}


def table_of(scenario: Any, *, service_interface: bool) -> Interpreter:
    """The table of the scenario's family, as a first pass would write it."""
    context = Context(
        node_name=scenario.node_name,
        zone=scenario.zone,
        families=(scenario.family,),
        node_addresses=(scenario.node_address,),
        detects_pods=bool(scenario.cluster_cidrs),
    )
    translator = Translator()
    changes = translator.update(scenario, None, context)
    desired = DesiredImage(scenario.family)
    desired.update(changes, empty_image(DATA_SETS))
    ports = node_port_cidrs(scenario.node_port_addresses, context, [])
    desired.set_node(NodeState(scenario.service_cidr_texts, scenario.cluster_cidrs, ports))
    detection = PodDetection.CIDR if scenario.cluster_cidrs else PodDetection.NONE
    options = ProgramOptions(detection, masquerade_all=scenario.masquerade_all)
    program = build_program(scenario.family, options, classes_in(desired.image), timeouts_in(desired.image))
    local = set(scenario.local_addresses)
    if service_interface:
        local |= {address for state in translator.states.values() for address in state.cluster_ips}
    return Interpreter(program, SPECS, {**desired.image, AFFINITY: {}}, local)


def packet_of(flow: Any, scenario: Any) -> Packet:
    """A packet from an address of the node leaves the node; any other comes in."""
    return Packet(
        flow.source,
        flow.destination,
        flow.protocol,
        flow.port,
        iif=None if flow.source in scenario.local_addresses else "eth0",
    )


def shown(outcome: Outcome) -> str:
    return "\n".join(map(str, outcome.trace))


@pytest.mark.parametrize("service_interface", [False, True], ids=["ClusterIPs nowhere", "ClusterIPs on the node"])
def test_every_packet_has_the_recorded_outcome(scenario: Any, service_interface: bool) -> None:
    table = table_of(scenario, service_interface=service_interface)
    for flow in scenario.flows:
        outcomes = table.outcomes(packet_of(flow, scenario))

        assert {outcome.fate for outcome in outcomes} == {EXPECTED_FATE[flow.expect]}, (flow, shown(outcomes[0]))
        assert {outcome.endpoint for outcome in outcomes} == (flow.endpoints or {None}), flow


def test_no_accepted_packet_carries_the_scratch_field_away(scenario: Any) -> None:
    table = table_of(scenario, service_interface=True)
    for flow in scenario.flows:
        for outcome in table.outcomes(packet_of(flow, scenario)):
            assert outcome.priority == 0 or outcome.fate in (Fate.REFUSED, Fate.DROPPED), (flow, shown(outcome))


def test_the_choice_is_uniform(scenario: Any) -> None:
    table = table_of(scenario, service_interface=True)
    for flow in scenario.flows:
        outcomes = table.outcomes(packet_of(flow, scenario))

        assert {outcome.probability for outcome in outcomes} == {Fraction(1, len(flow.endpoints) or 1)}, flow


@pytest.mark.parametrize("service_interface", [False, True], ids=["ClusterIPs nowhere", "ClusterIPs on the node"])
def test_the_source_is_rewritten_where_it_was_recorded(scenario: Any, service_interface: bool) -> None:
    table = table_of(scenario, service_interface=service_interface)
    for flow in scenario.flows:
        for outcome in table.outcomes(packet_of(flow, scenario)):
            expected = flow.expect == "ENDPOINTS" and flow.masquerades(outcome.destination)
            assert outcome.masqueraded == expected, (flow, outcome.destination, shown(outcome))


def test_a_refusal_answers_at_once_by_a_reset_for_tcp_and_icmp_otherwise(scenario: Any) -> None:
    table = table_of(scenario, service_interface=True)
    for flow in scenario.flows:
        for outcome in table.outcomes(packet_of(flow, scenario)):
            if outcome.fate is Fate.REFUSED:
                assert outcome.reset == (flow.protocol.name == "TCP"), flow
