"""The list/watch protocol of the Kubernetes API, without I/O. Pure.

Rule 1: what to ask next, and what an answer means, is decided in this file and nowhere else.

    STREAMING ──initial-events-end──▶ WATCHING ◀──last page── LISTING
        │                                │                       ▲
        └── refused, closed or silent ───┼───────────────────────┘
                                         └── 410 ──▶ STREAMING, or LISTING if the server has refused to stream

The caller asks `next_request`, performs it, and passes on the result: the body of a list (`receive_page`), pieces of a watch
(`receive_bytes`), how a watch ended (`stream_ended`), or a refusal (`refused`). A full list is delivered as `Listed` events, closed by
`Completed`; after that come `Put` and `Gone`. A request with `starts_list` makes all `Listed` so far without a `Completed` void.

References: KEP-3157 (streaming lists), KEP-956 (bookmarks), k8s.io/apimachinery types.go (ListOptions).
"""

from collections.abc import Iterator, Sequence
from enum import Enum
from http import HTTPStatus
from typing import Generic

import msgspec
from msgspec import Struct

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import key_of
from nodeagent.proxy.source.client.api_errors import (
    ExpiredError,
    ForbiddenError,
    KubeError,
    MalformedAnswerError,
    NotServedError,
    NotYetReachedError,
    OversizedError,
    RejectedError,
    ServerUnreachableError,
    StatusError,
    ThrottledError,
    UnauthorizedError,
    event_error,
    first_line,
    status_of,
)
from nodeagent.proxy.source.decode import O, ObjectDecoder, Undecodable, WatchEvent
from nodeagent.proxy.source.lines import LineSplitter
from nodeagent.proxy.source.watch_events import Completed, Event, Failed, Gone, Listed, Put, Spoiled, Unlisted
from nodeagent.wire.unreadable import UNREADABLE

ANNOTATION_INITIAL_EVENTS_END = "k8s.io/initial-events-end"
PAGE_SIZE = 500
LEAST_PAGE_SIZE = 20
"""Objects of a page after pages that broke off: some servers end an answer after a minute (kube-apiserver's
--request-timeout), and over a slow link a minute is not much."""

LOST_STREAMS_LIMIT = 3
"""Initial streams that may break off in a row before pages, which can be resumed, are requested instead."""

BROKEN_LISTS_LIMIT = 2
"""Answers to list requests that may break off in the middle before less is requested at a time."""

NOT_YET_REACHED_LIMIT = 3
"""How often the server may lag behind our version before we assume that history was rewritten (a restored etcd).

A kube-apiserver has already waited three seconds for its cache when it answers so (cacher.go, blockTimeout), and asks
for one more. Until the list is read again nothing is followed: client-go does not wait at all.
"""

UNEXPLAINED_LIMIT = 2
"""Answers in a row of status 400 that do not name a selector, before selectors are given up because of them."""

OBJECTS_LIMIT = 200_000
"""Objects of one full list, and of the watch after it; the largest clusters Kubernetes is tested with have a tenth of it."""

BYTES_LIMIT = 1 << 30
"""The size of one full list, and of the objects that a watch put after it; 10,000 EndpointSlices of 10 endpoints are 30 MB."""

PAGES_LIMIT = 4_000
"""Pages of one full list: this is ten times what OBJECTS_LIMIT needs; the server must have made up more than that."""
THIN_PAGES = 100
"""This many pages may bring next to nothing; before each further one there is a pause."""
THIN_PAGES_PAUSE_SECONDS = 0.05

Parameters = tuple[tuple[str, str], ...]


class Request(Struct, frozen=True):
    """A GET of the resource's collection. `stream`: the answer is a watch, otherwise it is one page of a list.

    `awaits_initial_state`: until `Completed` the stream must not be silent for long: a server that does not know
    streaming lists sends everything and then never the closing bookmark.
    """

    parameters: Parameters
    stream: bool
    starts_list: bool = False
    awaits_initial_state: bool = False


class StreamEnd(Enum):
    """How a watch ended: the server closed it in order, the connection broke, or it was silent for too long."""

    CLOSED = "closed"
    LOST = "lost"
    SILENT = "silent"


class Retry(Enum):
    """When to perform the next request."""

    AT_ONCE = "at once"
    BACK_OFF = "back off"


class _Phase(Enum):
    STREAMING = "streaming"
    LISTING = "listing"
    WATCHING = "watching"


class ListWatch(Generic[O]):
    """List and watch of one resource: what to ask next, and what the answers mean.

    selectors: ``(("labelSelector", "…"), ("fieldSelector", "…"))``; the last is given up first if the server
    refuses them, so the caller must filter as well; see `given_up`. bookmarks: how many came as mere
    signs of life and progress. progress: how many events and bookmarks the current watch has brought.
    """

    def __init__(
        self, decoder: ObjectDecoder[O], selectors: Sequence[tuple[str, str]] = (), *, streaming: bool = True
    ) -> None:
        self._decoder = decoder
        self._all_selectors = self._selectors = tuple(selectors)
        self._streaming = streaming
        self._events = msgspec.json.Decoder(WatchEvent)
        self._phase = _Phase.STREAMING if streaming else _Phase.LISTING
        self._lines = LineSplitter()
        self._resource_version = ""
        self._continue = ""
        self._paged = True
        self._page_size = PAGE_SIZE
        self._from_cache = True
        self._broken_lists = 0
        self._pages = 0
        self._listed = 0
        self._listed_bytes = 0
        self._put: dict[ObjectKey, int] = {}
        self._put_bytes = 0
        self._lost_streams = 0
        self._not_yet_reached = 0
        self._unexplained = 0
        self.bookmarks = 0
        self.progress = 0

    @property
    def given_up(self) -> Parameters:
        """All selectors, if the server has refused some; empty if they are in use. The caller may try them again later
        with a list of one object and, if the server accepts, call `use_selectors_again`."""
        return () if self._selectors == self._all_selectors else self._all_selectors

    def use_selectors_again(self) -> None:
        """Called when the server accepts the selectors: starts over with a full list."""
        self._selectors = self._all_selectors
        self._relist()

    @property
    def pause_seconds(self) -> float:
        """How long to wait before the next page, in seconds: more than 0 for an endless list that brings next to nothing."""
        thin = self._pages > THIN_PAGES and self._listed < self._pages * LEAST_PAGE_SIZE
        return THIN_PAGES_PAUSE_SECONDS if thin and self._continue else 0.0

    @property
    def is_complete(self) -> bool:
        """Whether the full list has been delivered and changes are being followed."""
        return self._phase is _Phase.WATCHING

    def next_request(self, timeout_seconds: int) -> Request:
        """Returns the next request; a watch is requested to end after `timeout_seconds` seconds."""
        if self._phase is _Phase.LISTING:
            return self._page_request()
        self._lines = LineSplitter()
        self.progress = 0
        watch: Parameters = (
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(timeout_seconds)),
        )
        if self._phase is _Phase.WATCHING:
            version = ("resourceVersion", self._resource_version)
            return Request((*self._selectors, *watch, version), stream=True)
        self._start_counting()
        initial = (("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan"))
        return Request((*self._selectors, *watch, *initial), stream=True, starts_list=True, awaits_initial_state=True)

    def receive_page(self, body: bytes) -> Iterator[Event[O]]:
        """Yields the events of the answer to a list request. Consume the iterator before the next request.

        Raises MalformedAnswerError if the body is not a list; the same page is requested again.
        """
        meta, batches = self._decoder.list_page(body)
        if not meta.resource_version:
            raise MalformedAnswerError(f"a list without resourceVersion: {first_line(body)}")
        continue_token = meta.continue_token or ""
        if continue_token and continue_token == self._continue:
            raise MalformedAnswerError("a page of a list that names itself as the next page")
        self._pages += 1
        if self._pages > PAGES_LIMIT:
            self._relist()
            raise OversizedError(f"a list of more than {PAGES_LIMIT} pages")
        self._count(0, len(body))
        for batch in batches:
            self._count(len(batch.objects), 0)
            yield Listed(batch.objects, batch.undecodable)
        self._continue = continue_token
        if not continue_token:
            self._start_watching(meta.resource_version)
            yield Completed(meta.resource_version)

    def receive_bytes(self, data: bytes) -> list[Event[O]]:
        """Returns the events of the next piece of a watch. No event follows a `Failed`."""
        events: list[Event[O]] = []
        try:
            lines = self._lines.feed(data)
        except OversizedError as error:
            self._relist()
            return [Failed(error)]
        for line in lines:
            event = self._receive_line(line)
            if event is not None:
                events.append(event)
            if isinstance(event, Failed):
                break
        return events

    def stream_ended(self, end: StreamEnd) -> Retry:
        """Called when the watch is over; returns when to send the next request. An incomplete last line is void: the next watch
        sends the event again."""
        if self._phase is not _Phase.STREAMING:
            return Retry.AT_ONCE if end is StreamEnd.CLOSED else Retry.BACK_OFF
        self._lost_streams += 1
        if end is StreamEnd.LOST and self._lost_streams < LOST_STREAMS_LIMIT:
            return Retry.BACK_OFF
        return self._give_up_streaming()

    def refused(self, error: KubeError) -> Retry:
        """Called when the request was not answered, or with an error status; returns when to send the next request."""
        if self._phase is _Phase.STREAMING:
            return self._streaming_refused(error)
        if isinstance(error, ExpiredError):
            self._relist(paged=not self._continue)
        elif isinstance(error, OversizedError) and self._from_cache:
            self._relist()  # a cache answers with everything at once, whatever page was asked for
        elif isinstance(error, ServerUnreachableError) and error.begun:
            self._request_smaller_pages()
        elif isinstance(error, NotYetReachedError):
            was_watching = self._phase is _Phase.WATCHING
            self._count_not_yet_reached()
            return Retry.AT_ONCE if was_watching and self._phase is not _Phase.WATCHING else Retry.BACK_OFF
        elif isinstance(error, RejectedError) and error.code == HTTPStatus.BAD_REQUEST and error.of_api:
            return self._handle_bad_request(is_about_selectors=error.is_about_selectors)
        elif isinstance(error, NotServedError) and self._phase is _Phase.WATCHING:
            self._relist()
        return Retry.BACK_OFF

    def _streaming_refused(self, error: KubeError) -> Retry:
        """Changes to pages if the server refuses to stream; a temporary failure is no such refusal."""
        refuses = isinstance(error, StatusError) and (
            error.code < HTTPStatus.INTERNAL_SERVER_ERROR or error.code == HTTPStatus.NOT_IMPLEMENTED
        )
        if refuses and not _is_about_access_or_load(error):
            return self._give_up_streaming()
        return Retry.BACK_OFF

    def _page_request(self) -> Request:
        parameters: Parameters = self._selectors
        if self._paged:
            parameters = (*parameters, ("limit", str(self._page_size)))
        if self._continue:
            return Request((*parameters, ("continue", self._continue)), stream=False)
        self._start_counting()
        if self._from_cache:
            parameters = (*parameters, ("resourceVersion", "0"))
        return Request(parameters, stream=False, starts_list=True)

    def _receive_line(self, line: bytes) -> Event[O] | None:
        try:
            event = self._events.decode(line)
        except UNREADABLE as error:
            self._relist()
            return Failed(MalformedAnswerError(f"not a watch event: {error}: {first_line(line)}"))
        if event.type == "ERROR":
            return self._receive_error(bytes(event.object))
        self._not_yet_reached = 0
        self.progress += 1
        if event.type == "BOOKMARK":
            return self._receive_bookmark(event)
        if event.type == "DELETED":
            return self._receive_deletion(event)
        if event.type in {"ADDED", "MODIFIED"}:
            return self._receive_object(event)
        return None

    def _receive_object(self, event: WatchEvent) -> Event[O]:
        obj = self._decoder.object(event.object)
        initial = self._phase is _Phase.STREAMING
        try:
            if initial:
                self._count(1, len(event.object))
            elif (key := obj.key if isinstance(obj, Undecodable) else key_of(obj)) is not None:
                self._note(key, len(event.object))
        except OversizedError as error:
            return Failed(error)
        if isinstance(obj, Undecodable):
            self._advance(self._decoder.identity(event.object)[1].resource_version)
            return Listed([], [obj]) if initial else Spoiled(obj)
        self._advance(obj.metadata.resource_version)
        return Listed([obj], []) if initial else Put(obj)

    def _receive_deletion(self, event: WatchEvent) -> Event[O] | None:
        key, meta = self._decoder.identity(event.object)
        self._advance(meta.resource_version)
        if key is None:
            return None
        self._put_bytes -= self._put.pop(key, 0)
        return Unlisted(key) if self._phase is _Phase.STREAMING else Gone(key)

    def _receive_bookmark(self, event: WatchEvent) -> Event[O] | None:
        meta = self._decoder.identity(event.object)[1]
        self._advance(meta.resource_version)
        ends = (meta.annotations or {}).get(ANNOTATION_INITIAL_EVENTS_END) == "true"
        if self._phase is _Phase.STREAMING and ends and meta.resource_version:
            self._start_watching(meta.resource_version)
            return Completed(meta.resource_version)
        self.bookmarks += self._phase is _Phase.WATCHING
        return None

    def _receive_error(self, raw: bytes) -> Event[O]:
        """Returns the event of an ERROR, which ends a watch. The version is kept only if the cause is known to be temporary."""
        error = event_error(status_of(raw))
        if self._phase is _Phase.STREAMING:
            if not _is_about_access_or_load(error):
                self._give_up_streaming()
                return Failed(error, at_once=True)
        elif isinstance(error, NotYetReachedError):
            self._count_not_yet_reached()
        elif not _is_about_access_or_load(error):
            self._relist()
        return Failed(error)

    def _advance(self, resource_version: str) -> None:
        """Notes the version of an event. Initial events carry the versions of their objects, which are no place in history."""
        if resource_version and self._phase is _Phase.WATCHING:
            self._resource_version = resource_version

    def _start_watching(self, resource_version: str) -> None:
        self._phase = _Phase.WATCHING
        self._resource_version = resource_version
        self._continue = ""
        self._paged = True
        self._from_cache = False
        self._lost_streams = self._broken_lists = 0
        self._not_yet_reached = self._unexplained = 0

    def _start_counting(self) -> None:
        """Called when a full list begins: it replaces everything that was put before."""
        self._pages = self._listed = self._listed_bytes = 0
        self._put, self._put_bytes = {}, 0

    def _count(self, objects: int, size: int) -> None:
        """Counts more of a full list. Raises OversizedError if it is too much."""
        self._listed += objects
        self._listed_bytes += size
        self._bound("a list", self._listed, self._listed_bytes)

    def _note(self, key: ObjectKey, size: int) -> None:
        """Counts an object, of this many bytes, that a watch has put. Raises OversizedError if all objects together are too much."""
        self._put_bytes += size - self._put.get(key, 0)
        self._put[key] = size
        self._bound("a watch", len(self._put), self._put_bytes)

    def _bound(self, what: str, objects: int, size: int) -> None:
        if objects > OBJECTS_LIMIT:
            excess = f"{OBJECTS_LIMIT} objects"
        elif size > BYTES_LIMIT:
            excess = f"{BYTES_LIMIT >> 20} MiB"
        else:
            return
        self._relist()
        raise OversizedError(f"{what} of more than {excess}")

    def _relist(self, *, paged: bool = True, from_cache: bool = False) -> None:
        """Starts over with a full list; in one piece if pages were too slow for the server's history.

        from_cache: accept what the server has in memory, whatever its age; never after an object was known.
        """
        self._from_cache = from_cache
        self._phase = _Phase.STREAMING if self._streaming else _Phase.LISTING
        self._continue = ""
        self._paged = paged
        self._not_yet_reached = 0

    def _give_up_streaming(self) -> Retry:
        self._streaming = False
        self._relist(from_cache=self._from_cache)
        return Retry.AT_ONCE

    def _request_smaller_pages(self) -> None:
        """Called when a list broke off in the middle. Once is treated as an accident; then smaller pages are requested."""
        self._broken_lists += 1
        if self._broken_lists < BROKEN_LISTS_LIMIT:
            return
        self._broken_lists = 0
        if self._from_cache or not self._paged:
            self._relist()  # a cache answers with everything at once, whatever page was asked for
        else:
            self._page_size = max(LEAST_PAGE_SIZE, self._page_size // 4)

    def _count_not_yet_reached(self) -> None:
        self._not_yet_reached += 1
        if self._not_yet_reached >= NOT_YET_REACHED_LIMIT:
            self._relist()

    def _handle_bad_request(self, *, is_about_selectors: bool) -> Retry:
        """Reacts to a 400: the server may not know our continue token any more, or not our selectors.

        A proxy before the server may send a Status of its own, which says nothing about selectors.
        """
        if self._continue:
            was_paged = self._paged
            self._relist(paged=False)
            return Retry.AT_ONCE if was_paged else Retry.BACK_OFF
        self._unexplained += 1
        if not is_about_selectors and self._unexplained < UNEXPLAINED_LIMIT:
            return Retry.BACK_OFF
        self._unexplained = 0
        if self._selectors:
            self._selectors = self._selectors[:-1]
            self._relist(from_cache=self._from_cache)
            return Retry.AT_ONCE
        self._relist()
        return Retry.BACK_OFF


def _is_about_access_or_load(error: KubeError) -> bool:
    """Returns whether the answer says nothing about the request itself; a 400 without a Status comes from a proxy in between
    (nginx, for one, if it wants a client certificate)."""
    if isinstance(error, RejectedError):
        return not error.of_api
    return isinstance(error, ThrottledError | UnauthorizedError | ForbiddenError)
