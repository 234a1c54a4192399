"""docs/semantics.md §2 and §6: which Services, and which of their addresses, are captured."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import FrontendKind, ServiceState
from nodeagent.model.objects import Service
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.services import translate_service

ServiceBuilder = Callable[..., Service]

DUAL: dict[str, Any] = {"clusterIPs": ["10.96.0.10", "fd00:96::10"], "ipFamilies": ["IPv4", "IPv6"]}


def places(state: ServiceState) -> list[str]:
    """``kind address port`` of every frontend, sorted."""
    return sorted(f"{f.kind.value} {f.address or f.family.value} {f.port}" for f in state.frontends)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"clusterIP": "None"}, id="10-headless"),
        pytest.param({"clusterIP": ""}, id="10-no-cluster-ip-yet"),
        pytest.param({"clusterIP": None}, id="10-null"),
        pytest.param({"type": "ExternalName"}, id="10-external-name-even-with-a-cluster-ip"),
    ],
)
def test_a_service_that_is_not_proxied_wants_nothing(
    spec: dict[str, Any], service: ServiceBuilder, context: Context
) -> None:
    found = translate_service(service(**spec, externalIPs=["192.0.2.1"]), [], context)
    assert (found.cluster_ips, found.frontends, found.problems) == ((), (), ())


@pytest.mark.parametrize(
    ("spec", "cluster_ips"),
    [
        pytest.param({"clusterIP": "10.96.0.10"}, ("10.96.0.10",), id="11-no-families-declared"),
        pytest.param({"clusterIP": "fd00:96::10"}, ("fd00:96::10",), id="11-no-families-declared-v6"),
        pytest.param(DUAL, ("10.96.0.10", "fd00:96::10"), id="11-dual-stack"),
        pytest.param(
            {"clusterIP": "fd00:96::10", "clusterIPs": ["fd00:96::10", "10.96.0.10"], "ipFamilies": ["IPv6", "IPv4"]},
            ("10.96.0.10", "fd00:96::10"),
            id="11-ipv6-first",
        ),
        pytest.param(
            {"clusterIPs": ["10.96.0.10", "fd00:96::10"], "ipFamilies": ["IPv4"]},
            ("10.96.0.10",),
            id="11-an-address-without-declared-family-does-not-count",
        ),
        pytest.param({"clusterIPs": DUAL["clusterIPs"]}, ("10.96.0.10", "fd00:96::10"), id="manifest-without-families"),
        pytest.param({"ipFamilies": ["IPv4", "IPv6"]}, ("10.96.0.10",), id="manifest-without-clusterIPs"),
        pytest.param({"clusterIP": "010.096.0.010"}, ("10.96.0.10",), id="15-leading-zeros-are-decimal"),
        pytest.param({"clusterIP": "169.254.20.10"}, ("169.254.20.10",), id="a-link-local-cluster-ip-is-a-choice"),
    ],
)
def test_each_family_has_its_own_cluster_ip(
    spec: dict[str, Any], cluster_ips: tuple[str, ...], service: ServiceBuilder, context: Context
) -> None:
    found = translate_service(service(**spec), [], context)
    assert found.cluster_ips == cluster_ips
    assert tuple(frontend.address for frontend in found.frontends) == cluster_ips
    assert found.problems == ()


def test_11_without_a_cluster_ip_in_a_family_the_service_is_invisible_there(
    service: ServiceBuilder, context: Context
) -> None:
    found = translate_service(
        service(type="LoadBalancer", externalIPs=["192.0.2.1", "2001:db8::1"], ingress=["1.2.3.4", "2001:db8::4"]),
        [],
        context,
    )
    assert {frontend.family for frontend in found.frontends} == {Family.IPV4}


def test_38_to_41_every_way_to_reach_a_service_port_is_a_frontend(service: ServiceBuilder, context: Context) -> None:
    everything = service(
        **DUAL,
        type="LoadBalancer",
        externalIPs=["192.0.2.1", "2001:db8::1"],
        ingress=["1.2.3.4", "2001:db8::4"],
        ports=[{"port": 80, "nodePort": 30080}],
    )
    assert places(translate_service(everything, [], context)) == [
        "ClusterIP 10.96.0.10 80",
        "ClusterIP fd00:96::10 80",
        "ExternalIP 192.0.2.1 80",
        "ExternalIP 2001:db8::1 80",
        "LoadBalancer 1.2.3.4 80",
        "LoadBalancer 2001:db8::4 80",
        "NodePort IPv4 30080",
        "NodePort IPv6 30080",
    ]


@pytest.mark.parametrize(
    ("entry", "captured"),
    [
        pytest.param({"ip": "1.2.3.4"}, True, id="40-no-mode"),
        pytest.param({"ip": "1.2.3.4", "ipMode": "VIP"}, True, id="40-vip"),
        pytest.param({"ip": "1.2.3.4", "ipMode": "Proxy"}, False, id="40-proxy"),
        pytest.param({"ip": "1.2.3.4", "ipMode": "Future"}, False, id="40-anything-else"),
        pytest.param({"hostname": "lb.example.org"}, False, id="14-hostname"),
        pytest.param({"ip": ""}, False, id="blank"),
    ],
)
@pytest.mark.parametrize("kind", ["LoadBalancer", "ClusterIP"])
def test_a_load_balancer_address_is_captured_by_its_mode_with_any_type(
    entry: dict[str, str], captured: bool, kind: str, service: ServiceBuilder, context: Context
) -> None:
    found = translate_service(service(type=kind, ingress=[entry]), [], context)
    assert ("LoadBalancer 1.2.3.4 80" in places(found)) is captured
    assert found.problems == ()


def test_18_external_ips_can_be_switched_off(service: ServiceBuilder, context: Context) -> None:
    off = msgspec.structs.replace(context, external_ips_enabled=False)
    found = translate_service(service(externalIPs=["192.0.2.1"], externalTrafficPolicy="Local"), [], off)
    assert places(found) == ["ClusterIP 10.96.0.10 80"]


@pytest.mark.parametrize(
    ("addresses", "captured", "problems"),
    [
        pytest.param(["192.000.002.001"], ["192.0.2.1"], 0, id="15-leading-zeros"),
        pytest.param([" ", ""], [], 0, id="15-blank-ones-silently"),
        pytest.param(["example.org", "192.0.2.1"], ["192.0.2.1"], 1, id="15-unparsable"),
        pytest.param(["192.0.2.1", "192.000.2.1"], ["192.0.2.1"], 0, id="one-address-twice"),
        pytest.param(
            ["127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "255.255.255.255"], [], 5, id="16-node-critical"
        ),
        pytest.param(["fe80::1", "::1", "::", "ff02::1"], [], 4, id="16-node-critical-v6"),
    ],
)
@pytest.mark.parametrize("field", ["externalIPs", "ingress"])
def test_addresses_nobody_may_capture_are_left_out_and_reported(
    addresses: list[str], captured: list[str], problems: int, field: str, service: ServiceBuilder, context: Context
) -> None:
    found = translate_service(service(**DUAL, **{field: addresses}), [], context)
    assert [f.address for f in found.frontends if f.kind is not FrontendKind.CLUSTER_IP] == captured
    assert [problem.reason for problem in found.problems] == ["InvalidAddress"] * problems
    assert {problem.subject for problem in found.problems} <= {"Service default/web"}


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"clusterIP": "example.org"}, id="not-an-address"),
        pytest.param({"clusterIP": "127.0.0.1"}, id="loopback"),
        pytest.param({"clusterIPs": ["10.96.0.10"], "ipFamilies": ["IPv6"]}, id="of-another-family-than-declared"),
    ],
)
def test_a_bad_cluster_ip_hides_the_service_and_is_reported(
    spec: dict[str, Any], service: ServiceBuilder, context: Context
) -> None:
    found = translate_service(service(**spec), [], context)
    assert (found.cluster_ips, found.frontends) == ((), ())
    assert {problem.reason for problem in found.problems} == {"InvalidAddress"}
