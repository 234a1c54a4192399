"""Faults that the objects alone show, each named in the first line, and what looks like one and is not."""

import pytest
from msgspec.structs import replace

from nodeagent.diagnosis.explain.service import Explanation, explain_service
from nodeagent.diagnosis.explain.service_facts import ServiceFacts
from nodeagent.model.addresses_in_use import AddressesInUse, addresses_in_use
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import (
    Endpoint,
    EndpointSlice,
    LoadBalancerIngress,
    LoadBalancerStatus,
    Service,
    ServicePort,
    ServiceSpec,
    ServiceStatus,
)
from nodeagent.model.problem import Problem
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.translator import Translator
from tests.harness.objects import make_endpoint, make_service, make_slice, service_port

from .test_verdicts import HERE, HTTP, LOCAL, THERE, UNREADY, World

RANGES = ("10.96.0.0/16", "fd00:10:96::/112")
AT_NODE = ("192.168.0.2/32",)
NOTHING = AddressesInUse()
PORT = (service_port(80, name="http", node_port=30080),)


def explained(
    service: Service,
    *endpoints: Endpoint,
    node: str = "node-a",
    node_ports: tuple[str, ...] = AT_NODE,
    taken: AddressesInUse = NOTHING,
    pods: tuple[str, ...] = ("10.244.0.0/16",),
    problems: tuple[Problem, ...] = (),
    kind: str = "IPv4",
) -> Explanation:
    slices = [replace(make_slice(service, endpoints, target_port=8080), address_type=kind)] if endpoints else []
    world, context = World(service, *slices), Context(node_name=node, node_addresses=("192.168.0.2",))
    translator = Translator()
    translator.update(world, None, context)
    key = ObjectKey("default", "web")
    return explain_service(
        ServiceFacts(
            service=service,
            slices=world.slices_of(key),
            context=context,
            state=translator.states.get(key),
            service_ranges=RANGES,
            node_port_ranges=node_ports,
            taken=taken,
            pod_ranges=pods,
            problems=problems,
        )
    )


def web(spec: ServiceSpec | None = None) -> Service:
    return make_service("web", "10.96.0.10", ports=HTTP, spec=spec)


def named(name: str | None) -> Service:
    return Service(web().metadata, ServiceSpec(type="ExternalName", external_name=name))


HEADLESS = Service(web().metadata, ServiceSpec(cluster_ip="None", ports=HTTP))
BALANCED = Service(web().metadata, replace(web().spec, type="LoadBalancer"))
FULL = "node-a.example.org"
CHAINED = make_endpoint("10.96.0.77")


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (
            explained(web(), CHAINED),
            ("broken: 1 of 1 endpoints cannot be reached", "10.96.0.77 is a ClusterIP, or in their range"),
        ),
        (explained(web(), HERE, CHAINED), ("impaired: 1 of 2 endpoints cannot be reached",)),
        (
            explained(web(LOCAL), make_endpoint("10.244.1.10")),
            ("broken: port http drops every", "(no endpoint says on which node it is)", "write nodeName"),
        ),
        (
            explained(web(LOCAL), make_endpoint("10.244.1.10", FULL)),
            (
                "this node is node-a, and endpoints are on node-a.example.org",
                "; give the agent that name: --node-name",
            ),
        ),
        (explained(web(LOCAL), make_endpoint("10.244.1.10", "node-a"), node=FULL), ("--node-name node-a",)),
        (explained(web(), make_endpoint("127.0.0.1")), ("127.0.0.1: it has no usable address (loopback)",)),
        (
            explained(named("192.0.2.1")),
            ("broken: its name leads nowhere", "192.0.2.1 is an address", "an EndpointSlice with that address"),
        ),
        (explained(named("2001:db8::1")), ("is an address",)),
        (explained(named("http://example.org")), ("is not the name of a host",)),
        (explained(named("example.org:8080")), ("is not the name of a host",)),
        (explained(named(None)), ("broken: its name leads nowhere, because it has none",)),
        (explained(named("web.default.svc.cluster.local")), ("is its own name",)),
        (
            explained(HEADLESS, UNREADY),
            ("broken: its name leads nowhere", "its only endpoint is not ready", "publish"),
        ),
        (
            explained(Service(web().metadata, replace(web().spec, type="NodePort")), HERE),
            ("impaired: port http has no node port", "nobody has allocated one"),
        ),
        (
            explained(make_service("web", "10.96.0.10", ports=PORT), HERE, node_ports=()),
            ("impaired: its node ports are answered at no address of this node",),
        ),
        (
            explained(BALANCED, HERE),
            ("healthy: 1 of 1 endpoints used; nobody has given it a load-balancer address yet",),
        ),
    ],
)
def test_a_fault_is_named_in_the_first_line(found: Explanation, says: tuple[str, ...]) -> None:
    for text in says:
        assert text in found.verdict
    assert found.healthy is found.verdict.startswith("healthy")


def given(*addresses: str) -> ServiceStatus:
    return ServiceStatus(LoadBalancerStatus(tuple(LoadBalancerIngress(one) for one in addresses)))


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (explained(web(), HERE, THERE), "healthy: 2 of 2 endpoints used"),
        (explained(web(LOCAL), HERE, make_endpoint("10.244.1.12")), "healthy: 1 of 2 endpoints used"),
        (explained(named("db.example.org.")), "healthy: nothing to program, it is another name for db.example.org."),
        (explained(named("web.other.svc")), "healthy: nothing to program, it is another name for web.other.svc"),
        (explained(make_service("web", "10.96.0.10", ports=PORT), HERE), "healthy: 1 of 1 endpoints used"),
        (
            explained(Service(BALANCED.metadata, BALANCED.spec, given("198.51.100.1")), HERE),
            "healthy: 1 of 1 endpoints used",
        ),
        (
            explained(HEADLESS, HERE, UNREADY),
            "healthy: nothing to program, it is headless: its name leads to the endpoints themselves",
        ),
    ],
)
def test_a_working_service_has_no_findings(found: Explanation, verdict: str) -> None:
    assert (found.verdict, found.healthy) == (verdict, True)


def test_an_empty_slice_of_a_headless_service() -> None:
    empty: EndpointSlice = make_slice(HEADLESS, [])
    world = World(HEADLESS, empty)
    facts = ServiceFacts(
        service=HEADLESS,
        slices=world.slices_of(ObjectKey("default", "web")),
        context=Context(node_name="node-a"),
        state=None,
    )
    assert "its selector matches no pod" in explain_service(facts).verdict


def with_ports(*ports: ServicePort) -> Service:
    return make_service("web", "10.96.0.10", ports=ports)


def at(address: str) -> Service:
    return make_service("web", address, ports=HTTP)


VIP = make_endpoint("198.51.100.9")
NO_LABEL = Problem("file a.yaml:1", "NoServiceName", "EndpointSlice default/web-a: no label: it belongs to no Service")
OTHERS = replace(web(), metadata=replace(web().metadata, labels={"service.kubernetes.io/service-proxy-name": "mesh"}))


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (
            explained(web(), make_endpoint("10.200.0.7"), taken=AddressesInUse(cluster_ips=frozenset({"10.200.0.7"}))),
            ("broken: 1 of 1 endpoints cannot be reached", "10.200.0.7 is a ClusterIP"),
        ),
        (
            explained(
                web(), make_endpoint("192.168.0.2"), taken=AddressesInUse(here=frozenset({("192.168.0.2", 8080)}))
            ),
            ("broken: 1 of 1 endpoints cannot be reached", "192.168.0.2:8080 is a node port of this node"),
        ),
        (
            explained(web(), VIP, taken=AddressesInUse(outside=frozenset({("198.51.100.9", 8080)}))),
            (
                "impaired: 1 of 1 endpoints cannot be reached by way of this node's rules",
                "198.51.100.9:8080 is an external",
            ),
        ),
        (
            explained(with_ports(ServicePort(80, "http", "tcp")), HERE),
            ("port http is not served", "80/tcp is not a port"),
        ),
        (
            explained(with_ports(ServicePort(99999, "http")), HERE),
            ("port http is not served", "99999/TCP is not a port"),
        ),
        (explained(with_ports(), HERE), ("broken: it serves nothing", "the Service has no ports")),
        (explained(web(), HERE, kind="FQDN"), ("has no endpoints", "its endpoints are names (addressType FQDN)")),
        (
            explained(web(), problems=(NO_LABEL,)),
            ("EndpointSlice default/web-a says of which Service it is by no label", "kubernetes.io/service-name: web"),
        ),
        (explained(at("10.244.77.7"), HERE), ("its ClusterIP 10.244.77.7 is in the range of pods 10.244.0.0/16",)),
        (explained(at("192.168.0.2"), HERE), ("its ClusterIP 192.168.0.2 is an address of this node",)),
        (explained(OTHERS, HERE), ("broken: this agent does not serve it", "service-proxy-name: mesh leaves it")),
    ],
)
def test_other_faults_of_the_objects(found: Explanation, says: tuple[str, ...]) -> None:
    assert not found.healthy
    for text in says:
        assert text in found.verdict


@pytest.mark.parametrize(
    "found",
    [
        explained(web(), make_endpoint("192.168.0.2"), taken=AddressesInUse(here=frozenset({("192.168.0.2", 30080)}))),
        explained(web(), VIP, taken=AddressesInUse(outside=frozenset({("198.51.100.9", 80)}))),
        explained(web(), HERE, problems=(NO_LABEL,)),
        explained(web(), HERE, pods=()),
    ],
)
def test_objects_that_look_like_a_fault_and_are_not(found: Explanation) -> None:
    assert (found.verdict, found.healthy) == ("healthy: 1 of 1 endpoints used", True)


def test_an_address_that_the_load_balancer_answers_itself_is_reported() -> None:
    given = LoadBalancerStatus((LoadBalancerIngress("198.51.100.9", ip_mode="Proxy"),))
    found = explained(replace(BALANCED, status=ServiceStatus(given)), HERE)
    assert found.healthy
    assert found.verdict.endswith("; 198.51.100.9 is answered by the load balancer itself (ipMode Proxy)")


def test_which_addresses_lead_to_services() -> None:
    """Of those that are asked for, or all."""
    service = replace(
        make_service("web", "10.96.0.10", ports=PORT, load_balancer_ips=("198.51.100.9",)),
        metadata=replace(web().metadata, name="other"),
    )
    translator = Translator()
    node = Context(node_name="node-a", node_addresses=("192.168.0.2",))
    translator.update(World(service, make_slice(service, [HERE], target_port=8080)), None, node)
    states = translator.states.values()
    every = AddressesInUse(
        frozenset({"10.96.0.10"}), frozenset({("192.168.0.2", 30080)}), frozenset({("198.51.100.9", 80)})
    )
    assert addresses_in_use(states, node.node_addresses) == every
    assert addresses_in_use(states, node.node_addresses, among={"10.96.0.10"}) == AddressesInUse(every.cluster_ips)
    assert addresses_in_use(states, node.node_addresses, among={"192.168.0.2"}) == AddressesInUse(here=every.here)
    assert addresses_in_use(states, node.node_addresses, among={"198.51.100.9"}) == AddressesInUse(
        outside=every.outside
    )
    assert addresses_in_use(states, node.node_addresses, among=()) == AddressesInUse()
