"""Decodes JSON of the API to typed objects. Pure.

A page is decoded typed and in one call; only if that fails is it decoded item by item, so that a bad item affects only itself.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import ApiObject, ObjectMeta
from nodeagent.model.problem import Problem
from nodeagent.proxy.source.client.api_errors import MalformedAnswerError, first_line
from nodeagent.wire.unreadable import UNREADABLE

O = TypeVar("O", bound=ApiObject)  # noqa: E741  # "object of one kind"
Item = TypeVar("Item")

BATCH = 500
"""Items decoded in one go; 500 EndpointSlices of 10 endpoints take about 5 ms."""

TYPED_LIMIT_BYTES = 8 << 20
"""A longer body (a server that ignores `limit`) is split first, and decoded batch by batch."""


class ListMeta(Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_token: str | None = msgspec.field(default=None, name="continue")


class _ListOf(Struct, Generic[Item]):
    metadata: ListMeta
    items: list[Item] | None = None
    kind: str | None = None


class _Identified(Struct):
    metadata: ObjectMeta = ObjectMeta()


class WatchEvent(Struct):
    """One line of a watch; `object` is decoded according to `type`."""

    type: str
    object: Raw


class Undecodable(Struct, frozen=True):
    """An object that is absent because it could not be decoded; key is None if even its name could not be."""

    key: ObjectKey | None
    detail: str

    def problem(self, kind: str) -> Problem:
        subject = f"{kind} {self.key}" if self.key else f"{kind} without a name"
        return Problem(subject, "Undecodable", f"ignored: {self.detail}")


class Batch(Struct, Generic[O]):
    """Some objects of a list, and those among them that could not be decoded."""

    objects: list[O]
    undecodable: list[Undecodable]


class ObjectDecoder(Generic[O]):
    """Decodes one kind of object."""

    def __init__(self, kind: type[O]) -> None:
        self._list_kinds = frozenset({None, "", "List", f"{kind.__name__}List"})
        self._typed_list = msgspec.json.Decoder(_ListOf[kind])  # type: ignore[valid-type]  # a generic alias at run time
        self._raw_list = msgspec.json.Decoder(_ListOf[Raw])
        self._object = msgspec.json.Decoder(kind)
        self._identity = msgspec.json.Decoder(_Identified)

    def list_page(self, body: bytes) -> tuple[ListMeta, Iterator[Batch[O]]]:
        """Returns metadata and batches of a page of a list. Raises MalformedAnswerError if the body is not a list of the Kubernetes API."""
        if len(body) <= TYPED_LIMIT_BYTES:
            try:
                typed: _ListOf[O] = self._typed_list.decode(body)
            except UNREADABLE:
                pass
            else:
                self._require_list_of_ours(typed.kind)
                objects = typed.items or []
                if all(obj.metadata.name for obj in objects):
                    return typed.metadata, iter([Batch(objects, [])])
        try:
            raw = self._raw_list.decode(body)
        except UNREADABLE as error:
            raise MalformedAnswerError(f"not a list: {error}: {first_line(body)}") from error
        self._require_list_of_ours(raw.kind)
        return raw.metadata, self._batches(raw.items or [])

    def _require_list_of_ours(self, kind: str | None) -> None:
        """Raises MalformedAnswerError for a list of another kind, as from a misdirecting proxy: it must not look like an empty list of
        ours."""
        if kind not in self._list_kinds:
            raise MalformedAnswerError(f"a {kind!r:.60} instead of the requested list")

    def object(self, raw: Raw | bytes) -> O | Undecodable:
        """Returns the object, or why it cannot be used."""
        try:
            obj = self._object.decode(raw)
        except UNREADABLE as error:
            return Undecodable(self.identity(raw)[0], str(error))
        if not obj.metadata.name:
            return Undecodable(None, "metadata.name is missing")
        return obj

    def identity(self, raw: Raw | bytes) -> tuple[ObjectKey | None, ObjectMeta]:
        """Returns key and metadata of an object whose other fields may be unreadable."""
        try:
            meta = self._identity.decode(raw).metadata
        except UNREADABLE:
            return None, ObjectMeta()
        return (ObjectKey(meta.namespace, meta.name) if meta.name else None), meta

    def _batches(self, items: list[Raw]) -> Iterator[Batch[O]]:
        for start in range(0, len(items), BATCH):
            batch: Batch[O] = Batch([], [])
            for raw in items[start : start + BATCH]:
                decoded = self.object(raw)
                if isinstance(decoded, Undecodable):
                    batch.undecodable.append(decoded)
                else:
                    batch.objects.append(decoded)
            yield batch
