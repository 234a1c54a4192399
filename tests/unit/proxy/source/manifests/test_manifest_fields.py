"""Fields and words that the API server would refuse, found with line and suggestion; kinds that nobody has."""

import json

import pytest

from nodeagent.kinds.catalog import all_kinds
from nodeagent.kinds.description.resources import Resource
from nodeagent.kinds.description.shapes import ListOf, Shape, Struct
from nodeagent.proxy.source.manifests.manifest_fields import ROWS, fits, kinds_of_groups, unknown_kind
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


def advice_of(manifest: Manifest) -> list[tuple[int, str, str]]:
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
            'spec.ports[0].protocol: Unsupported value: "tcp": supported values: "SCTP", "TCP", "UDP"; did you mean TCP?',
            id="a word in the wrong case",
        ),
        pytest.param(
            service("internalTrafficPolicy: local"),
            8,
            "UnknownValue",
            'spec.internalTrafficPolicy: Unsupported value: "local": supported values: "Cluster", "Local"; did you mean Local?',
            id="a policy",
        ),
        pytest.param(
            service("ipFamilies: [IPv4, ipv6]"),
            8,
            "UnknownValue",
            'spec.ipFamilies[1]: Unsupported value: "ipv6": supported values: "IPv4", "IPv6"; did you mean IPv6?',
            id="a word in a list",
        ),
    ],
)
def test_mistakes_that_the_decoder_would_not_notice(text: str, line: int, reason: str, detail: str) -> None:
    manifest = parse_manifest("a.yaml", text.encode())
    assert advice_of(manifest) == [(line, reason, f"Service shop/web: {detail}")]
    assert len(manifest.objects) == 1, "reported, and in effect as far as it goes"


def test_a_good_object_gets_no_advice() -> None:
    assert advice_of(parse_manifest("a.yaml", service().encode())) == []
    assert advice_of(parse_manifest("a.yaml", service(extra='sessionAffinity: ""').encode())) == [], "empty is absent"


def test_mistakes_in_json_name_their_line() -> None:
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
    ((found, reason, detail),) = advice_of(parse_manifest("a.json", text.encode()))
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
    assert advice_of(parse_manifest("a.yaml", text.encode())) == [(2, "UnknownKind", detail)]


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
    assert advice_of(manifest) == []
    assert manifest.ignored == ((f"{version} {kind}", 1),)


def service_with(path: str, value: object) -> bytes:
    """A Service that has `value` at the path, in a list where the schema says so."""
    document: dict[str, object] = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    place: dict[str, object] = document
    *parents, last = path.split(".")
    shape: Shape = ROWS["Service"].struct
    for name in parents:
        assert isinstance(shape, Struct)
        shape = shape.fields[name].shape
        inner: dict[str, object] = {}
        place[name] = [inner] if isinstance(shape, ListOf) else inner
        shape = shape.element if isinstance(shape, ListOf) else shape
        place = inner
    assert isinstance(shape, Struct)
    place[last] = [value] if isinstance(shape.fields[last].shape, ListOf) else value
    return json.dumps(document).encode()


@pytest.mark.parametrize("path", ROWS["Service"].words)
def test_words_are_those_that_validation_accepts(path: str) -> None:
    """Whether the fast look sees them; validation then says which there are."""
    words = ROWS["Service"].words[path]
    for word in words:
        assert fits("Service", json.loads(service_with(path, word)))
    assert not fits("Service", json.loads(service_with(path, "cluster-ip")))


def paths_of(shape: Shape, path: str) -> set[str]:
    if isinstance(shape, ListOf):
        return paths_of(shape.element, path)
    if not isinstance(shape, Struct):
        return {path}
    return {
        found for name, field in shape.fields.items() for found in paths_of(field.shape, f"{path}.{name}".lstrip("."))
    }


@pytest.mark.parametrize("kind", ROWS)
def test_words_are_of_fields_that_exist(kind: str) -> None:
    assert ROWS[kind].words.keys() <= paths_of(ROWS[kind].struct, "")


def test_the_whole_check_reports_what_only_an_api_server_refuses() -> None:
    text = service().replace("name: web", "name: web_").encode()
    assert parse_manifest("a.yaml", text).advice == ()
    (refusal,) = parse_manifest("a.yaml", text, thorough=True).advice
    assert (refusal.line, refusal.reason) == (4, "RefusedByAPI")
    assert refusal.detail.startswith("Service shop/web_: metadata.name: Invalid value:")


def test_a_wrong_type_of_a_field_that_the_agent_does_not_read_has_its_line() -> None:
    (refusal,) = parse_manifest("a.yaml", service("selector: [a]").encode()).advice
    assert (refusal.line, refusal.reason) == (8, "RefusedByAPI")
    assert "json: cannot unmarshal array into Go struct field ServiceSpec.spec.selector" in refusal.detail


@pytest.mark.parametrize("row", all_kinds().rows, ids=lambda row: row.kind)
def test_every_kind_of_the_api_server_is_known(row: Resource) -> None:
    version = f"{row.group}/v1".removeprefix("/")
    assert unknown_kind(version, row.kind) is None
    if row.group in kinds_of_groups():
        assert unknown_kind(version, f"{row.kind}x") is not None
