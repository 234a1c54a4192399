"""Discovery documents: lists of groups and resources (APIResourceList), and all in one (apidiscovery.k8s.io/v2). Pure."""

from typing import Final

from nodeagent.apiserver.api.request_target import accepts_json, parse_accept
from nodeagent.apiserver.api.review_shapes import REVIEWS, ReviewKind, reviews_of
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.resources import Catalog, Resource, Subresource, rank
from nodeagent.kinds.description.status import ApiError

_GROUP: Final = "apidiscovery.k8s.io"
_LIST: Final = "APIGroupDiscoveryList"
AGGREGATED: Final = f"application/json;g={_GROUP};v=v2;as={_LIST}"


def api_versions(address: str) -> Document:
    """Returns the document at /api."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def group_names(catalog: Catalog) -> list[str]:
    """Returns the names of all groups except the core group, of stored kinds and of reviews, in the order of their rank."""
    return sorted({name for name in catalog.groups() if name} | {review.group for review in REVIEWS}, key=rank)


def api_groups(catalog: Catalog) -> Document:
    """Returns the document at /apis."""
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(name) for name in group_names(catalog)],
    }


def api_group(name: str) -> Document:
    """Returns the document at /apis/GROUP."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)}


def _group(name: str) -> Document:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


def api_resources(group: str, rows: list[Resource]) -> Document:
    """Returns the document at /api/v1 or /apis/GROUP/VERSION."""
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
                "name": f"{row.plural}/{part.name}",
                "singularName": "",
                "namespaced": row.namespaced,
                **(_kind_of(part) if part.kind else {"kind": row.kind}),
                "verbs": list(part.verbs),
            }
            for part in row.subresources
        ]
    resources += [
        {
            "name": review.plural,
            "singularName": review.kind.lower(),
            "namespaced": review.namespaced,
            "kind": review.kind,
            "verbs": ["create"],
        }
        for review in reviews_of(group)
    ]
    resources.sort(key=lambda entry: str(entry["name"]))
    head: Document = {"kind": "APIResourceList"}
    if group:
        head["apiVersion"] = "v1"
    return {**head, "groupVersion": f"{group}/v1" if group else "v1", "resources": resources}


def _kind_of(part: Subresource) -> Document:
    return {"group": part.group, "version": "v1", "kind": part.kind}


def wants_aggregated(accept: str) -> bool:
    """Returns whether the client accepts all resources in one document, in version 2; like kube-apiserver 1.36, no earlier one
    is served. Raises ApiError 406 if the client accepts no media type that is served."""
    entries = parse_accept(accept)
    if any([entry.parameters.get(name) for name in ("as", "v", "g")] == [_LIST, "v2", _GROUP] for entry in entries):
        return True
    plain = [entry.media_type for entry in entries if "as" not in entry.parameters]
    if accept and not accepts_json(",".join(plain) or "none"):
        raise ApiError(406, "NotAcceptable", "only the following media types are accepted: application/json")
    return False


def aggregated(catalog: Catalog, *, core: bool) -> Document:
    """Returns the aggregated document at /api (`core`) or /apis."""
    kinds = catalog.groups()
    items = [
        {
            "metadata": {"name": name} if name else {},
            "versions": [
                {
                    "version": "v1",
                    "resources": [
                        *map(_aggregated_resource, kinds.get(name, [])),
                        *map(_aggregated_review, reviews_of(name)),
                    ],
                    "freshness": "Current",
                }
            ],
        }
        for name in ([""] if core else group_names(catalog))
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _aggregated_review(review: ReviewKind) -> Document:
    return {
        "resource": review.plural,
        "responseKind": {"group": "", "version": "", "kind": review.kind},
        "scope": "Namespaced" if review.namespaced else "Cluster",
        "singularResource": review.kind.lower(),
        "verbs": ["create"],
    }


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
            "subresource": part.name,
            "responseKind": _kind_of(part) if part.kind else kind,
            "verbs": list(part.verbs),
        }
        for part in row.subresources
    ]
    if parts:
        entry["subresources"] = parts
    return entry
