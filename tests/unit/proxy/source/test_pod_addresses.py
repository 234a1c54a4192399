"""Which pods have which addresses, from objects as they come."""

from collections.abc import Collection

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import ObjectMeta, Pod, PodIP, PodSpec, PodStatus
from nodeagent.proxy.source.pod_addresses import PodAddresses


def pod(name: str, *addresses: str, namespace: str = "shop", phase: str = "Running", node: str = "a") -> Pod:
    status = PodStatus(phase, addresses[0] if addresses else None, tuple(map(PodIP, addresses)) or None)
    return Pod(ObjectMeta(name=name, namespace=namespace), PodSpec(node), status)


class Followed:
    def __init__(self, node_name: str | None = None) -> None:
        self.changed: list[set[str]] = []
        self.pods = PodAddresses(self._hear, lambda _: None, node_name=node_name)

    def _hear(self, addresses: Collection[str]) -> None:
        self.changed.append(set(addresses))


def test_a_pod_is_known_at_each_of_its_addresses_until_it_ends_or_goes() -> None:
    followed = Followed()
    followed.pods.put(pod("web", "10.0.0.1", "FD00::1"))
    assert followed.pods.namespaces_at("10.0.0.1") == followed.pods.namespaces_at("fd00::1") == ("shop",)
    followed.pods.put(pod("web", "10.0.0.1", "FD00::1"))
    followed.pods.put(pod("web", "10.0.0.2"))
    assert followed.pods.namespaces_at("10.0.0.1") == ()
    followed.pods.put(pod("web", "10.0.0.2", phase="Succeeded"))
    assert list(followed.pods.addresses) == []
    followed.pods.put(pod("db", "10.0.0.3"))
    followed.pods.remove(ObjectKey("shop", "db"))
    followed.pods.remove(ObjectKey("shop", "db"))
    assert followed.changed == [
        {"10.0.0.1", "fd00::1"},
        {"10.0.0.1", "fd00::1", "10.0.0.2"},
        {"10.0.0.2"},
        {"10.0.0.3"},
        {"10.0.0.3"},
    ]


def test_an_address_that_pods_share_is_in_all_their_namespaces() -> None:
    followed = Followed()
    for name, namespace in (("one", "b"), ("two", "a"), ("three", "a")):
        followed.pods.put(pod(name, "192.0.2.1", namespace=namespace))
    assert followed.pods.namespaces_at("192.0.2.1") == ("a", "b")
    followed.pods.remove(ObjectKey("a", "two"))
    assert followed.pods.namespaces_at("192.0.2.1") == ("a", "b")
    followed.pods.remove(ObjectKey("a", "three"))
    assert followed.pods.namespaces_at("192.0.2.1") == ("b",)


def test_a_full_list_replaces_what_was_known() -> None:
    followed = Followed()
    followed.pods.put(pod("old", "10.0.0.1"))
    followed.pods.put(pod("same", "10.0.0.2"))
    assert not followed.pods.listed.is_set()
    listing = followed.pods.listing()
    listing.add([pod("same", "10.0.0.2"), pod("new", "10.0.0.3"), pod("gone", "10.0.0.4"), pod("waiting")])
    listing.discard(ObjectKey("shop", "gone"))
    listing.commit()
    assert set(followed.pods.addresses) == {"10.0.0.2", "10.0.0.3"}
    assert followed.changed[-1] == {"10.0.0.1", "10.0.0.3"}
    assert followed.pods.listed.is_set()


def test_of_one_node_only_its_own_pods_count() -> None:
    followed = Followed("a")
    followed.pods.put(pod("here", "10.0.0.1", node="a"))
    followed.pods.put(pod("there", "10.0.0.2", node="b"))
    assert list(followed.pods.addresses) == ["10.0.0.1"]
