"""Reads the notation of the kinds' schemas.

    ServicePort = io.k8s.api.core.v1 : ServicePort contains information on service's port.
      name        string #1 : The name of this port …
      nodePort    int32 #5 : …
      port        int32! #3 : …
      ports       [ServicePort] keys=port,protocol merge=port #1 : …
      selector    {string} atomic #2 : …
      clientIP    *ClientIPConfig #1 : …

    ClientIPConfig = io.k8s.api.core.v1; timeoutSeconds *int32 #1

A struct starts at the margin (`atomic` and `as=Name`, its published name, may follow the package); its fields are
indented. Without descriptions, several may be in one line, also in that of the struct, with `; ` between them. `*` marks a pointer, `!` a field that is always written, as a struct by value is without a mark. `required`
marks what clients must send; `default=` is the value of an absent key of a list item; `#` the field's number in
protobuf (`#2.1`: field 1 of the message in field 2, which JSON does not nest).
"""

from collections.abc import Mapping

from nodeagent.kinds.description.shapes import Field, ListOf, MapOf, Scalar, Shape, Struct

_SCALARS: Mapping[str, Scalar] = {
    "string": Scalar.STRING,
    "int32": Scalar.INT32,
    "int64": Scalar.INT64,
    "bool": Scalar.BOOL,
    "bytes": Scalar.BYTES,
    "time": Scalar.TIME,
    "microtime": Scalar.MICRO_TIME,
    "quantity": Scalar.QUANTITY,
    "int-or-string": Scalar.INT_OR_STRING,
    "any": Scalar.ANY,
}


def read(text: str, known: Mapping[str, Struct]) -> dict[str, Struct]:
    """Returns the structs that `text` defines, by name, and those already `known` (to which it may refer). Raises ValueError
    for a line that does not follow the notation or names an unknown type."""
    structs = dict(known)
    bodies: list[tuple[Struct, list[str]]] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        parts = [line] if " : " in line else line.split("; ")
        if line[0] != " ":
            struct = _header(parts[0])
            structs[struct.name] = struct
            bodies.append((struct, parts[1:]))
        elif bodies:
            bodies[-1][1].extend(parts)
        else:
            raise ValueError(f"field outside a struct: {line!r}")
    for struct, lines in bodies:
        for line in lines:
            struct.add(_field(line, structs, len(struct.fields)))
    return structs


def _header(line: str) -> Struct:
    declaration, _, doc = line.partition(" : ")
    name, equals, rest = declaration.partition(" = ")
    words = rest.split()
    if not equals or not words:
        raise ValueError(f"not a struct header: {line!r}")
    published_as = next((word.removeprefix("as=") for word in words[1:] if word.startswith("as=")), "")
    return Struct(
        name=name.strip(), package=words[0], doc=doc.strip(), atomic="atomic" in words[1:], published_as=published_as
    )


def _field(line: str, structs: Mapping[str, Struct], position: int) -> Field:
    declaration, _, doc = line.partition(" : ")
    match declaration.split():
        case [name, spelling, *flags]:
            pass
        case _:
            raise ValueError(f"not a field: {line!r}")
    pointer = spelling.startswith("*")
    always = spelling.endswith("!")
    shape = _shape(spelling.strip("*!"), flags, structs)
    within, _, number = next((flag[1:] for flag in flags if flag.startswith("#")), "0").rpartition(".")
    by_value = not pointer and (isinstance(shape, Struct) or shape is Scalar.INT_OR_STRING)
    return Field(
        name=name,
        shape=shape,
        doc=doc.strip().replace("\\n", "\n"),
        pointer=pointer,
        always=always or (by_value and "omitzero" not in flags),
        required="required" in flags,
        position=position,
        default=next((flag.removeprefix("default=") for flag in flags if flag.startswith("default=")), ""),
        number=int(number),
        within=int(within or 0),
    )


def _shape(spelling: str, flags: list[str], structs: Mapping[str, Struct]) -> Shape:
    options = dict(flag.split("=", 1) for flag in flags if "=" in flag)
    if spelling.startswith("["):
        return ListOf(
            element=_shape(spelling[1:-1], [], structs),
            keys=tuple(options["keys"].split(",")) if "keys" in options else (),
            is_set="set" in flags,
            merge_key=options.get("merge"),
        )
    if spelling.startswith("{"):
        return MapOf(value=_shape(spelling[1:-1], [], structs), atomic="atomic" in flags)
    if spelling in _SCALARS:
        return _SCALARS[spelling]
    if spelling in structs:
        return structs[spelling]
    raise ValueError(f"unknown type {spelling!r}")
