"""Changes that are written in the same transaction as an object: addresses and node ports for Services; none for most kinds."""

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from nodeagent.apiserver.addresses.allocation import Reservation
from nodeagent.apiserver.storage.records import Change
from nodeagent.kinds.description.documents import Document


@dataclass(slots=True)
class WritePlan:
    """Further changes of the transaction. The caller releases `reservation` after it (`JointWrites.settle`)."""

    changes: list[Change] = field(default_factory=list)
    reservation: Reservation | None = None


class JointWrites(Protocol):
    """Plans the changes that are written together with an object. Documents are in stored form."""

    def plan(self, document: Document | None, old: Document | None) -> WritePlan:
        """Completes `document` (None: deleted) and returns the plan of further changes. Raises AllocationRefused."""
        ...

    def turn(self, plan: WritePlan) -> asyncio.Lock | None:
        """Returns the lock to hold during the commit, or None if there are no late changes."""
        ...

    def late_changes(self, plan: WritePlan) -> list[Change]:
        """Returns changes of shared records, from their present state. Raises Precondition if the plan no longer fits."""
        ...

    def settle(self, plan: WritePlan) -> None:
        """Releases what the plan reserved. Must be called after the transaction, also if it failed."""
        ...


class NoJointWrites:
    """For most kinds: an object is written alone."""

    def plan(self, document: Document | None, old: Document | None) -> WritePlan:  # noqa: ARG002 - the protocol's
        """Returns an empty plan."""
        return WritePlan()

    def turn(self, plan: WritePlan) -> asyncio.Lock | None:  # noqa: ARG002 - the protocol's
        """Returns None: objects of this kind share no record."""
        return None

    def late_changes(self, plan: WritePlan) -> list[Change]:  # noqa: ARG002 - the protocol's
        """Returns an empty list."""
        return []

    def settle(self, plan: WritePlan) -> None:
        """Does nothing."""
