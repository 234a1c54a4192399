"""ServiceCIDR (networking.k8s.io/v1): a range of cluster addresses."""

from collections.abc import Iterator

from nodeagent.kinds.description.documents import Document, Json
from nodeagent.kinds.description.object_rules import networks, unchanged
from nodeagent.kinds.description.printing import AGE, Column, Printer, name_and_age
from nodeagent.kinds.description.resources import Resource
from nodeagent.kinds.description.shared import read_shapes
from nodeagent.kinds.description.status import FieldError, required

SHAPES = read_shapes(r"""
ServiceCIDRSpec = io.k8s.api.networking.v1 : ServiceCIDRSpec define the CIDRs the user wants to use for allocating ClusterIPs for Services.
  cidrs  [string] #1 : CIDRs defines the IP blocks in CIDR notation from which to assign service cluster IPs.

ServiceCIDRStatus = io.k8s.api.networking.v1 : ServiceCIDRStatus describes the current state of the ServiceCIDR.
  conditions  [Condition] keys=type merge=type #1 : conditions holds an array of metav1.Condition that describe the state of the ServiceCIDR.

ServiceCIDR = io.k8s.api.networking.v1 : ServiceCIDR defines a range of IP addresses using CIDR format.
  metadata  ObjectMeta #1 : Standard object's metadata.
  spec      ServiceCIDRSpec #2 : spec is the desired state of the ServiceCIDR.
  status    ServiceCIDRStatus #3 : status represents the current state of the ServiceCIDR.
""")


def validate_service_cidr(found: Document) -> Iterator[FieldError]:
    """Yields errors: there must be one or two networks, in canonical form, of different families."""
    texts: list[str] = found["spec"].get("cidrs") or []
    if not texts:
        yield required("spec.cidrs", "at least one CIDR required")
        return
    yield from networks(texts, "spec.cidrs", "may only hold up to 2 values, one for each IP family", canonical=True)


def validate_service_cidr_update(found: Document, old: Document) -> Iterator[FieldError]:
    """Yields the errors of a change: the networks are immutable."""
    yield from validate_service_cidr(found)
    yield from unchanged("spec.cidrs", old["spec"].get("cidrs"), found["spec"].get("cidrs"))


def _cells(document: Document, now: float) -> list[Json]:
    name, old = name_and_age(document, now)
    return [name, ",".join(document["spec"].get("cidrs") or []), old]


PRINTER = Printer((Column("CIDRs", described_by="spec.cidrs"), AGE), _cells)


ROWS = (
    Resource(
        group="networking.k8s.io",
        plural="servicecidrs",
        singular="servicecidr",
        kind="ServiceCIDR",
        struct=SHAPES["ServiceCIDR"],
        printer=PRINTER,
        namespaced=False,
        has_status=True,
        validate=validate_service_cidr,
        validate_update=validate_service_cidr_update,
    ),
)
