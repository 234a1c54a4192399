"""Rules for the steps of a write: namespace, identity, subresources, and what holds a deletion. Pure."""

from dataclasses import dataclass

from nodeagent.apiserver.machinery.managed import ApplyConflict
from nodeagent.apiserver.machinery.schema.fieldsets import Path
from nodeagent.kinds.description.documents import Document, Json, copy
from nodeagent.kinds.description.resources import Resource
from nodeagent.kinds.description.status import ApiError, bad_request, conflict, modified


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Preconditions and grace period of a deletion. `policy`: for dependents (`dependents.py`); empty if the client sent none."""

    uid: str = ""
    version: str = ""
    grace_seconds: int | None = None
    policy: str = ""
    dry_run: bool = False


def set_namespace(resource: Resource, document: Document, namespace: str) -> None:
    """Sets the namespace of the document. Raises ApiError 400 if request and object disagree."""
    meta = document.setdefault("metadata", {})
    if not resource.namespaced:
        meta.pop("namespace", None)
        return
    if meta.get("namespace") and meta["namespace"] != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    meta["namespace"] = namespace


def check_identity(resource: Resource, meta: Document, live: Document, revision: int) -> None:
    """Raises ApiError 409 if the update is meant for another object or revision. Sets the fields that only the server sets."""
    name = live["name"]
    uid = meta.get("uid")
    if uid and uid != live["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {live['uid']}"
        raise conflict(resource.plural, name, why, resource.group)
    version = meta.get("resourceVersion")
    if version and version != str(revision):
        raise modified(resource.plural, name, resource.group)
    for key in (
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "selfLink",
    ):
        meta.pop(key, None)
        if key in live:
            meta[key] = live[key]
    meta["resourceVersion"] = str(revision)


def only_subresource(resource: Resource, document: Document, live: Document, name: str) -> Document:
    """Returns the live object with one subresource, `name`, taken from `document`."""
    result: Document = copy(live)
    found = resource.subresource(name)
    if found is not None:
        found.take(result, document)
    return result


def is_same(document: Document, live: Document) -> bool:
    """Returns whether the documents are equal except for the times in managedFields."""
    return _without_owners(document) == _without_owners(live) and (_owners(document) == _owners(live))


def _without_owners(document: Document) -> Document:
    meta = {key: value for key, value in document["metadata"].items() if key != "managedFields"}
    return {**document, "metadata": meta}


def _owners(document: Document) -> list[Document]:
    entries = document["metadata"].get("managedFields") or []
    return [{key: value for key, value in entry.items() if key != "time"} for entry in entries]


def is_finished(document: Document, *, held: bool) -> bool:
    """Returns whether the object is marked for deletion and nothing holds it any more. `held`: a finalizer is left."""
    meta = document["metadata"]
    return bool(meta.get("deletionTimestamp")) and not held and not meta.get("deletionGracePeriodSeconds")


def generation_changes(resource: Resource, document: Document, live: Document) -> bool:
    """Returns whether a field changed that increases the generation."""
    return any(_at(document, path) != _at(live, path) for path in resource.generation_of)


def _at(document: Document, path: str) -> Json:
    value: Json = document
    for step in path.split("."):
        value = value.get(step)
    return value


def check_preconditions(resource: Resource, live: Document, options: DeleteOptions) -> None:
    """Raises ApiError 409 if the UID or resourceVersion of `options` is not that of the object."""
    meta = live["metadata"]
    if options.uid and options.uid != meta["uid"]:
        why = f"Precondition failed: UID in precondition: {options.uid}, UID in object meta: {meta['uid']}"
        raise conflict(resource.plural, meta["name"], why, resource.group)
    if options.version and options.version != meta["resourceVersion"]:
        why = (
            f"Precondition failed: ResourceVersion in precondition: {options.version},"
            f" ResourceVersion in object meta: {meta['resourceVersion']}"
        )
        raise conflict(resource.plural, meta["name"], why, resource.group)


def apply_conflict(found: ApplyConflict) -> ApiError:
    """Returns the error 409 that lists the conflicting fields and their managers."""
    causes = []
    for manager, path in found.conflicts:
        using = "" if manager.operation == "Apply" else f" using {manager.api_version}"
        causes.append(
            {
                "reason": "FieldManagerConflict",
                "message": f'conflict with "{manager.name}"{using}',
                "field": dotted(path),
            }
        )
    if len(causes) == 1:
        text = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        lines = "".join(f"\n- {cause['field']}" for cause in causes)
        who = causes[0]["message"].replace("conflict with", "conflicts with", 1)
        text = f"Apply failed with {len(causes)} conflicts: {who}:{lines}"
    return ApiError(409, "Conflict", text, details={"causes": causes})


def dotted(path: Path) -> str:
    """Returns a path as structured-merge-diff prints it: `.spec.ports[port=80,protocol="TCP"].targetPort`."""
    text = ""
    for element in path:
        kind, body = element[:1], element[2:]
        if kind == "f":
            text += f".{body}"
        elif kind == "k":
            text += "[" + body.strip("{}").replace('":', "=").replace('"', "", 1).replace(',"', ",") + "]"
        else:
            text += f"[={body}]"
    return text
