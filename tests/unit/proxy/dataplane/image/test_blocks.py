"""Blocks that have nothing but ClusterIPs are known, whatever comes and goes beside them."""

from typing import Any

import pytest

from nodeagent.diagnosis.simulator.interpreter import Interpreter
from nodeagent.diagnosis.simulator.packet import Packet
from nodeagent.model.addresses import Family, Protocol, pack_address
from nodeagent.model.frontend import Backend, Frontend, FrontendKind, NodeState, Route, Scope, ServiceState
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.proxy.dataplane.image.desired import DesiredImage
from nodeagent.proxy.dataplane.image.image import classes_in, empty_image
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from nodeagent.proxy.dataplane.program.program import build_program

V4, V6 = Family.IPV4, Family.IPV6
WEB, EDGE, POLICY, PORTS = (ObjectKey("default", name) for name in ("web", "edge", "policy", "ports"))
VIP = {V4: "10.96.0.10", V6: "fd00:96::10"}
BLOCK = {V4: "10.96.0.0", V6: "fd00:96::"}
BESIDE = {V4: "10.96.255.255", V6: "fd00:96::ffff"}
KEY = {family: pack_address(BLOCK[family]) for family in Family}
BEYOND = {V4: "10.97.0.0", V6: "fd00:96::1:0"}
POD = {V4: "10.244.9.9", V6: "fd00:244:9::9"}
ENDPOINT = {V4: "10.244.2.2", V6: "fd00:244:2::2"}
PODS = {V4: "10.244.0.0/16", V6: "fd00:244::/32"}
SERVICES = {V4: "10.96.0.0/16", V6: "fd00:96::/108"}
FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)


def service(family: Family, key: ObjectKey, address: str | None, *, policy: Scope = Scope.CLUSTER) -> ServiceState:
    """WEB is a ClusterIP; what else has an address is one of a load balancer, what has none a node port."""
    name = ServicePortName(key, "", Protocol.TCP)
    wide, local = Route((Backend(ENDPOINT[family], 8080, local=True),)), Route((), Scope.LOCAL)

    def made(kind: FrontendKind, port: int, *rest: Any) -> Frontend:
        return Frontend(kind, family, address, Protocol.TCP, port, name, *rest)

    if key is WEB:
        return ServiceState(key, cluster_ips=(VIP[family],), frontends=(made(FrontendKind.CLUSTER_IP, 80, wide),))
    kind, port = (FrontendKind.LOAD_BALANCER, 80) if address else (FrontendKind.NODE_PORT, 30080)
    rest = (wide, None, True) if policy is Scope.CLUSTER else (local, wide)
    return ServiceState(key, frontends=(made(kind, port, *rest),))


def node(family: Family, *node_ports: str) -> NodeState:
    return NodeState((SERVICES[family],), (PODS[family],), node_ports)


class World:
    """What is wanted in one family, and what the table makes of packets."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.desired = DesiredImage(family)
        self.desired.set_node(node(family))
        self.put(WEB, VIP[family])

    def put(self, key: ObjectKey, address: str | None, policy: Scope = Scope.CLUSTER) -> None:
        state = service(self.family, key, address, policy=policy)
        self.desired.update({key: state}, empty_image(schema.DATA_SETS))

    def remove(self, key: ObjectKey) -> None:
        self.desired.update({key: None}, empty_image(schema.DATA_SETS))

    @property
    def only_cluster_ips(self) -> bool:
        held = self.desired.image[schema.CLUSTER_IP_ONLY_BLOCKS]
        assert set(held) <= {KEY[self.family]}
        return bool(held)

    def masqueraded(self, source: str, destination: str, port: int = 80) -> bool:
        image = self.desired.image
        program = build_program(self.family, ProgramOptions(PodDetection.CIDR), classes_in(image), ())
        specs = {spec.name: spec for spec in schema.set_specs(counters=True)}
        table = Interpreter(program, specs, {**image, schema.AFFINITY: {}}, [VIP[self.family], BESIDE[self.family]])
        (outcome,) = table.outcomes(Packet(source, destination, Protocol.TCP, port, iif="eth0"))
        assert outcome.destination == ENDPOINT[self.family]
        return outcome.masqueraded


@pytest.fixture(params=list(Family), ids=lambda family: family.value)
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


def test_a_block_of_cluster_ips_is_known_until_the_last_one_goes(world: World) -> None:
    assert world.only_cluster_ips
    world.remove(WEB)
    assert not world.only_cluster_ips


@pytest.mark.parametrize("policy", Scope, ids=lambda policy: policy.value)
def test_an_address_of_a_load_balancer_in_the_block_ends_it_and_its_end_brings_it_back(
    world: World, policy: Scope
) -> None:
    family = world.family
    world.put(EDGE, BESIDE[family], policy)
    assert not world.only_cluster_ips
    world.put(POLICY, VIP[family][:-1] + "1", policy)
    world.remove(EDGE)
    assert not world.only_cluster_ips
    world.put(POLICY, BEYOND[family], policy)
    assert world.only_cluster_ips


def test_the_order_in_which_they_come_does_not_matter(world: World) -> None:
    world.put(EDGE, BESIDE[world.family])
    world.remove(WEB)
    world.put(WEB, VIP[world.family])
    assert not world.only_cluster_ips


@pytest.mark.parametrize(
    ("ranges", "only"),
    [
        pytest.param({V4: "10.96.7.7/32", V6: "fd00:96::7:7/128"}, {V4: False, V6: True}, id="an address"),
        pytest.param({V4: "0.0.0.0/0", V6: "::/0"}, {V4: False, V6: False}, id="every address"),
        pytest.param({V4: "10.96.255.255/32", V6: "fd00:96::ffff/128"}, {V4: False, V6: False}, id="the last of it"),
        pytest.param({V4: "10.96.0.0/32", V6: "fd00:96::/128"}, {V4: False, V6: False}, id="the first of it"),
        pytest.param({V4: "10.97.0.0/16", V6: "fd00:96::1:0/112"}, {V4: True, V6: True}, id="the next block"),
        pytest.param({V4: "10.95.0.0/16", V6: "fd00:95::/32"}, {V4: True, V6: True}, id="one before"),
    ],
)
def test_node_ports_within_the_block_end_it(world: World, ranges: dict[Family, str], only: dict[Family, bool]) -> None:
    world.desired.set_node(node(world.family, ranges[world.family]))
    assert world.only_cluster_ips is only[world.family]
    world.desired.set_node(node(world.family))
    assert world.only_cluster_ips


def test_changed_blocks_are_dirty(world: World) -> None:
    world.desired.take_dirty()
    world.put(EDGE, BESIDE[world.family])
    assert world.desired.take_dirty()[schema.CLUSTER_IP_ONLY_BLOCKS] == {KEY[world.family]}
    world.put(POLICY, BESIDE[world.family])
    assert schema.CLUSTER_IP_ONLY_BLOCKS not in world.desired.take_dirty()


def test_a_pod_keeps_its_source_to_a_cluster_ip_unless_it_meets_itself(world: World) -> None:
    family = world.family
    assert not world.masqueraded(POD[family], VIP[family])
    assert world.masqueraded(ENDPOINT[family], VIP[family])


def test_a_pod_to_a_load_balancer_in_the_block_of_cluster_ips_is_masqueraded(world: World) -> None:
    """As anybody is; to the ClusterIPs beside it nothing changes."""
    family = world.family
    world.put(EDGE, BESIDE[family])
    assert world.masqueraded(POD[family], BESIDE[family])
    assert not world.masqueraded(POD[family], VIP[family])
    assert world.masqueraded(ENDPOINT[family], VIP[family])


def test_a_pod_to_a_node_port_in_the_block_of_cluster_ips_is_masqueraded(world: World) -> None:
    family = world.family
    length = 32 if family is V4 else 128
    world.desired.set_node(node(family, f"{BESIDE[family]}/{length}"))
    world.put(PORTS, None)
    assert world.masqueraded(POD[family], BESIDE[family], 30080)
