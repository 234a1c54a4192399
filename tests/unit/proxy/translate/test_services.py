"""docs/semantics.md §2, §7, §9, 66 and 72: one Service becomes frontends, a health check and UDP ports."""

from collections.abc import Callable
from typing import Any

import pytest

from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.frontend import Frontend, FrontendKind, HealthCheck, Scope, ServiceState
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.model.objects import EndpointSlice, Service
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.services import translate_service

ServiceBuilder = Callable[..., Service]
SliceBuilder = Callable[..., EndpointSlice]

EXTERNAL: dict[str, Any] = {
    "type": "LoadBalancer",
    "externalIPs": ["192.0.2.1"],
    "ingress": ["1.2.3.4"],
    "ports": [{"port": 80, "nodePort": 30080}],
}


def of_kind(state: ServiceState, kind: FrontendKind) -> Frontend:
    (frontend,) = [frontend for frontend in state.frontends if frontend.kind is kind]
    return frontend


def external(state: ServiceState) -> list[Frontend]:
    return [frontend for frontend in state.frontends if frontend.kind is not FrontendKind.CLUSTER_IP]


def test_a_cluster_ip_leads_to_the_endpoints_and_keeps_the_source(
    service: ServiceBuilder, endpoint_slice: SliceBuilder, context: Context
) -> None:
    found = translate_service(service(), [endpoint_slice("10.0.0.2@there", "10.0.0.1@here")], context)
    (frontend,) = found.frontends
    assert frontend.place == (Family.IPV4, "10.96.0.10", Protocol.TCP, 80)
    assert [(b.address, b.port, b.local) for b in frontend.route.backends] == [
        ("10.0.0.1", 8080, True),
        ("10.0.0.2", 8080, False),
    ]
    assert (frontend.masquerade, frontend.short_circuit, frontend.allowed_sources) == (False, None, None)


def test_44_external_traffic_policy_cluster_masquerades_and_needs_no_short_circuit(
    service: ServiceBuilder, endpoint_slice: SliceBuilder, context: Context
) -> None:
    found = translate_service(service(**EXTERNAL), [endpoint_slice("10.0.0.1@here", "10.0.0.2")], context)
    assert len(external(found)) == 3
    for frontend in external(found):
        assert (frontend.masquerade, frontend.short_circuit, frontend.route.scope) == (True, None, Scope.CLUSTER)
        assert len(frontend.route.backends) == 2


def test_45_external_traffic_policy_local_has_a_short_circuit_on_every_external_frontend(
    service: ServiceBuilder, endpoint_slice: SliceBuilder, context: Context
) -> None:
    local = service(**EXTERNAL, externalTrafficPolicy="Local")
    found = translate_service(local, [endpoint_slice("10.0.0.1@here", "10.0.0.2")], context)
    assert len(external(found)) == 3
    for frontend in external(found):
        assert not frontend.masquerade
        assert [backend.address for backend in frontend.route.backends] == ["10.0.0.1"]
        assert frontend.route.scope is Scope.LOCAL
        assert frontend.short_circuit is not None
        assert frontend.short_circuit.scope is Scope.CLUSTER
        assert len(frontend.short_circuit.backends) == 2
    assert of_kind(found, FrontendKind.CLUSTER_IP).route.scope is Scope.CLUSTER


def test_32_internal_traffic_policy_concerns_the_cluster_ip_only(
    service: ServiceBuilder, endpoint_slice: SliceBuilder, context: Context
) -> None:
    found = translate_service(
        service(**EXTERNAL, internalTrafficPolicy="Local"), [endpoint_slice("10.0.0.1@here", "10.0.0.2")], context
    )
    internal = of_kind(found, FrontendKind.CLUSTER_IP)
    assert (internal.route.scope, len(internal.route.backends), internal.short_circuit) == (Scope.LOCAL, 1, None)
    assert {len(frontend.route.backends) for frontend in external(found)} == {2}


@pytest.mark.parametrize(
    ("spec", "honoured"),
    [
        pytest.param({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]}, True, id="32-node-port"),
        pytest.param({"type": "LoadBalancer", "ingress": ["1.2.3.4"]}, True, id="32-load-balancer"),
        pytest.param({"type": "ClusterIP", "externalIPs": ["192.0.2.1"]}, True, id="32-external-ips"),
        pytest.param({"type": "ClusterIP", "ingress": ["1.2.3.4"]}, False, id="32-left-over-on-a-cluster-ip"),
    ],
)
def test_external_traffic_policy_counts_on_services_meant_for_outside(
    spec: dict[str, Any], honoured: bool, service: ServiceBuilder, context: Context
) -> None:
    found = translate_service(service(**spec, externalTrafficPolicy="Local"), [], context)
    assert [frontend.short_circuit is not None for frontend in external(found)] == [honoured]
    assert [frontend.masquerade for frontend in external(found)] == [not honoured]


def test_12_13_service_ports_are_independent(
    service: ServiceBuilder, endpoint_slice: SliceBuilder, context: Context
) -> None:
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
    some = endpoint_slice("10.0.0.1", ports=[{"name": "dns", "port": 5353, "protocol": "UDP"}])
    found = translate_service(service(ports=ports), [some], context)
    key = ObjectKey("default", "web")
    assert {(f.service_port, f.protocol, len(f.route.backends)) for f in found.frontends} == {
        (ServicePortName(key, "dns", Protocol.UDP), Protocol.UDP, 1),
        (ServicePortName(key, "dns-tcp", Protocol.TCP), Protocol.TCP, 0),
    }


@pytest.mark.parametrize(
    ("ports", "reasons", "kept"),
    [
        pytest.param([{"port": 0}], ["InvalidPort"], 0, id="zero"),
        pytest.param([{"port": 65536}, {"name": "b", "port": 65535}], ["InvalidPort"], 1, id="too-large"),
        pytest.param([{"port": 80, "protocol": "DCCP"}], ["InvalidPort"], 0, id="13-unknown-protocol"),
        pytest.param([{"port": 80, "nodePort": 70000}], ["InvalidPort"], 0, id="node-port-too-large"),
        pytest.param([{"port": 80}, {"port": 81}], ["DuplicatePort"], 1, id="12-one-name-twice"),
        pytest.param([{"name": "a", "port": 80}, {"name": "b", "port": 80}], ["DuplicatePort"], 1, id="one-port-twice"),
    ],
)
def test_an_unusable_port_is_left_out_and_reported(
    ports: Any, reasons: list[str], kept: int, service: ServiceBuilder, context: Context
) -> None:
    found = translate_service(service(ports=ports), [], context)
    assert [problem.reason for problem in found.problems] == reasons
    assert len(found.frontends) == kept
    assert found.cluster_ips == ("10.96.0.10",)


@pytest.mark.parametrize(
    ("spec", "kinds"),
    [
        pytest.param({"externalIPs": ["10.96.0.10"]}, ["ClusterIP"], id="external-is-cluster-ip"),
        pytest.param({"ingress": ["10.96.0.10"]}, ["ClusterIP"], id="load-balancer-is-cluster-ip"),
        pytest.param(
            {"externalIPs": ["1.2.3.4"], "ingress": ["1.2.3.4"]},
            ["ClusterIP", "LoadBalancer"],
            id="the-guarded-one-of-load-balancer-and-external",
        ),
    ],
)
def test_one_address_under_two_names_is_one_frontend(
    spec: dict[str, Any], kinds: list[str], service: ServiceBuilder, context: Context
) -> None:
    found = translate_service(service(type="LoadBalancer", **spec), [], context)
    assert [frontend.kind.value for frontend in found.frontends] == kinds
    assert found.problems == ()


@pytest.mark.parametrize(
    ("spec", "seconds", "problems"),
    [
        pytest.param({}, None, [], id="55-none"),
        pytest.param({"sessionAffinity": "None"}, None, [], id="55-off"),
        pytest.param({"sessionAffinity": "ClientIP"}, 10800, [], id="55-nil-config"),
        pytest.param({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {}}, 10800, [], id="55-nil-client-ip"),
        pytest.param(
            {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}},
            60,
            [],
            id="55-given",
        ),
        pytest.param(
            {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 86401}}},
            10800,
            ["InvalidAffinityTimeout"],
            id="55-too-long",
        ),
    ],
)
def test_affinity_is_on_every_frontend_of_the_service(
    spec: dict[str, Any], seconds: int | None, problems: list[str], service: ServiceBuilder, context: Context
) -> None:
    found = translate_service(service(**EXTERNAL, **spec), [], context)
    assert {frontend.affinity_seconds for frontend in found.frontends} == {seconds}
    assert [problem.reason for problem in found.problems] == problems


HEALTH: dict[str, Any] = {**EXTERNAL, "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000}


def test_72_the_health_check_counts_distinct_local_ready_addresses_of_each_family(
    service: ServiceBuilder, endpoint_slice: SliceBuilder, context: Context
) -> None:
    draining = {"addresses": ["10.0.0.3"], "nodeName": "here", "conditions": {"ready": False, "terminating": True}}
    ports = [{"name": "a", "port": 1}, {"name": "b", "port": 2}]
    some = endpoint_slice("10.0.0.1@here", "10.0.0.2@there", "10.0.0.4@here", draining, ports=ports)
    found = translate_service(service(**HEALTH), [some], context)
    assert found.health_check == HealthCheck(31000, {Family.IPV4: 2})


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"type": "NodePort"}, id="72-not-a-load-balancer"),
        pytest.param({"externalTrafficPolicy": "Cluster"}, id="72-policy-cluster"),
        pytest.param({"healthCheckNodePort": 0}, id="72-no-port"),
    ],
)
def test_otherwise_there_is_no_health_check(change: dict[str, Any], service: ServiceBuilder, context: Context) -> None:
    assert translate_service(service(**{**HEALTH, **change}), [], context).health_check is None


def test_66_a_udp_port_names_its_addresses_and_every_serving_endpoint(
    service: ServiceBuilder, endpoint_slice: SliceBuilder, context: Context
) -> None:
    udp = [{"port": 53, "protocol": "UDP", "nodePort": 30053}]
    endpoints = [
        {"addresses": ["10.0.0.1"], "conditions": {"ready": False, "serving": True, "terminating": True}},
        {"addresses": ["10.0.0.2"], "conditions": {"ready": False, "serving": True}},
        {"addresses": ["10.0.0.3"], "conditions": {"ready": False, "serving": False}},
        {"addresses": ["10.0.0.4"], "conditions": {"ready": True, "serving": False}},
    ]
    some = endpoint_slice(*endpoints, ports=[{"name": "", "port": 5353, "protocol": "UDP"}])
    found = translate_service(service(**{**EXTERNAL, "ports": udp}), [some], context)
    (port,) = found.udp_ports
    assert (set(port.addresses), port.port, port.node_port) == ({"10.96.0.10", "1.2.3.4", "192.0.2.1"}, 53, 30053)
    assert port.serving == {("10.0.0.1", 5353), ("10.0.0.2", 5353), ("10.0.0.4", 5353)}


def test_66_tcp_has_no_udp_ports_and_udp_without_endpoints_has_an_empty_one(
    service: ServiceBuilder, context: Context
) -> None:
    assert translate_service(service(), [], context).udp_ports == ()
    (port,) = translate_service(service(ports=[{"port": 53, "protocol": "UDP"}]), [], context).udp_ports
    assert port.serving == frozenset()
