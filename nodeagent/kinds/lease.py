"""Lease (coordination.k8s.io/v1): used for leader election and heartbeats."""

from nodeagent.kinds.description.documents import Document, Json
from nodeagent.kinds.description.printing import AGE, Column, Printer, name_and_age
from nodeagent.kinds.description.resources import Resource
from nodeagent.kinds.description.shared import read_shapes
from nodeagent.kinds.description.status import FieldError, invalid

SHAPES = read_shapes(r"""
LeaseSpec = io.k8s.api.coordination.v1 : LeaseSpec is a specification of a Lease.
  holderIdentity        *string #1 : holderIdentity contains the identity of the holder of a current lease.
  leaseDurationSeconds  *int32 #2 : leaseDurationSeconds is a duration that candidates for a lease need to wait to force acquire it.
  acquireTime           *microtime #3 : acquireTime is a time when the current lease was acquired.
  renewTime             *microtime #4 : renewTime is a time when the current holder of a lease has last updated the lease.
  leaseTransitions      *int32 #5 : leaseTransitions is the number of transitions of a lease between holders.
  strategy              *string #6 : Strategy indicates the strategy for picking the leader for coordinated leader election.
  preferredHolder       *string #7 : PreferredHolder signals to a lease holder that the lease has a more optimal holder.

Lease = io.k8s.api.coordination.v1 : Lease defines a lease concept.
  metadata  ObjectMeta #1 : Standard object's metadata.
  spec      LeaseSpec #2 : spec contains the specification of the Lease.
""")


def validate_lease(lease: Document) -> list[FieldError]:
    """Returns errors: the duration must be positive, the number of transitions not negative."""
    spec = lease["spec"]
    errors = []
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        errors.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        errors.append(invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return errors


def _cells(document: Document, now: float) -> list[Json]:
    name, old = name_and_age(document, now)
    return [name, document["spec"].get("holderIdentity") or "", old]


PRINTER = Printer((Column("Holder", described_by="spec.holderIdentity"), AGE), _cells)


ROWS = (
    Resource(
        group="coordination.k8s.io",
        plural="leases",
        singular="lease",
        creates_on_update=True,
        insists_on_version=True,
        kind="Lease",
        struct=SHAPES["Lease"],
        printer=PRINTER,
        validate=validate_lease,
    ),
)
