"""The life cycle of a kind: what create and update reset, and what a deletion waits for. Pure."""

from nodeagent.kinds.description.documents import Document, copy


class KindLife:
    """The life cycle of most kinds; others override its steps. Documents are in stored form. `has_status`: the status is written
    only through its subresource."""

    def __init__(self, *, has_status: bool = False, keeps_status_on_create: bool = False) -> None:
        self._has_status = has_status
        self._clears = has_status and not keeps_status_on_create

    def prepare_create(self, document: Document) -> None:
        """Drops what clients cannot set on creation: the status."""
        if self._clears:
            document.pop("status", None)

    def prepare_update(self, document: Document, old: Document) -> None:
        """Keeps what clients cannot change: the stored status instead of the one that was sent."""
        if self._has_status:
            document["status"] = copy(old.get("status", {}))

    def is_held(self, document: Document) -> bool:
        """Returns whether a finalizer prevents the removal of the object."""
        return bool(document["metadata"].get("finalizers"))

    def grace_seconds(self, live: Document, asked: int | None) -> int:  # noqa: ARG002 - others need both
        """Returns how long the object stays after its deletion: 0, it is removed at once. asked: the client's wish."""
        return 0

    def mark(self, document: Document, grace_seconds: int) -> None:
        """Marks the object as being deleted, in addition to its deletionTimestamp."""
        document["metadata"]["deletionGracePeriodSeconds"] = grace_seconds
