"""The life cycle of a kind: what create and update reset, and what a deletion waits for. Pure."""

from typing import Protocol

from nodeagent.kinds.description.documents import Document, copy


class KindLife(Protocol):
    """A kind's own steps in create, update and delete; documents are in stored form."""

    def prepare_create(self, document: Document) -> None:
        """Sets fields that clients cannot set on creation."""
        ...

    def prepare_update(self, document: Document, old: Document) -> None:
        """Keeps fields that clients cannot change."""
        ...

    def is_held(self, document: Document) -> bool:
        """Returns whether a finalizer prevents the removal of the object."""
        ...

    def grace_seconds(self, live: Document, asked: int | None) -> int:
        """Returns how long the object stays after its deletion; `asked` is the client's wish, or None."""
        ...

    def mark(self, document: Document, grace_seconds: int) -> None:
        """Marks the object as being deleted, in addition to its deletionTimestamp."""
        ...


class DefaultLife:
    """The life cycle of most kinds. `has_status`: the status is written only through its subresource."""

    def __init__(self, *, has_status: bool = False, keeps_status_on_create: bool = False) -> None:
        self._has_status = has_status
        self._clears = has_status and not keeps_status_on_create

    def prepare_create(self, document: Document) -> None:
        """Drops a status sent on creation."""
        if self._clears:
            document.pop("status", None)

    def prepare_update(self, document: Document, old: Document) -> None:
        """Keeps the stored status instead of the one that was sent."""
        if self._has_status:
            document["status"] = copy(old.get("status", {}))

    def is_held(self, document: Document) -> bool:
        """Returns whether metadata.finalizers is not empty."""
        return bool(document["metadata"].get("finalizers"))

    def grace_seconds(self, live: Document, asked: int | None) -> int:  # noqa: ARG002 - the protocol's
        """Returns 0: objects are removed at once."""
        return 0

    def mark(self, document: Document, grace_seconds: int) -> None:
        """Records the grace period."""
        document["metadata"]["deletionGracePeriodSeconds"] = grace_seconds
