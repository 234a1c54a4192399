"""What several manifest files say together."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice, Service, StoredObject, key_of
from nodeagent.proxy.source.manifests.manifest_world import ManifestFile, World, changes_between, merge, next_version
from nodeagent.proxy.source.manifests.manifests import Manifest, parse_manifest


def service(name: str, address: str = "10.96.0.1") -> str:
    return f"{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{clusterIP: {address}}}}}"


def endpoints(name: str, meta: str = "") -> str:
    listed = "subsets: [{addresses: [{ip: 10.0.0.1}], ports: [{port: 8080}]}]"
    return f"{{apiVersion: v1, kind: Endpoints, metadata: {{name: {name}, {meta}}}, {listed}}}"


def endpoint_slice(name: str, of: str) -> str:
    meta = f"metadata: {{name: {name}, labels: {{kubernetes.io/service-name: {of}}}}}"
    return f"{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, {meta}, addressType: IPv4}}"


def node(name: str) -> str:
    return f"{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}}}"


def manifest(*objects: str) -> Manifest:
    return parse_manifest("x.yaml", "\n---\n".join(objects).encode())


def file(name: str, *objects: str) -> ManifestFile:
    return ManifestFile(name, manifest(*objects))


def world(*files: ManifestFile) -> World:
    return merge(files, "node-a")


def problems(of: World) -> list[tuple[str, str]]:
    return [(problem.subject, problem.reason) for problem in of.problems]


def names(keys: object) -> list[str]:
    assert isinstance(keys, dict)
    return sorted(key.name for key in keys)


@pytest.mark.parametrize("order", [1, -1], ids=["in order", "reversed"])
def test_the_first_file_in_path_order_wins(order: int) -> None:
    files = [file("a.yaml", service("web", "10.0.0.1")), file("b.yaml", service("api"), service("web", "10.0.0.2"))]
    merged = world(*files[::order])
    assert merged.services[ObjectKey("default", "web")].spec.cluster_ip == "10.0.0.1"
    assert names(merged.services) == ["api", "web"]
    (problem,) = merged.problems
    assert str(problem) == (
        "file b.yaml:3: DuplicateObject: Service default/web is also in a.yaml:1, which is in effect; this one is not"
    )


def test_within_a_file_the_first_object_wins_even_on_one_line() -> None:
    items = [{"metadata": {"name": "web"}, "spec": {"clusterIP": f"10.0.0.{n}"}} for n in (1, 2)]
    text = json.dumps({"apiVersion": "v1", "kind": "ServiceList", "items": items})
    merged = world(ManifestFile("a.json", parse_manifest("a.json", text.encode())))
    assert merged.services[ObjectKey("default", "web")].spec.cluster_ip == "10.0.0.1"
    assert problems(merged) == [("file a.json:1", "DuplicateObject")]


def test_the_same_name_in_another_namespace_or_kind_is_no_duplicate() -> None:
    other = service("web").replace("name: web", "name: web, namespace: other")
    assert world(file("a.yaml", service("web"), other, node("node-a"), endpoint_slice("web", "web"))).problems == ()


@pytest.mark.parametrize(
    ("objects", "mirrored"),
    [
        pytest.param([service("web"), endpoints("web")], 1, id="of a service"),
        pytest.param([endpoints("web")], 0, id="without a service"),
        pytest.param([service("web"), endpoints("web"), endpoint_slice("web-x", "web")], 0, id="slices are there"),
        pytest.param([service("web"), endpoints("web"), endpoint_slice("api-x", "api")], 1, id="slices of another"),
        pytest.param(
            [service("web"), endpoints("web", "labels: {endpointslice.kubernetes.io/skip-mirror: 'true'}")],
            0,
            id="opted out",
        ),
    ],
)
def test_endpoints_are_mirrored(objects: list[str], mirrored: int) -> None:
    slices = world(file("a.yaml", *objects)).slices
    made = [name for name in names(slices) if name.startswith("web-ipv4-")]
    assert len(made) == mirrored


def test_only_this_node_counts() -> None:
    assert names(world(file("a.yaml", node("node-b"), node("node-a"))).nodes) == ["node-a"]


BROKEN = "{apiVersion: v1, kind: Service, metadata: {name: [api]}}"


def test_the_first_version_of_a_file_counts_as_far_as_it_can_be_read() -> None:
    version = next_version("a.yaml", None, manifest(service("web"), BROKEN))
    merged = world(version)
    assert names(merged.services) == ["web"]
    (problem,) = merged.problems
    assert problem.subject == "file a.yaml:3"
    assert problem.detail.endswith("this is not in effect")


def test_from_then_on_a_file_changes_as_a_whole_or_not_at_all() -> None:
    good = next_version("a.yaml", None, manifest(service("web"), service("api")))
    broken = next_version("a.yaml", good, manifest(service("new"), BROKEN))
    merged = world(broken)
    assert names(merged.services) == ["api", "web"]
    (problem,) = merged.problems
    assert problem.detail.endswith("the previous version of the file stays in effect")
    mended = world(next_version("a.yaml", broken, manifest(service("new"))))
    assert names(mended.services) == ["new"]
    assert mended.problems == ()


def test_a_file_of_which_nothing_is_in_effect_is_read_as_if_for_the_first_time() -> None:
    broken = next_version("a.yaml", None, manifest(BROKEN))
    assert names(world(next_version("a.yaml", broken, manifest(service("web"), BROKEN))).services) == ["web"]


def test_advice_does_not_keep_an_object_out() -> None:
    merged = world(file("a.yaml", service("web", "''")))
    assert names(merged.services) == ["web"]
    assert problems(merged) == [("file a.yaml:1", "NoClusterIP")]


def test_changes_are_only_what_differs_and_slices_come_before_services() -> None:
    before = world(file("a.yaml", service("old"), service("kept"), endpoint_slice("old-x", "old"), node("node-a")))
    after = world(file("a.yaml", service("kept"), service("new"), endpoint_slice("new-x", "new"), node("node-a")))
    changes = changes_between(before, after)
    assert [(type(obj), obj.metadata.name) for obj in changes.puts] == [(EndpointSlice, "new-x"), (Service, "new")]
    assert changes.removals == (
        (Service, ObjectKey("default", "old")),
        (EndpointSlice, ObjectKey("default", "old-x")),
    )


def test_the_same_content_is_no_change() -> None:
    both = [world(file("a.yaml", service("web"), endpoints("web"))) for _ in range(2)]
    changes = changes_between(*both)
    assert changes.puts == ()
    assert changes.removals == ()


OBJECTS = st.lists(
    st.sampled_from([
        service("a"), service("a", "10.96.0.9"), service("b"), endpoints("a"), endpoints("b"),
        endpoint_slice("a-x", "a"), node("node-a"), node("node-b"),
    ]),
    max_size=6,
)  # fmt: skip
FILES = st.lists(st.tuples(st.sampled_from(["a.yaml", "b.yaml", "c/d.yaml"]), OBJECTS), unique_by=lambda f: f[0])


@given(FILES, FILES)
def test_applying_the_changes_leads_to_the_new_world(
    old: list[tuple[str, list[str]]], new: list[tuple[str, list[str]]]
) -> None:
    before, after = (world(*(file(name, *objects) for name, objects in files)) for files in (old, new))
    held = contents(before)
    changes = changes_between(before, after)
    for removed in changes.removals:
        del held[removed]
    held |= {(type(obj), key_of(obj)): obj for obj in changes.puts}
    assert held == contents(after)


def contents(of: World) -> dict[tuple[type[StoredObject], ObjectKey], StoredObject]:
    tables = (of.services, of.slices, of.nodes, of.service_cidrs)
    return {(type(obj), key): obj for table in tables for key, obj in table.items()}


@given(FILES)
def test_the_order_of_files_does_not_matter(files: list[tuple[str, list[str]]]) -> None:
    parsed = [file(name, *objects) for name, objects in files]
    assert world(*parsed) == world(*reversed(parsed))
