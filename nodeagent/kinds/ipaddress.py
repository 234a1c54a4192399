"""IPAddress (networking.k8s.io/v1): a cluster address and the object that has it."""

from nodeagent.kinds.description.address_texts import parse_ip
from nodeagent.kinds.description.documents import Document, Json
from nodeagent.kinds.description.object_rules import unchanged
from nodeagent.kinds.description.printing import AGE, Column, Printer, name_and_age
from nodeagent.kinds.description.resources import Resource
from nodeagent.kinds.description.shared import read_shapes
from nodeagent.kinds.description.status import FieldError, invalid, required

SHAPES = read_shapes(r"""
ParentReference = io.k8s.api.networking.v1 : ParentReference describes a reference to a parent object.
  group      string #1 : Group is the group of the object being referenced.
  resource   string required #2 : Resource is the resource of the object being referenced.
  namespace  string #3 : Namespace is the namespace of the object being referenced.
  name       string required #4 : Name is the name of the object being referenced.

IPAddressSpec = io.k8s.api.networking.v1 : IPAddressSpec describe the attributes in an IP Address.
  parentRef  *ParentReference required #1 : ParentRef references the resource that an IPAddress is attached to.

IPAddress = io.k8s.api.networking.v1 : IPAddress represents a single IP of a single IP Family.
  metadata  ObjectMeta #1 : Standard object's metadata.
  spec      IPAddressSpec #2 : spec is the desired state of the IPAddress.
""")


def _any_name(_: str) -> list[str]:
    return []


def validate_ip_address(found: Document) -> list[FieldError]:
    """Returns errors: the name must be an address in canonical form, and parentRef must name its holder."""
    name = found["metadata"].get("name", "")
    address = parse_ip(name)
    errors = []
    if address is None or str(address) != name:
        errors.append(invalid("metadata.name", name, "must be a valid IP address in canonical form"))
    parent = found["spec"].get("parentRef")
    if parent is None:
        return [*errors, required("spec.parentRef")]
    return errors + [required(f"spec.parentRef.{key}") for key in ("resource", "name") if not parent.get(key)]


def validate_ip_address_update(found: Document, old: Document) -> list[FieldError]:
    """Returns the errors of a change: parentRef is immutable."""
    before, after = old["spec"].get("parentRef"), found["spec"].get("parentRef")
    return validate_ip_address(found) + unchanged("spec.parentRef", before, after)


def _cells(document: Document, now: float) -> list[Json]:
    name, old = name_and_age(document, now)
    parent = document["spec"].get("parentRef") or {}
    parts = [parent.get("resource", ""), parent.get("namespace", ""), parent.get("name", "")]
    return [name, "/".join(part for part in parts if part), old]


PRINTER = Printer((Column("ParentRef", described_by="spec.parentRef"), AGE), _cells)


ROWS = (
    Resource(
        group="networking.k8s.io",
        plural="ipaddresses",
        singular="ipaddress",
        kind="IPAddress",
        struct=SHAPES["IPAddress"],
        short_names=("ip",),
        printer=PRINTER,
        namespaced=False,
        name_check=_any_name,
        validate=validate_ip_address,
        validate_update=validate_ip_address_update,
    ),
)
