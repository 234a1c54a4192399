"""What Kubernetes refuses, this server refuses, naming the same field."""

from collections.abc import Iterable
from typing import Any

import pytest

from nodeagent.kinds import endpoints, endpointslice, node, pod, service
from nodeagent.kinds.description import formats, object_rules
from nodeagent.kinds.description.decoding import normalise
from nodeagent.kinds.description.status import FieldError, object_invalid
from nodeagent.kinds.endpointslice import default_slice
from nodeagent.kinds.pod import default_pod
from nodeagent.kinds.secret import default_secret
from nodeagent.kinds.service import default_service
from nodeagent.kinds.service.kept_addresses import sync_first_address
from nodeagent.kinds.service.validation import validate_service

PORT = {"port": 80}


def service_errors(spec: Any, status: Any = None) -> list[FieldError]:
    document = normalise(service.SHAPES["Service"], {"spec": spec, "status": status or {}})
    default_service(document)
    sync_first_address(document["spec"])
    return list(validate_service(document))


def fields(errors: Iterable[FieldError]) -> list[str]:
    return [error.field for error in errors]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"ports": [PORT]}, id="one port"),
        pytest.param({"ports": [{"port": 53, "name": "t"}, {"port": 53, "name": "u", "protocol": "UDP"}]}, id="DNS"),
        pytest.param({"clusterIP": "None", "selector": {"a": "b"}}, id="headless without ports"),
        pytest.param({"type": "ExternalName", "externalName": "example.com."}, id="external name"),
        pytest.param({"type": "LoadBalancer", "ports": [PORT], "loadBalancerSourceRanges": [" 10.0.0.0/8 "]}, id="lb"),
        pytest.param(
            {"ports": [PORT], "externalIPs": ["192.0.2.1"], "externalTrafficPolicy": "Local"}, id="external ip"
        ),
        pytest.param({"ports": [{"port": 80, "targetPort": "web"}], "sessionAffinity": "ClientIP"}, id="affinity"),
        pytest.param({"ports": [{"port": 1, "protocol": "SCTP", "appProtocol": "kubernetes.io/h2c"}]}, id="sctp"),
        pytest.param({"ports": [PORT], "trafficDistribution": "PreferSameNode"}, id="distribution"),
    ],
)
def test_a_service_that_is_fine(spec: Any) -> None:
    assert service_errors(spec) == []


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, ["spec.ports"]),
        ({"type": "Other", "ports": [PORT]}, ["spec.type"]),
        ({"ports": [PORT, {"port": 81}]}, ["spec.ports[0].name", "spec.ports[1].name"]),
        ({"ports": [{"port": 1, "name": "a"}, {"port": 1, "name": "b"}]}, ["spec.ports[1]"]),
        ({"ports": [{"port": 1, "name": "a"}, {"port": 2, "name": "a"}]}, ["spec.ports[1].name"]),
        ({"ports": [{"port": 80, "name": "Web"}]}, ["spec.ports[0].name"]),
        ({"ports": [{"port": 80, "protocol": "ICMP"}]}, ["spec.ports[0].protocol"]),
        ({"ports": [{"port": 80, "targetPort": "no_good"}]}, ["spec.ports[0].targetPort"]),
        ({"ports": [{"port": 80, "targetPort": 70000}]}, ["spec.ports[0].targetPort"]),
        ({"ports": [{"port": 80, "nodePort": 30000}]}, ["spec.ports[0].nodePort"]),
        ({"ports": [PORT], "selector": {"a b": "c"}}, ["spec.selector"]),
        ({"ports": [PORT], "sessionAffinity": "Cookie"}, ["spec.sessionAffinity"]),
        (
            {
                "ports": [PORT],
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 86401}},
            },
            ["spec.sessionAffinityConfig.clientIP.timeoutSeconds"],
        ),
        ({"ports": [PORT], "clusterIP": "10.96.0.300"}, ["spec.clusterIPs[0]"]),
        ({"ports": [PORT], "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.2"]}, ["spec.clusterIPs"]),
        ({"ports": [PORT], "ipFamilies": ["IPv5"]}, ["spec.ipFamilies[0]"]),
        ({"ports": [PORT], "ipFamilies": ["IPv4", "IPv4"]}, ["spec.ipFamilies[1]"]),
        ({"ports": [PORT], "ipFamilyPolicy": "Both"}, ["spec.ipFamilyPolicy"]),
        ({"ports": [PORT], "externalIPs": ["127.0.0.1", "x"]}, ["spec.externalIPs[0]", "spec.externalIPs[1]"]),
        ({"ports": [PORT], "externalTrafficPolicy": "Local"}, ["spec.externalTrafficPolicy"]),
        ({"ports": [PORT], "internalTrafficPolicy": "Zone"}, ["spec.internalTrafficPolicy"]),
        ({"ports": [PORT], "healthCheckNodePort": 30000}, ["spec.healthCheckNodePort"]),
        ({"ports": [PORT], "loadBalancerSourceRanges": ["10.0.0.0/8"]}, ["spec.loadBalancerSourceRanges"]),
        (
            {"type": "LoadBalancer", "ports": [PORT], "loadBalancerSourceRanges": ["10.0.0.0/40"]},
            ["spec.loadBalancerSourceRanges[0]"],
        ),
        ({"ports": [PORT], "loadBalancerClass": "example.com/lb"}, ["spec.loadBalancerClass"]),
        ({"ports": [PORT], "allocateLoadBalancerNodePorts": False}, ["spec.allocateLoadBalancerNodePorts"]),
        ({"ports": [PORT], "trafficDistribution": "Anywhere"}, ["spec.trafficDistribution"]),
        ({"type": "ExternalName"}, ["spec.externalName"]),
        ({"type": "ExternalName", "externalName": "a b"}, ["spec.externalName"]),
        (
            {"type": "ExternalName", "externalName": "a.b", "clusterIP": "10.0.0.1"},
            ["spec.clusterIP", "spec.clusterIPs"],
        ),
    ],
)
def test_an_invalid_service(spec: Any, expected: list[str]) -> None:
    assert fields(service_errors(spec)) == expected


def test_a_load_balancers_status() -> None:
    spec = {"type": "LoadBalancer", "ports": [PORT]}
    wrong = {"loadBalancer": {"ingress": [{"ip": "x"}, {"ipMode": "VIP"}, {"ip": "192.0.2.1", "ipMode": "Magic"}]}}
    prefix = "status.loadBalancer.ingress"
    expected = [f"{prefix}[0].ip", f"{prefix}[1].ipMode", f"{prefix}[2].ipMode"]
    assert fields(service_errors(spec, wrong)) == expected
    elsewhere = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    assert fields(service_errors({"ports": [PORT]}, elsewhere)) == ["status.loadBalancer.ingress"]


def slice_errors(document: Any) -> list[str]:
    found = normalise(endpointslice.SHAPES["EndpointSlice"], document)
    default_slice(found)
    return fields(endpointslice.validate_slice(found))


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.1"]}], "ports": [{"port": 80}]}, []),
        ({"addressType": "FQDN", "endpoints": [{"addresses": ["a.example.com"]}]}, []),
        ({"endpoints": []}, ["addressType"]),
        ({"addressType": "IPX"}, ["addressType"]),
        ({"addressType": "IPv4", "endpoints": [{"addresses": []}]}, ["endpoints[0].addresses"]),
        ({"addressType": "IPv4", "endpoints": [{"addresses": ["2001:db8::1"]}]}, ["endpoints[0].addresses[0]"]),
        ({"addressType": "IPv4", "endpoints": [{"addresses": ["127.0.0.1"]}]}, ["endpoints[0].addresses[0]"]),
        ({"addressType": "IPv6", "endpoints": [{"addresses": ["fe80::1"]}]}, ["endpoints[0].addresses[0]"]),
        ({"addressType": "IPv4", "ports": [{"port": 80}, {"port": 81}]}, ["ports[1].name"]),
        ({"addressType": "IPv4", "ports": [{"port": 0, "protocol": "X"}]}, ["ports[0].protocol"]),
        ({"addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.1"]}] * 1001}, ["endpoints"]),
    ],
)
def test_endpoint_slices(document: Any, expected: list[str]) -> None:
    assert slice_errors(document) == expected


@pytest.mark.parametrize(
    ("subset", "expected"),
    [
        ({"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80, "protocol": "TCP"}]}, []),
        ({"ports": [{"port": 80, "protocol": "TCP"}]}, ["subsets[0]"]),
        ({"addresses": [{"ip": "169.254.1.1"}]}, ["subsets[0].addresses[0].ip"]),
        ({"notReadyAddresses": [{"ip": "one"}]}, ["subsets[0].notReadyAddresses[0].ip"]),
        (
            {
                "addresses": [{"ip": "192.0.2.1"}],
                "ports": [{"port": 1, "protocol": "TCP"}, {"port": 2, "protocol": "TCP"}],
            },
            ["subsets[0].ports[0].name", "subsets[0].ports[1].name"],
        ),
    ],
)
def test_endpoints(subset: Any, expected: list[str]) -> None:
    found = normalise(endpoints.SHAPES["Endpoints"], {"subsets": [subset]})
    assert fields(endpoints.validate_endpoints(found)) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"podCIDRs": ["10.244.0.0/24", "fd00:244::/64"]}, []),
        ({"podCIDRs": ["10.244.0.0/24", "10.245.0.0/24"]}, ["spec.podCIDRs"]),
        ({"podCIDRs": ["everything"]}, ["spec.podCIDRs[0]"]),
        ({"taints": [{"key": "k", "effect": "Never"}]}, ["spec.taints[0].effect"]),
    ],
)
def test_nodes(spec: Any, expected: list[str]) -> None:
    assert fields(node.validate_node(normalise(node.SHAPES["Node"], {"spec": spec}))) == expected


def test_a_pods_containers_stay_what_they_are() -> None:
    shape = pod.SHAPES["Pod"]
    first = normalise(shape, {"spec": {"containers": [{"name": "a", "image": "x:1"}]}})
    default_pod(first)
    newer = normalise(shape, {"spec": {"containers": [{"name": "a", "image": "x:2"}]}})
    default_pod(newer)
    assert list(pod.validate_pod_update(newer, first)) == []
    newer["spec"]["containers"][0]["name"] = "b"
    assert fields(pod.validate_pod_update(newer, first)) == ["spec"]


def test_an_immutable_config_stays() -> None:
    old = {"immutable": True, "data": {"a": "b"}}
    assert fields(object_rules.validate_data_update({"immutable": True, "data": {"a": "c"}}, old)) == ["data"]
    assert fields(object_rules.validate_data({"data": {"a b": ""}})) == ["data"]


def test_a_secrets_plain_text_becomes_data() -> None:
    secret: Any = {"stringData": {"b": "x"}, "data": {"a": "eQ=="}}
    default_secret(secret)
    assert secret == {"data": {"a": "eQ==", "b": "eA=="}, "type": "Opaque"}


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (formats.dns_label, ["a", "a-1", "1a"], ["", "A", "-a", "a-", "a.b", "x" * 64]),
        (formats.dns_subdomain, ["a.b", "a"], ["a..b", "A.b", ".a", "x" * 254]),
        (formats.qualified_name, ["a", "example.com/A_b", "x.y"], ["", "/a", "a/", "a/b/c", "Ex.com/a b", "-a"]),
        (formats.label_value, ["", "a", "A_b.c"], ["-a", "a b", "x" * 64]),
        (formats.port_name, ["http", "h2c-1"], ["1", "a--b", "-a", "toolongforaportname", "A"]),
    ],
)
def test_formats(check: formats.Check, good: list[str], bad: list[str]) -> None:
    assert [value for value in good if check(value)] == []
    assert [value for value in bad if not check(value)] == []


def test_metadata() -> None:
    def errors(**meta: Any) -> list[str]:
        return fields(object_rules.metadata({"metadata": meta}, formats.dns_label, namespaced=True))

    assert errors(name="web", namespace="demo", labels={"a": "b"}) == []
    assert errors(namespace="demo") == ["metadata.name"]
    assert errors(name="web") == ["metadata.namespace"]
    assert errors(generateName="web-", name="web-abcde", namespace="d") == []
    assert errors(name="web", namespace="d", labels={"a": "x y"}) == ["metadata.labels"]
    assert errors(name="web", namespace="d", annotations={"a": "x" * 300_000}) == ["metadata.annotations"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    assert errors(name="web", namespace="d", ownerReferences=[owner, owner]) == ["metadata.ownerReferences"]
    assert errors(name="web", namespace="d", ownerReferences=[{**owner, "uid": ""}]) == [
        "metadata.ownerReferences[0].uid"
    ]


def test_several_errors_are_listed_in_one_message() -> None:
    errors = [
        FieldError("FieldValueRequired", "a", "Required value"),
        FieldError("FieldValueRequired", "b", "Required value"),
    ]
    one = object_invalid("Service", "web", errors[:1])
    two = object_invalid("EndpointSlice", "web", errors, "discovery.k8s.io")
    assert one.message == 'Service "web" is invalid: a: Required value'
    assert two.message == 'EndpointSlice.discovery.k8s.io "web" is invalid: [a: Required value, b: Required value]'
