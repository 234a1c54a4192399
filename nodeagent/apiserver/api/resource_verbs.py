"""Carries out verbs on resources: from a request to a reply, through the registry and the store."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from nodeagent.apiserver.api import bodies, metadata_only, token_requests
from nodeagent.apiserver.api.account_tokens import AccountTokens
from nodeagent.apiserver.api.authorization import User, authorize_new
from nodeagent.apiserver.api.deliveries import Deliveries
from nodeagent.apiserver.api.event_limits import EventLimits
from nodeagent.apiserver.api.replies import Reply, document_reply, warning_headers
from nodeagent.apiserver.api.request_options import Request, delete_options, write_options
from nodeagent.apiserver.api.request_target import Shape, Target, is_true, number, shape_of
from nodeagent.apiserver.api.table_output import row_of, table_of
from nodeagent.apiserver.api.watches import Watch, WatchRequest
from nodeagent.apiserver.machinery import reading
from nodeagent.apiserver.machinery.acceptance import WriteOptions
from nodeagent.apiserver.machinery.commits import WriteResult
from nodeagent.apiserver.machinery.loop_time import Clock, LoopTime
from nodeagent.apiserver.machinery.registry import Registry
from nodeagent.apiserver.machinery.request_worker import LARGE_BYTES, Worker
from nodeagent.apiserver.machinery.schema.json_patch import (
    MOST_OPERATIONS,
    PatchRejected,
    TooManyOperations,
    json_patch,
)
from nodeagent.apiserver.machinery.schema.strategic import merge_patch, strategic_merge
from nodeagent.apiserver.machinery.selectors import EVERYTHING, parse_fields, parse_labels
from nodeagent.apiserver.storage.records import Record, StorageFailed
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.decoding import duplicate_fields
from nodeagent.kinds.description.documents import Document, Json, decode, encode
from nodeagent.kinds.description.resources import Catalog, FieldReader, Resource
from nodeagent.kinds.description.status import (
    ApiError,
    bad_request,
    future_version,
    ignoring,
    method_not_allowed,
    not_acceptable,
    storage_unreachable,
    too_many_operations,
    unsupported_media_type,
)
from nodeagent.kinds.event import EVENTS
from nodeagent.kinds.serviceaccount import TOKEN

_FEW_RECORDS: Final = 500
_CHUNK_BYTES: Final = 256 * 1024
_MADE_CHUNK_BYTES: Final = 64 * 1024
"""For items that must be converted first: a chunk takes some milliseconds only."""
_LONGEST_WATCH_SECONDS: Final = 3600.0
_BOOKMARK_EVERY_SECONDS: Final = 60.0
_GENERIC_REJECTION: Final = "the server rejected our request due to an error in our request"


class ResourceVerbs:
    """Carries out verbs. Watches end when `stopping` is set."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        catalog: Catalog,
        accounts: AccountTokens,
        *,
        clock: Clock,
        worker: Worker,
        loop_time: LoopTime,
        event_limits: EventLimits,
        stopping: asyncio.Event,
    ) -> None:
        self._store = store
        self._registry = registry
        self._accounts = accounts
        self._clock = clock
        self._worker = worker
        self._loop_time = loop_time
        self._event_limits = event_limits
        self._stopping = stopping
        self._deliveries = Deliveries(clock.monotonic)
        self._readers = {(row.group, row.plural): FieldReader(row) for row in catalog.rows}

    def has_many(self, resource: Resource) -> bool:
        """Returns whether the resource has so many objects that a list of them must wait for its turn."""
        return len(self._store.collection(resource.stored_in).records) > _FEW_RECORDS

    def admit(self, verb: str, resource: Resource, target: Target, user: User, body_bytes: int) -> bool:
        """Returns whether a write with a body of this size is expensive (needs a thread and much memory). Raises ApiError 403
        or 429 if the user may not write an Event now."""
        stored = (
            self._store.get(resource.stored_in, resource.path(target.namespace, target.name)) if target.name else None
        )
        size = max(body_bytes, len(stored.body) if stored is not None else 0)
        if resource.stored_in == EVENTS and verb in ("create", "update", "patch"):
            events, now = self._store.collection(EVENTS), self._clock.monotonic()
            self._event_limits.check(user.name, size, objects=len(events.records), all_bytes=events.size_bytes, now=now)
        return size > LARGE_BYTES

    async def handle(self, verb: str, resource: Resource, target: Target, request: Request) -> Reply | Watch:
        """Carries out a request and returns its reply or the watch to stream. Raises ApiError."""
        misplaced = bool(target.namespace) and not resource.namespaced
        if misplaced or (target.subresource and resource.subresource(target.subresource) is None):
            raise ApiError(404, "NotFound", "the server could not find the requested resource", details={})
        if resource.namespaced and not target.namespace and verb not in ("list", "watch"):
            raise method_not_allowed()
        try:
            return await self._carry_out(verb, resource, target, request)
        except ApiError as error:
            if resource.deprecated:
                error.headers.update(warning_headers([resource.deprecated]))
            raise

    async def _carry_out(self, verb: str, resource: Resource, target: Target, request: Request) -> Reply | Watch:
        # First of all: nothing may be written if the response cannot be sent in an accepted form.
        _shape(request, is_list=verb in ("list", "deletecollection"))
        if verb in ("get", "list", "watch"):
            await self._catch_up(request.query.get("resourceVersion", ""))
            return await self._read(verb, resource, target, request)
        # A decision not to write, or to refuse, must be based on the latest object, not on an older one.
        await self._catch_up("")
        return await self._write(verb, resource, target, request)

    async def _catch_up(self, version: str) -> None:
        """Waits until the store has the latest revision, or at least `version` if the client gave one. Raises ApiError."""
        if version and (reading.parse_version(version) <= self._store.revision):
            return
        try:
            await self._store.latest()
        except StorageFailed as error:
            raise storage_unreachable(f"the latest revision cannot be read: {error}") from None

    async def _read(self, verb: str, resource: Resource, target: Target, request: Request) -> Reply | Watch:
        if verb == "watch":
            return self._watch(resource, target, request)
        if verb == "list":
            return await self._list(resource, target, request)
        asked = reading.parse_version(request.query.get("resourceVersion", ""))
        if asked > self._store.revision:
            raise future_version(asked, self._store.revision)
        return await self._object_reply(resource, self._registry.get(resource, target.namespace, target.name), request)

    async def _write(self, verb: str, resource: Resource, target: Target, request: Request) -> Reply:
        match verb:
            case "create" if target.subresource == TOKEN.name:
                record = self._registry.get(resource, target.namespace, target.name)
                body = await request.read()
                return token_requests.answer_token_request(
                    record, body, request.content_type, self._accounts, now=self._clock.time()
                )
            case "create" if not target.name:
                return await self._create(resource, target, request)
            case "update" | "patch":
                return await self._change(verb, resource, target, request)
            case "delete" if not target.subresource:
                return await self._delete(resource, target, request)
            case "deletecollection" if "deletecollection" in resource.verbs:
                return await self._delete_collection(resource, target, request)
        raise method_not_allowed()

    async def _object_reply(
        self, resource: Resource, record: Record, request: Request, status: int = 200, warnings: list[str] | None = None
    ) -> Reply:
        made = partial(self._render_object, resource, record, request, status, warnings)
        as_stored = not resource.converts and _shape(request) is None
        return await self._worker.run(0 if as_stored else len(record.body), made)

    def _render_object(
        self, resource: Resource, record: Record, request: Request, status: int, warnings: list[str] | None
    ) -> Reply:
        headers = warning_headers([*([resource.deprecated] if resource.deprecated else []), *(warnings or [])])
        shape = _shape(request)
        if shape is not None and shape.kind == metadata_only.KIND:
            return Reply(status, metadata_only.partial_of(record.body, shape.version), headers=headers)
        if shape is not None:
            include = request.query.get("includeObject", "Metadata")
            shown = table_of(
                resource,
                [record],
                version=shape.version,
                revision=record.revision,
                now=self._clock.time(),
                include=include,
            )
            return document_reply(shown, status, headers)
        return Reply(status, resource.opening + self._body(resource, record)[1:], headers=headers)

    def _body(self, resource: Resource, record: Record) -> bytes:
        return encode(resource.from_stored(record.document())) if resource.converts else record.body

    def _selection(self, resource: Resource, target: Target, query: Mapping[str, str]) -> reading.Selection:
        labels = parse_labels(query["labelSelector"]) if query.get("labelSelector") else EVERYTHING
        fields = EVERYTHING
        if query.get("fieldSelector"):
            fields = parse_fields(query["fieldSelector"], resource.selectable, resource.unselectable)
        reader = self._readers[(resource.group, resource.plural)] if reading.needs_reader(fields) else None
        if target.name:
            raise bad_request("a single object is watched by a field selector on metadata.name")
        return reading.Selection(target.namespace, labels, fields, reader)

    async def _page(self, resource: Resource, target: Target, request: Request) -> reading.Page:
        query = request.query
        listed = reading.ListRequest(
            self._selection(resource, target, query),
            max(number(query, "limit") or 0, 0),
            query.get("continue", ""),
            query.get("resourceVersion", ""),
            query.get("resourceVersionMatch", ""),
        )
        return await self._loop_time.run(request.client, reading.list_page(self._store, resource, listed))

    async def _list(self, resource: Resource, target: Target, request: Request) -> Reply:
        if "sendInitialEvents" in request.query:
            raise reading.option_forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")
        page = await self._page(resource, target, request)
        meta: Document = {"resourceVersion": str(page.revision)}
        if page.token:
            meta["continue"] = page.token
        if page.remaining is not None:
            meta["remainingItemCount"] = page.remaining
        headers = warning_headers([resource.deprecated] if resource.deprecated else [])
        shape = _shape(request, is_list=True)
        if shape is not None and shape.kind == metadata_only.LIST_KIND:
            return _partial_list(page, meta, shape.version, headers)
        if shape is not None:
            include = request.query.get("includeObject", "Metadata")
            return self._table(resource, page, shape.version, include, meta, headers)
        return self._list_reply(resource, page, meta, headers)

    def _table(
        self,
        resource: Resource,
        page: reading.Page,
        version: str,
        include: str,
        meta: Document,
        headers: Sequence[tuple[str, str]],
    ) -> Reply:
        now = self._clock.time()
        head = encode(table_of(resource, [], version=version, revision=page.revision, now=now, list_meta=meta))
        rows = (encode(row_of(resource, r, version=version, now=now, include=include)) for r in page.records)
        return Reply(
            headers=headers, chunks=reading.joined(rows, head[:-2], b"]}", _MADE_CHUNK_BYTES), chunked_bytes=None
        )

    def _list_reply(
        self, resource: Resource, page: reading.Page, meta: Document, headers: Sequence[tuple[str, str]] = ()
    ) -> Reply:
        head = encode({"kind": f"{resource.kind}List", "apiVersion": resource.group_version, "metadata": meta})
        if resource.converts:
            return _converted_list((self._body(resource, record) for record in page.records), head, headers)
        return _stored_list(page, head, headers)

    def _watch(self, resource: Resource, target: Target, request: Request) -> Watch:
        query = request.query
        initial = is_true(query.get("sendInitialEvents", ""))
        match = query.get("resourceVersionMatch", "")
        if "sendInitialEvents" in query and match != "NotOlderThan":
            why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            raise reading.option_forbidden("resourceVersionMatch", why)
        if match and "sendInitialEvents" not in query:
            why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            raise reading.option_forbidden("resourceVersionMatch", why)
        if query.get("continue"):
            raise reading.option_forbidden("continue", "continue is forbidden for watch")
        if target.name:
            selection = reading.Selection(
                target.namespace, fields=parse_fields(f"metadata.name={target.name}", ("metadata.name",), str)
            )
        else:
            selection = self._selection(resource, target, query)
        version = reading.parse_version(query.get("resourceVersion", ""))
        if initial and version > self._store.revision:
            raise future_version(version, self._store.revision)
        seconds = number(query, "timeoutSeconds")
        return Watch(
            self._store,
            resource,
            WatchRequest(
                selection,
                since=version or None,
                bookmarks=is_true(query.get("allowWatchBookmarks", "")),
                initial_events=initial,
                timeout_s=float(seconds) if seconds else _LONGEST_WATCH_SECONDS / 2,
                shape=_shape(request),
                client=request.client,
            ),
            stopping=self._stopping,
            clock=self._clock,
            deliveries=self._deliveries,
            loop_time=self._loop_time,
            bookmark_every_seconds=_BOOKMARK_EVERY_SECONDS,
        )

    async def _document(self, resource: Resource, request: Request, options: WriteOptions) -> Document:
        body = await request.read()
        media_type = request.content_type
        options.size_bytes = bodies.size_of(body, media_type)

        def read() -> Document:
            document = bodies.parse_object(body, media_type, resource)
            if options.validation != "Ignore" and media_type in ("", bodies.JSON):
                options.repeated = duplicate_fields(body, document)
            return document

        return await self._worker.run(options.size_bytes, read)

    async def _create(self, resource: Resource, target: Target, request: Request) -> Reply:
        options = write_options(request, "CreateOptions")
        document = await self._document(resource, request, options)
        authorize_new(request.user, resource.plural, _name_in(document))
        outcome = await self._registry.create(resource, target.namespace, document, options)
        return await self._object_reply(resource, outcome.record, request, 201, options.warnings)

    async def _change(self, verb: str, resource: Resource, target: Target, request: Request) -> Reply:
        options = write_options(request, "UpdateOptions" if verb == "update" else "PatchOptions")
        place = (resource, target.namespace, target.name)
        if verb == "update":
            document = await self._document(resource, request, options)
            outcome = await self._registry.update(*place, document, options, target.subresource)
        elif request.content_type == bodies.APPLY_PATCH:
            document = await self._document(resource, request, options)
            if not document.get("kind") or not document.get("apiVersion"):
                kind, version = document.get("kind", ""), document.get("apiVersion", "")
                raise bad_request(f"invalid object type: {version}, Kind={kind}")
            outcome = await self._registry.apply(*place, document, options, target.subresource)
        else:
            outcome = await self._patch(resource, target, request, options)
        return await self._object_reply(
            resource, outcome.record, request, 201 if outcome.created else 200, options.warnings
        )

    async def _patch(self, resource: Resource, target: Target, request: Request, options: WriteOptions) -> WriteResult:
        media_type = request.content_type
        if media_type not in bodies.PATCHES:
            raise unsupported_media_type(bodies.PATCHES)
        body = await request.read()
        options.size_bytes = bodies.size_of(body, media_type)
        patch = await self._worker.run(options.size_bytes, lambda: bodies.parse(body, media_type))
        if media_type == bodies.JSON_PATCH:
            # A few bytes of `copy` can copy as much as the object holds, and more.
            options.size_bytes = max(options.size_bytes, bodies.LIMIT_BYTES if _copies(patch) else 0)
        elif not isinstance(patch, dict):
            raise bad_request("error decoding patch: a patch of an object is an object")

        def changed(live: Document) -> Document:
            try:
                return _patched(media_type, resource, live, patch)
            except TooManyOperations as found:
                raise too_many_operations(found.count, MOST_OPERATIONS) from None
            except PatchRejected as rejected:
                cause = {"message": str(rejected)}
                raise ApiError(422, "Invalid", _GENERIC_REJECTION, details={"causes": [cause]}) from None

        return await self._registry.patch(resource, target.namespace, target.name, changed, options, target.subresource)

    async def _delete_options(self, request: Request) -> Document:
        body = await request.read()
        size = bodies.size_of(body, request.content_type)
        return await self._worker.run(size, lambda: bodies.parse_delete_options(body, request.content_type))

    async def _delete(self, resource: Resource, target: Target, request: Request) -> Reply:
        options = delete_options(request, await self._delete_options(request))
        outcome = await self._registry.delete(resource, target.namespace, target.name, options)
        if resource.returns_deleted or not outcome.gone:
            return await self._object_reply(resource, outcome.record, request)
        details: Document = {"name": target.name}
        if resource.group:
            details["group"] = resource.group
        details |= {"kind": resource.plural, "uid": outcome.record.uid}
        success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        return document_reply(success)

    async def _delete_collection(self, resource: Resource, target: Target, request: Request) -> Reply:
        options = delete_options(request, await self._delete_options(request))
        page = await self._page(resource, target, request)
        for record in page.records:
            await asyncio.sleep(0)  # a dry run or a refused deletion never waits for the store
            with ignoring("NotFound"):
                await self._registry.delete(resource, record.namespace, record.name, options)
        return self._list_reply(resource, page, {"resourceVersion": str(self._store.revision)})


def _name_in(sent: Document) -> str:
    meta = sent.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else ""
    return name if isinstance(name, str) else ""


def _shape(request: Request, *, is_list: bool = False) -> Shape | None:
    """Returns the form that the Accept header asks for instead of the object itself. Raises ApiError 406 if it is a list and
    the answer is not, or the reverse."""
    shape = shape_of(request.accept, ("Table", metadata_only.KIND, metadata_only.LIST_KIND))
    if shape is None or shape.kind == "Table" or (shape.kind == metadata_only.LIST_KIND) is is_list:
        return shape
    what = "a list" if is_list else "not a list"
    raise not_acceptable(f"you requested {shape.kind}, but the requested object is {what}")


def _partial_list(page: reading.Page, meta: Document, version: str, headers: Sequence[tuple[str, str]]) -> Reply:
    head = encode({"kind": metadata_only.LIST_KIND, "apiVersion": f"meta.k8s.io/{version}", "metadata": meta})
    return _converted_list((metadata_only.partial_of(record.body, version) for record in page.records), head, headers)


def _stored_list(page: reading.Page, head: bytes, headers: Sequence[tuple[str, str]]) -> Reply:
    parts = _around(head)
    chunks = reading.in_chunks(page, *parts, _CHUNK_BYTES)
    return Reply(headers=headers, chunks=chunks, chunked_bytes=reading.length_of(page, *parts))


def _converted_list(items: Iterable[bytes], head: bytes, headers: Sequence[tuple[str, str]]) -> Reply:
    """Returns a list whose items are converted while it is sent: all at once would be kept in memory for a slow client."""
    chunks = reading.joined(items, *_around(head), _MADE_CHUNK_BYTES)
    return Reply(headers=headers, chunks=chunks, chunked_bytes=None)


def _around(head: bytes) -> tuple[bytes, bytes]:
    return head[:-1] + b',"items":[', b"]}\n"


def _copies(patch: Json) -> bool:
    return isinstance(patch, list) and any(isinstance(part, dict) and part.get("op") == "copy" for part in patch)


def _patched(media_type: str, resource: Resource, live: Document, patch: Json) -> Document:
    if media_type == bodies.JSON_PATCH:
        return json_patch(live, patch)
    if media_type == bodies.MERGE_PATCH:
        merged: Document = merge_patch(live, patch)
        return merged
    result: Document = strategic_merge(resource.struct, live, decode(encode(patch)))
    return result
