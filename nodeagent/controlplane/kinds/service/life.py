"""A Service's part in a write: addresses and node ports are taken and given back in the same transaction."""

import asyncio

from nodeagent.controlplane.addresses.allocation import Allocator
from nodeagent.controlplane.documents import Document
from nodeagent.controlplane.kinds.service.addresses import (
    allocate,
    carry_over,
    sync_first_address,
)
from nodeagent.controlplane.machinery.lifecycle import Plain, WritePlan
from nodeagent.controlplane.storage.records import Change


class ServiceLife(Plain):
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
