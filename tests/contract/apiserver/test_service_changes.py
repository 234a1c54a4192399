"""What a change of a Service keeps, gives up and may not touch, as at kube-apiserver."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.contract.apiserver.conftest import Api, ServerThread

SERVICES = "/api/v1/namespaces/default/services"
MERGE = {"Content-Type": "application/merge-patch+json"}
BOTH = "10.96.0.0/16,fd00:96::/112"
A, B = {"name": "a", "port": 80}, {"name": "b", "port": 81}


@pytest.fixture(scope="module")
def dual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A server for both families."""
    api = Api(ServerThread(tmp_path_factory.mktemp("dual"), service_ranges=BOTH))
    yield api
    api.stop()


def service(name: str = "changed", **spec: Any) -> Any:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


@pytest.fixture
def make(dual: Api) -> Iterator[Callable[..., Any]]:
    """Creates the service that a test changes; its spec comes back."""
    yield lambda **spec: dual.call("POST", SERVICES, service(**spec)).json["spec"]
    dual.call("DELETE", f"{SERVICES}/changed")


def put(api: Api, **spec: Any) -> Any:
    return api.call("PUT", f"{SERVICES}/changed", service(**spec)).json


def patch(api: Api, **spec: Any) -> Any:
    return api.call("PATCH", f"{SERVICES}/changed", {"spec": spec}, MERGE).json


def node_ports(found: Any) -> dict[str, int]:
    return {port.get("name", ""): port.get("nodePort", 0) for port in found["ports"]}


@pytest.mark.parametrize("kind", ["NodePort", "LoadBalancer"])
def test_a_node_port_stays_with_the_name_of_its_port(dual: Api, make: Any, kind: str) -> None:
    before = node_ports(make(type=kind))
    assert node_ports(put(dual, type=kind, ports=[{"port": 8080, "protocol": "UDP"}])["spec"]) == before


def test_node_ports_follow_the_names_of_ports_in_another_order(dual: Api, make: Any) -> None:
    before = node_ports(make(type="NodePort", ports=[A, B]))
    swapped = put(dual, type="NodePort", ports=[{**B, "port": 80}, {**A, "port": 81}])["spec"]
    assert node_ports(swapped) == before
    asked = put(dual, type="NodePort", ports=[{**A, "nodePort": before["b"]}, B])["spec"]
    assert node_ports(asked)["a"] == before["b"] != node_ports(asked)["b"]


def test_node_ports_go_with_the_type_also_when_ports_change(dual: Api, make: Any) -> None:
    before = make(type="NodePort")["ports"][0]
    assert node_ports(patch(dual, type="ClusterIP", ports=[{**before, "port": 8080}])["spec"]) == {"": 0}


def test_a_node_port_for_a_new_type_without_node_ports_is_refused(dual: Api, make: Any) -> None:
    taken = make(type="NodePort")["ports"][0]["nodePort"]
    other = 30000 + (taken - 29999) % 2768
    assert patch(dual, type="ClusterIP", ports=[{"port": 80, "nodePort": other}])["code"] == 422


def test_node_ports_that_are_no_longer_allocated_stay_until_they_are_left_out(dual: Api, make: Any) -> None:
    before = node_ports(make(type="LoadBalancer"))
    assert node_ports(patch(dual, allocateLoadBalancerNodePorts=False)["spec"]) == before
    assert node_ports(patch(dual, ports=[{"port": 80}])["spec"]) == {"": 0}


def test_a_load_balancer_with_a_node_port_of_choice_becomes_another_type(dual: Api, make: Any) -> None:
    make(type="LoadBalancer", allocateLoadBalancerNodePorts=False, ports=[{"port": 80, "nodePort": 30333}])
    assert node_ports(patch(dual, type="ClusterIP")["spec"]) == {"": 0}


def test_a_health_check_port_stays_while_it_is_needed(dual: Api, make: Any) -> None:
    port = make(type="LoadBalancer", externalTrafficPolicy="Local")["healthCheckNodePort"]
    other = 30000 + (port - 29999) % 2768
    refused = patch(dual, healthCheckNodePort=other)
    assert refused["message"].endswith("spec.healthCheckNodePort: Forbidden: field is immutable")
    assert patch(dual, healthCheckNodePort=None)["spec"]["healthCheckNodePort"] == port
    assert "healthCheckNodePort" not in patch(dual, externalTrafficPolicy="Cluster")["spec"]


@pytest.mark.parametrize("name", ["clusterIPs", "ipFamilies"])
@pytest.mark.parametrize("policy", ["PreferDualStack", "RequireDualStack"])
def test_the_second_address_does_not_change_unseen(dual: Api, make: Any, name: str, policy: str) -> None:
    before = make(ipFamilyPolicy=policy)
    assert "must be 'SingleStack' to release" in patch(dual, **{name: before[name][:1]})["message"]
    assert dual.get(f"{SERVICES}/changed")["spec"]["clusterIPs"] == before["clusterIPs"]
    assert put(dual, clusterIP=before["clusterIP"])["spec"]["clusterIPs"] == before["clusterIPs"]
    assert patch(dual, ipFamilyPolicy="SingleStack")["spec"]["clusterIPs"] == before["clusterIPs"][:1]


@pytest.mark.parametrize(
    "spec", [{"ipFamilies": ["IPv4", "IPv6"]}, {"clusterIP": "10.96.3.3", "clusterIPs": ["10.96.3.3", "fd00:96::33"]}]
)
@pytest.mark.parametrize("policy", [{}, {"ipFamilyPolicy": "SingleStack"}])
def test_two_families_without_a_dual_stack_policy_are_refused(dual: Api, spec: Any, policy: Any) -> None:
    refused = dual.call("POST", SERVICES, service(**spec, **policy))
    assert (refused.status, "when multiple" in refused.json["message"]) == (422, True)


def test_an_address_in_another_spelling_is_the_same(dual: Api, make: Any) -> None:
    spelt = "FD00:96:0::82"
    assert make(clusterIP=spelt)["clusterIP"] == "fd00:96::82"
    again = put(dual, clusterIP=spelt, clusterIPs=[spelt], ports=[{"port": 81}])
    assert (again["spec"]["clusterIP"], again["spec"]["clusterIPs"]) == ("fd00:96::82", ["fd00:96::82"])


def test_a_service_that_prefers_both_families_stays_as_it_is_when_a_range_comes(start: Any) -> None:
    api = start(service_ranges="10.96.0.0/16")
    before = api.call("POST", SERVICES, service(ipFamilyPolicy="PreferDualStack")).json["spec"]
    api.stop()
    api = start(service_ranges=BOTH)
    changed = patch(api, selector={"app": "web"})
    assert changed["spec"] == {**before, "selector": {"app": "web"}}
    assert patch(api, ipFamilyPolicy="RequireDualStack")["spec"]["ipFamilies"] == ["IPv4", "IPv6"]
