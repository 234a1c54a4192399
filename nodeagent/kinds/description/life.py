"""What a kind does with its own documents: resets on create and update, and what a deletion waits for. Pure."""

from typing import Protocol

from nodeagent.kinds.description.documents import Document, copy


class KindLife(Protocol):
    """The kind's own part in create, update and delete; documents are in stored form."""

    def prepare_create(self, document: Document) -> None:
        """Sets what clients cannot set on creation."""
        ...

    def prepare_update(self, document: Document, old: Document) -> None:
        """Keeps what clients cannot change."""
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

    def is_held(self, document: Document) -> bool:
        """By metadata.finalizers."""
        return bool(document["metadata"].get("finalizers"))

    def grace_seconds(self, live: Document, asked: int | None) -> int:  # noqa: ARG002 - the protocol's
        """0 seconds, whatever was asked: what is deleted goes at once."""
        return 0

    def mark(self, document: Document, grace_seconds: int) -> None:
        """Note the grace period, in seconds, in an object that is to go later."""
        document["metadata"]["deletionGracePeriodSeconds"] = grace_seconds
