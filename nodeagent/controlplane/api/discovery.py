"""Discovery: what resources there are, plain (APIResourceList) and aggregated (apidiscovery.k8s.io/v2). Pure."""

from nodeagent.controlplane.api import token_requests
from nodeagent.controlplane.documents import Document
from nodeagent.controlplane.machinery.resources import Catalog, Resource

_PART_VERBS = ("get", "patch", "update")
_TOKEN_REQUEST: Document = {"group": token_requests.GROUP, "version": "v1", "kind": token_requests.KIND}


def api_versions(address: str) -> Document:
    """/api"""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def api_groups(catalog: Catalog) -> Document:
    """/apis"""
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(name) for name in catalog.groups() if name],
    }


def api_group(name: str) -> Document:
    """/apis/GROUP"""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)}


def _group(name: str) -> Document:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


def api_resources(group: str, rows: list[Resource]) -> Document:
    """/api/v1 and /apis/GROUP/VERSION"""
    resources: list[Document] = []
    for row in rows:
        entry: Document = {
            "name": row.plural,
            "singularName": row.singular,
            "namespaced": row.namespaced,
            "kind": row.kind,
            "verbs": list(row.verbs),
        }
        if row.short_names:
            entry["shortNames"] = list(row.short_names)
        if row.categories:
            entry["categories"] = list(row.categories)
        if row.storage_hash:
            entry["storageVersionHash"] = row.storage_hash
        resources.append(entry)
        resources += [
            {
                "name": f"{row.plural}/{part}",
                "singularName": "",
                "namespaced": row.namespaced,
                **(_TOKEN_REQUEST if part == token_requests.PART else {"kind": row.kind}),
                "verbs": _verbs_of(part),
            }
            for part in parts_of(row)
        ]
    resources.sort(key=lambda entry: str(entry["name"]))
    head: Document = {"kind": "APIResourceList"}
    if group:
        head["apiVersion"] = "v1"
    return {**head, "groupVersion": f"{group}/v1" if group else "v1", "resources": resources}


def parts_of(row: Resource) -> tuple[str, ...]:
    """The subresources of a resource."""
    if row.plural == "namespaces":
        return ("finalize", "status")
    if row.plural == "serviceaccounts":
        return (token_requests.PART,)
    return ("status",) if row.has_status else ()


def _verbs_of(part: str) -> list[str]:
    return {"finalize": ["update"], token_requests.PART: ["create"]}.get(part) or list(_PART_VERBS)


def aggregated(catalog: Catalog, *, core: bool) -> Document:
    """/api or /apis for clients that accept everything at once."""
    items = [
        {
            "metadata": {"name": name} if name else {},
            "versions": [
                {"version": "v1", "resources": [_aggregated_resource(row) for row in rows], "freshness": "Current"}
            ],
        }
        for name, rows in catalog.groups().items()
        if bool(name) != core
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _aggregated_resource(row: Resource) -> Document:
    kind = {"group": "", "version": "", "kind": row.kind}
    entry: Document = {
        "resource": row.plural,
        "responseKind": kind,
        "scope": "Namespaced" if row.namespaced else "Cluster",
        "singularResource": row.singular,
        "verbs": list(row.verbs),
    }
    if row.short_names:
        entry["shortNames"] = list(row.short_names)
    if row.categories:
        entry["categories"] = list(row.categories)
    parts = [
        {
            "subresource": part,
            "responseKind": dict(_TOKEN_REQUEST) if part == token_requests.PART else kind,
            "verbs": _verbs_of(part),
        }
        for part in parts_of(row)
    ]
    if parts:
        entry["subresources"] = parts
    return entry
