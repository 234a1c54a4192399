"""One manifest file: which objects it holds, and which line is wrong."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.model.objects import Service, key_of
from nodeagent.proxy.source.manifests.manifests import Manifest, parse_manifest

SERVICE = """\
apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: shop
spec:
  clusterIP: 10.96.0.1
  ports:
  - port: 80
"""


def parse(text: str, name: str = "svc.yaml") -> Manifest:
    return parse_manifest(name, text.encode())


def held(manifest: Manifest) -> list[tuple[int, str]]:
    return [(found.line, f"{type(found.obj).__name__} {key_of(found.obj)}") for found in manifest.objects]


def faults(manifest: Manifest) -> list[tuple[int, str]]:
    return [(fault.line, fault.detail) for fault in manifest.faults]


OBJECTS = [
    pytest.param("v1", "Service", {"spec": {"clusterIP": "10.96.0.1"}}, "Service default/x", id="Service"),
    pytest.param("v1", "Endpoints", {"subsets": []}, "Endpoints default/x", id="Endpoints"),
    pytest.param("v1", "Node", {}, "Node x", id="Node"),
    pytest.param("discovery.k8s.io/v1", "EndpointSlice", {"addressType": "IPv4"}, "EndpointSlice default/x", id="slice"),
    pytest.param("networking.k8s.io/v1", "ServiceCIDR", {"spec": {"cidrs": []}}, "ServiceCIDR x", id="ServiceCIDR"),
    pytest.param("networking.k8s.io/v1beta1", "ServiceCIDR", {}, "ServiceCIDR x", id="ServiceCIDR beta"),
]  # fmt: skip


@pytest.mark.parametrize("name", ["x.json", "x.yaml"])
@pytest.mark.parametrize(("version", "kind", "rest", "title"), OBJECTS)
def test_every_kind_is_read_alone_and_in_lists(
    version: str, kind: str, rest: dict[str, object], title: str, name: str
) -> None:
    bare = {"metadata": {"name": "x"}, **rest}
    full = {"apiVersion": version, "kind": kind, **bare}
    for document in (
        full,
        {"apiVersion": "v1", "kind": "List", "items": [full]},
        {"apiVersion": version, "kind": f"{kind}List", "items": [bare]},
    ):
        assert held(parse(json.dumps(document), name)) == [(1, title)]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        pytest.param("apiVersion: apps/v1\nkind: Deployment", "apps/v1 Deployment", id="other kind"),
        pytest.param("apiVersion: serving.knative.dev/v1\nkind: Service", "serving.knative.dev/v1 Service", id="group"),
        pytest.param("apiVersion: apps/v1\nkind: DeploymentList\nitems: []", "apps/v1 DeploymentList", id="other list"),
        pytest.param("apiVersion: x/v1\nkind: List\nitems: []", "x/v1 List", id="a List of another group"),
        pytest.param("replicas: 3", "(no Kubernetes object)", id="values"),
    ],
)
def test_other_kinds_are_only_counted(text: str, kind: str) -> None:
    assert parse(f"{text}\n---\n{text}") == Manifest(ignored=((kind, 2),))


NAMESPACES = [
    pytest.param({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "empty"}}, {"empty"}, id="declared"),
    pytest.param(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x", "namespace": "jobs"}},
        {"jobs"},
        id="of a kind that is not read",
    ),
    pytest.param({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}, {"default"}, id="of a Service"),
    pytest.param({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "x", "namespace": "y"}}, set(), id="Node"),
    pytest.param({"apiVersion": "rbac/v1", "kind": "ClusterRole", "metadata": {"name": "x"}}, set(), id="of nobody"),
    pytest.param({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": None}, set(), id="no metadata"),
    pytest.param({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ["x"]}}, set(), id="no name"),
    pytest.param({"replicas": 3, "metadata": {"namespace": 7}}, set(), id="values"),
]


@pytest.mark.parametrize("name", ["x.json", "x.yaml"])
@pytest.mark.parametrize(("document", "namespaces"), NAMESPACES)
def test_namespaces_are_those_declared_and_those_of_objects(
    document: dict[str, object], namespaces: set[str], name: str
) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [document] if "kind" in document else []}
    assert parse(json.dumps(document), name).namespaces == namespaces
    assert parse(json.dumps(listed), name).namespaces == namespaces


def test_several_documents_with_their_lines() -> None:
    second = SERVICE.replace("web", "api")
    assert held(parse(f"# first\n{SERVICE}---\n\n---\n{second}")) == [(2, "Service shop/web"), (14, "Service shop/api")]


def test_items_of_a_yaml_list_have_lines() -> None:
    items = "".join(f"- metadata: {{name: s{n}}}\n  spec: {{clusterIP: 10.0.0.{n}}}\n" for n in (1, 2))
    manifest = parse(f"apiVersion: v1\nkind: ServiceList\nitems:\n{items}")
    assert held(manifest) == [(4, "Service default/s1"), (6, "Service default/s2")]


JSON_LIST = """
{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"clusterIP": "10.0.0.1"}},

  {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "b"}, "spec": {"clusterIP": "10.0.0.2",
    "ports": [
      {"port": "http"}]}},
  {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "c", "namespace": null}, "spec": {"clusterIP": "10.0.0.3"}}
]}
"""


def test_items_of_a_json_list_have_lines_and_null_is_absent() -> None:
    manifest = parse(JSON_LIST, "svc.json")
    assert held(manifest) == [(3, "Service default/a"), (8, "Service default/c")]
    assert faults(manifest) == [(7, "Service b: spec.ports[0].port: expected int, got str")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(SERVICE.replace("80", "http"), (9, "Service shop/web: spec.ports[0].port: expected int, got str"), id="type"),
        pytest.param(SERVICE.replace("port: 80", "name: x"), (9, "Service shop/web: spec.ports[0]: object missing required field port"), id="missing field"),
        pytest.param(SERVICE.replace("clusterIP: 10.96.0.1", "clusterIP: 10"), (7, "Service shop/web: spec.clusterIP: expected str | null, got int"), id="number for text"),
        pytest.param(SERVICE.replace("namespace: shop", "labels: {a: true}"), (5, "Service web: metadata.labels[...]: expected str, got bool"), id="label"),
        pytest.param(SERVICE.replace("name: web", ""), (3, "Service: metadata.name is missing"), id="no name"),
        pytest.param("apiVersion: v1\nkind: Service", (1, "Service: object missing required field metadata"), id="no metadata"),
        pytest.param("kind: Service", (1, "apiVersion is missing"), id="no apiVersion"),
        pytest.param("apiVersion: v1", (1, "kind is missing"), id="no kind"),
        pytest.param("apiVersion: v1\nkind: [Service]", (1, "apiVersion and kind must be text"), id="kind is a list"),
        pytest.param("apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice", (1, "EndpointSlice: apiVersion discovery.k8s.io/v1beta1 is not read, only discovery.k8s.io/v1"), id="old version"),
        pytest.param("- a", (1, "expected an object, got a list"), id="list"),
        pytest.param("hello", (1, "expected an object, got the text 'hello'"), id="text"),
        pytest.param("apiVersion: v1\nkind: List\nitems: 5", (3, "items: expected a list"), id="items is no list"),
        pytest.param("a: [", (2, "did not find expected node content"), id="syntax: noticed at the next document"),
    ],
)  # fmt: skip
def test_a_fault_has_its_line_and_the_rest_still_loads(text: str, expected: tuple[int, str]) -> None:
    good = SERVICE.replace("web", "good")
    manifest = parse(f"{text}\n---\n{good}")
    assert faults(manifest) == [expected]
    assert [title for _, title in held(manifest)] == ["Service shop/good"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('\n{"a":\n1,}', (3, "JSON is malformed: trailing comma in object (byte 8)"), id="trailing comma"),
        pytest.param('{"kind":\n"Service"', (2, "input data was truncated"), id="truncated"),
        pytest.param("\n[]", (2, "expected an object, got a list"), id="list"),
        pytest.param("[" * 1_000_000, (1, "nested too deeply"), id="deep"),
        pytest.param('{"kind": "Service"}', (1, "apiVersion is missing"), id="no apiVersion"),
        pytest.param('{"apiVersion": "v1", "kind": "List",\n"items": {}}', (2, "items: expected a list"), id="items"),
    ],
)
def test_a_json_fault_has_its_line(text: str, expected: tuple[int, str]) -> None:
    assert faults(parse(text, "x.json")) == [expected]


@pytest.mark.parametrize("name", ["x.json", "x.yaml"])
def test_an_empty_file_is_valid(name: str) -> None:
    assert parse(" \n", name) == Manifest()


def test_a_byte_order_mark_is_skipped_and_other_encodings_are_a_fault() -> None:
    assert held(parse_manifest("x.yaml", b"\xef\xbb\xbf" + SERVICE.encode())) == [(1, "Service shop/web")]
    assert faults(parse_manifest("x.yaml", b"a: 1\nb: \xff")) == [(2, "not UTF-8 text")]


@pytest.mark.parametrize(
    ("spec", "advice"),
    [
        pytest.param("{}", ["NoClusterIP"], id="no clusterIP"),
        pytest.param("{clusterIP: None}", [], id="headless"),
        pytest.param("{type: ExternalName, externalName: x}", [], id="ExternalName"),
        pytest.param("{type: NodePort, clusterIP: 10.0.0.1, ports: [{port: 80}]}", ["NoNodePort"], id="no nodePort"),
        pytest.param("{type: NodePort, clusterIP: 10.0.0.1, ports: [{port: 80, nodePort: 30000}]}", [], id="nodePort"),
    ],
)
def test_a_field_that_needs_an_allocation_gets_advice(spec: str, advice: list[str]) -> None:
    manifest = parse(f"apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec: {spec}")
    assert len(manifest.objects) == 1
    assert manifest.faults == ()
    assert [found.reason for found in manifest.advice] == advice


def test_a_service_reads_as_it_would_after_it_was_created() -> None:
    (found,) = parse(
        "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIP: fd00::1, ports: [{port: 80}]}"
    ).objects
    assert isinstance(found.obj, Service)
    assert found.obj.metadata.namespace == "default"
    assert found.obj.spec.type == "ClusterIP"
    assert found.obj.spec.cluster_ips == ("fd00::1",)
    assert found.obj.spec.ip_families == ("IPv6",)
    assert found.obj.spec.ports is not None
    assert found.obj.spec.ports[0].protocol == "TCP"


@given(st.binary(max_size=80), st.sampled_from(["x.yaml", "x.json"]))
def test_any_content_parses(data: bytes, name: str) -> None:
    parse_manifest(name, data)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 99999) | st.sampled_from(["v1", "Service", "List", "", "10.0.0.1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["apiVersion", "kind", "metadata", "name", "spec", "ports", "port", "items", "clusterIP"]), inner
    ),
    max_leaves=15,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "items", "status"]), JSON_VALUES), st.sampled_from(["Service", "List"]))  # fmt: skip
def test_json_and_yaml_say_the_same(rest: dict[str, object], kind: str) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": kind, **rest}, indent=1)
    as_json, as_yaml = parse(text, "x.json"), parse(text, "x.yaml")
    assert [found.obj for found in as_json.objects] == [found.obj for found in as_yaml.objects]
    assert len(as_json.faults) == len(as_yaml.faults)
