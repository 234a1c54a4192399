"""The recorded objects as somebody would write them: manifests, or requests to an API server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.harness.api_client import ApiClient
from tests.harness.dns.reference import HERE

Document = dict[str, Any]
SERVER_SETS = ("uid", "resourceVersion", "creationTimestamp", "generation", "selfLink", "managedFields", "generateName")
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "Service": "/api/v1/namespaces/{}/services",
    "Pod": "/api/v1/namespaces/{}/pods",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
}
READ_FROM_MANIFESTS = ("Service", "EndpointSlice")
WITH_STATUS = ("Node", "Pod", "Service")
OF_THE_SERVER = {("Service", "kubernetes"), ("EndpointSlice", "kubernetes")}
"""What an API server makes by itself, beside the namespaces default, kube-system, …"""


def recorded() -> list[Document]:
    """All objects as they were served."""
    items: list[Document] = json.loads((HERE / "served.json").read_text())["items"]
    return items


def write_manifests(directory: Path) -> None:
    """One file with what manifests are read for; slices of pods as the controller had made them."""
    items = [item for item in recorded() if item["kind"] in READ_FROM_MANIFESTS]
    (directory / "recorded.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def written() -> Iterator[Document]:
    """What a person creates, without what controllers and the server add; in an order that works."""
    for kind in PATHS:
        for item in recorded():
            meta = item["metadata"]
            made = "endpointslice-controller.k8s.io" in (meta.get("labels") or {}).values()
            if item["kind"] == kind and not made and (kind, meta["name"]) not in OF_THE_SERVER:
                kept = {name: value for name, value in meta.items() if name not in SERVER_SETS}
                kept.pop("ownerReferences", None)
                yield {**item, "metadata": kept}


def create_all(api: ApiClient) -> None:
    """Everything, with its status. Namespaces that are there already are left alone."""
    there = {item["metadata"]["name"] for item in api.get(PATHS["Namespace"])["items"]}
    for item in written():
        kind, meta = item["kind"], item["metadata"]
        if kind == "Namespace" and meta["name"] in there:
            continue
        path = PATHS[kind].format(meta.get("namespace", ""))
        status = item.pop("status", None)
        if kind == "Namespace":
            item.pop("spec", None)
        api.create(path, item)
        if kind in WITH_STATUS and status:
            api.merge(f"{path}/{meta['name']}/status", {"status": status})
