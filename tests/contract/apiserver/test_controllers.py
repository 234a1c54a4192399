"""The loops beside endpoints: load-balancer addresses, silent nodes, several servers on one store, allocation repair."""

import time
from typing import Any

from nodeagent.apiserver.storage.store import Window

SERVICES = "/api/v1/namespaces/default/services"
KUBERNETES = "/api/v1/namespaces/default/endpoints/kubernetes"
ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"


def balancer(name: str, **spec: Any) -> Any:
    return {"metadata": {"name": name}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], **spec}}


def ingress(found: Any) -> list[str]:
    return [entry["ip"] for entry in found["status"]["loadBalancer"].get("ingress", [])]


def test_load_balancers_get_addresses_from_their_range_and_give_them_back(start: Any) -> None:
    api = start(load_balancer_cidr="198.51.100.0/30")
    for name in ("a", "b", "c"):
        api.call("POST", SERVICES, balancer(name))
    first = ingress(api.until(f"{SERVICES}/a", ingress))
    second = ingress(api.until(f"{SERVICES}/b", ingress))
    assert sorted(first + second) == ["198.51.100.1", "198.51.100.2"]
    api.call("DELETE", f"{SERVICES}/a")
    asked = balancer("d", loadBalancerIP=first[0])
    api.call("POST", SERVICES, asked)
    assert ingress(api.until(f"{SERVICES}/d", ingress)) == first
    api.call("POST", SERVICES, balancer("foreign", loadBalancerClass="example.com/theirs"))
    assert ingress(api.get(f"{SERVICES}/foreign")) == []


def test_a_node_that_falls_silent_is_unknown_and_one_that_never_spoke_is_left_alone(start: Any) -> None:
    api = start()
    for name, seen in (("quiet", "2026-01-01T00:00:00Z"), ("declared", None)):
        condition = {"type": "Ready", "status": "True", **({"lastHeartbeatTime": seen} if seen else {})}
        api.call("POST", "/api/v1/nodes", {"metadata": {"name": name}, "status": {"conditions": [condition]}})

    def readiness(found: Any) -> str:
        return str(found["status"]["conditions"][0]["status"])

    api.until("/api/v1/nodes/quiet", lambda found: readiness(found) == "Unknown")
    assert readiness(api.get("/api/v1/nodes/declared")) == "True"
    renewed = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
    lease = {"metadata": {"name": "alive"}, "spec": {"renewTime": renewed}}
    assert api.call("POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", lease).status == 201
    old = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
    api.call("POST", "/api/v1/nodes", {"metadata": {"name": "alive"}, "status": {"conditions": [old]}})
    api.call("POST", "/api/v1/nodes", {"metadata": {"name": "silent"}, "status": {"conditions": [old]}})
    api.until("/api/v1/nodes/silent", lambda found: readiness(found) == "Unknown")
    assert readiness(api.get("/api/v1/nodes/alive")) == "True"


def test_every_server_on_a_store_is_an_endpoint_of_kubernetes_until_it_stops(start: Any) -> None:
    def addresses(found: Any) -> set[str]:
        return {entry["ip"] for subset in found.get("subsets", []) for entry in subset["addresses"]}

    one = start(advertise_address="192.0.2.1")
    two = start(advertise_address="192.0.2.2")
    for api in (one, two):
        api.until(KUBERNETES, lambda found: addresses(found) == {"192.0.2.1", "192.0.2.2"})
    created = two.call("POST", SERVICES, {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}})
    assert one.until(f"{SERVICES}/web", lambda found: found.get("kind") == "Service") == created.json
    assert one.get(f"{SERVICES}/kubernetes")["spec"]["clusterIP"] == "10.96.0.1"
    two.stop()
    one.until(KUBERNETES, lambda found: addresses(found) == {"192.0.2.1"})


def test_a_second_server_on_a_directory_sees_acknowledged_writes(start: Any) -> None:
    servers = [start(advertise_address=f"192.0.2.{number}") for number in (1, 2)]
    path = "/api/v1/namespaces/default/configmaps"
    merge = {"Content-Type": "application/merge-patch+json"}
    for number in range(10):
        one, two = servers[number % 2], servers[1 - number % 2]
        name = f"seen-{number}"
        assert one.call("POST", path, {"metadata": {"name": name}, "data": {"a": "1"}}).status == 201
        assert name in [item["metadata"]["name"] for item in two.get(path)["items"]]
        assert one.call("PATCH", f"{path}/{name}", {"data": {"a": "2"}}, merge).status == 200
        assert two.get(f"{path}/{name}")["data"] == {"a": "2"}
        assert one.call("PATCH", f"{path}/{name}", {"data": {"a": "3"}}, merge).status == 200
        # Computed from what there was before, this would change nothing.
        assert two.call("PATCH", f"{path}/{name}", {"data": {"a": "2"}}, merge).json["data"] == {"a": "2"}
        assert one.call("DELETE", f"{path}/{name}").status == 200
        assert two.call("GET", f"{path}/{name}").status == 404


def test_controllers_of_two_servers_agree_on_one_slice(start: Any) -> None:
    one, two = start(advertise_address="192.0.2.1"), start(advertise_address="192.0.2.2")
    slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name="
    names = [f"s{number}" for number in range(10)]
    for number, name in enumerate(names):
        spec = {"selector": {"app": name}, "ports": [{"port": 80}]}
        api = (one, two)[number % 2]
        assert api.call("POST", SERVICES, {"metadata": {"name": name}, "spec": spec}).status == 201
    shown = [
        [
            api.until(slices + name, lambda found: len(found["items"]) == 1)["items"][0]["metadata"]["name"]
            for name in names
        ]
        for api in (one, two)
    ]
    assert shown[0] == shown[1]


def test_endpoints_prefer_their_zone_when_the_service_says_so(start: Any) -> None:
    api = start()
    zone = {"topology.kubernetes.io/zone": "z1"}
    api.call("POST", "/api/v1/nodes", {"metadata": {"name": "n1", "labels": zone}})
    spec = {"selector": {"a": "b"}, "ports": [{"port": 80}], "trafficDistribution": "PreferSameNode"}
    api.call("POST", SERVICES, {"metadata": {"name": "near"}, "spec": spec})
    container = {"name": "c", "image": "registry.example/app:1"}
    pod = {"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"nodeName": "n1", "containers": [container]}}
    created = api.call("POST", "/api/v1/namespaces/default/pods", pod).json
    status = {"phase": "Running", "podIP": "10.244.1.9", "conditions": [{"type": "Ready", "status": "True"}]}
    api.call("PUT", "/api/v1/namespaces/default/pods/p/status", {**created, "status": status})
    slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name=near"
    found = api.until(slices, lambda found: found["items"] and found["items"][0]["endpoints"])
    assert found["items"][0]["endpoints"][0]["hints"] == {"forZones": [{"name": "z1"}], "forNodes": [{"name": "n1"}]}


def test_a_full_store_refuses_writes_clearly_and_keeps_answering(start: Any) -> None:
    api = start(limit_bytes=1024 * 1024)
    path = "/api/v1/namespaces/default/configmaps"
    for number in range(400):
        answer = api.call("POST", path, {"metadata": {"name": f"c{number}"}, "data": {"a": "x" * 20_000}})
        if answer.status != 201:
            break
    assert (answer.status, answer.json["reason"]) == (507, "InsufficientStorage")
    assert sum("data" in item and "a" in item["data"] for item in api.get(path)["items"]) == number
    assert api.call("GET", "/livez").status == 200
    assert b"[-]store-space failed" in api.call("GET", "/readyz").body


def test_a_revision_older_than_the_history_is_answered_as_expired(start: Any, recorded: Any) -> None:
    api = start(window=Window(seconds=0), compact_every_seconds=0.05)
    path = "/api/v1/namespaces/default/configmaps"
    for name in ("a", "b", "c"):
        api.call("POST", path, {"metadata": {"name": name}})
    first = api.get(f"{path}?limit=1")
    token = first["metadata"]["continue"]
    api.call("POST", path, {"metadata": {"name": "d"}})
    api.until(f"{path}?resourceVersion=5&resourceVersionMatch=Exact", lambda found: found.get("code") == 410)
    api.until(f"{path}?limit=1&continue={token}", lambda found: found.get("code") == 410)
    status = recorded("watch-expired-410-status")["response"]["body"]
    assert api.get(f"{path}?resourceVersion=5&resourceVersionMatch=Exact") == status
    (event,) = api.watch(f"{path}?watch=1&resourceVersion=5&timeoutSeconds=3")
    (expected,) = recorded("watch-expired-410-event")["response"]["events"]
    assert event["type"] == "ERROR"
    message = event["object"].pop("message")
    expected["object"].pop("message")
    assert event["object"] == expected["object"]
    assert message.startswith("too old resource version: 5 (")
    expired = api.get(f"{path}?limit=1&continue={token}")
    assert (expired["reason"], expired["message"][:40]) == ("Expired", "The provided continue parameter is too o")
    rest = api.get(f"{path}?continue={expired['metadata']['continue']}")
    assert [item["metadata"]["name"] for item in rest["items"]][:3] == ["b", "c", "d"]


def test_a_service_becomes_dual_stack_and_single_again(start: Any) -> None:
    api = start(service_ranges="10.96.0.0/16,fd00:10:96::/112")
    merge = {"Content-Type": "application/merge-patch+json"}
    first = api.call("POST", SERVICES, {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}).json
    both = api.call("PATCH", f"{SERVICES}/web", {"spec": {"ipFamilyPolicy": "PreferDualStack"}}, merge).json
    assert both["spec"]["clusterIPs"][0] == first["spec"]["clusterIP"]
    assert both["spec"]["ipFamilies"] == ["IPv4", "IPv6"]
    second = both["spec"]["clusterIPs"][1]
    assert api.call("GET", f"/apis/networking.k8s.io/v1/ipaddresses/{second}").status == 200
    single = api.call("PATCH", f"{SERVICES}/web", {"spec": {"ipFamilyPolicy": "SingleStack"}}, merge).json
    assert single["spec"]["clusterIPs"] == [first["spec"]["clusterIP"]]
    assert single["spec"]["ipFamilies"] == ["IPv4"]
    assert api.call("GET", f"/apis/networking.k8s.io/v1/ipaddresses/{second}").status == 404


def test_nobody_else_gets_the_address_of_the_kubernetes_service(start: Any) -> None:
    api = start(service_ranges="10.96.0.0/29")
    api.until(f"{SERVICES}/kubernetes", lambda found: found.get("kind") == "Service")
    for number in range(5):
        body = {"metadata": {"name": f"s{number}"}, "spec": {"ports": [{"port": 80}]}}
        assert api.call("POST", SERVICES, body).status == 201
    wanted = {"metadata": {"name": "thief"}, "spec": {"ports": [{"port": 80}], "clusterIP": "10.96.0.1"}}
    api.call("DELETE", f"{SERVICES}/kubernetes")
    assert api.call("POST", SERVICES, wanted).status == 422
    found = api.until(f"{SERVICES}/kubernetes", lambda found: found.get("kind") == "Service")
    assert found["spec"]["clusterIP"] == "10.96.0.1"


def test_an_address_that_is_deleted_while_its_service_has_it_is_there_again_at_once(api: Any) -> None:
    api.call("POST", SERVICES, {"metadata": {"name": "holder"}, "spec": {"ports": [{"port": 80}]}})
    address = api.get(f"{SERVICES}/holder")["spec"]["clusterIP"]
    first = api.get(f"{ADDRESSES}/{address}")
    assert api.call("DELETE", f"{ADDRESSES}/{address}").status == 200
    gone = {None, first["metadata"]["uid"]}
    again = api.until(f"{ADDRESSES}/{address}", lambda found: found["metadata"].get("uid") not in gone)
    assert again["spec"] == first["spec"]
    thief = {"metadata": {"name": "thief"}, "spec": {"clusterIP": address, "ports": [{"port": 80}]}}
    assert api.call("POST", SERVICES, thief).status == 422

    assert api.call("DELETE", f"{SERVICES}/holder").status == 200
    assert api.call("GET", f"{ADDRESSES}/{address}").status == 404
    assert api.call("POST", SERVICES, thief).status == 201
    assert api.get(f"{ADDRESSES}/{address}")["spec"]["parentRef"]["name"] == "thief"
    api.call("DELETE", f"{SERVICES}/thief")
