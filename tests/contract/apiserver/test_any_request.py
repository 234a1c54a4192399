"""Every request gets an answer: never a 500, and never a server that no longer serves."""

import json
import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.effort import examples

FEW = settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

TEXT = st.one_of(
    st.sampled_from(["2026-99-99T99:99:99Z", "0001-01-01T00:00:00+23:00", "9" * 5000]),
    st.sampled_from(["", "a", "web", "None", "example.com", "2026-01-01T00:00:00Z", "\x00", "é", "x" * 300]),
    st.sampled_from(["10.96.0.7", "10.96.0.300", "fd00::1", "fe80::1%lo", "1.2.3.4/8", "TCP", "UDP", "ClientIP"]),
    st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer", "ExternalName", "IPv4", "IPv6", "Local"]),
    st.sampled_from(["PreferDualStack", "RequireDualStack", "SingleStack", "Cluster", "PreferClose"]),
)
NUMBER = st.sampled_from([-1, 0, 1, 80, 30000, 30001, 65536, 2**31, 1.5])
LEAF = st.none() | st.booleans() | NUMBER | TEXT
JSON = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=6
)


def changed(base: dict[str, Any], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A valid object with up to two fields set to something else: most of these get past the first check."""
    changes = st.one_of(*(st.tuples(st.just(name), values) for name, values in fields.items()))
    return st.lists(changes, max_size=2).map(lambda pairs: {**base, **dict(pairs)})


def some_of(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects with any subset of the fields, now and then something else altogether."""
    return st.fixed_dictionaries({}, optional=fields) | JSON


PORT = changed({"port": 80}, name=TEXT, port=NUMBER, targetPort=LEAF, protocol=TEXT, nodePort=NUMBER, appProtocol=TEXT)
SPEC = changed(
    {"ports": [{"port": 80}]},
    type=TEXT,
    clusterIP=TEXT,
    clusterIPs=st.lists(TEXT, max_size=3),
    ipFamilies=st.lists(TEXT, max_size=3),
    ipFamilyPolicy=TEXT,
    ports=st.lists(PORT, max_size=3),
    selector=st.dictionaries(TEXT, TEXT, max_size=2),
    sessionAffinity=TEXT,
    sessionAffinityConfig=some_of(clientIP=some_of(timeoutSeconds=NUMBER)),
    externalName=TEXT,
    externalIPs=st.lists(TEXT, max_size=2),
    loadBalancerSourceRanges=st.lists(TEXT, max_size=2),
    healthCheckNodePort=NUMBER,
    externalTrafficPolicy=TEXT,
)
STEP = st.sampled_from(["f:spec", "f:ports", 'k:{"port":80}', 'k:{"port":"a"}', "k:{", "k:[]", "v:1", "v:", "i:0", "."])
OWNED: st.SearchStrategy[Any] = st.recursive(
    st.just({}), lambda inner: st.dictionaries(STEP, inner, max_size=3), max_leaves=4
)
META = changed(
    {"name": "web"},
    name=TEXT,
    labels=JSON,
    annotations=JSON,
    finalizers=JSON,
    ownerReferences=JSON,
    managedFields=st.lists(some_of(manager=TEXT, operation=TEXT, fieldsV1=OWNED | JSON, time=TEXT), max_size=2),
    creationTimestamp=TEXT,
    deletionTimestamp=TEXT,
)
SERVICE = st.fixed_dictionaries({"metadata": META, "spec": SPEC}, optional={"status": JSON})
CONTAINER = changed({"name": "a", "image": "x"}, name=TEXT, image=TEXT, ports=st.lists(JSON, max_size=2), env=JSON)
POD_SPEC = changed({"containers": [{"name": "a", "image": "x"}]}, containers=st.lists(CONTAINER), nodeName=TEXT)
POD_STATUS = changed(
    {"phase": "Running", "podIP": "10.244.0.1"},
    phase=TEXT,
    podIP=TEXT,
    podIPs=st.lists(some_of(ip=TEXT), max_size=2),
    conditions=st.lists(some_of(type=st.just("Ready"), status=TEXT, lastTransitionTime=TEXT), max_size=2),
)
ENDPOINT = changed({"addresses": ["192.0.2.1"]}, addresses=st.lists(TEXT, max_size=2), conditions=JSON, zone=TEXT)
SLICE = changed(
    {"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": []},
    metadata=changed(
        {"name": "s", "labels": {"kubernetes.io/service-name": "web"}},
        labels=st.just(
            {
                "kubernetes.io/service-name": "web",
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
            }
        ),
    ),
    addressType=TEXT,
    endpoints=st.lists(ENDPOINT, max_size=2),
    ports=st.lists(PORT, max_size=2),
)
SERVICES = "/api/v1/namespaces/default/services"


@pytest.fixture(autouse=True)
def nothing_broke(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No request and no controller met something it had not thought of."""
    yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def settle(api: Any, method: str, path: str, body: Any, **headers: str) -> None:
    answer = api.call(method, path, raw=json.dumps(body).encode() if body is not None else None, headers=headers)
    assert answer.status < 500, answer.body
    assert answer.json["kind"]


@given(body=SERVICE)
@FEW
def test_any_service_is_stored_or_refused(api: Any, body: Any) -> None:
    settle(api, "POST", SERVICES, body)
    api.call("DELETE", f"{SERVICES}?labelSelector=component!=apiserver")


@given(
    first=SPEC, then=st.lists(st.tuples(st.sampled_from(["merge-patch", "strategic-merge-patch"]), SPEC), max_size=3)
)
@FEW
def test_any_change_of_a_service_is_made_or_refused(api: Any, first: Any, then: Any) -> None:
    api.call("POST", SERVICES, {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}})
    settle(api, "PUT", f"{SERVICES}/web", {"metadata": {"name": "web"}, "spec": first})
    for kind, spec in then:
        settle(api, "PATCH", f"{SERVICES}/web", {"spec": spec}, **{"Content-Type": f"application/{kind}+json"})
    apply = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": first}
    path = f"{SERVICES}/web?fieldManager=x&force=true"
    settle(api, "PATCH", path, apply, **{"Content-Type": "application/apply-patch+yaml"})
    api.call("DELETE", f"{SERVICES}/web")


@given(spec=POD_SPEC, status=POD_STATUS, found=SLICE)
@FEW
def test_any_pod_and_slice_are_stored_or_refused(api: Any, spec: Any, status: Any, found: Any) -> None:
    pods = "/api/v1/namespaces/default/pods"
    api.call("POST", SERVICES, {"metadata": {"name": "web"}, "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}})
    settle(api, "POST", pods, {"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": spec})
    settle(api, "PATCH", f"{pods}/p/status", {"status": status}, **{"Content-Type": "application/merge-patch+json"})
    settle(api, "POST", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", found)
    settle(api, "GET", f"{SERVICES}/web", None)
    api.call("DELETE", f"{pods}/p?gracePeriodSeconds=0")
    api.call("DELETE", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/s")


OPERATIONS = st.lists(
    some_of(
        op=st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]),
        path=st.sampled_from(
            ["", "/spec", "/spec/ports/0", "/spec/ports/-", "/metadata/name", "/metadata", "/x/y", "spec"]
        ),
        value=JSON,
        **{"from": st.sampled_from(["/spec", "/metadata/labels", ""])},
    ),
    max_size=3,
)


@given(operations=OPERATIONS)
@FEW
def test_any_json_patch_is_applied_or_refused(api: Any, operations: Any) -> None:
    api.call("POST", SERVICES, {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}})
    settle(api, "PATCH", f"{SERVICES}/web", operations, **{"Content-Type": "application/json-patch+json"})


WORDS = ["watch", "limit", "continue", "resourceVersion", "resourceVersionMatch", "labelSelector", "fieldSelector"]
QUERY = st.dictionaries(
    st.sampled_from([*WORDS, "sendInitialEvents", "dryRun", "fieldValidation", "gracePeriodSeconds"]),
    st.sampled_from(["", "1", "true", "-1", "x", "Exact", "NotOlderThan", "0", "9" * 30, "e30", "a in (b", "All"]),
    max_size=4,
)
PATHS = st.one_of(
    st.sampled_from([SERVICES, "/api/v1/services", "/api/v1/namespaces", "/api/v1", "/apis", "/api/v1/nodes/x/status"]),
    st.sampled_from(["/openapi/v3/x", "/api/v1/namespaces/default/nodes", f"{SERVICES}/kubernetes/proxy", "/", "//"]),
    st.sampled_from(["/%00", "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices/b/c/d", "/api/v1/nonsense"]),
)


@given(method=st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"]), path=PATHS, query=QUERY)
@FEW
def test_any_path_and_query_is_answered(api: Any, method: str, path: str, query: dict[str, str]) -> None:
    arguments = "&".join(f"{name}={quote(value)}" for name, value in query.items())
    answer = api.call(method, f"{path}?{arguments}&timeoutSeconds=1", raw=b"{}" if method in ("POST", "PUT") else None)
    assert answer.status < 500 or answer.status == 504


def test_the_server_still_serves_afterwards(api: Any) -> None:
    assert api.call("GET", "/readyz").body == b"ok"
    assert api.get(f"{SERVICES}/kubernetes")["spec"]["clusterIP"] == "10.96.0.1"
