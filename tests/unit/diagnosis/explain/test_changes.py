"""How a change of objects is reported."""

from nodeagent.diagnosis.explain.change import ServiceChange, changes_between
from nodeagent.model.frontend import ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import Endpoint, Service, ServiceSpec
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.services import translate_service
from tests.harness.objects import make_endpoint, make_service, make_slice, service_port

KEY = ObjectKey("default", "web")
HERE, THERE = make_endpoint("10.244.1.10", "node-a"), make_endpoint("10.244.2.10", "node-b")


def states(service: Service, *endpoints: Endpoint) -> dict[ObjectKey, ServiceState]:
    return {KEY: translate_service(service, [make_slice(service, endpoints)], Context(node_name="node-a"))}


def web(ip: str = "10.96.0.10", spec: ServiceSpec | None = None) -> Service:
    return make_service("web", ip, ports=(service_port(80, name="http", node_port=30080),), spec=spec)


def test_the_same_is_no_change() -> None:
    assert changes_between(states(web(), HERE), states(web(), HERE)) == ()


def test_new_and_removed_frontends_are_reported_by_address() -> None:
    lines = ("ClusterIP IPv4 10.96.0.10:80/TCP: 1 endpoint", "NodePort IPv4 *:30080/TCP: 1 endpoint")
    reported = states(web(), HERE)
    assert changes_between({}, reported) == (ServiceChange("+", "default/web", ("+ " + lines[1], "+ " + lines[0])),)
    assert changes_between(reported, {}) == (ServiceChange("-", "default/web", ("- " + lines[1], "- " + lines[0])),)


def test_endpoints_that_change_are_named() -> None:
    (change,) = changes_between(states(web(), HERE), states(web(), THERE))
    assert change.change == "~"
    assert change.details == (
        "~ NodePort IPv4 *:30080/TCP: endpoints +10.244.2.10:80 -10.244.1.10:80",
        "~ ClusterIP IPv4 10.96.0.10:80/TCP: endpoints +10.244.2.10:80 -10.244.1.10:80",
    )


def test_of_many_endpoints_some_are_named() -> None:
    many = [make_endpoint(f"10.244.3.{number}") for number in range(10, 20)]
    (change,) = changes_between(states(web(), HERE), states(web(), HERE, *many))
    assert all(line.endswith("+10.244.3.13:80 +10.244.3.14:80 +5 more") for line in change.details)


def test_changes_of_policies_and_affinity_are_reported() -> None:
    after = web(spec=ServiceSpec(external_traffic_policy="Local", session_affinity="ClientIP"))
    (change,) = changes_between(states(web(), THERE), states(after, THERE))
    node_port = [line.partition(": ")[2] for line in change.details if "NodePort" in line]
    assert node_port == [
        "endpoints -10.244.2.10:80",
        "endpoints for pods and this node +10.244.2.10:80",
        "policy Cluster -> Local",
        "without endpoints refuse -> drop",
        "affinity none -> 10800",
        "masquerade True -> False",
    ]
