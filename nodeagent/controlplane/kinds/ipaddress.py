"""IPAddress (networking.k8s.io/v1): a cluster address and who holds it."""

from collections.abc import Callable
from typing import Final

from nodeagent.controlplane.addresses.texts import parse_ip
from nodeagent.controlplane.documents import Document, Json
from nodeagent.controlplane.machinery.managed import Manager, track_update
from nodeagent.controlplane.machinery.object_rules import unchanged
from nodeagent.controlplane.machinery.printing import AGE, Column, Printer, name_and_age
from nodeagent.controlplane.machinery.resources import Resource
from nodeagent.controlplane.machinery.schema.decoding import empty, normalise
from nodeagent.controlplane.machinery.schema.shared import read_shapes
from nodeagent.controlplane.moments import rfc3339
from nodeagent.controlplane.status import FieldError, invalid, required
from nodeagent.controlplane.storage.records import draft

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
    """The name is the address; somebody holds it."""
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
    """The holder does not change."""
    before, after = old["spec"].get("parentRef"), found["spec"].get("parentRef")
    return validate_ip_address(found) + unchanged("spec.parentRef", before, after)


def _cells(document: Document, now: float) -> list[Json]:
    name, old = name_and_age(document, now)
    parent = document["spec"].get("parentRef") or {}
    parts = [parent.get("resource", ""), parent.get("namespace", ""), parent.get("name", "")]
    return [name, "/".join(part for part in parts if part), old]


PRINTER = Printer((Column("ParentRef", described_by="spec.parentRef"), AGE), _cells)


_MANAGER: Final = "kube-apiserver"
_TIME: Final = "2000-01-01T00:00:00Z"


class AddressObjects:
    """Builds the IPAddress objects of allocated addresses, by filling in a template: every new service needs one."""

    def __init__(self, uid: Callable[[], str], clock: Callable[[], float]) -> None:
        self._uid = uid
        self._clock = clock
        self._templates = {family: _template(family) for family in ("IPv4", "IPv6")}

    def describe(self, address: str, namespace: str, name: str) -> bytes:
        """The object that says a service holds `address`, as a draft. Names of services need no escaping in JSON."""
        now = rfc3339(int(self._clock()))
        return self._templates["IPv6" if ":" in address else "IPv4"] % (
            address.encode(),
            self._uid().encode(),
            now.encode(),
            now.encode(),
            namespace.encode(),
            name.encode(),
        )


def _template(family: str) -> bytes:
    """An IPAddress with %b for name, uid, creation time, the owner's time, and the service's namespace and name."""
    labels = {
        "ipaddress.kubernetes.io/ip-family": family,
        "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
    }
    parent = {"resource": "services", "namespace": "%b", "name": "%b"}
    document: Document = {"metadata": {"labels": labels}, "spec": {"parentRef": parent}}
    struct = SHAPES["IPAddress"]
    track_update(struct, empty(struct), document, Manager("Update", _MANAGER, "networking.k8s.io/v1"), "%b")
    document["metadata"] |= {"name": "%b", "uid": "%b", "resourceVersion": "0"}
    # Times are checked while the document is put in order, so their placeholders come afterwards.
    document["metadata"]["creationTimestamp"] = document["metadata"]["managedFields"][0]["time"] = _TIME
    return draft(normalise(struct, document)).replace(_TIME.encode(), b"%b")


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
