"""The paths of a resource and their operations, in OpenAPI version 2 and version 3. Pure.

Clients look up here what an operation supports: kubectl requests a dry run only if the patch of a kind has the parameter
`dryRun`, and strict validation only if it has `fieldValidation`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from nodeagent.apiserver.machinery.schema.openapi_schemas import V2, V3
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.resources import Resource

_JSON: Final = "application/json"
_WRITES: Final = ("fieldManager", "fieldValidation", "dryRun")
_READS: Final = ("labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "watch", "timeoutSeconds")
_REMOVES: Final = ("gracePeriodSeconds", "propagationPolicy", "dryRun")
_PATCHES: Final = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)


@dataclass(frozen=True, slots=True)
class Operation:
    """One method at one path. `action` is Kubernetes' name for it; `sends` are the media types of its body."""

    path: str
    method: str
    action: str
    query: tuple[str, ...] = ()
    sends: tuple[str, ...] = ()

    @property
    def sends_object(self) -> bool:
        """Whether the body is an object of the kind, not a patch of one."""
        return self.sends == (_JSON,)


def gvk_of(row: Resource) -> Document:
    """Returns the value of the extension that ties schemas and operations to a kind."""
    return {"group": row.group, "version": row.version, "kind": row.kind}


def operations(root: str, row: Resource) -> Iterator[Operation]:
    """Yields all operations of a resource below `root` (`/api/v1`, `/apis/GROUP/v1`)."""
    base = f"{root}/namespaces/{{namespace}}/{row.plural}" if row.namespaced else f"{root}/{row.plural}"
    one = f"{base}/{{name}}"
    yield Operation(base, "get", "list", _READS)
    yield Operation(base, "post", "post", _WRITES, (_JSON,))
    yield Operation(base, "delete", "deletecollection", _READS)
    yield Operation(one, "get", "get")
    yield Operation(one, "put", "put", _WRITES, (_JSON,))
    yield Operation(one, "patch", "patch", (*_WRITES, "force"), _PATCHES)
    yield Operation(one, "delete", "delete", _REMOVES)
    if row.namespaced:
        yield Operation(f"{root}/{row.plural}", "get", "list", _READS)
    if row.has_status:
        yield Operation(f"{one}/status", "get", "get")
        yield Operation(f"{one}/status", "put", "put", _WRITES, (_JSON,))
        yield Operation(f"{one}/status", "patch", "patch", (*_WRITES, "force"), _PATCHES)


def add_paths_v2(root: str, row: Resource, paths: Document) -> None:
    """Adds the operations of a resource to `paths`, in Swagger 2.0."""
    schema = V2.reference(row.struct)
    for found in operations(root, row):
        parameters: list[Document] = [
            {"name": name, "in": "query", "type": "string", "uniqueItems": True} for name in found.query
        ]
        if found.sends:
            body = schema if found.sends_object else {"type": "object"}
            parameters.insert(0, {"name": "body", "in": "body", "required": True, "schema": body})
        path = paths.setdefault(found.path, _path_parameters(found.path))
        path[found.method] = {
            "consumes": list(found.sends) or ["*/*"],
            "produces": [_JSON],
            "parameters": parameters,
            "responses": {"200": {"description": "OK", "schema": schema}},
            "x-kubernetes-action": found.action,
            "x-kubernetes-group-version-kind": gvk_of(row),
        }


def _path_parameters(path: str) -> Document:
    names = [name for name in ("name", "namespace") if f"{{{name}}}" in path]
    if not names:
        return {}
    return {"parameters": [{"name": n, "in": "path", "required": True, "type": "string"} for n in names]}


def add_paths_v3(root: str, row: Resource, paths: Document) -> None:
    """Adds the operations of a resource to `paths`, in OpenAPI 3.0."""
    content = {_JSON: {"schema": V3.reference(row.struct)}}
    for found in operations(root, row):
        parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in found.query]
        operation: Document = {
            "x-kubernetes-action": found.action,
            "x-kubernetes-group-version-kind": gvk_of(row),
            **({"parameters": parameters} if parameters else {}),
            "responses": {"200": {"description": "OK", "content": content}},
        }
        if found.sends:
            body = content if found.sends_object else {media: {"schema": {"type": "object"}} for media in found.sends}
            operation["requestBody"] = {"required": True, "content": body}
        paths.setdefault(found.path, {})[found.method] = operation
