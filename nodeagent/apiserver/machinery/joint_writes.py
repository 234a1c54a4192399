"""What is written in the same transaction as an object: nothing for most kinds, addresses and node ports for Services."""

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from nodeagent.apiserver.addresses.allocation import Reservation
from nodeagent.apiserver.storage.records import Change
from nodeagent.kinds.description.documents import Document


@dataclass(slots=True)
class WritePlan:
    """Further changes of the transaction; `reservation` is to be released after it."""

    changes: list[Change] = field(default_factory=list)
    reservation: Reservation | None = None


class JointWrites(Protocol):
    """Plans what is written along with an object; documents are in stored form."""

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


class NoJointWrites:
    """Most kinds: an object is written alone."""

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
