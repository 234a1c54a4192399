"""Field ownership: metadata.managedFields, for updates and for server-side apply. Pure.

Rules: KEP-555 and sigs.k8s.io/structured-merge-diff/merge. An update makes its manager the owner of what it changed and takes
those fields from all other managers; an apply owns exactly the fields of its configuration, and a field that is no longer in it
is removed unless another manager owns it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from nodeagent.apiserver.machinery.schema import fieldsets
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.shapes import Struct


@dataclass(frozen=True, slots=True, order=True)
class Manager:
    """The key of an entry of managedFields: operation, name, version and subresource."""

    operation: str
    name: str
    api_version: str
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Ownership:
    """The fields that one manager owns, and the time of its last change (RFC 3339)."""

    fields: fieldsets.FieldSet
    time: str


class ApplyConflict(Exception):
    """Other managers own fields that the configuration changes: (manager, path) of each."""

    def __init__(self, conflicts: list[tuple[Manager, fieldsets.Path]]) -> None:
        super().__init__(f"{len(conflicts)} conflicts")
        self.conflicts = conflicts


def read_entries(document: Document) -> dict[Manager, Ownership]:
    """Returns the owners recorded in an object; entries in another format are dropped."""
    owners: dict[Manager, Ownership] = {}
    for entry in document.get("metadata", {}).get("managedFields") or []:
        fields = fieldsets.from_fields_v1(entry.get("fieldsV1") or {})
        if fields and entry.get("operation"):
            manager = Manager(
                entry["operation"], entry.get("manager", ""), entry.get("apiVersion", ""), entry.get("subresource", "")
            )
            owners[manager] = Ownership(fields, entry.get("time") or "")
    return owners


def write_entries(document: Document, owners: Mapping[Manager, Ownership]) -> None:
    """Records the owners in an object; Apply entries first, then by age, as Kubernetes sorts them."""
    entries = []
    for manager, held in sorted(owners.items(), key=lambda item: (item[0].operation, item[1].time, item[0])):
        if not held.fields:
            continue
        entry: Document = {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": manager.api_version,
            **({"time": held.time} if held.time else {}),
            "fieldsType": "FieldsV1",
            "fieldsV1": fieldsets.to_fields_v1(held.fields),
        }
        if manager.subresource:
            entry["subresource"] = manager.subresource
        entries.append(entry)
    metadata = document.setdefault("metadata", {})
    metadata.pop("managedFields", None)
    if entries:
        metadata["managedFields"] = entries


def track_update(struct: Struct, live: Document, new: Document, manager: Manager, now: str) -> None:
    """Records in `new` that `manager` changed `live` to `new`. Both are canonical; for a create `live` is empty."""
    given = new.get("metadata", {}).get("managedFields")
    if given is not None and not any(entry.get("fieldsV1") for entry in given):
        owners: dict[Manager, Ownership] = {}
    elif given:
        # A client may send the entries that it has read, but none may be from the future.
        owners = {who: Ownership(held.fields, min(held.time, now)) for who, held in read_entries(new).items()}
    else:
        owners = read_entries(live)
    changed, removed = fieldsets.differences(struct, live, new)
    if changed or removed:
        for other, held in list(owners.items()):
            if other != manager:
                owners[other] = Ownership(fieldsets.without_children(held.fields - changed, removed), held.time)
        held_before = owners[manager].fields if manager in owners else fieldsets.EMPTY
        mine = fieldsets.without_children(held_before | changed, removed)
        owners[manager] = Ownership(mine, now)
    write_entries(new, owners)


def apply(
    struct: Struct,
    live: Document | None,
    configuration: Document,
    manager: Manager,
    now: str,
    *,
    force: bool,
    reset: str = "",
) -> Document:
    """Returns the object after a server-side apply of `configuration` (canonical, as the client sent it). `reset` is a
    top-level field that this request cannot change, so its manager does not become the owner.

    Raises ApplyConflict if another manager owns a field that the configuration would change, unless `force` is set.
    """
    claimed = frozenset(path for path in fieldsets.set_fields(struct, configuration) if path[0] != f"f:{reset}")
    base = live or {}
    owners = read_entries(base)
    result: Document = fieldsets.overlay(struct, base, configuration)
    result = {key: value for key, value in result.items() if key not in ("kind", "apiVersion")}
    before = owners[manager].fields if manager in owners else fieldsets.EMPTY
    held_by_others: fieldsets.FieldSet = frozenset().union(
        *(held.fields for who, held in owners.items() if who != manager)
    )
    dropped = before - claimed - held_by_others
    result = fieldsets.remove_fields(struct, result, dropped, claimed | held_by_others)
    changed, _ = fieldsets.differences(struct, base, result)
    conflicts = [
        (other, path)
        for other, held in sorted(owners.items())
        if other != manager
        for path in sorted(held.fields & changed & claimed)
    ]
    if conflicts and not force:
        raise ApplyConflict(conflicts)
    for other, held in list(owners.items()):
        if other != manager:
            owners[other] = Ownership(held.fields - (changed & claimed), held.time)
    unchanged = claimed == before and not changed
    time = owners[manager].time if unchanged and manager in owners else now
    owners[manager] = Ownership(claimed, time)
    result.setdefault("metadata", {})
    write_entries(result, owners)
    return result
