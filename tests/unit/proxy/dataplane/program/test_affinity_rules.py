"""Session affinity as the rules execute it: a client returns to its endpoint, by whatever address it comes."""

from typing import Any

import pytest

from nodeagent.diagnosis.simulator.interpreter import Interpreter
from nodeagent.diagnosis.simulator.packet import Outcome, Packet
from nodeagent.model.addresses import Family, Protocol, pack_address
from nodeagent.model.frontend import Backend, Frontend, FrontendKind, NodeState, Route, Scope, ServiceState
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.proxy.dataplane.image.affinity import affinity_id
from nodeagent.proxy.dataplane.image.desired import DesiredImage
from nodeagent.proxy.dataplane.image.image import (
    Elements,
    classes_in,
    empty_image,
    endpoint_value,
    packed_class,
    packed_protocol,
    timeouts_in,
)
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from nodeagent.proxy.dataplane.program.program import build_program

HERE, THERE = Backend("10.244.1.1", 8080, local=True), Backend("10.244.2.2", 8080)
NAME = ServicePortName(ObjectKey("default", "web"), "http", Protocol.TCP)
VIP, BALANCER, NODE_ADDRESS = "10.96.0.10", "198.51.100.1", "192.168.0.2"
OUTSIDE, POD = "203.0.113.9", "10.244.9.9"


def frontend(kind: FrontendKind, address: str | None, port: int) -> Frontend:
    """externalTrafficPolicy=Local, so external addresses have a list for everybody and one for pods."""
    everywhere = Route((HERE, THERE))
    fields: dict[str, Any] = {"affinity_seconds": 600}
    if kind is FrontendKind.CLUSTER_IP:
        return Frontend(kind, Family.IPV4, address, Protocol.TCP, port, NAME, everywhere, **fields)
    local = Route((HERE,), Scope.LOCAL)
    return Frontend(kind, Family.IPV4, address, Protocol.TCP, port, NAME, local, everywhere, **fields)


def table(learned: Elements) -> Interpreter:
    desired = DesiredImage(Family.IPV4)
    frontends = (
        frontend(FrontendKind.CLUSTER_IP, VIP, 80),
        frontend(FrontendKind.LOAD_BALANCER, BALANCER, 80),
        frontend(FrontendKind.NODE_PORT, None, 30080),
    )
    state = ServiceState(ObjectKey("default", "web"), cluster_ips=(VIP,), frontends=frontends)
    desired.update({state.key: state}, empty_image(schema.DATA_SETS))
    desired.set_node(NodeState((), ("10.244.0.0/16",), (f"{NODE_ADDRESS}/32",)))
    options = ProgramOptions(PodDetection.CIDR)
    program = build_program(Family.IPV4, options, classes_in(desired.image), timeouts_in(desired.image))
    specs = {spec.name: spec for spec in schema.set_specs(counters=False)}
    return Interpreter(program, specs, {**desired.image, schema.AFFINITY: learned}, [NODE_ADDRESS, VIP])


def entry(client: str, scope: Scope) -> bytes:
    return pack_address(client) + packed_protocol(Protocol.TCP) + packed_class(affinity_id(NAME, scope))


def connect(learned: Elements, client: str, to: str, port: int) -> tuple[Outcome, ...]:
    outcomes = table(learned).outcomes(Packet(client, to, Protocol.TCP, port))
    assert all(outcome.priority == 0 for outcome in outcomes)
    return outcomes


WAYS = [
    pytest.param(VIP, 80, id="ClusterIP"),
    pytest.param(BALANCER, 80, id="load-balancer address"),
    pytest.param(NODE_ADDRESS, 30080, id="node port"),
]


@pytest.mark.parametrize(("to", "port"), WAYS)
def test_a_new_client_may_get_any_endpoint_and_is_remembered_with_the_one_it_got(to: str, port: int) -> None:
    outcomes = connect({}, POD, to, port)
    assert {outcome.endpoint for outcome in outcomes} == {("10.244.1.1", 8080), ("10.244.2.2", 8080)}
    for outcome in outcomes:
        value = endpoint_value(outcome.destination, outcome.port)
        assert outcome.learned == {schema.AFFINITY: {entry(POD, Scope.CLUSTER): value}}


@pytest.mark.parametrize(("to", "port"), WAYS)
@pytest.mark.parametrize("backend", [HERE, THERE], ids=["one", "the other"])
def test_a_known_client_gets_its_endpoint_by_every_address_of_the_port(to: str, port: int, backend: Backend) -> None:
    value = endpoint_value(backend.address, backend.port)
    learned = {entry(POD, Scope.CLUSTER): value}

    (outcome,) = connect(learned, POD, to, port)

    assert outcome.endpoint == (backend.address, backend.port)
    assert outcome.learned == {schema.AFFINITY: learned}, "its time starts again, nothing else changes"


@pytest.mark.parametrize(("to", "port"), WAYS[1:])
def test_affinity_to_the_cluster_list_does_not_apply_to_the_local_list(to: str, port: int) -> None:
    learned = {entry(OUTSIDE, Scope.CLUSTER): endpoint_value(THERE.address, THERE.port)}

    (outcome,) = connect(learned, OUTSIDE, to, port)

    assert outcome.endpoint == (HERE.address, HERE.port)
    assert set(outcome.learned[schema.AFFINITY]) == {entry(OUTSIDE, Scope.LOCAL)}


def test_another_client_is_not_bound() -> None:
    learned = {entry("10.244.9.8", Scope.CLUSTER): endpoint_value(THERE.address, THERE.port)}
    assert len(connect(learned, POD, VIP, 80)) == 2
