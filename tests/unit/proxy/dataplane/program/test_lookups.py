"""How many lookups the first packet of a connection costs: what a frontend lacks, it does not pay for."""

import pytest

from nodeagent.diagnosis.simulator.interpreter import Interpreter
from nodeagent.diagnosis.simulator.packet import Fate, Packet
from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.frontend import Backend, Frontend, FrontendKind, NodeState, Route, Scope, ServiceState
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.proxy.dataplane.image.desired import DesiredImage
from nodeagent.proxy.dataplane.image.image import classes_in, empty_image, timeouts_in
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from nodeagent.proxy.dataplane.program.program import build_program

V4, V6 = Family.IPV4, Family.IPV6
TCP = Protocol.TCP
VIP = {V4: "10.96.0.10", V6: "fd00:96::10"}
STICKY_VIP = {V4: "10.96.0.11", V6: "fd00:96::11"}
EMPTY_VIP = {V4: "10.96.0.12", V6: "fd00:96::12"}
BALANCER = {V4: "198.51.100.1", V6: "2001:db8:100::1"}
GUARDED = {V4: "198.51.100.2", V6: "2001:db8:100::2"}
LOCAL_BALANCER = {V4: "198.51.100.3", V6: "2001:db8:100::3"}
NODE = {V4: "192.168.0.2", V6: "2001:db8::2"}
GATEWAY = {V4: "10.244.1.1", V6: "fd00:244:1::1"}
"""The address of the bridge of the node's pods."""
POD = {V4: "10.244.9.9", V6: "fd00:244:9::9"}
OUTSIDE = {V4: "203.0.113.9", V6: "2001:db8:ffff::9"}
ENDPOINT = {V4: "10.244.2.2", V6: "fd00:244:2::2"}
POD_RANGE = {V4: "10.244.0.0/16", V6: "fd00:244::/32"}
UNALLOCATED = {V4: "10.96.9.9", V6: "fd00:96::909"}
EVERYWHERE = {V4: "0.0.0.0/0", V6: "::/0"}


def frontends(family: Family) -> tuple[Frontend, ...]:
    backend = Backend(ENDPOINT[family], 8080)
    wide, local = Route((backend,)), Route((backend,), Scope.LOCAL)
    external = FrontendKind.LOAD_BALANCER

    def made(kind: FrontendKind, address: str | None, port: int, route: Route, *rest: object) -> Frontend:
        name = ServicePortName(ObjectKey("default", f"at-{address}-{port}"), "", TCP)
        return Frontend(kind, family, address, TCP, port, name, route, *rest)  # type: ignore[arg-type]

    return (
        made(FrontendKind.CLUSTER_IP, VIP[family], 80, wide),
        made(FrontendKind.CLUSTER_IP, STICKY_VIP[family], 80, wide, None, False, 600),
        made(FrontendKind.CLUSTER_IP, EMPTY_VIP[family], 80, Route(())),
        made(external, BALANCER[family], 80, wide, None, True),
        made(external, GUARDED[family], 80, wide, None, True, None, (EVERYWHERE[family],)),
        made(external, LOCAL_BALANCER[family], 80, local, wide),
        made(FrontendKind.NODE_PORT, None, 30080, wide, None, True),
    )


def table(family: Family, pod_range: str = "", kind: PodDetection = PodDetection.CIDR) -> Interpreter:
    """A node whose other services use everything there is: none of it may cost an ordinary one anything."""
    desired = DesiredImage(family)
    vips = (VIP[family], STICKY_VIP[family], EMPTY_VIP[family])
    state = ServiceState(ObjectKey("default", "all"), cluster_ips=vips, frontends=frontends(family))
    desired.update({state.key: state}, empty_image(schema.DATA_SETS))
    pods, services, node = (
        ("10.244.0.0/16", "10.96.0.0/16", "192.168.0.2/32")
        if family is V4
        else ("fd00:244::/32", "fd00:96::/108", "2001:db8::2/128")
    )
    desired.set_node(NodeState((services,), (pods,), (node,)))
    program = build_program(
        family,
        ProgramOptions(kind, pod_range=pod_range),
        classes_in(desired.image),
        timeouts_in(desired.image),
    )
    specs = {spec.name: spec for spec in schema.set_specs(counters=True)}
    uplink = {"": [NODE[family]]}
    image = {**desired.image, schema.AFFINITY: {}}
    return Interpreter(program, specs, image, [NODE[family], GATEWAY[family], *vips], at_interface=uplink)


@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
@pytest.mark.parametrize(
    ("source", "destination", "port", "fate", "lookups"),
    [
        pytest.param(POD, VIP, 80, Fate.TRANSLATED, 6, id="pod to a ClusterIP"),
        pytest.param(OUTSIDE, VIP, 80, Fate.TRANSLATED, 5, id="outside to a ClusterIP"),
        pytest.param(NODE, VIP, 80, Fate.TRANSLATED, 4, id="node to a ClusterIP"),
        pytest.param(POD, EMPTY_VIP, 80, Fate.REFUSED, 2, id="to a ClusterIP without endpoints"),
        pytest.param(POD, VIP, 81, Fate.REFUSED, 3, id="to a port that is not served"),
        pytest.param(POD, ENDPOINT, 8080, Fate.UNTOUCHED, 4, id="pod to pod"),
        pytest.param(NODE, OUTSIDE, 443, Fate.UNTOUCHED, 4, id="node to outside"),
        pytest.param(POD, UNALLOCATED, 80, Fate.DROPPED, 6, id="to an address of nobody"),
        pytest.param(OUTSIDE, BALANCER, 80, Fate.TRANSLATED, 7, id="to a load-balancer address"),
        pytest.param(OUTSIDE, GUARDED, 80, Fate.TRANSLATED, 10, id="with source ranges"),
        pytest.param(OUTSIDE, LOCAL_BALANCER, 80, Fate.TRANSLATED, 13, id="policy Local"),
        pytest.param(OUTSIDE, NODE, 30080, Fate.TRANSLATED, 14, id="to a node port"),
        pytest.param(POD, STICKY_VIP, 80, Fate.TRANSLATED, 16, id="with affinity"),
    ],
)
def test_lookups_of_a_first_packet(
    family: Family,
    source: dict[Family, str],
    destination: dict[Family, str],
    port: int,
    fate: Fate,
    lookups: int,
) -> None:
    iif = None if source is NODE else "eth0"
    packet = Packet(source[family], destination[family], TCP, port, iif=iif)
    (outcome,) = table(family).outcomes(packet)
    assert outcome.fate is fate
    assert outcome.lookups == lookups, [str(step) for step in outcome.trace]
    assert outcome.priority == 0 or fate is Fate.REFUSED, "what goes on has a clear scratch field"


@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
@pytest.mark.parametrize(
    ("kind", "source", "iif", "lookups", "masqueraded"),
    [
        pytest.param(PodDetection.CIDR, NODE, None, 3, False, id="the node"),
        pytest.param(PodDetection.CIDR, VIP, None, 4, True, id="the node with the ClusterIP as its source"),
        pytest.param(PodDetection.CIDR, POD, "eth0", 5, False, id="a pod"),
        pytest.param(PodDetection.CIDR, POD, None, {V4: 6, V6: 5}, False, id="a pod behind a bridge"),
        pytest.param(PodDetection.CIDR, OUTSIDE, "eth0", 4, True, id="outside"),
        pytest.param(PodDetection.NONE, NODE, None, {V4: 6, V6: 5}, False, id="no detection, the node"),
        pytest.param(PodDetection.NONE, POD, "eth0", 5, False, id="no detection, a pod"),
    ],
)
def test_lookups_where_the_range_of_pods_is_in_the_rules(
    family: Family,
    kind: PodDetection,
    source: dict[Family, str],
    iif: str | None,
    lookups: int | dict[Family, int],
    *,
    masqueraded: bool,
) -> None:
    pod_range = POD_RANGE[family] if kind is PodDetection.CIDR else ""
    (outcome,) = table(family, pod_range, kind).outcomes(Packet(source[family], VIP[family], TCP, 80, iif=iif))

    assert outcome.masqueraded is masqueraded
    assert outcome.lookups == (lookups if isinstance(lookups, int) else lookups[family])
    routes = [str(step) for step in outcome.trace if "fib" in step.text]
    assert not routes or iif is None, "a look at the routes costs more than any other; it is for the node's own packets"


@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
@pytest.mark.parametrize(
    ("source", "iif", "masqueraded"),
    [
        pytest.param(NODE, None, False, id="the node from the interface's address"),
        pytest.param(VIP, None, True, id="the node from a ClusterIP"),
        pytest.param(OUTSIDE, None, True, id="the node from an address of another interface"),
        pytest.param(NODE, "eth0", True, id="another host that claims the node's address"),
        pytest.param(OUTSIDE, "eth0", True, id="outside"),
    ],
)
@pytest.mark.parametrize("destination", [VIP, BALANCER], ids=["ClusterIP", "balancer"])
def test_the_node_keeps_a_source_that_the_interface_has(
    family: Family,
    destination: dict[Family, str],
    source: dict[Family, str],
    iif: str | None,
    *,
    masqueraded: bool,
) -> None:
    """A rewritten source would be the same address: choosing it costs more than all lookups."""
    asked = Packet(source[family], destination[family], TCP, 80, iif=iif)
    (outcome,) = table(family, POD_RANGE[family]).outcomes(asked)

    assert outcome.fate is Fate.TRANSLATED
    assert outcome.masqueraded is masqueraded


@pytest.mark.parametrize(
    ("family", "pods"),
    [(V4, "10.244.0.0/16"), (V4, "10.244.8.0/21"), (V6, "fd00:244::/32"), (V6, "fd00:240::/29"), (V6, "fd00::/8")],
)
@pytest.mark.parametrize(("destination", "port"), [(VIP, 80), (LOCAL_BALANCER, 80), (STICKY_VIP, 80), (NODE, 30080)])
@pytest.mark.parametrize("source", [POD, OUTSIDE], ids=["pod", "outside"])
def test_a_range_in_the_rules_is_the_set_without_its_lookup(
    family: Family, pods: str, source: dict[Family, str], destination: dict[Family, str], port: int
) -> None:
    packet = Packet(source[family], destination[family], TCP, port, iif="eth0")
    (asked,), (compared,) = table(family).outcomes(packet), table(family, pods).outcomes(packet)

    assert compared.endpoint == asked.endpoint
    assert compared.masqueraded is asked.masqueraded
    assert compared.learned == asked.learned
    assert compared.lookups < asked.lookups or destination is NODE


@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
def test_a_packet_to_elsewhere_is_not_looked_for_among_all_cluster_ips(family: Family) -> None:
    """They are thousands; of their blocks there are few."""
    (outcome,) = table(family).outcomes(Packet(POD[family], ENDPOINT[family], TCP, 8080, iif="eth0"))

    asked = " ".join(step.text for step in outcome.trace)
    assert "not in @cluster-ip-blocks" in asked
    assert "@cluster-ips" not in asked


@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
@pytest.mark.parametrize("iif", ["eth0", None], ids=["routed", "behind a bridge"])
def test_the_source_of_a_pod_is_decided_without_a_look_among_all_cluster_ips(family: Family, iif: str | None) -> None:
    """Neither their number nor how long none of them was asked for matters to most connections."""
    (outcome,) = table(family).outcomes(Packet(POD[family], VIP[family], TCP, 80, iif=iif))

    assert not outcome.masqueraded
    assert not [str(step) for step in outcome.trace if "@cluster-ips" in step.text]
