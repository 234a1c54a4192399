"""Keys and values as kube-apiserver has them, and what becomes of values that cannot be read."""

import json
from typing import Any

import pytest

from nodeagent.apiserver.live_servers import AdvertisedAddress
from nodeagent.apiserver.storage.etcd.layout import Layout, StoredCollection, Unreadable
from nodeagent.apiserver.storage.records import assemble, draft

PLACES = {
    "services": StoredCollection(
        "services/specs", "Service", "v1", True, lambda document: {"metadata": document["metadata"]}
    ),
    "nodes": StoredCollection("minions", "Node", "v1", False, lambda document: {"metadata": document["metadata"]}),
    "masterleases": StoredCollection("masterleases", "Endpoints", "v1", False, None),
}
LAYOUT = Layout("/registry", PLACES)
META = {"name": "web", "namespace": "default", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}


def value(**changed: Any) -> bytes:
    return json.dumps({"kind": "Service", "apiVersion": "v1", "metadata": META, **changed}).encode()


@pytest.mark.parametrize(
    ("collection", "path", "key"),
    [
        ("services", "default/web", b"/registry/services/specs/default/web"),
        ("nodes", "a", b"/registry/minions/a"),
        ("masterleases", "192.0.2.1", b"/registry/masterleases/192.0.2.1"),
        ("apiservers", "192.0.2.1", b"/registry/nodeagent.dev/apiservers/192.0.2.1"),
    ],
)
def test_an_object_has_a_key_and_the_key_tells_the_object(collection: str, path: str, key: bytes) -> None:
    assert LAYOUT.key(collection, path) == key
    assert LAYOUT.locate(key) == (collection, path)
    assert LAYOUT.start <= key < LAYOUT.end


@pytest.mark.parametrize(
    "key",
    [
        b"/registry/deployments/default/web",
        b"/registry/services/endpoints/default/web",
        b"/registry/minions",
        b"/registry/nodeagent.dev/x",
        b"/registry-2/minions/a",
        b"compact_rev_key",
        b"/registry/\xff\xfe",
    ],
)
def test_keys_of_kinds_that_are_not_served_are_ignored(key: bytes) -> None:
    assert LAYOUT.locate(key) is None


@pytest.mark.parametrize("prefix", ["/registry", "registry", "/registry/", "//registry//", "/a/b", "a//b/"])
def test_the_prefix_may_be_written_as_one_likes(prefix: str) -> None:
    layout = Layout(prefix, PLACES)
    key = layout.key("nodes", "a")
    assert key == (b"/registry/minions/a" if "registry" in prefix else b"/a/b/minions/a")
    assert layout.locate(key) == ("nodes", "a")


@pytest.mark.parametrize(
    "metadata",
    [
        {**META, "resourceVersion": "0"},
        {"resourceVersion": "0", **META},
        {"name": "web", "namespace": "default", "resourceVersion": "5", "uid": "u", "creationTimestamp": "x"},
    ],
)
def test_a_value_has_kind_and_version_and_no_revision_which_comes_back_on_reading(metadata: dict[str, str]) -> None:
    written = LAYOUT.value("services", draft({"metadata": metadata, "spec": {"a": 1}}))
    assert written.startswith(b'{"kind":"Service","apiVersion":"v1","metadata":{')
    plain = {name: text for name, text in metadata.items() if name != "resourceVersion"}
    assert json.loads(written) == {"kind": "Service", "apiVersion": "v1", "metadata": plain, "spec": {"a": 1}}
    body = LAYOUT.body("services", "default/web", written, 7)
    assert json.loads(body) == {"metadata": {**plain, "resourceVersion": "7"}, "spec": {"a": 1}}


def test_the_revision_is_where_kube_apiserver_shows_it() -> None:
    metadata = {"name": "web", "namespace": "default", "uid": "u", "resourceVersion": "0", "creationTimestamp": "x"}
    written = LAYOUT.value("services", draft({"metadata": metadata, "spec": {"uid": "u"}}))
    for kept in (written, value(metadata={**metadata, "annotations": {"a": '"uid":"u",'}})):
        found = json.loads(LAYOUT.body("services", "default/web", kept, 7))["metadata"]
        assert list(found)[:5] == ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"]
        assert found["resourceVersion"] == "7"


def test_a_value_of_others_is_made_canonical_and_a_revision_in_it_does_not_count() -> None:
    body = LAYOUT.body("services", "default/web", value(metadata={**META, "resourceVersion": "1"}, unknown=1), 7)
    assert json.loads(body) == {"metadata": {**META, "resourceVersion": "7"}}


def test_a_value_of_our_own_that_somebody_copied_elsewhere_does_not_count_as_the_object_there() -> None:
    written = LAYOUT.value("services", draft({"metadata": {**META, "resourceVersion": "0"}}))
    with pytest.raises(Unreadable, match="its name is default/web"):
        LAYOUT.body("services", "default/other", written, 7)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (b"k8s\0\n\x0c\n\x02v1\x12\x06Service", "protobuf"),
        (b"k8s:enc:aescbc:v1:key1:\x00\x01", "encrypted"),
        (b"", "not JSON"),
        (b"[]", "not JSON of an object"),
        (b'{"kind":"Service"', "not JSON"),
        (json.dumps({"metadata": META}).encode(), "it is no kind"),
        (value(kind="Gateway"), "it is v1 Gateway"),
        (value(apiVersion="v2"), "it is v2 Service"),
        (value(metadata={**META, "uid": ""}), "no uid"),
        (value(metadata={**META, "creationTimestamp": None}), "no creationTimestamp"),
        (value(metadata={**META, "uid": 'a"b'}), "its uid is not plain"),
        (value(metadata=None), "not JSON of an object"),
    ],
)
def test_a_value_that_cannot_be_read_says_why(found: bytes, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        LAYOUT.body("services", "default/web", found, 7)


def test_a_value_that_a_kind_cannot_convert_is_unreadable() -> None:
    def broken(_: Any) -> Any:
        raise KeyError("spec")

    layout = Layout("/registry", {"nodes": StoredCollection("minions", "Node", "v1", False, broken)})
    meta = {**META, "name": "a", "namespace": ""}
    with pytest.raises(Unreadable, match="not a Node: 'spec'"):
        layout.body("nodes", "a", value(kind="Node", metadata=meta), 7)


WRITTEN_BY_KUBE_APISERVER = b'{"kind":"Endpoints","apiVersion":"v1","metadata":{"generation":2},"subsets":[{"addresses":[{"ip":"192.0.2.1"}]}]}\n'
"""Below masterleases, by 1.36.2 with --storage-media-type=application/json."""


def test_a_record_of_kube_apiserver_is_read_as_it_is() -> None:
    body = LAYOUT.body("masterleases", "192.0.2.1", WRITTEN_BY_KUBE_APISERVER, 7)
    assert json.loads(body) == {
        "metadata": {"generation": 2, "resourceVersion": "7"},
        "subsets": [{"addresses": [{"ip": "192.0.2.1"}]}],
    }
    assert assemble(body, 8) == body.replace(b'"7"', b'"8"')


def test_a_record_of_kube_apiserver_is_written_in_its_form() -> None:
    written = LAYOUT.value("masterleases", AdvertisedAddress("192.0.2.1", 6443).master_lease())
    found, wanted = json.loads(written), json.loads(WRITTEN_BY_KUBE_APISERVER)
    assert list(found) == list(wanted)
    assert found == {**wanted, "metadata": {}}


@pytest.mark.parametrize(
    "written", [b"k8s\0...", b"[]", b'{"metadata":7}', b'{"kind":"Lease","apiVersion":"v1","metadata":{}}']
)
def test_another_record_at_its_place_cannot_be_read(written: bytes) -> None:
    with pytest.raises(Unreadable):
        LAYOUT.body("masterleases", "192.0.2.1", written, 7)
