"""Changes that are written in the same transaction as an object: addresses and node ports for Services; none for most kinds."""

import asyncio
from dataclasses import dataclass, field

from nodeagent.apiserver.addresses.allocation import Reservation
from nodeagent.apiserver.storage.records import Change
from nodeagent.kinds.description.documents import Document


@dataclass(slots=True)
class WritePlan:
    """Further changes of the transaction. The caller releases `reservation` after it (`JointWrites.settle`)."""

    changes: list[Change] = field(default_factory=list)
    reservation: Reservation | None = None


class JointWrites:
    """Plans the changes that are written together with an object: for most kinds none. Documents are in stored form."""

    def plan(self, document: Document | None, old: Document | None) -> WritePlan:  # noqa: ARG002 - others need both
        """Completes `document` (None: deleted) and returns the plan of further changes. Raises AllocationRefused."""
        return WritePlan()

    def turn(self, plan: WritePlan) -> asyncio.Lock | None:  # noqa: ARG002 - as above
        """Returns the lock to hold during the commit, or None if there are no late changes."""
        return None

    def late_changes(self, plan: WritePlan) -> list[Change]:  # noqa: ARG002 - as above
        """Returns changes of shared records, from their present state. Raises Precondition if the plan no longer fits."""
        return []

    def settle(self, plan: WritePlan) -> None:
        """Releases what the plan reserved. Must be called after the transaction, also if it failed."""
