"""The last step of a write: commits the object and everything that its kind adds to it, in one transaction of the store."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from nodeagent.apiserver.addresses.allocation import AllocationRefused
from nodeagent.apiserver.machinery.acceptance import WriteOptions
from nodeagent.apiserver.machinery.joint_writes import JointWrites
from nodeagent.apiserver.machinery.planned import PlannedWrites
from nodeagent.apiserver.machinery.request_worker import Worker
from nodeagent.apiserver.storage import records
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description import status
from nodeagent.kinds.description.decoding import normalise
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.resources import Resource

_OBJECT_LIMIT_BYTES: Final = 1536 * 1024


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The object after the write. `gone`: it was removed, not only marked for deletion."""

    record: records.Record
    created: bool = False
    gone: bool = False


class Commits:
    """Raises Precondition if a write lost a race, ApiError for any other refusal.

    joint_writes: by collection.
    is_beside_others: returns whether a kube-apiserver uses the same storage.
    """

    def __init__(
        self,
        store: Store,
        joint_writes: Mapping[str, JointWrites],
        worker: Worker,
        is_beside_others: Callable[[], bool],
    ) -> None:
        self._planned = PlannedWrites(store, is_beside_others)
        self._store = store
        self._joint_writes = joint_writes
        self._worker = worker

    async def remove(
        self, resource: Resource, record: records.Record, live: Document, *, dry_run: bool = False
    ) -> WriteResult:
        """Removes an object; `live` is its document. With `dry_run` nothing is changed."""
        joint = self._joint_writes[resource.stored_in]
        plan = joint.plan(None, live)
        if dry_run:
            joint.settle(plan)
            return WriteResult(record, gone=True)
        change = records.Change(resource.stored_in, record.path, record.revision, None, record.body, frees=True)
        try:
            with _as_api_error():
                gone = await self._planned.remove(joint, plan, change)
        finally:
            joint.settle(plan)
        return WriteResult(gone, gone=True)

    async def write(
        self,
        resource: Resource,
        document: Document,
        record: records.Record | None,
        options: WriteOptions,
        *,
        frees: bool = False,
    ) -> WriteResult:
        """Stores a new object (`record` None), or a new state of `record`. frees: see Change."""
        joint = self._joint_writes[resource.stored_in]
        live = await self._worker.run(len(record.body), record.document) if record is not None else None
        try:
            plan = joint.plan(document, live)
        except AllocationRefused as refused:
            raise status.object_invalid(
                resource.kind, document["metadata"]["name"], refused.errors, resource.group
            ) from None
        try:
            return await self._write(
                resource, document, record, options, partial(self._planned.write, joint, plan), frees
            )
        finally:
            joint.settle(plan)

    async def _write(
        self,
        resource: Resource,
        document: Document,
        record: records.Record | None,
        options: WriteOptions,
        commit: Callable[[records.Change], Awaitable[records.Record]],
        frees: bool,
    ) -> WriteResult:
        document["metadata"]["resourceVersion"] = "0"
        meta = document["metadata"]
        path = resource.path(meta.get("namespace", ""), meta["name"])
        size = max(options.size_bytes, len(record.body) if record is not None else 0)
        struct = resource.stored_struct or resource.struct
        body = await self._worker.run(size, lambda: records.draft(normalise(struct, document)))
        if len(body) > _OBJECT_LIMIT_BYTES:
            raise status.body_too_large(_OBJECT_LIMIT_BYTES)
        if options.dry_run:
            return self._dry_run(resource, path, body, record)
        expected = record.revision if record is not None else 0
        # In etcd a lease also expires the object when none of our servers runs; locally only a controller deletes it.
        seconds = resource.kept_seconds if self._store.remote else None
        with _as_api_error():
            written = await commit(
                records.Change(resource.stored_in, path, expected, body, frees=frees, seconds=seconds)
            )
        return WriteResult(written, created=record is None)

    def _dry_run(self, resource: Resource, path: str, body: bytes, record: records.Record | None) -> WriteResult:
        if record is None and self._store.get(resource.stored_in, path) is not None:
            raise status.already_exists(resource.plural, path.rpartition("/")[2], resource.group)
        revision = record.revision if record is not None else 0
        shown = (
            records.assemble(body, revision) if record is not None else body.replace(b'"resourceVersion":"0",', b"", 1)
        )
        return WriteResult(records.Record(path, revision, shown), created=record is None)


@contextmanager
def _as_api_error() -> Iterator[None]:
    """Turns errors of the storage into API errors (context manager)."""
    try:
        yield
    except records.StorageFull:
        raise status.storage_full() from None
    except records.StorageUnreachable as error:
        raise status.storage_unreachable(f"nothing was written: {error}") from None
    except records.StorageUncertain as error:
        raise status.storage_uncertain(str(error)) from None
    except records.ObjectTooLarge as error:
        raise status.body_too_large(_OBJECT_LIMIT_BYTES) from error
    except records.StorageFailed as error:
        raise status.internal_error(f"storage: {error}") from None
