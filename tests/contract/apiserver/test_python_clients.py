"""The Python clients people write controllers with work unchanged: `kubernetes` and `lightkube`, over TLS."""

import threading
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import httpx2
import lightkube
import lightkube.config.kubeconfig
import lightkube.resources.core_v1
import pytest
from lightkube.models.core_v1 import ServicePort, ServiceSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.types import PatchType

Service = lightkube.resources.core_v1.Service

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
TIMEOUT_SECONDS = 60
"""Of one request: far more than a busy machine needs."""


@cache
def kubernetes() -> Any:
    """The official client. Its import takes 0.25 s of processor time, so that only a process that runs these tests does it."""
    import kubernetes as official_client  # noqa: PLC0415

    return official_client


@pytest.fixture(scope="module", params=["token", "certificate"])
def kubeconfig(api: Any, request: pytest.FixtureRequest) -> dict[str, Any]:
    """The generated authority, and an administrator's token or client certificate."""
    pki = api.server.credentials.authority.parent
    users = {
        "token": {"token": api.token},
        "certificate": {"client-certificate": str(pki / "admin.crt"), "client-key": str(pki / "admin.key")},
    }
    cluster = {
        "server": f"https://127.0.0.1:{api.server.port}",
        "certificate-authority": str(api.server.credentials.authority),
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": users[request.param]}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


@pytest.fixture
def core(kubeconfig: dict[str, Any]) -> Iterator[Any]:
    """The official client."""
    with kubernetes().config.new_client_from_config_dict(kubeconfig, persist_config=False) as client:
        yield kubernetes().client.CoreV1Api(client)


@pytest.fixture
def light(kubeconfig: dict[str, Any]) -> Iterator[Any]:
    """lightkube's client."""
    config = lightkube.config.kubeconfig.KubeConfig.from_dict(kubeconfig)
    with lightkube.Client(
        config=config, field_manager="test", timeout=httpx2.Timeout(TIMEOUT_SECONDS), trust_env=False
    ) as client:
        yield client


def official(name: str, port: int = 80) -> Any:
    client = kubernetes().client
    return client.V1Service(
        metadata=client.V1ObjectMeta(name=name, labels={"app": name}),
        spec=client.V1ServiceSpec(selector={"app": name}, ports=[client.V1ServicePort(name="http", port=port)]),
    )


def light_service(name: str, namespace: str, port: int = 80) -> Any:
    return Service(
        apiVersion="v1",
        kind="Service",
        metadata=ObjectMeta(name=name, namespace=namespace, labels={"app": name}),
        spec=ServiceSpec(selector={"app": name}, ports=[ServicePort(name="http", port=port)]),
    )


def test_kubernetes_creates_reads_lists_and_deletes(core: Any, demo: str) -> None:
    created = core.create_namespaced_service(demo, official("web"))
    assert created.spec.cluster_ip.startswith("10.")
    assert core.read_namespaced_service("web", demo) == created
    core.create_namespaced_service(demo, official("other"))
    assert [item.metadata.name for item in core.list_namespaced_service(demo).items] == ["other", "web"]
    assert [item.metadata.name for item in core.list_namespaced_service(demo, label_selector="app=web").items] == [
        "web"
    ]
    first = core.list_namespaced_service(demo, limit=1)
    rest = core.list_namespaced_service(demo, limit=1, _continue=first.metadata._continue)
    assert [item.metadata.name for item in first.items + rest.items] == ["other", "web"]
    core.delete_namespaced_service("web", demo)
    with pytest.raises(kubernetes().client.ApiException) as refused:
        core.read_namespaced_service("web", demo)
    assert (refused.value.status, refused.value.reason) == (404, "Not Found")


def test_kubernetes_watches_from_a_resource_version_to_the_timeout(core: Any, demo: str) -> None:
    core.create_namespaced_service(demo, official("before"))
    since = core.list_namespaced_service(demo).metadata.resource_version
    core.create_namespaced_service(demo, official("web"))
    core.patch_namespaced_service("web", demo, {"metadata": {"labels": {"x": "y"}}}, _content_type=MERGE)
    core.delete_namespaced_service("web", demo)
    begun = time.monotonic()
    seen = [
        (event["type"], event["object"].metadata.name)
        for event in kubernetes()
        .watch.Watch()
        .stream(core.list_namespaced_service, demo, resource_version=since, timeout_seconds=2)
    ]
    assert seen == [("ADDED", "web"), ("MODIFIED", "web"), ("DELETED", "web")]
    assert time.monotonic() - begun >= 2


def test_kubernetes_patches_in_three_ways(core: Any, demo: str) -> None:
    core.create_namespaced_service(demo, official("web"))
    merged = core.patch_namespaced_service(
        "web", demo, {"metadata": {"labels": {"app": None, "x": "y"}}}, _content_type=MERGE
    )
    assert merged.metadata.labels == {"x": "y"}
    added = {"spec": {"ports": [{"name": "https", "port": 443}]}}
    ports = core.patch_namespaced_service("web", demo, added, _content_type=STRATEGIC).spec.ports
    assert sorted((port.name, port.port) for port in ports) == [("http", 80), ("https", 443)]
    steps = [{"op": "test", "path": "/metadata/labels/x", "value": "y"}, {"op": "remove", "path": "/metadata/labels/x"}]
    assert not core.patch_namespaced_service("web", demo, steps, _content_type=JSON_PATCH).metadata.labels


def test_kubernetes_recognises_a_conflict(core: Any, demo: str) -> None:
    stale = core.create_namespaced_service(demo, official("web"))
    fresh = core.read_namespaced_service("web", demo)
    fresh.spec.session_affinity = "ClientIP"
    replaced = core.replace_namespaced_service("web", demo, fresh)
    assert replaced.spec.session_affinity_config.client_ip.timeout_seconds == 10800
    stale.spec.ports[0].port = 81
    with pytest.raises(kubernetes().client.ApiException) as refused:
        core.replace_namespaced_service("web", demo, stale)
    assert refused.value.status == 409
    assert "the object has been modified" in refused.value.body
    with pytest.raises(kubernetes().client.ApiException, match="AlreadyExists"):
        core.create_namespaced_service(demo, official("web"))


def test_kubernetes_reads_slices_of_endpoints(core: Any, demo: str) -> None:
    discovery = kubernetes().client.DiscoveryV1Api(core.api_client)
    client = kubernetes().client
    made = discovery.create_namespaced_endpoint_slice(
        demo,
        client.V1EndpointSlice(
            metadata=client.V1ObjectMeta(name="web-1", labels={"kubernetes.io/service-name": "web"}),
            address_type="IPv4",
            endpoints=[client.V1Endpoint(addresses=["192.0.2.1"], conditions=client.V1EndpointConditions(ready=True))],
            ports=[client.DiscoveryV1EndpointPort(name="http", port=8080)],
        ),
    )
    assert made.endpoints[0].addresses == ["192.0.2.1"]
    found = discovery.list_endpoint_slice_for_all_namespaces(label_selector="kubernetes.io/service-name=web").items
    assert (demo, "web-1") in {(item.metadata.namespace, item.metadata.name) for item in found}


def test_lightkube_creates_reads_lists_and_deletes(light: Any, demo: str) -> None:
    created = light.create(light_service("web", demo))
    assert created.spec.clusterIP.startswith("10.")
    assert light.get(Service, "web", namespace=demo) == created
    light.create(light_service("other", demo))
    assert [item.metadata.name for item in light.list(Service, namespace=demo)] == ["other", "web"]
    assert [item.metadata.name for item in light.list(Service, namespace=demo, labels={"app": "web"})] == ["web"]
    assert [item.metadata.name for item in light.list(Service, namespace=demo, chunk_size=1)] == ["other", "web"]
    light.delete(Service, "web", namespace=demo)
    with pytest.raises(lightkube.ApiError) as refused:
        light.get(Service, "web", namespace=demo)
    assert (refused.value.status.code, refused.value.status.reason) == (404, "NotFound")


def test_lightkube_watches_from_a_resource_version_and_over_timeouts(light: Any, demo: str) -> None:
    light.create(light_service("before", demo))
    listed = light.list(Service, namespace=demo)
    assert [item.metadata.name for item in listed] == ["before"]
    light.create(light_service("web", demo))
    watch = light.watch(Service, namespace=demo, resource_version=listed.resourceVersion, server_timeout=1)
    kind, added = next(watch)
    assert (kind, added.metadata.name) == ("ADDED", "web")
    # The server ends the stream after a second; the client asks again from where it was.
    change = {"metadata": {"labels": {"x": "y"}}}
    later = threading.Timer(2.0, light.patch, (Service, "web", change), {"namespace": demo})
    later.start()
    kind, changed = next(watch)
    later.join()
    assert (kind, changed.metadata.labels) == ("MODIFIED", {"app": "web", "x": "y"})
    light.delete(Service, "web", namespace=demo)
    kind, gone = next(watch)
    assert (kind, gone.metadata.name) == ("DELETED", "web")
    watch.close()


def test_lightkube_patches_in_three_ways(light: Any, demo: str) -> None:
    light.create(light_service("web", demo))
    change = {"metadata": {"labels": {"app": None, "x": "y"}}}
    merged = light.patch(Service, "web", change, namespace=demo, patch_type=PatchType.MERGE)
    assert merged.metadata.labels == {"x": "y"}
    added = {"spec": {"ports": [{"name": "https", "port": 443}]}}
    ports = light.patch(Service, "web", added, namespace=demo, patch_type=PatchType.STRATEGIC).spec.ports
    assert sorted((port.name, port.port) for port in ports) == [("http", 80), ("https", 443)]
    steps = [{"op": "test", "path": "/metadata/labels/x", "value": "y"}, {"op": "remove", "path": "/metadata/labels/x"}]
    bare = light.patch(Service, "web", steps, namespace=demo, patch_type=PatchType.JSON)
    assert not bare.metadata.labels


def test_lightkube_applies_on_the_server(light: Any, demo: str) -> None:
    applied = light.apply(light_service("web", demo))
    assert [(entry.manager, entry.operation) for entry in applied.metadata.managedFields] == [("test", "Apply")]
    assert light.apply(light_service("web", demo)).metadata.resourceVersion == applied.metadata.resourceVersion
    relabelled = Service(
        apiVersion="v1",
        kind="Service",
        metadata=ObjectMeta(name="web", namespace=demo, labels={"app": "taken"}),
    )
    with pytest.raises(lightkube.ApiError) as refused:
        light.apply(relabelled, field_manager="another")
    assert (refused.value.status.code, refused.value.status.reason) == (409, "Conflict")
    taken = light.apply(relabelled, field_manager="another", force=True)
    assert taken.metadata.labels == {"app": "taken"}
    left = light_service("web", demo)
    left.metadata.labels = None
    assert light.apply(left).metadata.labels == {"app": "taken"}


def test_lightkube_recognises_a_conflict(light: Any, demo: str) -> None:
    stale = light.create(light_service("web", demo))
    fresh = light.get(Service, "web", namespace=demo)
    fresh.spec.sessionAffinity = "ClientIP"
    assert light.replace(fresh).spec.sessionAffinityConfig.clientIP.timeoutSeconds == 10800
    stale.spec.ports[0].port = 81
    with pytest.raises(lightkube.ApiError) as refused:
        light.replace(stale)
    assert (refused.value.status.code, refused.value.status.reason) == (409, "Conflict")
    assert "the object has been modified" in refused.value.status.message


def test_both_read_what_the_other_wrote(core: Any, light: Any, demo: str) -> None:
    made = core.create_namespaced_service(demo, official("web"))
    assert light.get(Service, "web", namespace=demo).spec.clusterIP == made.spec.cluster_ip
