"""OpenAPI documents: version 3, one for each group version, and version 2, one for all. Pure.

They are enough for `kubectl explain`, `apply` and client-side validation. Two extensions matter to clients:
`x-kubernetes-group-version-kind` on operations and schemas (the schema of a resource), and the patch strategies on fields (how
kubectl computes a strategic merge patch). kubectl reads version 3 since 1.27, before that version 2 as protobuf.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

from nodeagent.apiserver.machinery.schema import gnostic
from nodeagent.apiserver.machinery.schema.openapi_paths import add_paths_v2, add_paths_v3, gvk_of
from nodeagent.apiserver.machinery.schema.openapi_schemas import V2, V3, add_kind
from nodeagent.kinds.description.documents import Document, encode
from nodeagent.kinds.description.resources import Catalog, Resource

_INFO: Final[Document] = {"title": "Kubernetes", "version": "v1.36.2"}


class OpenApi:
    """The index and the documents, built at the first request, which takes up to 20 ms. For one thread at a time."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._documents: dict[str, bytes] = {}

    def document(self, path: str) -> bytes | None:
        """Returns `v2`, `v2.protobuf`, `v3` (the index), `v3/api/v1` or `v3/apis/GROUP/v1`; None for an unknown path."""
        if path.startswith("v2") and "v2" not in self._documents:
            document = _version_2(self._catalog)
            self._documents |= {"v2": encode(document), "v2.protobuf": gnostic.encode_document(document)}
        elif "v3" not in self._documents:
            self._build_version_3()
        return self._documents.get(path)

    def _build_version_3(self) -> None:
        paths: Document = {}
        for group, rows in self._catalog.groups().items():
            name = _root(group)
            body = encode(_version_3(name, rows))
            self._documents[f"v3/{name}"] = body
            digest = hashlib.sha512(body).hexdigest().upper()
            paths[name] = {"serverRelativeURL": f"/openapi/v3/{name}?hash={digest}"}
        self._documents["v3"] = encode({"paths": paths})


def _root(group: str) -> str:
    return f"apis/{group}/v1" if group else "api/v1"


def _version_2(catalog: Catalog) -> Document:
    definitions: Document = {}
    paths: Document = {}
    for group, rows in catalog.groups().items():
        for row in rows:
            add_kind(row.struct, gvk_of(row), definitions, V2)
            add_paths_v2(f"/{_root(group)}", row, paths)
    return {"swagger": "2.0", "info": _INFO, "paths": paths, "definitions": definitions}


def _version_3(root: str, rows: Iterable[Resource]) -> Document:
    schemas: Document = {}
    paths: Document = {}
    for row in rows:
        add_kind(row.struct, gvk_of(row), schemas, V3)
        add_paths_v3(f"/{root}", row, paths)
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": schemas}}
