"""Endpoints and EndpointSlices follow services and pods, as recorded from Kubernetes 1.36."""

from collections.abc import Callable
from typing import Any

import pytest

SERVICES = "/api/v1/namespaces/demo/services"
PODS = "/api/v1/namespaces/demo/pods"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/demo/endpointslices"
ENDPOINTS = "/api/v1/namespaces/demo/endpoints"


def make_pod(api: Any, name: str, ip: str, node: str, *, ready: bool) -> None:
    container = {
        "name": "main",
        "image": "registry.example/app:1",
        "ports": [{"name": "web", "containerPort": 8080}, {"name": "metrics", "containerPort": 9100}],
    }
    body = {
        "metadata": {"name": name, "labels": {"app": "shop"}},
        "spec": {"nodeName": node, "containers": [container]},
    }
    assert api.call("POST", PODS, body).status == 201
    set_ready(api, name, ready=ready, ip=ip)


def set_ready(api: Any, name: str, *, ready: bool, ip: str | None = None) -> None:
    pod = api.get(f"{PODS}/{name}")
    status = {**pod["status"], "phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]}
    if ip is not None:
        status |= {"podIP": ip, "podIPs": [{"ip": ip}]}
    assert api.call("PUT", f"{PODS}/{name}/status", {**pod, "status": status}).status == 200


def of_service(api: Any, name: str) -> list[Any]:
    found: list[Any] = api.get(f"{SLICES}?labelSelector=kubernetes.io/service-name={name}")["items"]
    return found


def members(found: Any) -> list[tuple[str, dict[str, bool]]]:
    return sorted((e["addresses"][0], e["conditions"]) for e in found.get("endpoints") or [])


@pytest.fixture(scope="module")
def shop(api: Any) -> Any:
    """The services, nodes and pods of the recording."""
    assert api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "demo"}}).status == 201
    for node, zone in (("n1", "z1"), ("n2", "z2")):
        labels = {"topology.kubernetes.io/zone": zone}
        assert api.call("POST", "/api/v1/nodes", {"metadata": {"name": node, "labels": labels}}).status == 201
    ports = [
        {"name": "http", "port": 80, "targetPort": "web"},
        {"name": "metrics", "port": 9100, "targetPort": "metrics"},
    ]
    shop = {"metadata": {"name": "shop"}, "spec": {"selector": {"app": "shop"}, "ports": ports}}
    unready = {
        "metadata": {"name": "unready"},
        "spec": {
            "selector": {"app": "shop"},
            "publishNotReadyAddresses": True,
            "ports": [{"port": 80, "targetPort": 8080}],
        },
    }
    headless = {
        "metadata": {"name": "headless"},
        "spec": {"clusterIP": "None", "selector": {"app": "headless"}, "ports": [{"port": 80}]},
    }
    manual = {"metadata": {"name": "manual"}, "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 8080}]}}
    for body in (shop, unready, headless, manual):
        assert api.call("POST", SERVICES, body).status == 201
    subset = {"addresses": [{"ip": "192.0.2.10"}], "ports": [{"name": "http", "port": 8080}]}
    assert api.call("POST", ENDPOINTS, {"metadata": {"name": "manual"}, "subsets": [subset]}).status == 201
    make_pod(api, "a", "10.244.1.5", "n1", ready=True)
    make_pod(api, "b", "10.244.2.6", "n2", ready=True)
    make_pod(api, "c", "10.244.1.7", "n1", ready=False)
    api.until(
        f"{SLICES}?labelSelector=kubernetes.io/service-name=shop",
        lambda found: found["items"] and len(found["items"][0]["endpoints"] or []) == 3,
    )
    api.until(f"{ENDPOINTS}/shop", lambda found: len(found.get("subsets", [{}])[0].get("notReadyAddresses", [])) == 1)
    return api


def comparable_slice(found: Any, comparable: Callable[[Any], Any]) -> Any:
    shown = comparable(found)
    # How many writes it took is not the contract, what was written is.
    shown["metadata"].pop("generation")
    shown["metadata"].pop("annotations", None)
    for entry in shown["metadata"]["managedFields"]:
        entry["fieldsV1"]["f:metadata"].pop("f:annotations", None)
    for part in ("endpoints", "ports"):
        shown[part] = sorted(shown[part] or [], key=str) or None
    return shown


@pytest.mark.parametrize("name", ["shop", "unready", "headless", "manual"])
def test_a_services_slice(shop: Any, recorded: Any, comparable: Any, name: str) -> None:
    theirs = next(
        item
        for item in recorded("endpointslices-from-pods")["response"]["body"]["items"]
        if item["metadata"]["labels"]["kubernetes.io/service-name"] == name
    )
    shop.until(
        f"{SLICES}?labelSelector=kubernetes.io/service-name={name}",
        lambda found: (
            len(found["items"]) == 1 and len(found["items"][0]["endpoints"] or []) == len(theirs["endpoints"] or [])
        ),
    )
    (ours,) = of_service(shop, name)
    assert comparable_slice(ours, comparable) == comparable_slice(theirs, comparable)


@pytest.mark.parametrize("name", ["shop", "unready", "headless"])
def test_a_services_endpoints(shop: Any, recorded: Any, comparable: Any, name: str) -> None:
    theirs = next(
        item
        for item in recorded("endpoints-from-pods")["response"]["body"]["items"]
        if item["metadata"]["name"] == name
    )
    ours = shop.until(
        f"{ENDPOINTS}/{name}", lambda found: comparable(found.get("subsets")) == comparable(theirs.get("subsets"))
    )
    assert ours["metadata"]["labels"] == theirs["metadata"]["labels"]


def test_a_rolling_update_shows_the_recorded_conditions(shop: Any, recorded: Any) -> None:
    """A new pod appears, the unready one becomes ready, the first one terminates and goes."""
    recorded_states = [
        members(event["object"])
        for event in recorded("endpointslice-watch-rolling-update")["response"]["events"]
        if event["object"]["metadata"]["labels"]["kubernetes.io/service-name"] == "shop"
    ]
    path = f"{SLICES}?labelSelector=kubernetes.io/service-name=shop"

    def wait_for(state: list[tuple[str, dict[str, bool]]]) -> None:
        shop.until(path, lambda found: members(found["items"][0]) == state)

    make_pod(shop, "d", "10.244.1.8", "n1", ready=True)
    wait_for(recorded_states[0])
    set_ready(shop, "c", ready=True)
    wait_for(recorded_states[1])
    answer = shop.call("DELETE", f"{PODS}/a?gracePeriodSeconds=30")
    assert answer.json["metadata"]["deletionGracePeriodSeconds"] == 30
    wait_for(recorded_states[2])
    assert shop.call("DELETE", f"{PODS}/a?gracePeriodSeconds=0").status == 200
    wait_for(recorded_states[3])


def test_a_slice_says_since_when_its_change_has_been_true(shop: Any) -> None:
    make_pod(shop, "e", "10.244.2.9", "n2", ready=False)
    pod = shop.get(f"{PODS}/e")
    since = "2026-01-02T03:04:05Z"
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": since}]
    shop.call("PUT", f"{PODS}/e/status", {**pod, "status": {**pod["status"], "conditions": conditions}})
    key = "endpoints.kubernetes.io/last-change-trigger-time"
    shop.until(
        f"{SLICES}?labelSelector=kubernetes.io/service-name=shop",
        lambda found: found["items"][0]["metadata"].get("annotations") == {key: since},
    )
    shop.call("DELETE", f"{PODS}/e?gracePeriodSeconds=0")
    shop.until(
        f"{SLICES}?labelSelector=kubernetes.io/service-name=shop",
        lambda found: "annotations" not in found["items"][0]["metadata"],
    )


def test_a_slice_somebody_empties_is_filled_again(shop: Any) -> None:
    (found,) = of_service(shop, "unready")
    assert shop.call("PUT", f"{SLICES}/{found['metadata']['name']}", {**found, "endpoints": []}).status == 200
    shop.until(
        f"{SLICES}?labelSelector=kubernetes.io/service-name=unready",
        lambda now: members(now["items"][0]) == members(found),
    )


def test_slices_hold_a_hundred_and_go_with_their_service(shop: Any) -> None:
    spec = {"selector": {"app": "many"}, "ports": [{"port": 80}]}
    shop.call("POST", SERVICES, {"metadata": {"name": "many"}, "spec": spec})
    for number in range(120):
        name, ip = f"many-{number}", f"10.244.7.{number + 1}"
        container = {"name": "main", "image": "registry.example/app:1"}
        body = {"metadata": {"name": name, "labels": {"app": "many"}}, "spec": {"containers": [container]}}
        shop.call("POST", PODS, body)
        set_ready(shop, name, ready=True, ip=ip)
    path = f"{SLICES}?labelSelector=kubernetes.io/service-name=many"
    shop.until(path, lambda found: sum(len(s["endpoints"] or []) for s in found["items"]) == 120)
    assert sorted(len(s["endpoints"]) for s in of_service(shop, "many")) == [20, 100]
    shop.call("DELETE", f"{SERVICES}/many")
    shop.until(path, lambda found: found["items"] == [])
    shop.until(f"{ENDPOINTS}/many", lambda found: found.get("code") == 404)
