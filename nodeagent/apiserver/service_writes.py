"""The joint writes of a Service: addresses and node ports are allocated and freed in its own transaction."""

import asyncio

from nodeagent.apiserver.addresses.allocation import Allocator
from nodeagent.apiserver.machinery.joint_writes import JointWrites, WritePlan
from nodeagent.apiserver.service_addresses import allocate
from nodeagent.apiserver.storage.records import Change
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.resources import Catalog


def writes_by_collection(catalog: Catalog, allocator: Allocator) -> dict[str, JointWrites]:
    """Returns for each collection what is written together with its objects."""
    return {row.stored_in: ServiceWrites(allocator) if row.holds_addresses else JointWrites() for row in catalog.rows}


class ServiceWrites(JointWrites):
    """Allocates and frees the addresses and node ports of a Service."""

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator

    def plan(self, document: Document | None, old: Document | None) -> WritePlan:
        """Completes the Service and returns the changes of its addresses and ports. Raises AllocationRefused."""
        reservation = allocate(self._allocator, document, old)
        return WritePlan(reservation.changes, reservation)

    def turn(self, plan: WritePlan) -> asyncio.Lock | None:
        """Returns the lock for node ports if the plan changes any: only one such write may run at a time."""
        reservation = plan.reservation
        changes_ports = reservation is not None and (reservation.ports or reservation.freed_ports)
        return self._allocator.port_turn if changes_ports else None

    def late_changes(self, plan: WritePlan) -> list[Change]:
        """Returns the change of the bitmap of node ports."""
        return self._allocator.record_ports(plan.reservation) if plan.reservation is not None else []

    def settle(self, plan: WritePlan) -> None:
        """Ends the reservation: the store has the result."""
        if plan.reservation is not None:
            self._allocator.release(plan.reservation)
