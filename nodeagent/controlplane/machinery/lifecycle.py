"""What a kind does beside being stored: resets on create and update, and writes that belong to the same transaction."""

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from nodeagent.controlplane.addresses.allocation import Reservation
from nodeagent.controlplane.documents import Document, copy
from nodeagent.controlplane.storage.records import Change


@dataclass(slots=True)
class WritePlan:
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

    def plan(self, document: Document | None, old: Document | None) -> WritePlan:
        """Completes `document` (None: deleted) and says what else is to be written. Raises AllocationRefused."""
        ...

    def turn(self, plan: WritePlan) -> asyncio.Lock | None:
        """To be held while it is committed; None: there are no late changes."""
        ...

    def late_changes(self, plan: WritePlan) -> list[Change]:
        """Changes of what all objects of the kind share, from its present state. Raises Precondition where the plan does not fit it."""
        ...

    def settle(self, plan: WritePlan) -> None:
        """The transaction has ended, well or not."""
        ...

    def is_held(self, document: Document) -> bool:
        """A finalizer keeps the object from going when it is deleted."""
        ...

    def grace_seconds(self, live: Document, asked: int | None) -> int:
        """How long the object stays after its deletion; `asked` is what the client wants, None: it did not say."""
        ...

    def mark(self, document: Document, grace_seconds: int) -> None:
        """Says that the object is being deleted, beside its deletionTimestamp."""
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
        """Put the stored status in place of the one that was sent."""
        if self._has_status:
            document["status"] = copy(old.get("status", {}))

    def plan(self, document: Document | None, old: Document | None) -> WritePlan:  # noqa: ARG002 - the protocol's
        """Nothing is written along with an object of this kind."""
        return WritePlan()

    def turn(self, plan: WritePlan) -> asyncio.Lock | None:  # noqa: ARG002 - the protocol's
        """Objects of this kind share nothing."""
        return None

    def late_changes(self, plan: WritePlan) -> list[Change]:  # noqa: ARG002 - the protocol's
        """Returns an empty list: a kind of its own has no changes to compute late."""
        return []

    def settle(self, plan: WritePlan) -> None:
        """Nothing was reserved, so nothing is given back."""

    def is_held(self, document: Document) -> bool:
        """By metadata.finalizers."""
        return bool(document["metadata"].get("finalizers"))

    def grace_seconds(self, live: Document, asked: int | None) -> int:  # noqa: ARG002 - the protocol's
        """0 seconds, whatever was asked: what is deleted goes at once."""
        return 0

    def mark(self, document: Document, grace_seconds: int) -> None:
        """Note the grace period, in seconds, in an object that is to go later."""
        document["metadata"]["deletionGracePeriodSeconds"] = grace_seconds
