"""Rules that several kinds share: metadata, labels, owners, data, immutable fields. Pure."""

from collections.abc import Iterator
from itertools import chain

from nodeagent.kinds.description import formats
from nodeagent.kinds.description.address_texts import BOTH_FAMILIES, parse_cidr
from nodeagent.kinds.description.documents import Document, Json
from nodeagent.kinds.description.status import FieldError, forbidden, invalid, required, too_long, unsupported

_DATA_LIMIT = 1024 * 1024


def metadata(document: Document, name_check: formats.Check, *, namespaced: bool) -> Iterator[FieldError]:
    """Yields the errors of metadata that all kinds share."""
    meta = document["metadata"]
    prefix, name = meta.get("generateName", ""), meta.get("name", "")
    if prefix:
        # A generated name ends in five random characters, so the prefix is checked without its trailing hyphen.
        yield from formats.field_errors(
            "metadata.generateName", prefix, name_check(f"{prefix.rstrip('-')}a" if prefix else "")
        )
    if not name:
        yield required("metadata.name", "name or generateName is required")
    else:
        yield from formats.field_errors("metadata.name", name, name_check(name))
    if namespaced and not meta.get("namespace"):
        yield required("metadata.namespace")
    yield from labels(meta.get("labels") or {}, "metadata.labels")
    yield from annotations(meta.get("annotations") or {}, "metadata.annotations")
    yield from owners(meta.get("ownerReferences") or [])
    yield from finalizers(meta.get("finalizers") or [], "metadata.finalizers")


_STANDARD_FINALIZERS = ("foregroundDeletion", "kubernetes", "orphan")


def finalizers(found: list[str], field: str) -> Iterator[FieldError]:
    """Yields errors of finalizers: names must be qualified, or known to Kubernetes."""
    for index, finalizer in enumerate(found):
        yield from formats.field_errors(f"{field}[{index}]", finalizer, formats.qualified_name(finalizer))
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid(f"{field}[{index}]", finalizer, why)
    if {"orphan", "foregroundDeletion"} <= set(found):
        yield invalid(field, found, "finalizer orphan and foregroundDeletion cannot be both set")


def new_finalizers(document: Document, old: Document) -> list[FieldError]:
    """Returns an error if finalizers were added to an object that is being deleted."""
    if not old["metadata"].get("deletionTimestamp"):
        return []
    before = set(old["metadata"].get("finalizers") or [])
    added = sorted(set(document["metadata"].get("finalizers") or []) - before)
    if not added:
        return []
    shown = ", ".join(f'"{name}"' for name in added)
    why = "no new finalizers can be added if the object is being deleted, found new finalizers"
    return [forbidden("metadata.finalizers", f"{why} []string{{{shown}}}")]


def labels(found: dict[str, str], field: str) -> Iterator[FieldError]:
    """Yields errors of the keys and values of labels or of an equality selector."""
    for key, value in found.items():
        yield from formats.field_errors(field, key, formats.qualified_name(key))
        yield from formats.field_errors(field, value, formats.label_value(value))


_ANNOTATIONS_LIMIT = 256 * 1024


def annotations(found: dict[str, str], field: str) -> Iterator[FieldError]:
    """Yields errors of the keys, and of the total size."""
    for key in found:
        yield from formats.field_errors(field, key, formats.qualified_name(key.lower()))
    if sum(len(key) + len(value) for key, value in found.items()) > _ANNOTATIONS_LIMIT:
        yield too_long(field, _ANNOTATIONS_LIMIT)


def owners(found: list[Document]) -> Iterator[FieldError]:
    """Yields errors of owner references: each must be complete, and at most one a controller."""
    for index, owner in enumerate(found):
        yield from (
            invalid(f"metadata.ownerReferences[{index}].{key}", "", "must not be empty")
            for key in ("apiVersion", "kind", "name", "uid")
            if not owner.get(key)
        )
    controllers = [owner for owner in found if owner.get("controller")]
    if len(controllers) > 1:
        why = "Only one reference can have Controller set to true"
        yield invalid("metadata.ownerReferences", found, why)


def unchanged(field: str, old: Json, new: Json) -> list[FieldError]:
    """Returns an error if an immutable field was changed."""
    return [] if old == new else [invalid(field, new, "field is immutable")]


def transport_protocol(protocol: str, field: str) -> list[FieldError]:
    """Returns an error unless the protocol is TCP, UDP or SCTP."""
    if not protocol:
        return [required(field)]
    return [] if protocol in formats.PROTOCOLS else [unsupported(field, protocol, formats.PROTOCOLS)]


def port_of_service(port: Document, field: str, *, several: bool) -> Iterator[FieldError]:
    """Yields errors of the fields that ports of Services and Endpoints share: name, number, protocol."""
    name, number = port.get("name", ""), port.get("port", 0)
    if several and not name:
        yield required(f"{field}.name")
    elif name:
        yield from formats.field_errors(f"{field}.name", name, formats.dns_label(name))
    yield from formats.field_errors(f"{field}.port", number, formats.port_number(number))
    yield from transport_protocol(port.get("protocol", ""), f"{field}.protocol")


def networks(texts: list[str], field: str, too_many: str, *, canonical: bool = False) -> Iterator[FieldError]:
    """Yields errors of a list of CIDRs, at most one for each family. too_many: the message if there are more."""
    parsed = [parse_cidr(text) for text in texts]
    for index, (text, network) in enumerate(zip(texts, parsed, strict=True)):
        if network is None or (canonical and str(network) != text):
            why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            yield invalid(f"{field}[{index}]", text, why)
    families = [network.version for network in parsed if network]
    if len(texts) > BOTH_FAMILIES or len(set(families)) != len(families):
        yield invalid(field, texts, too_many)


def validate_data(document: Document) -> Iterator[FieldError]:
    """Yields errors of the keys and the size of a ConfigMap's or Secret's data."""
    parts = [document.get("data") or {}, document.get("binaryData") or {}]
    for key in chain(*parts):
        yield from formats.field_errors("data", key, formats.data_key(key))
    yield from (
        invalid(f"data[{key}]", key, "duplicate of key present in binaryData") for key in parts[0] if key in parts[1]
    )
    if sum(len(value) for part in parts for value in part.values()) > _DATA_LIMIT:
        yield too_long("data", _DATA_LIMIT)


def validate_data_update(document: Document, old: Document) -> Iterator[FieldError]:
    """Yields the errors of a change: data marked as immutable must stay, and a Secret's type."""
    yield from validate_data(document)
    yield from unchanged("type", old.get("type"), document.get("type"))
    if old.get("immutable"):
        if not document.get("immutable"):
            yield forbidden("immutable", "field is immutable when `immutable` is set")
        yield from (
            forbidden(part, "field is immutable when `immutable` is set")
            for part in ("data", "binaryData")
            if old.get(part) != document.get(part)
        )
