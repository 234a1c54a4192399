"""Rules several kinds share: metadata, labels, owners, data, what may not change. Pure."""

from nodeagent.controlplane.documents import Document, Json
from nodeagent.controlplane.machinery.formats import PROTOCOLS, Check, checked, data_key, label_value, qualified_name
from nodeagent.controlplane.status import FieldError, forbidden, invalid, required, too_long, unsupported

_DATA_LIMIT = 1024 * 1024


def metadata(document: Document, name_check: Check, *, namespaced: bool) -> list[FieldError]:
    """The errors of metadata that all kinds share."""
    meta = document["metadata"]
    errors: list[FieldError] = []
    prefix, name = meta.get("generateName", ""), meta.get("name", "")
    if prefix:
        # A generated name ends in five random characters, so the prefix is checked without its trailing hyphen.
        errors += checked("metadata.generateName", prefix, name_check(f"{prefix.rstrip('-')}a" if prefix else ""))
    if not name:
        errors.append(required("metadata.name", "name or generateName is required"))
    else:
        errors += checked("metadata.name", name, name_check(name))
    if namespaced and not meta.get("namespace"):
        errors.append(required("metadata.namespace"))
    errors += labels(meta.get("labels") or {}, "metadata.labels")
    errors += annotations(meta.get("annotations") or {}, "metadata.annotations")
    errors += owners(meta.get("ownerReferences") or [])
    return errors + finalizers(meta.get("finalizers") or [], "metadata.finalizers")


_STANDARD_FINALIZERS = ("foregroundDeletion", "kubernetes", "orphan")


def finalizers(found: list[str], field: str) -> list[FieldError]:
    """Names that say whose they are, or that Kubernetes knows."""
    errors: list[FieldError] = []
    for index, finalizer in enumerate(found):
        errors += checked(f"{field}[{index}]", finalizer, qualified_name(finalizer))
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            errors.append(invalid(f"{field}[{index}]", finalizer, why))
    return errors


def new_finalizers(document: Document, old: Document) -> list[FieldError]:
    """An object that is being deleted gets no further finalizers."""
    if not old["metadata"].get("deletionTimestamp"):
        return []
    before = set(old["metadata"].get("finalizers") or [])
    added = sorted(set(document["metadata"].get("finalizers") or []) - before)
    if not added:
        return []
    shown = ", ".join(f'"{name}"' for name in added)
    why = "no new finalizers can be added if the object is being deleted, found new finalizers"
    return [forbidden("metadata.finalizers", f"{why} []string{{{shown}}}")]


def labels(found: dict[str, str], field: str) -> list[FieldError]:
    """Keys and values of labels or of an equality selector."""
    errors: list[FieldError] = []
    for key, value in found.items():
        errors += checked(field, key, qualified_name(key))
        errors += checked(field, value, label_value(value))
    return errors


_ANNOTATIONS_LIMIT = 256 * 1024


def annotations(found: dict[str, str], field: str) -> list[FieldError]:
    """Keys, and the size of all of it."""
    errors: list[FieldError] = []
    for key in found:
        errors += checked(field, key, qualified_name(key.lower()))
    if sum(len(key) + len(value) for key, value in found.items()) > _ANNOTATIONS_LIMIT:
        errors.append(too_long(field, _ANNOTATIONS_LIMIT))
    return errors


def owners(found: list[Document]) -> list[FieldError]:
    """Owner references: complete, and one controller at most."""
    errors: list[FieldError] = []
    for index, owner in enumerate(found):
        errors.extend(
            invalid(f"metadata.ownerReferences[{index}].{key}", "", "must not be empty")
            for key in ("apiVersion", "kind", "name", "uid")
            if not owner.get(key)
        )
    controllers = [owner for owner in found if owner.get("controller")]
    if len(controllers) > 1:
        why = "Only one reference can have Controller set to true"
        errors.append(invalid("metadata.ownerReferences", found, why))
    return errors


def unchanged(field: str, old: Json, new: Json) -> list[FieldError]:
    """The field may not change."""
    return [] if old == new else [invalid(field, new, "field is immutable")]


def transport_protocol(protocol: str, field: str) -> list[FieldError]:
    """One of TCP, UDP and SCTP must be given."""
    if not protocol:
        return [required(field)]
    return [] if protocol in PROTOCOLS else [unsupported(field, protocol, PROTOCOLS)]


def validate_data(document: Document) -> list[FieldError]:
    """Keys and size of a ConfigMap's or Secret's data."""
    parts = [document.get("data") or {}, document.get("binaryData") or {}]
    errors = [error for part in parts for key in part for error in checked("data", key, data_key(key))]
    errors += [
        invalid(f"data[{key}]", key, "duplicate of key present in binaryData") for key in parts[0] if key in parts[1]
    ]
    if sum(len(value) for part in parts for value in part.values()) > _DATA_LIMIT:
        errors.append(too_long("data", _DATA_LIMIT))
    return errors


def validate_data_update(document: Document, old: Document) -> list[FieldError]:
    """An immutable one stays as it is; a Secret keeps its type."""
    errors = validate_data(document) + unchanged("type", old.get("type"), document.get("type"))
    if old.get("immutable"):
        if not document.get("immutable"):
            errors.append(forbidden("immutable", "field is immutable when `immutable` is set"))
        errors += [
            forbidden(part, "field is immutable when `immutable` is set")
            for part in ("data", "binaryData")
            if old.get(part) != document.get(part)
        ]
    return errors
