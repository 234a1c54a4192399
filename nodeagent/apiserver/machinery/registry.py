"""The verbs that change objects, independent of HTTP, with the steps in Kubernetes' order.

decode → defaults → field ownership → preparation → validation → allocation → one transaction. Writes are optimistic: a change
names the revision from which it was computed. If another write was faster it is computed again, unless the client gave a
resourceVersion.
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from typing import Final, Protocol

from nodeagent.apiserver.machinery import managed, write_rules
from nodeagent.apiserver.machinery.acceptance import WriteOptions, accept, check
from nodeagent.apiserver.machinery.commits import Commits, WriteResult
from nodeagent.apiserver.machinery.dependents import hold
from nodeagent.apiserver.machinery.joint_writes import JointWrites
from nodeagent.apiserver.machinery.request_worker import Worker
from nodeagent.apiserver.storage.records import Precondition, Record
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description import status
from nodeagent.kinds.description.decoding import empty, normalise
from nodeagent.kinds.description.documents import Document, copy, decode, encode
from nodeagent.kinds.description.moments import rfc3339
from nodeagent.kinds.description.object_rules import new_finalizers
from nodeagent.kinds.description.resources import NAMESPACES, STATUS, Catalog, Resource

_RETRIES: Final = 8
_NAME_LONGEST: Final = 63
_SUFFIX_LENGTH: Final = 5


class RandomSource(Protocol):
    """The source of random names and UIDs."""

    def suffix(self, length: int) -> str:
        """Returns random lower-case letters and digits for a generated name."""
        ...

    def uid(self) -> str:
        """Returns a new UUID as text."""
        ...


class Registry:
    """Changes objects in a store. Every method raises ApiError with the client's Status. `part`: name of a subresource.

    has_collector: whether a garbage collector works on the objects; it removes the finalizers for dependents.
    """

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        writes: Mapping[str, JointWrites],
        *,
        chance: RandomSource,
        clock: Callable[[], float],
        worker: Worker,
        is_beside_others: Callable[[], bool] = lambda: False,
        has_collector: bool = False,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._chance = chance
        self._clock = clock
        self._worker = worker
        self._has_collector = has_collector
        self._commits = Commits(store, writes, worker, is_beside_others)

    def get(self, resource: Resource, namespace: str, name: str) -> Record:
        """Returns the latest object. Raises ApiError 404."""
        record = self._store.get(resource.stored_in, resource.path(namespace, name))
        if record is None:
            raise status.not_found(resource.plural, name, resource.group)
        return record

    async def create(self, resource: Resource, namespace: str, given: Document, options: WriteOptions) -> WriteResult:
        """Stores a new object."""
        document = await self._accept(resource, given, options)
        write_rules.set_namespace(resource, document, namespace)
        if document["metadata"].get("resourceVersion"):
            raise status.bad_request("resourceVersion should not be set on objects to be created")
        return await self._create(resource, document, options)

    async def _accept(self, resource: Resource, given: Document, options: WriteOptions) -> Document:
        return await self._worker.run(options.size_bytes, lambda: accept(resource, given, options))

    async def _create(
        self, resource: Resource, document: Document, options: WriteOptions, *, owned: bool = False
    ) -> WriteResult:
        self._check_namespace(resource, document["metadata"])
        self._identify(resource, document["metadata"])
        size = options.size_bytes
        pristine = await self._worker.run(size, lambda: self._prepare_new(resource, document, options, owned=owned))
        prefix = document["metadata"].get("generateName", "") if not document["metadata"].get("name") else ""
        for _ in range(_RETRIES):
            if prefix:
                base = prefix[: _NAME_LONGEST - _SUFFIX_LENGTH]
                document["metadata"]["name"] = base + self._chance.suffix(_SUFFIX_LENGTH)
            await self._worker.run(size, partial(_validate, resource, document, options, named=bool(prefix)))
            # The namespace may have been deleted meanwhile.
            self._check_namespace(resource, document["metadata"])
            try:
                return await self._commits.write(resource, document, None, options)
            except Precondition as race:
                taken = race.change.collection == resource.stored_in
                if taken and not prefix:
                    raise status.already_exists(resource.plural, document["metadata"]["name"], resource.group) from None
            # The allocations of this attempt were released; the next one starts from the original request.
            document = await self._worker.run(size, partial(decode, pristine))
        raise status.internal_error("no free name or address was found")

    def _prepare_new(self, resource: Resource, document: Document, options: WriteOptions, *, owned: bool) -> bytes:
        """Completes a new object as far as that does not depend on other objects. Returns it encoded."""
        resource.default(document)
        if not owned:
            # The client owns the fields that it sent, not the defaults that the server adds, nor the status.
            struct = resource.stored_struct or resource.struct
            sent = {name: value for name, value in document.items() if not (name == "status" and resource.has_status)}
            managed.track_update(struct, empty(struct), sent, self._manager(resource, options), self._now())
        resource.life.prepare_create(document)
        return encode(document)

    async def update(
        self, resource: Resource, namespace: str, name: str, given: Document, options: WriteOptions, part: str = ""
    ) -> WriteResult:
        """Replaces an object, or its subresource `part`."""
        document = await self._accept(resource, given, options)
        write_rules.set_namespace(resource, document, namespace)
        sent = document["metadata"].get("name") or name
        if sent != name:
            raise status.bad_request(f"the name of the object ({sent}) does not match the name on the URL ({name})")
        document["metadata"]["name"] = name
        meta = document["metadata"]
        version, uid = meta.get("resourceVersion", ""), meta.get("uid", "")
        if self._store.get(resource.stored_in, resource.path(namespace, name)) is None:
            if resource.creates_on_update and not part and not version and not uid:
                return await self._create(resource, document, options)
            raise status.not_found(resource.plural, name, resource.group)
        if resource.insists_on_version and not version:
            needed = status.FieldError(
                "FieldValueInvalid",
                "metadata.resourceVersion",
                "Invalid value: 0: must be specified for an update",
            )
            raise status.object_invalid(resource.kind, name, [needed], resource.group)
        return await self._change(resource, namespace, name, lambda _: copy(document), options, part)

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Callable[[Document], Document],
        options: WriteOptions,
        part: str = "",
    ) -> WriteResult:
        """Changes an object by a function from its present form (as clients see it) to the new one."""

        def patched(live: Document) -> Document:
            document = accept(resource, change(resource.from_stored(live)), options)
            write_rules.set_namespace(resource, document, namespace)
            if document["metadata"].get("name") != name:
                raise status.bad_request("the name of an object cannot be changed by a patch")
            return document

        self.get(resource, namespace, name)
        return await self._change(resource, namespace, name, patched, options, part)

    async def apply(
        self, resource: Resource, namespace: str, name: str, given: Document, options: WriteOptions, part: str = ""
    ) -> WriteResult:
        """Server-side apply: creates the object or changes it to match the configuration."""
        configuration = await self._worker.run(
            options.size_bytes, lambda: accept(resource, given, options, sparse=True)
        )
        sent = configuration.get("metadata", {}).get("name") or name
        if sent != name:
            raise status.bad_request(f"the name of the object ({sent}) does not match the name on the URL ({name})")
        configuration["metadata"] = {**configuration.get("metadata", {}), "name": name}
        write_rules.set_namespace(resource, configuration, namespace)
        if configuration["metadata"].get("managedFields"):
            raise status.bad_request("metadata.managedFields must be nil")
        struct = resource.stored_struct or resource.struct
        manager = managed.Manager("Apply", options.manager, resource.group_version, part)
        reset = ("spec" if part == STATUS else STATUS) if resource.has_status else ""

        def applied(live: Document | None) -> Document:
            try:
                return managed.apply(
                    struct, live, configuration, manager, self._now(), force=options.force, reset=reset
                )
            except managed.ApplyConflict as found:
                raise write_rules.apply_conflict(found) from None

        if self._store.get(resource.stored_in, resource.path(namespace, name)) is None:
            if part:
                raise status.not_found(resource.plural, name, resource.group)
            document = await self._worker.run(options.size_bytes, lambda: normalise(struct, applied(None)))
            return await self._create(resource, document, options, owned=True)
        return await self._change(resource, namespace, name, applied, options, part, owned=True)

    async def delete(
        self, resource: Resource, namespace: str, name: str, options: write_rules.DeleteOptions
    ) -> WriteResult:
        """Removes an object, or marks it for deletion if finalizers or a grace period hold it."""
        if name in resource.immortal:
            raise status.denied(resource.plural, name, f"this {resource.singular} may not be deleted", resource.group)
        for _ in range(_RETRIES):
            record = self.get(resource, namespace, name)
            live, marked = await self._worker.run(
                len(record.body), partial(self._deletion_result, resource, record, options)
            )
            try:
                if marked is None:
                    return await self._commits.remove(resource, record, live, dry_run=options.dry_run)
                if marked is live:
                    return WriteResult(record)
                return await self._commits.write(
                    resource, marked, record, WriteOptions(dry_run=options.dry_run), frees=True
                )
            except Precondition:
                continue
        raise status.modified(resource.plural, name, resource.group)

    def _deletion_result(
        self, resource: Resource, record: Record, options: write_rules.DeleteOptions
    ) -> tuple[Document, Document | None]:
        """Returns (the object, the object that is left: the same if nothing changes, None if it is to be removed)."""
        live = record.document()
        write_rules.check_preconditions(resource, live, options)
        marked = self._mark(resource, live, options)
        return live, live if marked == live else marked

    def _mark(self, resource: Resource, live: Document, options: write_rules.DeleteOptions) -> Document | None:
        """Returns the object with its deletionTimestamp, or None if nothing holds it."""
        meta = live["metadata"]
        life = resource.life
        grace = life.grace_seconds(live, options.grace_seconds)
        already = meta.get("deletionTimestamp")
        left = meta.get("deletionGracePeriodSeconds", 0) if already else 0
        if left and left <= grace:
            return live
        marked: Document = copy(live)
        if self._has_collector and resource.has_dependents:
            hold(marked, options.policy)
        if not life.is_held(marked) and grace == 0:
            return None
        if already and left <= grace:
            return marked
        marked["metadata"]["deletionTimestamp"] = rfc3339(int(self._clock()) + grace)
        if not already and resource.generation_of:
            marked["metadata"]["generation"] = meta.get("generation", 1) + 1
        life.mark(marked, grace)
        return marked

    async def _change(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Callable[[Document], Document],
        options: WriteOptions,
        part: str,
        *,
        owned: bool = False,
    ) -> WriteResult:
        """Computes the new object from the live one and writes it; repeats that if another write was faster."""
        life = resource.life
        for _ in range(_RETRIES):
            record = self.get(resource, namespace, name)
            size = max(options.size_bytes, len(record.body))
            compute = partial(self._new_state, resource, record, change, options, part, owned=owned)
            document = await self._worker.run(size, compute)
            if document is None:
                return WriteResult(record)
            try:
                if write_rules.is_finished(document, held=life.is_held(document)):
                    return await self._commits.remove(resource, record, document, dry_run=options.dry_run)
                return await self._commits.write(resource, document, record, options)
            except Precondition:
                continue
        raise status.modified(resource.plural, name, resource.group)

    def _new_state(
        self,
        resource: Resource,
        record: Record,
        change: Callable[[Document], Document],
        options: WriteOptions,
        part: str,
        *,
        owned: bool,
    ) -> Document | None:
        """Returns the validated object that replaces `record`, or None if nothing changes."""
        struct = resource.stored_struct or resource.struct
        live = record.document()
        document = normalise(struct, change(copy(live)))
        write_rules.check_identity(resource, document["metadata"], live["metadata"], record.revision)
        resource.default(document)
        if part:
            document = write_rules.only_subresource(resource, document, live, part)
        else:
            resource.life.prepare_update(document, live)
        document = normalise(struct, document)
        if not owned:
            manager = self._manager(resource, options, part)
            managed.track_update(struct, normalise(struct, live), document, manager, self._now())
        self._count_generation(resource, document, live)
        if write_rules.is_same(document, live):
            return None
        changed = resource.validate_update
        errors = changed(document, live) if changed is not None else resource.validate(document)
        check(resource, document, chain(new_finalizers(document, live), errors))
        _warn(resource, document, options)
        return document

    def _check_namespace(self, resource: Resource, meta: Document) -> None:
        if not resource.namespaced:
            return
        namespace = meta.get("namespace", "")
        record = self._store.get(NAMESPACES, namespace)
        if record is None:
            raise status.not_found(NAMESPACES, namespace)
        # Avoids decoding the namespace in the usual case.
        if b'"deletionTimestamp"' in record.body and record.is_ending:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            raise status.denied(resource.plural, meta.get("name", ""), why, resource.group, [cause])

    def _identify(self, resource: Resource, meta: Document) -> None:
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"):
            meta.pop(name, None)
        meta["uid"] = self._chance.uid()
        meta["creationTimestamp"] = self._now()
        if resource.generation_of:
            meta["generation"] = 1
        else:
            meta.pop("generation", None)

    def _count_generation(self, resource: Resource, document: Document, live: Document) -> None:
        if not resource.generation_of:
            return
        generation = live["metadata"].get("generation", 1)
        document["metadata"]["generation"] = generation + write_rules.generation_changes(resource, document, live)

    def _manager(self, resource: Resource, options: WriteOptions, part: str = "") -> managed.Manager:
        return managed.Manager("Update", options.manager, resource.group_version, part)

    def _now(self) -> str:
        return rfc3339(int(self._clock()))


def _validate(resource: Resource, document: Document, options: WriteOptions, *, named: bool) -> None:
    """Raises ApiError 422. `named`: the name was generated, so defaults that depend on it are set first."""
    if named:
        resource.default(document)
    check(resource, document, resource.validate(document))
    _warn(resource, document, options)


def _warn(resource: Resource, document: Document, options: WriteOptions) -> None:
    options.warnings.extend(text for text in resource.warnings(document) if text not in options.warnings)
