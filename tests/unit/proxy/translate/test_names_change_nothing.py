"""Cluster DNS needs objects that the proxy leaves out. What the proxy programs is the same with names on and off."""

from collections.abc import Callable, Collection

import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import (
    LABEL_HEADLESS,
    LABEL_PROXY_NAME,
    LABEL_SERVICE_NAME,
    Endpoint,
    EndpointAddress,
    EndpointPort,
    Endpoints,
    EndpointSlice,
    EndpointSubset,
    ObjectMeta,
    Service,
    ServicePort,
    ServiceSpec,
)
from nodeagent.proxy.source.mirror import mirror_endpoints
from nodeagent.proxy.source.object_store import ClusterStore
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.translator import Translator

WEB = ObjectKey("shop", "web")
Change = Callable[[ClusterStore], None]


class Listener:
    """Hears nothing."""

    def service_changed(self, key: ObjectKey) -> None: ...

    def node_changed(self) -> None: ...

    def service_cidrs_changed(self) -> None: ...

    def synced(self) -> None: ...

    def all_listed(self) -> None: ...


def a_service(cluster_ip: str = "10.96.0.7", kind: str = "ClusterIP", **labels: str) -> Service:
    spec = ServiceSpec(type=kind, cluster_ip=cluster_ip, ports=(ServicePort(80, "http"),), external_name="example.com")
    return Service(ObjectMeta(name=WEB.name, namespace=WEB.namespace, labels=labels), spec)


def a_slice(name: str, address: str, **labels: str) -> EndpointSlice:
    meta = ObjectMeta(name=name, namespace=WEB.namespace, labels={LABEL_SERVICE_NAME: WEB.name, **labels})
    return EndpointSlice(meta, "IPv4", (Endpoint((address,)),), (EndpointPort(name="http", port=8080),))


def mirrored(**labels: str) -> Collection[EndpointSlice]:
    """The slices that stand for Endpoints, where the server has only those."""
    subset = EndpointSubset(addresses=(EndpointAddress("10.1.0.9"),), ports=(EndpointPort(name="http", port=8080),))
    meta = ObjectMeta(name=WEB.name, namespace=WEB.namespace, labels=labels)
    return mirror_endpoints(Endpoints(metadata=meta, subsets=(subset,)), None, honour_opt_out=False)


def puts(*objects: Service | EndpointSlice) -> Change:
    def change(store: ClusterStore) -> None:
        for obj in objects:
            store.put(obj)

    return change


HEADLESS = {LABEL_HEADLESS: ""}
OTHER_PROXY = {LABEL_PROXY_NAME: "other"}
CASES = [
    pytest.param(puts(), 1, id="a Service with one endpoint, the control"),
    pytest.param(puts(a_slice("b", "10.1.0.2", **HEADLESS)), 1, id="one more slice, labelled headless"),
    pytest.param(puts(a_slice("a", "10.1.0.1", **HEADLESS)), 0, id="its only slice is labelled headless"),
    pytest.param(
        puts(a_slice("a", "10.1.0.1", **HEADLESS), a_slice("a", "10.1.0.1")), 1, id="its slice loses that label"
    ),
    pytest.param(puts(*mirrored(**HEADLESS)), 1, id="Endpoints labelled headless"),
    pytest.param(puts(*mirrored()), 2, id="Endpoints, the control"),
    pytest.param(puts(a_slice("b", "10.1.0.2", **OTHER_PROXY)), 2, id="a slice with another proxy's label counts"),
    pytest.param(puts(a_service(**OTHER_PROXY)), None, id="another proxy's Service"),
    pytest.param(puts(a_service(**OTHER_PROXY), a_service()), 1, id="a Service comes back from another proxy"),
    pytest.param(puts(a_service(**HEADLESS)), 1, id="a Service with the headless label and a ClusterIP"),
    pytest.param(puts(a_service("None")), None, id="a headless Service"),
    pytest.param(puts(a_service("None", **OTHER_PROXY)), None, id="a headless Service of another proxy"),
    pytest.param(puts(a_service("")), None, id="a Service without a ClusterIP yet"),
    pytest.param(puts(a_service("10.96.0.7", "ExternalName")), None, id="an ExternalName"),
]


@pytest.mark.parametrize("at_once", [True, False], ids=["listed", "watched"])
@pytest.mark.parametrize(("change", "backends"), CASES)
def test_names_change_nothing_of_what_is_programmed(change: Change, backends: int | None, at_once: bool) -> None:
    """backends: of the ClusterIP's port, None where the Service has no frontend."""
    seen = []
    for for_names in (False, True):
        store = ClusterStore(Listener(), for_names=for_names)
        puts(a_service(), a_slice("a", "10.1.0.1"))(store)
        translator = Translator()
        context = Context(node_name="n1", families=(Family.IPV4,))
        if not at_once:
            translator.update(store, None, context)
        change(store)
        translator.update(store, {WEB}, context)
        seen.append(dict(translator.states))
    without, with_names = seen
    assert with_names == without
    frontends = without[WEB].frontends if WEB in without else ()
    assert (len(frontends[0].route.backends) if frontends else None) == backends


def test_names_see_what_the_proxy_leaves_out() -> None:
    store = ClusterStore(Listener(), for_names=True)
    puts(a_service(**OTHER_PROXY), a_slice("a", "10.1.0.1", **HEADLESS))(store)
    assert list(store.services) == [WEB]
    assert [one.metadata.name for one in store.slices_of(WEB)] == ["a"]
