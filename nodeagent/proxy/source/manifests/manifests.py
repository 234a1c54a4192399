"""Parses one manifest file to typed objects and faults. Opens no file. Pure.

Read are the kinds in `KINDS`, alone, in a ``v1 List`` or in their own typed list (``ServiceList``). Objects of other kinds are
only counted, and their namespaces noted: a directory of manifests usually describes whole applications. A document that has
neither `kind` nor `apiVersion` (a kustomization, Helm values) is treated the same.

JSON is decoded straight into structs; a document that does not fit is read again as the YAML it also is, which knows
lines and treats null as absent.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Raw, Struct

from nodeagent.kinds.description.object_check import complaints
from nodeagent.model.objects import ApiObject, Endpoints, EndpointSlice, Node, Service, ServiceCIDR, key_of
from nodeagent.proxy.source.manifests.manifest_defaults import missing_allocations, with_defaults
from nodeagent.proxy.source.manifests.manifest_fields import ROWS, fits, prepare, unknown_kind
from nodeagent.wire.yaml.yaml_documents import Value, YamlDocument, YamlFault, documents

KINDS: Mapping[tuple[str, str], type[ApiObject]] = {
    ("v1", "Service"): Service,
    ("v1", "Endpoints"): Endpoints,
    ("v1", "Node"): Node,
    ("discovery.k8s.io/v1", "EndpointSlice"): EndpointSlice,
    ("networking.k8s.io/v1", "ServiceCIDR"): ServiceCIDR,
    ("networking.k8s.io/v1beta1", "ServiceCIDR"): ServiceCIDR,
}
prepare(KINDS.values())
_GROUPED_KINDS = frozenset((version.rpartition("/")[0], kind) for version, kind in KINDS)
_BYTE = re.compile(r"\(byte (\d+)\)")
NAMESPACE = "v1 Namespace"
_NOT_AN_OBJECT = "(no Kubernetes object)"


class ManifestFault(Struct, frozen=True):
    """A fault at a line (from 1; 0 for the whole file): a CamelCase reason and a detail of one line."""

    line: int
    reason: str
    detail: str


class ManifestObject(Struct, frozen=True):
    """An object and the line (from 1) at which it begins. advice: what the API server would refuse about it."""

    line: int
    obj: ApiObject
    advice: tuple[ManifestFault, ...] = ()


class Located(Struct, frozen=True):
    """An object of a kind that is read, as plain values, and where it is: `path` in its document (``$.items[0]``)."""

    document: YamlDocument
    path: str
    kind: str
    value: Value

    def line_of(self, path: str = "$") -> int:
        """Returns the line (from 1) of what `path` names in the object, or of its closest parent."""
        return self.document.line_of(self.path + path[1:])


class Manifest(Struct, frozen=True):
    """The content of one file.

    objects: what could be read, in file order, with the API's defaults.
    faults: documents and objects that could not be read; the file is valid without faults.
    advice: what is legal, but probably not what its author meant.
    ignored: how many objects there are of each kind that is not read (``apps/v1 Deployment``).
    namespaces: those that are declared, and those of objects of any kind.
    """

    objects: tuple[ManifestObject, ...] = ()
    faults: tuple[ManifestFault, ...] = ()
    advice: tuple[ManifestFault, ...] = ()
    ignored: tuple[tuple[str, int], ...] = ()
    namespaces: frozenset[str] = frozenset()


class _InvalidObject(Exception):
    """An object that cannot be read; `path` (``$.spec``) says where in it, if that is known."""

    def __init__(self, detail: str, path: str = "$") -> None:
        super().__init__(detail)
        self.detail = detail
        self.path = path


class _Ignored(Struct, frozen=True):
    """An object of a kind that is not read. doubt: why the kind is probably a mistake. namespace: the one that it is, or is in;
    empty for none."""

    kind: str
    doubt: ManifestFault | None = None
    namespace: str = ""


class _Header(Struct, frozen=True, rename="camel"):
    kind: str = ""
    api_version: str = ""
    items: Raw = Raw()


class _Names(Struct, frozen=True):
    name: str | None = None
    namespace: str | None = None


class _Named(Struct, frozen=True):
    metadata: _Names | None = None


_Finding = ManifestObject | ManifestFault | _Ignored


def parse_manifest(name: str, data: bytes, *, thorough: bool = False) -> Manifest:
    """Parses the file `name` (its suffix says whether it is JSON or YAML) with the content `data`. Never raises for its content.

    thorough: advise on everything that an API server would refuse, else only for objects with fields, types or words
    that do not fit. The whole check takes several times as long as reading JSON does.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return Manifest(faults=(ManifestFault(line, "InvalidManifest", "not UTF-8 text"),))
    read = _read_json if name.endswith(".json") else _read_yaml
    return _collect(read(text, thorough=thorough))


def _collect(findings: Iterator[_Finding]) -> Manifest:
    objects: list[ManifestObject] = []
    faults: list[ManifestFault] = []
    advice: list[ManifestFault] = []
    ignored: Counter[str] = Counter()
    namespaces: set[str] = set()
    for finding in findings:
        if isinstance(finding, ManifestObject):
            objects.append(finding)
            namespaces.add(finding.obj.metadata.namespace)
            advice += finding.advice
            advice += [
                ManifestFault(finding.line, reason, f"{_title(finding.obj)}: {detail}")
                for reason, detail in missing_allocations(finding.obj)
            ]
        elif isinstance(finding, ManifestFault):
            faults.append(finding)
        else:
            namespaces.add(finding.namespace)
            if finding.kind != NAMESPACE:
                ignored[finding.kind] += 1
            advice += [finding.doubt] if finding.doubt is not None else []
    exist = frozenset(filter(None, namespaces))
    return Manifest(tuple(objects), tuple(faults), tuple(advice), tuple(sorted(ignored.items())), exist)


def _read_yaml(text: str, *, thorough: bool) -> Iterator[_Finding]:
    for document in documents(text):
        if isinstance(document, YamlFault):
            yield ManifestFault(document.line, "InvalidManifest", document.reason)
        elif document.value is not None:
            yield from _read_value(document, document.value, "$", ("", ""), thorough=thorough)


def _read_value(
    document: YamlDocument, value: Value, path: str, default: tuple[str, str], *, thorough: bool
) -> Iterator[_Finding]:
    """Yields the object at `path` of the document, or all of its items if it is a list."""
    try:
        version, kind = _type_of(value, default)
        items_are = _items_of(version, kind)
        items = _items_in(value) if items_are is not None else None
        if items_are is None or items is None:
            found = _object(document.line_of(path), version, kind, value)
            yield _with_advice(found, Located(document, path, kind, value), thorough=thorough)
            return
    except _InvalidObject as invalid:
        yield ManifestFault(document.line_of(path + invalid.path[1:]), "InvalidManifest", invalid.detail)
        return
    for index, item in enumerate(items):
        yield from _read_value(document, item, f"{path}.items[{index}]", items_are, thorough=thorough)


def _type_of(value: Value, default: tuple[str, str]) -> tuple[str, str]:
    """Returns (apiVersion, kind) of an object. Raises _InvalidObject."""
    if not isinstance(value, dict):
        raise _InvalidObject(f"expected an object, got {_describe_value(value)}")
    version, kind = value.get("apiVersion") or default[0], value.get("kind") or default[1]
    if not isinstance(version, str) or not isinstance(kind, str):
        raise _InvalidObject("apiVersion and kind must be text")
    return version, kind


def _items_in(value: Value) -> list[Value]:
    """Returns the items of a list object; empty if the field is absent. Raises _InvalidObject."""
    items = value.get("items", []) if isinstance(value, dict) else None
    if not isinstance(items, list):
        raise _InvalidObject("items: expected a list", "$.items")
    return items


def _object(line: int, version: str, kind: str, value: Value | Raw) -> ManifestObject | _Ignored:
    """Decodes one object. Raises _InvalidObject."""
    cls = _class_of(version, kind)
    if cls is None:
        why = unknown_kind(version, kind) if kind else None
        doubt = ManifestFault(line, "UnknownKind", f"{why}; this is not read") if why is not None else None
        title = f"{version} {kind}".strip()
        return _Ignored(title or _NOT_AN_OBJECT, doubt, _namespace_in(value, is_one=title == NAMESPACE))
    try:
        obj = msgspec.json.decode(value, type=cls) if isinstance(value, Raw) else msgspec.convert(value, type=cls)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `")
        path = path.rstrip("`") or "$"
        inside = path.removeprefix("$").removeprefix(".")
        where = f"{inside}: " if inside else ""
        raise _InvalidObject(f"{f'{kind} {_name_in(value)}'.strip()}: {where}{_lower(reason)}", path) from None
    if not obj.metadata.name:
        raise _InvalidObject(f"{kind}: metadata.name is missing", "$.metadata")
    return ManifestObject(line, with_defaults(obj))


def _with_advice(found: ManifestObject | _Ignored, located: Located, *, thorough: bool) -> ManifestObject | _Ignored:
    """Returns the object with advice on what its decoder does not check."""
    value = located.value
    if isinstance(found, _Ignored) or not isinstance(value, dict) or (not thorough and fits(located.kind, value)):
        return found
    advice = [
        ManifestFault(located.line_of(f"$.{path}"), reason, ": ".join(filter(None, (_title(found.obj), path, text))))
        for path, reason, text in complaints(ROWS[located.kind], value)
    ]
    return ManifestObject(found.line, found.obj, tuple(sorted(advice, key=lambda fault: fault.line)))


def _class_of(version: str, kind: str) -> type[ApiObject] | None:
    """Returns the class to decode into, None for a kind that is not read. Raises _InvalidObject."""
    cls = KINDS.get((version, kind))
    if cls is not None:
        return cls
    if bool(version) != bool(kind):
        raise _InvalidObject("apiVersion is missing" if kind else "kind is missing")
    group = version.rpartition("/")[0]
    if (group, kind) in _GROUPED_KINDS:
        read = ", ".join(sorted(known for known, its_kind in KINDS if its_kind == kind))
        raise _InvalidObject(f"{kind}: apiVersion {version} is not read, only {read}", "$.apiVersion")
    return None


def _items_of(version: str, kind: str) -> tuple[str, str] | None:
    """Returns the (apiVersion, kind) that items of this kind of list have by default; None: it is not a list."""
    if (version, kind) == ("v1", "List"):
        return ("", "")
    item = kind.removesuffix("List")
    return (version, item) if item != kind and (version, item) in KINDS else None


def _read_json(text: str, *, thorough: bool) -> Iterator[_Finding]:
    """Yields the findings of a JSON text. Objects are decoded one by one, so that no single call blocks the interpreter for long."""
    content = text.lstrip()
    if not content:
        return
    try:
        raw = msgspec.json.decode(content, type=Raw)
    except RecursionError:
        yield ManifestFault(1, "InvalidManifest", "nested too deeply")
    except msgspec.DecodeError as error:
        broken_at = _BYTE.search(str(error))
        end = int(broken_at[1]) if broken_at else None
        line = text.count("\n") - content.count("\n") + content.encode().count(b"\n", 0, end) + 1
        yield ManifestFault(line, "InvalidManifest", _lower(str(error)))
    else:
        yield from _read_raw(raw, ("", ""), text.count("\n") - content.count("\n") + 1, thorough=thorough)


def _read_raw(raw: Raw, default: tuple[str, str], line: int, *, thorough: bool) -> Iterator[_Finding]:
    """Yields the object that `raw` holds and that begins at `line`, or all of its items if it is a list."""
    try:
        header = msgspec.json.decode(raw, type=_Header)
        version, kind = header.api_version or default[0], header.kind or default[1]
        items_are = _items_of(version, kind)
        if items_are is None:
            found = _object(line, version, kind, raw)
            if isinstance(found, ManifestObject) and (thorough or not fits(kind, raw)):
                yield from _read_again(raw, default, line, "does not fit", thorough=thorough)
            else:
                yield found
            return
        items = msgspec.json.decode(header.items, type=list[Raw]) if memoryview(header.items).nbytes else []
    except (_InvalidObject, msgspec.ValidationError) as error:
        yield from _read_again(raw, default, line, str(error), thorough=thorough)
        return
    data = bytes(raw)
    position = max(data.find(bytes(header.items)), 0)
    line += data.count(b"\n", 0, position)
    behind = position + 1
    for item in items:
        text = memoryview(item)
        start = data.find(text[:1], behind)  # between two items are only blanks and a comma
        line += data.count(b"\n", position, start)
        yield from _read_raw(item, items_are, line, thorough=thorough)
        position, behind = start, start + text.nbytes


def _read_again(raw: Raw, default: tuple[str, str], line: int, reason: str, *, thorough: bool) -> Iterator[_Finding]:
    """Yields the faults of an object that did not decode, and their lines; or the object, if only nulls prevented decoding."""
    document = next(documents(bytes(raw).decode(), above=line - 1), None)
    if isinstance(document, YamlDocument):
        yield from _read_value(document, document.value, "$", default, thorough=thorough)
    else:
        yield ManifestFault(line, "InvalidManifest", _lower(reason))


def _title(obj: ApiObject) -> str:
    return f"{type(obj).__name__} {key_of(obj)}"


def _name_in(value: Value | Raw) -> str:
    """Returns `namespace/name` of an object that does not fit its type, as far as it has them."""
    meta = value.get("metadata") if isinstance(value, dict) else None
    if not isinstance(meta, dict):
        return ""
    return "/".join(str(meta[part]) for part in ("namespace", "name") if part in meta)


def _namespace_in(value: Value | Raw, *, is_one: bool) -> str:
    """Returns the namespace that an object is, or is in; empty if it names none."""
    try:
        named = msgspec.json.decode(value, type=_Named) if isinstance(value, Raw) else msgspec.convert(value, _Named)
    except msgspec.ValidationError:
        return ""
    found = named.metadata or _Names()
    return (found.name if is_one else found.namespace) or ""


def _describe_value(value: Value) -> str:
    return "a list" if isinstance(value, list) else f"the text {value!r}"[:60]


def _lower(text: str) -> str:
    """Adapts msgspec's messages, which begin with a capital (unless it is a name, as JSON is) and quote types with backticks."""
    plain = text.replace("`", "")
    return plain if plain[1:2].isupper() else plain[:1].lower() + plain[1:]
