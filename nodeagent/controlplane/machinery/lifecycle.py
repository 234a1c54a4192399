"""What a kind does beside being stored: resets on create and update, and writes that belong to the same transaction."""

from dataclasses import dataclass, field
from typing import Protocol

from nodeagent.controlplane.addresses.allocation import Allocator, Reservation
from nodeagent.controlplane.documents import Document, copy
from nodeagent.controlplane.service_addresses import allocate, carry_over, sync_first_address
from nodeagent.controlplane.storage.records import Change


@dataclass(slots=True)
class Plan:
    """Further changes of the transaction; `reservation` is to be released after it."""

    changes: list[Change] = field(default_factory=list)
    reservation: Reservation | None = None


class Lifecycle(Protocol):
    """The kind's own part in create, update and delete; documents are in stored form."""

    def prepare_create(self, document: Document) -> None:
        """Sets what clients cannot set on creation."""
        ...

    def prepare_update(self, document: Document, old: Document) -> None:
        """Keeps what clients cannot change."""
        ...

    def plan(self, document: Document | None, old: Document | None) -> Plan:
        """Completes `document` (None: deleted) and says what else is to be written. Raises AllocationRefused."""
        ...

    def settle(self, plan: Plan) -> None:
        """The transaction has ended, well or not."""
        ...


class Plain:
    """Most kinds: nothing of their own. `has_status`: status is written through its subresource only."""

    def __init__(self, *, has_status: bool = False, keeps_status_on_create: bool = False) -> None:
        self._has_status = has_status
        self._clears = has_status and not keeps_status_on_create

    def prepare_create(self, document: Document) -> None:
        """A status given on creation is dropped."""
        if self._clears:
            document.pop("status", None)

    def prepare_update(self, document: Document, old: Document) -> None:
        """The status stays."""
        if self._has_status:
            document["status"] = copy(old.get("status", {}))

    def plan(self, document: Document | None, old: Document | None) -> Plan:  # noqa: ARG002 - the protocol's
        """Nothing else."""
        return Plan()

    def settle(self, plan: Plan) -> None:
        """Nothing to do."""


class Namespaces(Plain):
    """A namespace is active until its contents are gone; the `kubernetes` finalizer holds it."""

    def __init__(self) -> None:
        super().__init__(has_status=True)

    def prepare_create(self, document: Document) -> None:
        """Active, and held by its finalizer."""
        document["status"] = {"phase": "Active"}
        finalizers = document["spec"].get("finalizers") or []
        document["spec"]["finalizers"] = finalizers if "kubernetes" in finalizers else [*finalizers, "kubernetes"]

    def prepare_update(self, document: Document, old: Document) -> None:
        """The finalizers of the spec change through the `finalize` subresource only."""
        super().prepare_update(document, old)
        document["spec"]["finalizers"] = copy(old["spec"].get("finalizers"))


class Pods(Plain):
    """A new pod is pending, whatever its creator says."""

    def __init__(self) -> None:
        super().__init__(has_status=True)

    def prepare_create(self, document: Document) -> None:
        """Pending; the QoS class is that of a pod without resources unless it has some."""
        asks = [container.get("resources") or {} for container in document["spec"].get("containers") or []]
        quality = "Burstable" if any(ask.get("limits") or ask.get("requests") for ask in asks) else "BestEffort"
        document["status"] = {"phase": "Pending", "qosClass": quality}


class Services(Plain):
    """A service holds addresses and node ports."""

    def __init__(self, allocator: Allocator) -> None:
        super().__init__(has_status=True)
        self._allocator = allocator

    def prepare_create(self, document: Document) -> None:
        """The status is the load balancer's; `clusterIP` and `clusterIPs` say the same."""
        document["status"] = {"loadBalancer": {}}
        sync_first_address(document["spec"])

    def prepare_update(self, document: Document, old: Document) -> None:
        """Allocated values stay unless the type has no use for them."""
        super().prepare_update(document, old)
        if old["spec"].get("type") == "LoadBalancer" and document["spec"].get("type") != "LoadBalancer":
            document["status"] = {"loadBalancer": {}}
        carry_over(document, old)

    def plan(self, document: Document | None, old: Document | None) -> Plan:
        """Addresses and ports, taken and given back."""
        reservation = allocate(self._allocator, document, old)
        return Plan(reservation.changes, reservation)

    def settle(self, plan: Plan) -> None:
        """The store now knows what is held."""
        if plan.reservation is not None:
            self._allocator.release(plan.reservation)
