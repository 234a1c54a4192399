"""One packet, at least, for each kind of address a Service can have: `trace` says what becomes of it, then it is sent."""

from dataclasses import dataclass, field

import pytest

from nodeagent.model.addresses import Protocol, endpoint_text, family_of
from nodeagent.model.objects import Service, ServiceSpec, SessionAffinityConfig
from tests.harness.cluster import NODE, TARGET_PORT, UNTHROTTLED, WITH_POD_CIDRS, Cluster, cluster_ips
from tests.harness.objects import make_endpoint, make_service, make_slice, service_port
from tests.netns.trace.test_predictions import asked, check

pytestmark = pytest.mark.kernel

EXTERNAL, BALANCER = ("198.51.100.11", "2001:db8:100::11"), ("198.51.100.12", "2001:db8:100::12")
GUARDED, SHUT = "198.51.100.13", "198.51.100.14"
NODE_PORT, LOCAL_NODE_PORT, FAR_NODE_PORT = 30081, 30082, 30083
PORTS = (
    service_port(80, name="http"),
    service_port(80, Protocol.UDP, name="dns"),
    service_port(80, Protocol.SCTP, name="sig"),
)
LOCAL = ServiceSpec(external_traffic_policy="Local")
WEB, FAR, NONE = ("web-0", "web-1"), ("far-0",), ()


@dataclass(frozen=True)
class Kind:
    """A connection, and what is to become of it. pods: it may end at. rewritten: whether the pod sees the node.

    number: of the Service in `SERVICES`, whose ClusterIP it is, unless there is an address.
    """

    client: str
    address: str
    pods: tuple[str, ...]
    port: int = 80
    protocol: Protocol = Protocol.TCP
    rewritten: bool = False
    end: str = field(default="arrives")


NODE_ADDRESSES = ("192.168.0.2", "2001:db8::2")
KINDS = {
    "ClusterIP": Kind("caller", cluster_ips(1)[0], WEB),
    "ClusterIP, IPv6": Kind("caller", cluster_ips(1)[1], WEB),
    "ClusterIP, UDP": Kind("caller", cluster_ips(1)[0], WEB, protocol=Protocol.UDP),
    "ClusterIP, SCTP": Kind("caller", cluster_ips(1)[0], WEB, protocol=Protocol.SCTP),
    "ClusterIP, UDP over IPv6": Kind("caller", cluster_ips(1)[1], WEB, protocol=Protocol.UDP),
    "ClusterIP from outside": Kind("outside", cluster_ips(1)[0], WEB, rewritten=True),
    "ClusterIP from the node": Kind(NODE, cluster_ips(1)[0], WEB, rewritten=True),
    "ClusterIP, another port": Kind("caller", cluster_ips(1)[0], NONE, port=81, end="refused"),
    "node port": Kind("outside", NODE_ADDRESSES[0], WEB, port=NODE_PORT, rewritten=True),
    "node port, IPv6": Kind("outside", NODE_ADDRESSES[1], WEB, port=NODE_PORT, rewritten=True),
    "node port, policy Local": Kind("outside", NODE_ADDRESSES[0], WEB, port=LOCAL_NODE_PORT),
    "node port, policy Local, no pod here": Kind("outside", NODE_ADDRESSES[0], NONE, port=FAR_NODE_PORT, end="dropped"),
    "node port, policy Local, a pod asks": Kind("caller", NODE_ADDRESSES[0], FAR, port=FAR_NODE_PORT),
    "external IP": Kind("outside", EXTERNAL[0], WEB, rewritten=True),
    "external IP, IPv6": Kind("outside", EXTERNAL[1], WEB, rewritten=True),
    "load balancer, policy Local": Kind("outside", BALANCER[0], WEB),
    "load balancer, policy Local, IPv6": Kind("outside", BALANCER[1], WEB),
    "load balancer, inside its ranges": Kind("outside", GUARDED, WEB, rewritten=True),
    "load balancer, outside its ranges": Kind("outside", SHUT, NONE, end="dropped"),
    "hairpin": Kind("web-2", cluster_ips(8)[0], ("web-2",), rewritten=True),
    "hairpin, IPv6": Kind("web-2", cluster_ips(8)[1], ("web-2",), rewritten=True),
    "endpoint that terminates, others are ready": Kind("caller", cluster_ips(9)[0], ("web-0",)),
    "endpoints that all terminate": Kind("caller", cluster_ips(10)[0], ("web-1",)),
    "no endpoints": Kind("caller", cluster_ips(11)[0], NONE, end="refused"),
}
AFFINE = 12


@pytest.fixture(scope="module")
def served(cluster: Cluster) -> Cluster:
    world = cluster.world
    for name in ("web-0", "web-1", "web-2", "far-0"):
        for protocol in Protocol:
            world[name].serve(TARGET_PORT, protocol)
    world.write_sysctls(NODE, UNTHROTTLED)
    http = service_port(80, name="http")
    local_port, far_port = (service_port(80, name="http", node_port=port) for port in (LOCAL_NODE_PORT, FAR_NODE_PORT))
    sticky = ServiceSpec(session_affinity="ClientIP", session_affinity_config=SessionAffinityConfig())
    services = {
        1: (make_service("plain", *cluster_ips(1), ports=PORTS), WEB),
        2: (make_service("ported", *cluster_ips(2), ports=[service_port(80, name="http", node_port=NODE_PORT)]), WEB),
        3: (make_service("local", *cluster_ips(3), ports=[local_port], load_balancer_ips=BALANCER, spec=LOCAL), WEB),
        4: (make_service("distant", *cluster_ips(4), ports=[far_port], spec=LOCAL), FAR),
        5: (make_service("external", *cluster_ips(5), ports=[http], spec=ServiceSpec(external_ips=EXTERNAL)), WEB),
        6: (guarded("guarded", 6, GUARDED, "203.0.113.0/24"), WEB),
        7: (guarded("shut", 7, SHUT, "192.0.2.0/24"), WEB),
        8: (make_service("alone", *cluster_ips(8), ports=[http]), ("web-2",)),
        11: (make_service("empty", *cluster_ips(11), ports=[http]), NONE),
        AFFINE: (make_service("sticky", *cluster_ips(AFFINE), ports=[http], spec=sticky), ("web-0", "web-1", "web-2")),
    }
    for service, pods in services.values():
        cluster.expose(
            service.metadata.name, *(service.spec.cluster_ips or ()), pods=pods, ports=service.spec.ports or ()
        )
        cluster.manifests.put(service)
    for number, name, states in (
        (9, "leaving", {"web-0": (True, True, False), "web-1": (False, True, True)}),
        (10, "left", {"web-0": (False, False, True), "web-1": (False, True, True)}),
    ):
        service = make_service(name, cluster_ips(number)[0], ports=[http])
        endpoints = [
            make_endpoint(world[pod].address(), NODE, ready=ready, serving=serving, terminating=terminating)
            for pod, (ready, serving, terminating) in states.items()
        ]
        cluster.manifests.put(make_slice(service, endpoints, target_port=TARGET_PORT), service)
    cluster.program_once(*WITH_POD_CIDRS, "--conntrack-max-per-core", "0")
    return cluster


def guarded(name: str, number: int, address: str, cidr: str) -> Service:
    spec = ServiceSpec(load_balancer_source_ranges=(cidr,))
    return make_service(name, *cluster_ips(number), ports=PORTS[:1], load_balancer_ips=(address,), spec=spec)


@pytest.mark.parametrize("name", KINDS)
def test_a_trace_predicts_what_happens_to_the_packet(served: Cluster, name: str) -> None:
    kind, world = KINDS[name], served.world
    traced, answers = asked(world, kind.client, kind.address, kind.port, kind.protocol)
    family = family_of(kind.address)
    places = {endpoint_text(world[pod].address(family), TARGET_PORT) for pod in kind.pods}
    outcomes = traced["outcomes"]
    assert {one["end"] for one in outcomes} == {kind.end}, traced["verdict"]
    if kind.pods:
        assert {one["destination"] for one in outcomes} == places
        assert {one["sourceRewritten"] for one in outcomes} == {kind.rewritten}
    assert {answer.failure is None for answer in answers} == {bool(kind.pods)}
    check(world, traced, answers, world[kind.client].address(family))


@pytest.mark.parametrize("family", [0, 1], ids=["IPv4", "IPv6"])
def test_affinity_that_was_learned_is_followed(served: Cluster, family: int) -> None:
    world, address = served.world, cluster_ips(AFFINE)[family]
    source = world["caller"].address(family_of(address))
    traced, answers = asked(world, "caller", address, 80, Protocol.TCP)
    assert len(traced["outcomes"]) == 3, "nothing is known of this client yet"
    check(world, traced, answers, source)
    traced, answers = asked(world, "caller", address, 80, Protocol.TCP)
    (outcome,) = traced["outcomes"]
    assert {endpoint_text(answer.local, answer.local_port) for answer in answers} == {outcome["destination"]}
    check(world, traced, answers, source)
