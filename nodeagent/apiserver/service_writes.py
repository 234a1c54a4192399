"""A Service's joint writes: addresses and node ports are taken and given back in its own transaction."""

import asyncio

from nodeagent.apiserver.addresses.allocation import Allocator
from nodeagent.apiserver.machinery.joint_writes import JointWrites, NoJointWrites, WritePlan
from nodeagent.apiserver.service_addresses import allocate
from nodeagent.apiserver.storage.records import Change
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.resources import Catalog


def writes_by_collection(catalog: Catalog, allocator: Allocator) -> dict[str, JointWrites]:
    """Collection → what is written along with its objects."""
    return {row.stored_in: ServiceWrites(allocator) if row.holds_addresses else NoJointWrites() for row in catalog.rows}


class ServiceWrites:
    """A service holds addresses and node ports."""

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator

    def plan(self, document: Document | None, old: Document | None) -> WritePlan:
        """Addresses and ports, taken and given back."""
        reservation = allocate(self._allocator, document, old)
        return WritePlan(reservation.changes, reservation)

    def turn(self, plan: WritePlan) -> asyncio.Lock | None:
        """One write at a time changes node ports."""
        reservation = plan.reservation
        changes_ports = reservation is not None and (reservation.ports or reservation.freed_ports)
        return self._allocator.port_turn if changes_ports else None

    def late_changes(self, plan: WritePlan) -> list[Change]:
        """Of the bitmap of node ports."""
        return self._allocator.record_ports(plan.reservation) if plan.reservation is not None else []

    def settle(self, plan: WritePlan) -> None:
        """The store now knows what is held."""
        if plan.reservation is not None:
            self._allocator.release(plan.reservation)
