"""docs/semantics.md 74-77: what external addresses and node ports may not take from the node."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.model.frontend import FrontendKind, ServiceState
from nodeagent.model.objects import Service, key_of
from nodeagent.model.protected import Protected
from nodeagent.model.snapshot import Snapshot
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.node_state import TranslationOptions, node_context
from nodeagent.proxy.translate.protection import Protection, protection
from nodeagent.proxy.translate.services import translate_service
from nodeagent.proxy.translate.translator import Translator
from tests.unit.proxy.translate.test_translator import Objects

ServiceBuilder = Callable[..., Service]

DUAL: dict[str, Any] = {"clusterIPs": ["10.96.0.10", "fd00:96::10"], "ipFamilies": ["IPv4", "IPv6"]}
API = "198.51.100.1"
API_6 = "2001:db8:a::1"
OWN = "192.168.0.2"
OWN_6 = "2001:db8::2"
PROTECTED = Protected(frozenset({(API, 6443), (API_6, 6443)}), frozenset({OWN, OWN_6}), frozenset({6443}))
PORTS = (22, 10249, 10250, 10256)


def captured(state: ServiceState) -> list[str]:
    """``address port`` (``*`` for a node port) of every frontend but those of ClusterIPs, sorted."""
    external = [f for f in state.frontends if f.kind is not FrontendKind.CLUSTER_IP]
    return sorted({f"{f.address or '*'} {f.port}/{f.protocol.name}" for f in external})


def translated(
    service: Service, context: Context, ports: tuple[int, ...] = PORTS, protected: Protected = PROTECTED
) -> ServiceState:
    return translate_service(service, [], replace(context, protection=protection(protected, (), ports)))


@pytest.mark.parametrize("field", ["externalIPs", "ingress"])
@pytest.mark.parametrize(
    ("address", "port", "protocol", "ports", "taken"),
    [
        pytest.param(API, 6443, "TCP", PORTS, False, id="74-the-API-server"),
        pytest.param(API_6, 6443, "TCP", PORTS, False, id="74-the-API-server-v6"),
        pytest.param("::ffff:198.51.100.1", 6443, "TCP", PORTS, False, id="74-the-API-server-mapped-into-IPv6"),
        pytest.param("198.051.100.001", 6443, "TCP", PORTS, False, id="74-the-API-server-spelled-otherwise"),
        pytest.param(API, 6443, "TCP", (), False, id="74-the-API-server-whatever-the-configuration"),
        pytest.param(API, 6444, "TCP", PORTS, True, id="74-another-port-of-its-host"),
        pytest.param(API, 22, "TCP", PORTS, True, id="74-SSH-of-its-host-is-not-this-node's"),
        pytest.param(API, 6443, "UDP", PORTS, True, id="74-another-protocol"),
        pytest.param(OWN, 22, "TCP", PORTS, False, id="75-SSH"),
        pytest.param(OWN_6, 10250, "TCP", PORTS, False, id="75-the-kubelet-v6"),
        pytest.param(OWN, 6443, "TCP", PORTS, False, id="75-an-API-server-here"),
        pytest.param(OWN, 22, "UDP", PORTS, True, id="75-another-protocol"),
        pytest.param(OWN, 80, "TCP", PORTS, True, id="75-any-other-port"),
        pytest.param(OWN, 22, "TCP", (), True, id="75-switched-off"),
        pytest.param(OWN, 6443, "TCP", (), True, id="75-switched-off-for-the-API-port-too"),
        pytest.param(OWN, 2222, "TCP", (2222,), False, id="75-a-port-of-one's-own"),
        pytest.param(OWN, 22, "TCP", (2222,), True, id="75-in-the-place-of-the-default"),
        pytest.param("192.168.0.3", 22, "TCP", PORTS, True, id="75-somebody-else's-address"),
    ],
)
def test_addresses_that_the_node_needs_are_not_captured(
    field: str,
    address: str,
    port: int,
    protocol: str,
    ports: tuple[int, ...],
    taken: bool,
    service: ServiceBuilder,
    context: Context,
) -> None:
    port_and_another = [{"name": "a", "port": port, "protocol": protocol}, {"name": "b", "port": 7777}]
    found = translated(service(**DUAL, **{field: [address]}, ports=port_and_another), context, ports)
    assert len(captured(found)) == (2 if taken else 1), "the other port is captured in any case"
    assert len([f for f in found.frontends if f.kind is FrontendKind.CLUSTER_IP]) == 4
    problems = [] if taken else [("Service default/web", "ProtectedAddress")]
    assert [(problem.subject, problem.reason) for problem in found.problems] == problems


DNS = "192.168.0.53"
RESOLVER = "203.0.113.53"
NAMES = Protected(own=frozenset({DNS}), names=frozenset({(DNS, 53)}), resolvers=frozenset({(RESOLVER, 53)}))


@pytest.mark.parametrize(
    ("field", "address", "port", "protocol", "taken"),
    [
        pytest.param("externalIPs", DNS, 53, "UDP", False, id="77-where-names-are-answered"),
        pytest.param("externalIPs", DNS, 53, "TCP", False, id="77-by-TCP-too"),
        pytest.param("ingress", DNS, 53, "UDP", False, id="77-nor-a-load-balancer's"),
        pytest.param("externalIPs", DNS, 53, "SCTP", True, id="77-another-protocol"),
        pytest.param("externalIPs", DNS, 54, "UDP", True, id="77-another-port"),
        pytest.param("externalIPs", RESOLVER, 53, "UDP", False, id="77-whom-the-node-asks"),
        pytest.param("externalIPs", RESOLVER, 53, "TCP", False, id="77-whom-the-node-asks-by-TCP"),
        pytest.param("ingress", RESOLVER, 53, "UDP", True, id="77-a-resolver-of-the-cluster's-own"),
        pytest.param("externalIPs", "203.0.113.54", 53, "UDP", True, id="77-another-resolver"),
    ],
)
def test_names_are_not_captured(
    field: str, address: str, port: int, protocol: str, taken: bool, service: ServiceBuilder, context: Context
) -> None:
    declared = [{"name": "a", "port": port, "protocol": protocol}, {"name": "b", "port": 7777}]
    found = translated(service(**DUAL, **{field: [address]}, ports=declared), context, (), NAMES)
    assert len(captured(found)) == (2 if taken else 1), "the other port is captured in any case"
    assert [problem.reason for problem in found.problems] == ([] if taken else ["ProtectedAddress"])


@pytest.mark.parametrize(("port", "answers"), [(53, False), (54, True)])
def test_77_no_node_port_answers_in_the_place_of_names(
    port: int, answers: bool, service: ServiceBuilder, context: Context
) -> None:
    declared = [{"port": 80, "nodePort": port, "protocol": "UDP"}]
    found = translated(service(**DUAL, type="NodePort", ports=declared), context, (), NAMES)
    assert captured(found) == ([f"* {port}/UDP"] if answers else [])


@pytest.mark.parametrize(
    ("port", "protocol", "ports", "ways", "answers"),
    [
        pytest.param(10250, "TCP", PORTS, {(API, 6443)}, False, id="76-the-kubelet"),
        pytest.param(10250, "UDP", PORTS, {(API, 6443)}, True, id="76-another-protocol"),
        pytest.param(10250, "TCP", (), {(API, 6443)}, True, id="76-switched-off"),
        pytest.param(30000, "TCP", PORTS, {(API, 6443)}, True, id="76-any-other-port"),
        pytest.param(31443, "TCP", PORTS, {(API, 31443)}, False, id="76-the-API-server's"),
        pytest.param(31443, "TCP", (), {(API, 31443)}, True, id="76-the-API-server's-elsewhere-switched-off"),
        pytest.param(31443, "TCP", (), {(OWN, 31443)}, False, id="74-the-API-server-here"),
    ],
)
def test_no_node_port_answers_in_the_place_of_the_node(
    port: int,
    protocol: str,
    ports: tuple[int, ...],
    ways: set[tuple[str, int]],
    answers: bool,
    service: ServiceBuilder,
    context: Context,
) -> None:
    declared = [{"port": 80, "nodePort": port, "protocol": protocol}]
    here = Protected(frozenset(ways), frozenset({OWN}), frozenset(taken for _, taken in ways))
    found = translated(service(**DUAL, type="NodePort", ports=declared), context, ports, here)
    assert captured(found) == ([f"* {port}/{protocol}"] if answers else [])
    assert [problem.reason for problem in found.problems] == ([] if answers else ["ProtectedAddress"])


def test_74_the_API_servers_own_service_keeps_its_cluster_ip(service: ServiceBuilder, context: Context) -> None:  # noqa: N802
    protected = Protected(frozenset({("10.96.0.1", 443)}), frozenset(), frozenset({443}))
    found = translated(service("kubernetes", clusterIP="10.96.0.1", ports=[{"port": 443}]), context, PORTS, protected)
    assert ([f.address for f in found.frontends], found.problems) == (["10.96.0.1"], ())


def test_the_problem_says_what_is_protected_and_why(service: ServiceBuilder, context: Context) -> None:
    greedy = service(
        **DUAL,
        externalIPs=[API, OWN_6],
        ports=[{"name": "a", "port": 6443, "nodePort": 10250}, {"name": "b", "port": 22}],
    )
    own = "is an address of this node, whose port {} traffic.protectedPorts protects: not captured"
    assert [problem.detail for problem in translated(greedy, context).problems] == [
        "external IP 198.51.100.1:6443/TCP is where this node reaches the API server: not captured",
        f"external IP [2001:db8::2]:22/TCP {own.format(22)}",
        f"external IP [2001:db8::2]:6443/TCP {own.format(6443)}",
        "node port 10250/TCP is protected by traffic.protectedPorts: it does not answer",
    ]


@pytest.mark.parametrize(
    ("ports", "api_port", "protected"),
    [
        pytest.param(PORTS, 6443, {*PORTS, 6443}, id="the-API-server's-too"),
        pytest.param(PORTS, 443, set(PORTS), id="but-not-443-which-ingresses-have"),
        pytest.param((443,), 443, {443}, id="unless-it-is-listed"),
        pytest.param((), 6443, set(), id="none-of-none"),
    ],
)
def test_75_which_ports_are_protected(ports: tuple[int, ...], api_port: int, protected: set[int]) -> None:
    assert protection(Protected(api_ports=frozenset({api_port})), (), ports).ports == protected


def test_75_addresses_of_the_node_object_count_as_those_of_the_kernel_do() -> None:
    options = TranslationOptions(node_name="here", bind_address="203.0.113.9", protected_ports=(22,))
    found = node_context(None, options, None, Protected(own=frozenset({OWN})))
    assert found.protection == Protection(frozenset(), frozenset({OWN, "203.0.113.9"}), frozenset({22}))


def test_another_protection_translates_those_again_that_may_be_captured(
    service: ServiceBuilder, context: Context
) -> None:
    plain = service("plain", clusterIP="10.96.0.11")
    external = service("external", clusterIP="10.96.0.12", externalIPs=[API], ports=[{"port": 6443}])
    balanced = service("balanced", clusterIP="10.96.0.13", ingress=["203.0.113.1"])
    node_port = service("node-port", clusterIP="10.96.0.14", ports=[{"port": 80, "nodePort": 30080}])
    objects: Snapshot = Objects(plain, external, balanced, node_port)
    translator = Translator()
    translator.update(objects, None, context)
    after = replace(context, protection=protection(PROTECTED, (), PORTS))
    assert set(translator.outdated_by(after)) == {key_of(external), key_of(balanced), key_of(node_port)}
    assert set(translator.update(objects, (), after)) == {key_of(external)}
    assert set(translator.update(objects, (), context)) == {key_of(external)}, "free again"
