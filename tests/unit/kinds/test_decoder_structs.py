"""The agent's decoder structs are a narrow view of the kinds: same wire names, types that hold what the schema allows."""

import msgspec
import pytest
from msgspec import Struct
from msgspec.inspect import ListType, Type, UnionType, type_info

from nodeagent.kinds.catalog import all_kinds
from nodeagent.kinds.description import shapes
from nodeagent.kinds.description.shapes import ListOf, MapOf, Scalar, Shape
from nodeagent.model import objects

EXAMPLES: dict[Scalar, tuple[object, ...]] = {
    Scalar.STRING: ("text",),
    Scalar.TIME: ("2026-01-02T15:04:05Z",),
    Scalar.INT32: (2**31 - 1, -1),
    Scalar.INT64: (2**63 - 1,),
    Scalar.BOOL: (True,),
    Scalar.INT_OR_STRING: (80, "http"),
}


def examples(shape: Shape) -> list[object]:
    """Values that a server may send, as JSON has them."""
    if isinstance(shape, Scalar):
        return list(EXAMPLES[shape])
    if isinstance(shape, MapOf):
        return [{"key": value} for value in examples(shape.value)]
    assert isinstance(shape, ListOf)
    return [[value] for value in examples(shape.element)]


def deviations(cls: type[Struct], struct: shapes.Struct, path: str) -> list[str]:
    """What of the decoder struct the schema does not have, or has otherwise."""
    found: list[str] = []
    for field in msgspec.structs.fields(cls):
        where = f"{path}.{field.encode_name}"
        described = struct.fields.get(field.encode_name)
        if described is None:
            found.append(f"{where}: unknown to the schema")
            continue
        inner, nested = described.shape, nested_in(type_info(field.type))
        of_list = isinstance(inner, ListOf) and isinstance(inner.element, shapes.Struct)
        inner = inner.element if isinstance(inner, ListOf) and of_list else inner
        if nested is not None and isinstance(inner, shapes.Struct):
            if of_list != is_list(type_info(field.type)):
                found.append(f"{where}: a list in one of the two only")
            found += deviations(nested, inner, where)
        elif nested is not None or isinstance(inner, shapes.Struct):
            found.append(f"{where}: an object in one of the two only")
        else:
            found += [f"{where}: {value!r} cannot be read" for value in examples(inner) if not holds(field.type, value)]
            found += [f"{where}: {value!r} can be read" for value in foreign(inner) if holds(field.type, value)]
    return found


def nested_in(kind: Type) -> type[Struct] | None:
    """The struct that a field holds, alone or in a list."""
    parts = kind.types if isinstance(kind, UnionType) else (kind,)
    for part in (getattr(part, "item_type", part) for part in parts):
        if isinstance(part, msgspec.inspect.StructType):
            return part.cls
    return None


def is_list(kind: Type) -> bool:
    parts = kind.types if isinstance(kind, UnionType) else (kind,)
    return any(isinstance(part, ListType | msgspec.inspect.VarTupleType) for part in parts)


def foreign(shape: Shape) -> list[object]:
    """Values of other types."""
    allowed = {type(value) for value in examples(shape)}
    return [
        value for value in ("text", 7, True, ["text"], {"key": "text"}, [7], {"key": 7}) if type(value) not in allowed
    ]


def holds(kind: object, value: object) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


KINDS = (
    objects.Service,
    objects.EndpointSlice,
    objects.Endpoints,
    objects.Node,
    objects.ServiceCIDR,
    objects.Namespace,
    objects.Pod,
)


@pytest.mark.parametrize("cls", KINDS)
def test_the_decoder_reads_what_the_schema_says(cls: type[Struct]) -> None:
    (row,) = {id(row.struct): row for row in all_kinds().rows if row.kind == cls.__name__}.values()
    assert deviations(cls, row.struct, cls.__name__) == []


def test_every_kind_that_is_decoded_is_compared() -> None:
    assert set(KINDS) == set(objects.ApiObject.__args__)


def test_a_deviation_is_seen() -> None:
    class Port(Struct, rename="camel"):
        name: int
        node_port: str
        app_protcol: str

    (row,) = [row for row in all_kinds().rows if row.kind == "Service"]
    spec = row.struct.fields["spec"].shape
    assert isinstance(spec, shapes.Struct)
    ports = spec.fields["ports"].shape
    assert isinstance(ports, ListOf)
    assert isinstance(ports.element, shapes.Struct)
    assert deviations(Port, ports.element, "port") == [
        "port.name: 'text' cannot be read",
        "port.name: 7 can be read",
        "port.nodePort: 2147483647 cannot be read",
        "port.nodePort: -1 cannot be read",
        "port.nodePort: 'text' can be read",
        "port.appProtcol: unknown to the schema",
    ]
