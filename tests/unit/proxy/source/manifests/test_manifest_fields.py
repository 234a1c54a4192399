"""Fields and words that the API server would refuse, found with line and suggestion; kinds that nobody has."""

import json
from collections.abc import Iterator

import pytest

from nodeagent.kinds.catalog import all_kinds
from nodeagent.kinds.description.shapes import ListOf, MapOf, Scalar, Shape, Struct
from nodeagent.proxy.source.manifests.manifest_fields import FIELDS, KINDS_OF_GROUP, Fields, Words
from nodeagent.proxy.source.manifests.manifests import Manifest, parse_manifest

SERVICE = """\
apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: shop
spec:
  clusterIP: 10.96.0.1
  EXTRA
  ports:
    - name: http
      port: 80
      PORT
"""


def service(extra: str = "type: ClusterIP", port: str = "protocol: TCP") -> str:
    return SERVICE.replace("EXTRA", extra).replace("PORT", port)


def told(manifest: Manifest) -> list[tuple[int, str, str]]:
    assert not manifest.faults
    return [(advice.line, advice.reason, advice.detail) for advice in manifest.advice]


@pytest.mark.parametrize(
    ("text", "line", "reason", "detail"),
    [
        pytest.param(
            service(port="nodeport: 30080"),
            12,
            "UnknownField",
            "spec.ports[0].nodeport: unknown field; did you mean nodePort?",
            id="a field in the wrong case",
        ),
        pytest.param(
            service("externalIP: [192.0.2.1]"),
            8,
            "UnknownField",
            "spec.externalIP: unknown field; did you mean externalIPs?",
            id="a field nearly right",
        ),
        pytest.param(service("qqqqq: 1"), 8, "UnknownField", "spec.qqqqq: unknown field", id="nothing like it"),
        pytest.param(
            service(port="protocol: tcp"),
            12,
            "UnknownValue",
            "spec.ports[0].protocol: 'tcp' is none of SCTP, TCP, UDP; did you mean TCP?",
            id="a word in the wrong case",
        ),
        pytest.param(
            service("internalTrafficPolicy: local"),
            8,
            "UnknownValue",
            "spec.internalTrafficPolicy: 'local' is none of Cluster, Local; did you mean Local?",
            id="a policy",
        ),
        pytest.param(
            service("ipFamilies: [IPv4, ipv6]"),
            8,
            "UnknownValue",
            "spec.ipFamilies: 'ipv6' is none of IPv4, IPv6; did you mean IPv6?",
            id="a word in a list",
        ),
    ],
)
def test_what_the_decoder_would_not_notice(text: str, line: int, reason: str, detail: str) -> None:
    manifest = parse_manifest("a.yaml", text.encode())
    assert told(manifest) == [(line, reason, f"Service shop/web: {detail}")]
    assert len(manifest.objects) == 1, "reported, and in effect as far as it goes"


def test_nothing_is_told_of_a_good_object() -> None:
    assert told(parse_manifest("a.yaml", service().encode())) == []
    assert told(parse_manifest("a.yaml", service(extra='sessionAffinity: ""').encode())) == [], "empty is absent"


def test_json_has_lines_too() -> None:
    document = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "web", "namespace": "shop"},
                "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80, "nodeport": 1}]},
            }
        ],
    }
    text = json.dumps(document, indent=1)
    line = next(number for number, line in enumerate(text.splitlines(), 1) if "nodeport" in line)
    ((found, reason, detail),) = told(parse_manifest("a.json", text.encode()))
    assert (found, reason) == (line, "UnknownField")
    assert detail.startswith("Service shop/web: spec.ports[0].nodeport")


@pytest.mark.parametrize(
    ("version", "kind", "detail"),
    [
        ("v1", "Servcie", "there is no kind Servcie in apiVersion v1; did you mean Service?; this is not read"),
        ("v1", "service", "there is no kind service in apiVersion v1; did you mean Service?; this is not read"),
        (
            "v1",
            "EndpointSlice",
            "there is no kind EndpointSlice in apiVersion v1; it is of the group discovery.k8s.io; this is not read",
        ),
        (
            "discovery.k8s.io/v1",
            "EndpointSlices",
            "there is no kind EndpointSlices in apiVersion discovery.k8s.io/v1; did you mean EndpointSlice?; this is not read",
        ),
    ],
)
def test_kinds_that_nobody_has(version: str, kind: str, detail: str) -> None:
    text = f"# first\napiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\n"
    assert told(parse_manifest("a.yaml", text.encode())) == [(2, "UnknownKind", detail)]


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("apps/v1", "Deployment"),
        ("v1", "ConfigMapList"),
        ("serving.knative.dev/v1", "Service"),
        ("kustomize.config.k8s.io/v1beta1", "Kustomization"),
    ],
)
def test_kinds_of_others_are_nothing_to_tell_of(version: str, kind: str) -> None:
    manifest = parse_manifest("a.yaml", f"apiVersion: {version}\nkind: {kind}\n".encode())
    assert told(manifest) == []
    assert manifest.ignored == ((f"{version} {kind}", 1),)


def described(fields: Fields, shape: Shape, path: str) -> Iterator[tuple[str, frozenset[str], frozenset[str]]]:
    """(path, names here, names in the API server's schema) of every object that is described."""
    while isinstance(shape, ListOf):
        shape = shape.element
    if shape is Scalar.ANY or isinstance(shape, MapOf):
        return
    assert isinstance(shape, Struct), path
    top = frozenset(("apiVersion", "kind")) if path.count(".") == 0 else frozenset[str]()
    yield path, fields.names - top, frozenset(shape.fields) - top
    for name, below in fields.below:
        if isinstance(below, Words):
            assert name in shape.fields, f"{path}.{name}"
        else:
            yield from described(below, shape.fields[name].shape, f"{path}.{name}")


@pytest.mark.parametrize("kind", FIELDS)
def test_the_fields_are_those_of_the_api_server(kind: str) -> None:
    (row,) = [row for row in all_kinds().rows if row.kind == kind]
    for path, here, there in described(FIELDS[kind], row.struct, kind):
        assert here >= there, f"{path}: {sorted(there - here)} would be refused"
        assert here == there or kind == "Node", f"{path}: {sorted(here - there)} would not be"


def test_every_kind_of_the_api_server_is_known() -> None:
    for row in all_kinds().rows:
        if row.group in KINDS_OF_GROUP:
            assert row.kind in KINDS_OF_GROUP[row.group]
