"""Reads the JSON listing of libnftables (libnftables-json(5)) into the form of our own read-back (pure).

It is a second reader: both must read the same from one table.
"""

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_network
from typing import Any

from nodeagent.model.addresses import Protocol, pack_address
from nodeagent.proxy.dataplane.driver.belief import Contents
from nodeagent.proxy.dataplane.image.image import Elements, packed_class, packed_protocol
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.schema import FieldType, SetSpec

Listing = dict[str, Elements]
_NO_CLASS = "none"


def read_listing(objects: Iterable[Mapping[str, Any]], specs: Mapping[str, SetSpec]) -> Listing:
    """Returns set name → key → value for the sets and maps of our table in `specs`. Sets that the kernel fills are empty.

    objects: the list in ``nftables``, of one family. Raises ValueError if an element has another form.
    """
    found: Listing = {}
    for entry in objects:
        listed = entry.get("set") or entry.get("map")
        if listed is not None and listed.get("table") == schema.TABLE and listed["name"] in specs:
            spec = specs[listed["name"]]
            elements = () if spec.dynamic else listed.get("elem") or ()
            found[spec.name] = dict(_element(spec, element) for element in elements)
    return found


def own_listing(contents: Contents, specs: Mapping[str, SetSpec]) -> Listing:
    """Returns our read-back in the form of `read_listing`."""
    verdicts = {
        name: {key: chain.encode() for key, chain in elements.items()} for name, elements in contents.verdicts.items()
    }
    everything = {**contents.image, **verdicts}
    return {name: {} if spec.dynamic else everything.get(name, {}) for name, spec in specs.items()}


def unchanged(before: Listing, other: Listing, after: Listing) -> tuple[Listing, Listing]:
    """Returns the elements that are equal in `before` and `after`, which we read before and after the other reader; and
    those of `other` without the elements that changed meanwhile."""
    kept: Listing = {}
    others: Listing = {}
    for name, elements in before.items():
        later = after.get(name, {})
        kept[name] = {key: value for key, value in elements.items() if later.get(key) == value}
        moving = (elements.keys() | later.keys()) - kept[name].keys()
        others[name] = {key: value for key, value in other.get(name, {}).items() if key not in moving}
    return kept, others


def differences(own: Listing, other: Listing) -> list[str]:
    """Returns one line for each set that the two readers read differently."""
    lines = []
    for name in sorted(own.keys() | other.keys()):
        if name not in own or name not in other:
            lines.append(f"{name}: only {'nftables' if name not in own else 'nodeagent'} finds it")
        elif own[name] != other[name]:
            missing, more = own[name].keys() - other[name].keys(), other[name].keys() - own[name].keys()
            values = sum(own[name][key] != other[name][key] for key in own[name].keys() & other[name].keys())
            lines.append(
                f"{name}: {len(missing)} elements only nodeagent finds, {len(more)} only nftables, {values} differ in value"
            )
    return lines


def _element(spec: SetSpec, element: Any) -> tuple[bytes, bytes]:
    key, value = element if spec.is_map else (element, None)
    comment = ""
    if isinstance(key, Mapping) and "elem" in key:
        comment = key["elem"].get("comment", "")
        key = key["elem"]["val"]
    fields = key["concat"] if isinstance(key, Mapping) and "concat" in key else [key]
    first, last = _packed(spec.key, fields)
    return first + last if spec.interval else first, _value(spec, value) + comment.encode()


def _value(spec: SetSpec, value: Any) -> bytes:
    if not spec.is_map:
        return b""
    if spec.data == (FieldType.VERDICT,):
        target: str = value["goto"]["target"]
        return target.encode()
    return _packed(spec.data, value["concat"] if isinstance(value, Mapping) else [value])[0]


def _packed(kinds: Sequence[FieldType], fields: Sequence[Any]) -> tuple[bytes, bytes]:
    """Returns the first and the last key that the fields cover; both are equal unless a field is a range."""
    if len(kinds) != len(fields):
        raise ValueError(f"{fields!r} has not {len(kinds)} fields")
    pairs = [_field(kind, field) for kind, field in zip(kinds, fields, strict=True)]
    return b"".join(first for first, _ in pairs), b"".join(last for _, last in pairs)


def _field(kind: FieldType, field: Any) -> tuple[bytes, bytes]:
    if isinstance(field, Mapping) and "prefix" in field:
        network = ip_network(f"{field['prefix']['addr']}/{field['prefix']['len']}")
        return network.network_address.packed, network.broadcast_address.packed
    if isinstance(field, Mapping) and "range" in field:
        first, last = field["range"]
        return _single(kind, first), _single(kind, last)
    return (_single(kind, field),) * 2


def _single(kind: FieldType, field: Any) -> bytes:
    match kind:
        case FieldType.ADDRESS:
            return pack_address(field)
        case FieldType.PROTOCOL:
            return packed_protocol(Protocol[field.upper()] if isinstance(field, str) else Protocol(field))
        case FieldType.PORT:
            return int(field).to_bytes(2, "big") + bytes(2)
        case FieldType.CLASS:
            return packed_class(_class_number(field))
        case FieldType.SLOT:
            return packed_class(int(field))
        case FieldType.VERDICT:
            raise ValueError("a verdict is not a key")


def _class_number(text: str) -> int:
    """Returns the number of ``major:minor`` in hexadecimal, as tc writes it; 0 for ``none``."""
    if text == _NO_CLASS:
        return 0
    major, minor = text.split(":")
    return int(major or "0", 16) << 16 | int(minor or "0", 16)
