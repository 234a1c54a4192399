"""What the cluster's objects are to the cases."""

from typing import Any

import pytest

from nodeagent.diagnosis.connectivity.agents import ProxyPod, agents_of, trace_command
from nodeagent.diagnosis.connectivity.cases import Trace
from nodeagent.diagnosis.connectivity.objects import (
    LABEL,
    OWNER,
    ROLE,
    ROLES,
    daemon_set,
    namespace,
    outer_services,
    services,
)
from nodeagent.diagnosis.connectivity.stage import (
    ClusterResolver,
    chosen_nodes,
    deployed_node,
    families_of,
    pods_by_node,
    resolver_of,
    service_place,
)
from nodeagent.model.addresses import Family, Protocol


def node(name: str, *, ready: str = "True", system: str = "linux") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/os": system}},
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "addresses": [
                {"type": "Hostname", "address": name},
                {"type": "InternalIP", "address": "192.0.2.1"},
                {"type": "InternalIP", "address": "2001:DB8::1"},
            ],
        },
    }


def test_nodes_that_take_pods_are_chosen_by_name() -> None:
    nodes = [node("c"), node("a"), node("b", ready="Unknown"), node("d", system="windows"), node("e")]

    assert [one["metadata"]["name"] for one in chosen_nodes(nodes, 2)] == ["a", "c"]
    assert chosen_nodes([], 2) == []


def test_a_node_has_its_addresses_and_its_pods() -> None:
    pods = [
        {
            "metadata": {"name": f"{role}-x", "labels": {ROLE: role}},
            "spec": {"nodeName": "a"},
            "status": {"podIPs": [{"ip": "10.244.1.4"}, {"ip": "fd00::4"}]},
        }
        for role in ROLES
    ]
    leaving = {**pods[0], "metadata": {"name": "old", "labels": {ROLE: "server"}, "deletionTimestamp": "now"}}

    place = deployed_node(node("a"), pods_by_node([*pods, leaving]))

    assert (place.server.name, place.client.name, place.host.name) == ("server-x", "client-x", "host-x")
    assert place.addresses == {Family.IPV4: "192.0.2.1", Family.IPV6: "2001:db8::1"}
    assert place.server.addresses[Family.IPV6] == "fd00::4"


def test_a_service_has_its_addresses_and_ports() -> None:
    spec = {
        "clusterIPs": ["10.96.0.7", "fd00:10:96::7"],
        "ipFamilies": ["IPv4", "IPv6"],
        "ports": [{"protocol": "TCP", "port": 80, "nodePort": 30080}, {"protocol": "UDP", "port": 80}],
    }
    service = {"metadata": {"name": "web"}, "spec": spec}

    place = service_place(service)

    assert place.cluster_ips == {Family.IPV4: "10.96.0.7", Family.IPV6: "fd00:10:96::7"}
    assert place.node_ports == {Protocol.TCP: 30080}
    assert families_of(service) == (Family.IPV4, Family.IPV6)
    assert service_place({**service, "spec": {**spec, "clusterIPs": ["None"]}}).cluster_ips == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "search test.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n",
            ClusterResolver("10.96.0.10", "cluster.local"),
        ),
        (
            "search test.svc.example.org.\nnameserver fd00::10\nnameserver 8.8.8.8\n",
            ClusterResolver("fd00::10", "example.org"),
        ),
        ("nameserver 192.0.2.53\n", ClusterResolver("192.0.2.53", "")),
        ("", ClusterResolver()),
    ],
    ids=["kubelet's", "another domain", "the node's", "empty"],
)
def test_a_pods_resolver_says_the_domain(text: str, expected: ClusterResolver) -> None:
    assert resolver_of(text, "test") == expected


def test_everything_that_is_made_is_labelled() -> None:
    made = [
        namespace("x"),
        *services(2),
        *outer_services(["198.51.100.78"]),
        *(daemon_set(r, "i", ["a"]) for r in ROLES),
    ]

    assert {one["metadata"]["labels"][LABEL] for one in made} == {OWNER}
    pods = [one["spec"]["template"] for one in made if one["kind"] == "DaemonSet"]
    assert {one["metadata"]["labels"][LABEL] for one in pods} == {OWNER}


def test_pods_stand_on_the_nodes_that_are_named() -> None:
    terms = daemon_set("server", "image", ["a", "b"])["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]

    assert [term["matchFields"][0]["values"] for term in terms] == [["a"], ["b"]], "a term takes one value"


def test_agents_are_those_that_run() -> None:
    def agent(name: str, **more: Any) -> dict[str, Any]:
        return {
            "metadata": {"name": name, "namespace": "kube-system"},
            "spec": {"nodeName": name, "containers": [{"name": "nodeagent", "image": "registry/nodeagent:1"}]},
            "status": {"phase": "Running"},
            **more,
        }

    found = agents_of([agent("a"), agent("b", status={"phase": "Pending"})])

    assert found == {"a": ProxyPod("kube-system", "a", "registry/nodeagent:1")}


def test_a_trace_is_asked_for_as_people_type_it() -> None:
    trace = Trace("n1", "fd00::1", "fd00:10:96::7", 53, Protocol.UDP)

    assert trace_command(trace) == ["nodeagent", "trace", "fd00::1", "[fd00:10:96::7]:53/udp"]
