"""A Service is plainly healthy if every endpoint is ready and nothing is wrong; all else is left to the full explanation."""

import pytest
from msgspec.structs import replace

from nodeagent.diagnosis.explain.kernel import (
    KernelService,
    NodeFault,
    Probe,
    ProbeResult,
    StoppedConnection,
    TableState,
)
from nodeagent.diagnosis.explain.plain_health import is_plainly_healthy
from nodeagent.diagnosis.explain.service import explain_service
from nodeagent.diagnosis.explain.service_facts import ServiceFacts
from nodeagent.model.addresses import Family
from nodeagent.model.addresses_in_use import AddressesInUse
from nodeagent.model.objects import EndpointSlice, ServiceSpec
from nodeagent.model.problem import Problem
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.services import translate_service
from tests.harness.objects import make_endpoint, make_service, make_slice, service_port

CONTEXT = Context(node_name="node-a", node_addresses=("192.168.0.2",))
PORTS = (service_port(80, name="http"), service_port(443, name="https"))
WEB = make_service("web", "10.96.0.10", ports=PORTS)
HERE, THERE = make_endpoint("10.244.1.10", "node-a"), make_endpoint("10.244.2.10", "node-b")
SLICE = make_slice(WEB, [HERE, THERE])
STATE = translate_service(WEB, [SLICE], CONTEXT)
FACTS = ServiceFacts(service=WEB, slices=(SLICE,), context=CONTEXT, state=STATE)
LOCAL = make_service("web", "10.96.0.10", ports=PORTS[:1], spec=ServiceSpec(internal_traffic_policy="Local"))


def with_slices(*slices: EndpointSlice) -> ServiceFacts:
    return replace(FACTS, slices=slices, state=translate_service(WEB, slices, CONTEXT))


def test_an_ordinary_service_is() -> None:
    assert is_plainly_healthy(FACTS)
    assert is_plainly_healthy(replace(FACTS, probes=(Probe("10.244.1.10:80", ProbeResult.ACCEPTED),)))
    assert is_plainly_healthy(replace(FACTS, kernel=(KernelService("IPv4", TableState.RIGHT),)))


OTHER_PORT = make_slice(make_service("web", "10.96.0.10", ports=(service_port(80, name="web"),)), [HERE])
BROKEN = {
    "not programmed": replace(FACTS, state=None),
    "no slice": with_slices(),
    "no endpoint": with_slices(make_slice(WEB, [])),
    "none ready": with_slices(make_slice(WEB, [make_endpoint("10.244.1.10", "node-a", ready=False)])),
    "a port without endpoints": with_slices(
        make_slice(make_service("web", "10.96.0.10", ports=(service_port(80, name="http"),)), [HERE])
    ),
    "another name of the port": with_slices(OTHER_PORT),
    "slices that changed since": replace(FACTS, slices=(OTHER_PORT,)),
    "only terminating endpoints": with_slices(
        make_slice(WEB, [make_endpoint("10.244.1.10", ready=False, serving=True, terminating=True)])
    ),
    "local, and none here": ServiceFacts(
        service=LOCAL,
        slices=(make_slice(LOCAL, [THERE]),),
        context=CONTEXT,
        state=translate_service(LOCAL, [make_slice(LOCAL, [THERE])], CONTEXT),
    ),
    "a ClusterIP as endpoint": replace(FACTS, taken=AddressesInUse(cluster_ips=frozenset({"10.244.2.10"}))),
    "an endpoint in their range": replace(FACTS, service_ranges=("10.244.2.0/28",)),
    "a node port as endpoint": replace(FACTS, taken=AddressesInUse(here=frozenset({("10.244.2.10", 80)}))),
    "an external address as endpoint": replace(FACTS, taken=AddressesInUse(outside=frozenset({("10.244.1.10", 443)}))),
    "a ClusterIP among pods": replace(FACTS, pod_ranges=("10.96.0.0/28",)),
    "an endpoint that is silent": replace(FACTS, probes=(Probe("10.244.1.10:80", ProbeResult.SILENT),)),
    "no table": replace(FACTS, kernel=(KernelService("IPv4", TableState.MISSING),)),
    "a deviation": replace(FACTS, kernel=(KernelService("IPv4", TableState.RIGHT, deviations=("frontends",)),)),
    "not on the interface": replace(
        FACTS, kernel=(KernelService("IPv4", TableState.RIGHT, not_local=("10.96.0.10",)),)
    ),
    "a fault of the node": replace(FACTS, node_faults=(NodeFault("all fail", "why", "do", broken=True),)),
    "a stopped connection": replace(FACTS, stopped=(StoppedConnection("a pod", "10.96.0.10:80/TCP", "a rule", "do"),)),
    "a problem of its own": replace(FACTS, problems=(Problem("Service default/web", "InvalidPort", "port"),)),
    "a problem of its slice": replace(
        FACTS, problems=(Problem("EndpointSlice default/web-ipv4", "InvalidAddress", "1"),)
    ),
    "a silent API server": replace(FACTS, problems=(Problem("API server", "Unreachable", "no answer"),)),
}


@pytest.mark.parametrize("facts", BROKEN.values(), ids=BROKEN)
def test_a_service_that_is_not_healthy_is_not(facts: ServiceFacts) -> None:
    assert not is_plainly_healthy(facts)
    assert not explain_service(facts).healthy


def test_services_that_need_the_full_account_are_left_to_it() -> None:
    resting = with_slices(make_slice(WEB, [HERE, make_endpoint("10.244.1.11", "node-a", ready=False)]))
    two = make_service("web", "10.96.0.10", "fd00:96::a", ports=PORTS)
    one_family = make_slice(two, [HERE])
    no_ipv6 = ServiceFacts(
        service=two, slices=(one_family,), context=CONTEXT, state=translate_service(two, [one_family], CONTEXT)
    )
    assert not is_plainly_healthy(resting)
    assert explain_service(resting).healthy
    assert not is_plainly_healthy(no_ipv6)
    assert not explain_service(no_ipv6).healthy
    assert Family.IPV6.value in explain_service(no_ipv6).verdict
