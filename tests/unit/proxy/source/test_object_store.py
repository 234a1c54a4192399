"""What counts as a change: the store against lists, single objects and deletions."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import (
    ANNOTATION_TRIGGER_TIME,
    LABEL_HEADLESS,
    LABEL_PROXY_NAME,
    LABEL_SERVICE_NAME,
    LABEL_ZONE,
    Endpoint,
    EndpointConditions,
    EndpointSlice,
    LoadBalancerStatus,
    Node,
    ObjectMeta,
    Service,
    ServiceCIDR,
    ServiceCIDRSpec,
    ServicePort,
    ServiceSpec,
    ServiceStatus,
)
from nodeagent.model.problem import Problem
from nodeagent.proxy.source.object_store import ClusterStore

WEB = ObjectKey("demo", "web")
API = ObjectKey("demo", "api")


class Recorder:
    """A listener that writes down what it received."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def service_changed(self, key: ObjectKey) -> None:
        self.calls.append(str(key))

    def node_changed(self) -> None:
        self.calls.append("node")

    def service_cidrs_changed(self) -> None:
        self.calls.append("service cidrs")

    def synced(self) -> None:
        self.calls.append("synced")

    def all_listed(self) -> None:
        self.calls.append("all listed")

    def take(self) -> list[str]:
        calls, self.calls = sorted(self.calls), []
        return calls


def service(name: str, *, cluster_ip: str = "10.0.0.1", version: str = "1", **labels: str) -> Service:
    meta = ObjectMeta(name=name, namespace="demo", uid=f"uid-{name}", resource_version=version, labels=labels or None)
    return Service(meta, ServiceSpec(cluster_ip=cluster_ip, ports=(ServicePort(port=80),)))


def endpoint_slice(name: str, of: str | None, *addresses: str, version: str = "1", **annotations: str) -> EndpointSlice:
    labels = {LABEL_SERVICE_NAME: of} if of is not None else {}
    meta = ObjectMeta(
        name=name, namespace="demo", resource_version=version, labels=labels, annotations=annotations or None
    )
    endpoints = tuple(
        Endpoint(addresses=(address,), conditions=EndpointConditions(ready=True)) for address in addresses
    )
    return EndpointSlice(meta, address_type="IPv4", endpoints=endpoints)


def node(zone: str, *, version: str = "1", **labels: str) -> Node:
    return Node(ObjectMeta(name="n1", resource_version=version, labels={LABEL_ZONE: zone, **labels}))


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def store(recorder: Recorder) -> ClusterStore:
    """A store that holds web with one slice, node n1 and one service CIDR."""
    store = ClusterStore(recorder)
    store.replace(Service, [service("web")])
    store.replace(EndpointSlice, [endpoint_slice("web-a", "web", "10.1.0.1")])
    store.replace(Node, [node("z1")])
    store.replace(ServiceCIDR, [ServiceCIDR(ObjectMeta(name="kubernetes"), ServiceCIDRSpec(("10.0.0.0/16",)))])
    recorder.take()
    return store


def names_of(store: ClusterStore, key: ObjectKey) -> list[str]:
    return [held.metadata.name for held in store.slices_of(key)]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(lambda s: s.put(service("web", version="2")), [], id="a resourceVersion alone is no change"),
        pytest.param(lambda s: s.put(service("web", app="shop")), [], id="nor is a label nobody reads"),
        pytest.param(lambda s: s.put(service("web", cluster_ip="10.0.0.2")), ["demo/web"], id="a changed field is one"),
        pytest.param(lambda s: s.put(service("api")), ["demo/api"], id="a new service"),
        pytest.param(lambda s: s.remove(Service, WEB), ["demo/web"], id="a deleted service"),
        pytest.param(lambda s: s.remove(Service, API), [], id="deleting what is not held"),
        pytest.param(
            lambda s: s.put(service("web", **{LABEL_PROXY_NAME: ""})), ["demo/web"], id="another proxy takes it over"
        ),
        pytest.param(
            lambda s: s.put(service("api", **{LABEL_PROXY_NAME: "x"})), [], id="another proxy's from the start"
        ),
        pytest.param(lambda s: s.put(service("web", cluster_ip="None")), ["demo/web"], id="it becomes headless"),
        pytest.param(
            lambda s: s.put(endpoint_slice("web-a", "web", "10.1.0.1", version="9", **{ANNOTATION_TRIGGER_TIME: "t"})),
            [],
            id="a trigger time alone is no change",
        ),
        pytest.param(
            lambda s: s.put(endpoint_slice("web-a", "web", "10.1.0.2")), ["demo/web"], id="an endpoint changes"
        ),
        pytest.param(
            lambda s: s.put(endpoint_slice("web-a", "api", "10.1.0.1")),
            ["demo/api", "demo/web"],
            id="a slice moves to another service",
        ),
        pytest.param(
            lambda s: s.put(endpoint_slice("web-a", None, "10.1.0.1")), ["demo/web"], id="a slice loses its service"
        ),
        pytest.param(lambda s: s.put(endpoint_slice("stray", None)), [], id="a slice of no service"),
        pytest.param(lambda s: s.remove(EndpointSlice, ObjectKey("demo", "web-a")), ["demo/web"], id="a deleted slice"),
        pytest.param(lambda s: s.replace(EndpointSlice, []), ["demo/web"], id="a slice that vanished between lists"),
        pytest.param(
            lambda s: s.replace(Service, [service("api"), service("web", version="7")]),
            ["demo/api"],
            id="a new list names only what differs",
        ),
        pytest.param(lambda s: s.put(node("z1", version="2", rack="4")), [], id="a node's heartbeat"),
        pytest.param(lambda s: s.put(node("z2")), ["node"], id="a node's zone"),
        pytest.param(lambda s: s.remove(Node, ObjectKey("", "n1")), [], id="a deleted node"),
        pytest.param(
            lambda s: s.put(
                ServiceCIDR(ObjectMeta(name="kubernetes", resource_version="8"), ServiceCIDRSpec(("10.0.0.0/16",)))
            ),
            [],
            id="a service CIDR's status",
        ),
        pytest.param(
            lambda s: s.remove(ServiceCIDR, ObjectKey("", "kubernetes")), ["service cidrs"], id="a deleted service CIDR"
        ),
    ],
)
def test_only_what_the_agent_reads_is_a_change(
    store: ClusterStore, recorder: Recorder, change: Callable[[ClusterStore], None], expected: list[str]
) -> None:
    change(store)
    assert recorder.take() == expected


def test_a_service_that_changes_hands_is_absent_until_it_comes_back(store: ClusterStore, recorder: Recorder) -> None:
    store.put(service("web", **{LABEL_PROXY_NAME: "other"}))
    assert WEB not in store.services
    store.put(service("web", **{LABEL_PROXY_NAME: "other"}, version="3"))
    store.put(service("web"))
    assert recorder.take() == ["demo/web", "demo/web"]
    assert WEB in store.services


def test_an_unchanged_object_stays_the_same_object(store: ClusterStore) -> None:
    before = (store.services[WEB], *store.slices_of(WEB))
    store.replace(Service, [service("web", version="5")])
    store.replace(EndpointSlice, [endpoint_slice("web-a", "web", "10.1.0.1", version="6")])
    assert all(
        held is earlier for held, earlier in zip((store.services[WEB], *store.slices_of(WEB)), before, strict=True)
    )


def test_slices_are_sorted_by_name_and_follow_their_label(store: ClusterStore) -> None:
    store.put(endpoint_slice("web-c", "web"))
    store.put(endpoint_slice("web-b", "web"))
    assert names_of(store, WEB) == ["web-a", "web-b", "web-c"]
    store.put(endpoint_slice("web-b", "api"))
    assert (names_of(store, WEB), names_of(store, API)) == (["web-a", "web-c"], ["web-b"])
    store.replace(EndpointSlice, [endpoint_slice("web-b", "web")])
    assert (names_of(store, WEB), names_of(store, API)) == (["web-b"], [])


def test_same_names_in_two_namespaces_do_not_meet(store: ClusterStore) -> None:
    elsewhere = EndpointSlice(ObjectMeta(name="web-a", namespace="other", labels={LABEL_SERVICE_NAME: "web"}))
    store.put(elsewhere)
    store.remove(EndpointSlice, ObjectKey("demo", "web-a"))
    assert names_of(store, WEB) == []
    assert names_of(store, ObjectKey("other", "web")) == ["web-a"]


def test_synced_is_reported_once_after_both_lists(recorder: Recorder) -> None:
    store = ClusterStore(recorder)
    store.replace(Node, [node("z1")])
    store.put(endpoint_slice("web-a", "web"))
    store.replace(Service, [])
    synced = [store.is_synced]
    store.replace(EndpointSlice, [])
    assert [*synced, store.is_synced] == [False, True]
    assert recorder.calls[-1] == "synced"
    store.replace(EndpointSlice, [])
    store.replace(Service, [])
    assert recorder.calls.count("synced") == 1


def test_a_list_under_construction_is_not_the_state(store: ClusterStore, recorder: Recorder) -> None:
    listing = store.listing(Service)
    listing.add([service("api"), service("db")])
    listing.discard(ObjectKey("demo", "db"))
    assert (list(store.services), recorder.take()) == ([WEB], [])
    listing.commit()
    assert (list(store.services), recorder.take()) == ([API], ["demo/api", "demo/web"])


def test_the_node_outlives_its_object(store: ClusterStore) -> None:
    store.remove(Node, ObjectKey("", "n1"))
    store.replace(Node, [])
    assert store.node is not None
    assert store.node.metadata.name == "n1"


def test_headless_services_are_kept_for_dns_only() -> None:
    headless = service("db", cluster_ip="None")
    part = EndpointSlice(
        ObjectMeta(name="db-a", namespace="demo", labels={LABEL_SERVICE_NAME: "db", LABEL_HEADLESS: ""})
    )
    for keep in (False, True):
        store = ClusterStore(Recorder(), for_names=keep)
        store.replace(Service, [headless])
        store.put(part)
        key = ObjectKey("demo", "db")
        assert (key in store.services, names_of(store, key)) == (keep, ["db-a"] if keep else [])


def test_unused_fields_are_not_kept(store: ClusterStore) -> None:
    store.put(
        Service(
            ObjectMeta(name="web", namespace="demo", resource_version="4", annotations={"a": "b"}, labels={"c": "d"}),
            ServiceSpec(cluster_ip="10.0.0.9"),
            ServiceStatus(LoadBalancerStatus()),
        )
    )
    held = store.services[WEB]
    assert (held.metadata.annotations, held.metadata.labels, held.metadata.resource_version) == (None, None, "")
    assert held.status is None


def test_equal_parts_of_endpoints_are_one_instance(store: ClusterStore) -> None:
    store.put(endpoint_slice("web-b", "web", "10.1.0.7", "10.1.0.8"))
    conditions = [
        endpoint.conditions for held in store.slices_of(WEB) for endpoint in held.endpoints or () if endpoint.conditions
    ]
    assert len(conditions) == 3
    assert len({id(value) for value in conditions}) == 1


def test_each_source_replaces_its_own_problems_only(store: ClusterStore) -> None:
    first, second = Problem("Service a", "Undecodable", "x"), Problem("API", "Forbidden", "y")
    store.report("services", [first])
    store.report("slices", [second])
    assert list(store.problems) == [second, first]
    store.report("services", [])
    assert list(store.problems) == [second]


def test_the_uid_of_what_is_held_is_kept_for_events(store: ClusterStore) -> None:
    made = endpoint_slice("web-1", "web", "10.1.0.1")
    cidr = ServiceCIDR(ObjectMeta(name="range", uid="uid-range"), ServiceCIDRSpec(("10.0.0.0/16",)))
    store.put(service("web"))
    store.put(replace(made, metadata=replace(made.metadata, uid="uid-web-1")))
    store.put(cidr)
    assert store.uid_of("Service", WEB) == "uid-web"
    assert store.uid_of("EndpointSlice", ObjectKey("demo", "web-1")) == "uid-web-1"
    assert store.uid_of("ServiceCIDR", ObjectKey("", "range")) == "uid-range"
    store.remove(Service, WEB)
    assert store.uid_of("Service", WEB) is None
    assert store.uid_of("ConfigMap", WEB) is None


steps = st.tuples(
    st.sampled_from(["web-1", "web-2", "web-3"]),
    st.none() | st.tuples(st.sampled_from(["web", "web", "api"]), st.lists(st.sampled_from(["10.1.0.1", "10.1.0.2"]))),
)


@given(st.lists(steps, max_size=12))
def test_slices_one_by_one_are_held_like_a_list_of_all(
    sequence: list[tuple[str, tuple[str, list[str]] | None]],
) -> None:
    """And each step is reported for the services whose slices differ after it."""
    recorder = Recorder()
    store, present = ClusterStore(recorder), dict[str, EndpointSlice]()
    for name, to in sequence:
        before = {key: store.slices_of(key) for key in (WEB, API)}
        if to is None:
            present.pop(name, None)
            store.remove(EndpointSlice, ObjectKey("demo", name))
        else:
            present[name] = endpoint_slice(name, to[0], *to[1])
            store.put(present[name])
        fresh = ClusterStore(Recorder())
        fresh.replace(EndpointSlice, present.values())
        after = {key: store.slices_of(key) for key in (WEB, API)}
        assert after == {key: fresh.slices_of(key) for key in (WEB, API)}
        assert recorder.take() == sorted(str(key) for key in after if after[key] != before[key])
