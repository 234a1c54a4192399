"""Manifests: objects and faults with lines of the file, for any bytes, and never an exception."""

import yaml

from nodeagent.model.objects import ApiObject, EndpointSlice
from nodeagent.proxy.source.manifests.manifest_world import ManifestFile, merge
from nodeagent.proxy.source.manifests.manifests import parse_manifest
from tests.harness.fuzzing.kubeconfigs import TOKENS
from tests.harness.fuzzing.mutation import Target
from tests.harness.objects import make_endpoint, make_node, make_service, make_slice, manifest, manifest_list

WEB = make_service("web", "10.96.0.1", "fd00:96::1")
OBJECTS: tuple[ApiObject, ...] = (
    WEB,
    make_slice(WEB, [make_endpoint("10.244.0.1", "here")]),
    make_node("here", ["192.0.2.1"]),
)
AS_YAML = "---\n".join(manifest(obj) for obj in OBJECTS).encode()
SHARED = b"""\
apiVersion: v1
kind: List
items:
- &web
  kind: Service
  apiVersion: v1
  metadata: &meta {name: a, labels: &labels {a: b}}
  spec: {ports: [&port {port: 80}, {<<: *port, port: 81}]}
- *web
- {<<: *web, metadata: {<<: *meta, name: c}}
- {kind: List, apiVersion: v1, items: [*web, *web]}
"""


_LINE_ENDS = (b"\n", b"\r", b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9")
"""What ends a line for YAML."""


def _check_yaml(data: bytes) -> None:
    _check("a.yaml", data)


def _check_json(data: bytes) -> None:
    _check("a.json", data)


def _check(name: str, data: bytes) -> None:
    read = parse_manifest(name, data, thorough=True)
    last = 1 + sum(data.count(end) for end in _LINE_ENDS)
    lines = [*(found.line for found in read.objects), *(found.line for found in (*read.faults, *read.advice))]
    assert all(0 <= line <= last for line in lines)
    for fault in (*read.faults, *read.advice):
        assert "\n" not in str(fault.detail)
    world = merge([ManifestFile(name, read)], "here")
    assert all(isinstance(found, EndpointSlice) for found in world.slices.values())


TARGETS = (
    Target("manifests in YAML", (AS_YAML, SHARED, yaml.safe_dump({"a": 1}).encode()), TOKENS, _check_yaml),
    Target("manifests in JSON", (manifest_list(OBJECTS).encode(), b"{}"), TOKENS, _check_json),
)
