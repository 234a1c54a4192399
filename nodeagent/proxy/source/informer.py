"""Follows one resource endlessly: drives the state machine of `watch` with the client, and paces it.

Decided here: how long to wait after a failure, and when a watch is given up. What to ask next is decided in `watch`.
An informer ends only by cancellation; every failure is reported, logged when it changes, and retried.
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import key_of
from nodeagent.model.problem import Problem
from nodeagent.model.spacing import Spacing
from nodeagent.proxy.source.client.api_errors import (
    ExpiredError,
    ForbiddenError,
    KubeError,
    MalformedAnswerError,
    NotServedError,
    ServerUnreachableError,
    StatusError,
)
from nodeagent.proxy.source.decode import O, ObjectDecoder, Undecodable
from nodeagent.proxy.source.following import Following
from nodeagent.proxy.source.pace import AbsenceDelays, Pace, RetryDelays
from nodeagent.proxy.source.pulse import Pulse, Rhythm
from nodeagent.proxy.source.recovery import Recovery
from nodeagent.proxy.source.watch import ListWatch, Request, Retry, StreamEnd
from nodeagent.proxy.source.watch_events import Completed, Event, Failed, Gone, Listed, Put, Spoiled, Unlisted

logger = logging.getLogger(__name__)

LONG_PIECE_BYTES = 1 << 17
"""More than comes between two passes at 2,000 changes of ten endpoints a second: if that were long, each second piece would be short, and
its changes would wait for two passes."""

O_contra = TypeVar("O_contra", contravariant=True)
A = TypeVar("A")


class CollectionClient(Protocol):
    """The part of `ApiClient` that informers use."""

    async def get(self, path: str, parameters: Iterable[tuple[str, str]] = ()) -> bytes: ...

    def stream(
        self, path: str, parameters: Iterable[tuple[str, str]], rest_seconds: Callable[[int], float]
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]: ...


class FullList(Protocol[O_contra]):
    """A full list that is being collected; it takes effect with `commit`."""

    def add(self, objects: Iterable[O_contra]) -> None: ...

    def discard(self, key: ObjectKey) -> None: ...

    def commit(self) -> None: ...


class Sink(Protocol[O_contra]):
    """Receives the objects of one resource."""

    def listing(self) -> FullList[O_contra]: ...

    def put(self, obj: O_contra) -> None: ...

    def remove(self, key: ObjectKey) -> None: ...

    def unavailable(self) -> None:
        """Called if the server does not have this resource, or does not permit reading it. The known objects stay."""
        ...

    def report(self, problems: Iterable[Problem]) -> None:
        """Replaces all problems of this resource."""
        ...


class Resource(Struct, Generic[O], frozen=True):
    """A collection of the API. kind: the type and name of its objects (``Service``); path: ``/api/v1/services``.

    optional: a server without it is no failure; the informer looks for it again periodically.
    """

    kind: type[O]
    path: str
    selectors: tuple[tuple[str, str], ...] = ()
    optional: bool = False

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]


class Informer(Generic[O]):
    """Keeps `sink` equal to the resource, as far as the server can be reached. recovery, pulse: shared by all informers
    of the same server."""

    def __init__(
        self,
        client: CollectionClient,
        resource: Resource[O],
        sink: Sink[O],
        pace: Pace,
        recovery: Recovery | None = None,
        pulse: Pulse | None = None,
    ) -> None:
        self._client = client
        self._resource = resource
        self._sink = sink
        self.following = Following(resource.name)
        self._pace = pace
        self._recovery = recovery or Recovery()
        self._pulse = pulse or Pulse(pace)
        self._rhythm = Rhythm(pace.timing)
        self._spacing = Spacing()
        self._retries = RetryDelays(pace)
        self._outage = RetryDelays(pace)
        self._protocol = ListWatch(ObjectDecoder(resource.kind), resource.selectors)
        self._full_list = sink.listing()
        self._undecodable_in_list: dict[ObjectKey | None, Undecodable] = {}
        self._undecodable: dict[ObjectKey | None, Undecodable] = {}
        self._failure: KubeError | None = None
        self._looks_for_resource = AbsenceDelays(pace)
        self._looks_for_selectors = AbsenceDelays(pace)
        self._selectors_due = 0.0

    async def run(self) -> None:
        """Follows the resource; never returns."""
        with self._pulse.informing(self._report):
            await self._run()

    async def _run(self) -> None:
        while True:
            timeout_seconds = self._watch_timeout_seconds()
            request = self._protocol.next_request(timeout_seconds)
            if request.starts_list:
                self._full_list = self._sink.listing()
                self._undecodable_in_list = {}
            try:
                if request.stream:
                    await self._follow(request, timeout_seconds)
                else:
                    await self._fetch(request)
            except KubeError as error:
                if self._protocol.refused(error) is Retry.BACK_OFF:
                    await self._wait_after_failure(error)
            if self._protocol.given_up:
                await self._ask_for_selectors()

    async def _fetch(self, request: Request) -> None:
        """Requests one page of a list and applies it."""
        body = await self._while_server_is_alive(self._client.get(self._resource.path, request.parameters))
        for event in self._protocol.receive_page(body):
            self._apply(event)
            await asyncio.sleep(0)
        self._recovered()
        if pause_seconds := self._protocol.pause_seconds:
            await self._pace.sleep(pause_seconds)

    async def _follow(self, request: Request, timeout_seconds: int) -> None:
        """Follows one watch, from its opening to its end and the wait after it."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        async with AsyncExitStack() as stack:
            opened = stack.enter_async_context(
                self._client.stream(self._resource.path, request.parameters, self._rest_seconds)
            )
            pieces = await self._while_server_is_alive(opened)
            self._recovered()
            ending = await self._listen(pieces, request, started + timeout_seconds + self._pace.timing.grace)
        await self._after_watch(ending, loop.time() - started)

    async def _after_watch(self, ending: StreamEnd | Failed | ServerUnreachableError, lasted_seconds: float) -> None:
        """Waits until the next request: hardly at all after an orderly end, because that is no failure."""
        if isinstance(ending, Failed) and ending.at_once:
            logger.debug("list is not streamed resource=%s error=%s", self._resource.name, ending.error)
            return
        timing, brought_news = self._pace.timing, self._protocol.progress > 0
        failure = ending.error if isinstance(ending, Failed) else None
        if isinstance(ending, KubeError):
            failure, ending = ending, StreamEnd.LOST
        retry = Retry.BACK_OFF if isinstance(ending, Failed) else self._protocol.stream_ended(ending)
        is_useful = failure is None and (brought_news or lasted_seconds >= timing.brief)
        if (lasted_seconds >= timing.healthy and not isinstance(failure, MalformedAnswerError)) or (
            brought_news and failure is None
        ):
            self._retries.reset()
        if self._protocol.is_complete:
            if not is_useful:
                retry = Retry.BACK_OFF
            elif lasted_seconds < timing.spacing:
                await self._pace.sleep(timing.spacing - lasted_seconds)
        if retry is Retry.BACK_OFF:
            await self._wait_after_failure(failure)

    async def _while_server_is_alive(self, answer: Awaitable[A]) -> A:
        """Returns the answer. It may take long while the server shows signs of life; else raises ServerUnreachableError."""
        try:
            async with asyncio.timeout(None) as limit:
                with self._pulse.listening(limit):
                    return await answer
        except TimeoutError:
            raise self._no_sign_of_life(self._pace.timing.answer) from None

    def _no_sign_of_life(self, seconds: float) -> ServerUnreachableError:
        return ServerUnreachableError(f"no sign of life for {seconds:g} seconds")

    async def _listen(
        self, pieces: AsyncIterator[bytes], request: Request, deadline: float
    ) -> StreamEnd | Failed | ServerUnreachableError:
        """Returns how the watch ended; an error if the server itself shows no sign of life."""
        loop = asyncio.get_running_loop()
        losses = self._pulse.losses
        self._rhythm.begin(loop.time())
        while True:
            try:
                async with asyncio.timeout_at(self._silence_deadline(request, deadline)) as limit:
                    with self._pulse.listening(limit):
                        piece = await anext(pieces)
            except TimeoutError:
                if self._pulse.losses == losses:
                    logger.debug("watch silent resource=%s", self._resource.name)
                    return StreamEnd.SILENT
                return self._no_sign_of_life(self._pace.timing.answer)
            except StopAsyncIteration:
                return StreamEnd.CLOSED
            except ServerUnreachableError as error:
                logger.debug("watch lost resource=%s error=%s", self._resource.name, error)
                return StreamEnd.LOST
            self._pulse.received()
            self.following.last_received = loop.time()
            bookmarks = self._protocol.bookmarks
            for event in self._protocol.receive_bytes(piece):
                if isinstance(event, Failed):
                    return event
                self._apply(event)
            if self._protocol.bookmarks != bookmarks:
                self._rhythm.bookmark(loop.time())

    def _rest_seconds(self, size: int) -> float:
        """Returns how long not to read after a piece of this many bytes, so that events that come fast are read together. What is long has
        many events already."""
        if not self._protocol.is_complete or size > LONG_PIECE_BYTES:
            return 0.0
        now = asyncio.get_running_loop().time()
        self._spacing.take(now)
        return self._spacing.wait_seconds(now)

    def _silence_deadline(self, request: Request, deadline: float) -> float:
        """Returns the time (loop time) by which the next piece must arrive."""
        now = asyncio.get_running_loop().time()
        if not self._protocol.is_complete:
            return min(deadline, now + self._pace.timing.initial_silence) if request.awaits_initial_state else deadline
        patience_seconds = self._rhythm.patience_seconds
        return deadline if patience_seconds is None else min(deadline, now + patience_seconds)

    def _watch_timeout_seconds(self) -> int:
        """Returns how long the next watch is requested to last: at most until the selectors are to be tried again."""
        seconds = self._pace.watch_timeout_seconds()
        if not self._protocol.given_up:
            return seconds
        return min(seconds, max(1, math.ceil(self._selectors_due - asyncio.get_running_loop().time())))

    async def _ask_for_selectors(self) -> None:
        """Checks whether the server accepts the selectors that it has refused: a proxy, or one of several servers that is older
        than the others, may have refused them only for a moment. Tries soon, then later and later."""
        loop = asyncio.get_running_loop()
        if not self._looks_for_selectors.count:
            logger.warning("the server refuses selectors: reading more than needed resource=%s", self._resource.name)
            self._selectors_due = loop.time() + self._looks_for_selectors.next_seconds()
        if loop.time() < self._selectors_due or not self._protocol.is_complete:
            return
        try:
            await self._client.get(self._resource.path, (*self._protocol.given_up, ("limit", "1")))
        except KubeError as error:
            logger.debug("selectors refused again resource=%s error=%s", self._resource.name, error)
            self._selectors_due = loop.time() + self._looks_for_selectors.next_seconds()
        else:
            logger.info("the server accepts selectors again resource=%s", self._resource.name)
            self._looks_for_selectors.reset()
            self._protocol.use_selectors_again()

    def _apply(self, event: Event[O]) -> None:
        match event:
            case Put():
                self._sink.put(event.object)
                if self._undecodable:
                    self._forget_undecodable(key_of(event.object))
            case Gone():
                self._sink.remove(event.key)
                self._forget_undecodable(event.key)
            case Spoiled():
                if event.undecodable.key is not None:
                    self._sink.remove(event.undecodable.key)
                self._undecodable[event.undecodable.key] = event.undecodable
                self._report()
            case Listed():
                self._full_list.add(event.objects)
                for obj in event.objects if self._undecodable_in_list else ():
                    self._undecodable_in_list.pop(key_of(obj), None)
                for undecodable in event.undecodable:
                    self._unlist(undecodable.key)
                    self._undecodable_in_list[undecodable.key] = undecodable
            case Unlisted():
                self._unlist(event.key)
            case Completed():
                self._full_list.commit()
                self._looks_for_resource.reset()
                self.following.lists += 1
                self._undecodable = self._undecodable_in_list
                self._report()
                logger.info("listed resource=%s resource_version=%s", self._resource.name, event.resource_version)

    def _unlist(self, key: ObjectKey | None) -> None:
        if key is not None:
            self._full_list.discard(key)
        self._undecodable_in_list.pop(key, None)

    def _forget_undecodable(self, key: ObjectKey) -> None:
        if self._undecodable.pop(key, None) is not None:
            self._report()

    async def _wait_after_failure(self, error: KubeError | None) -> None:
        """Reports the failure (None: not worth reporting) and waits until it is time to try again."""
        if isinstance(error, NotServedError | ForbiddenError):
            self._sink.unavailable()
        if self._resource.optional and isinstance(error, NotServedError):
            self._recovered()
            await self._pace.sleep(self._looks_for_resource.next_seconds())
            return
        if error is not None and not isinstance(error, ExpiredError):
            self._failed(error)
        asked_seconds = error.retry_after_seconds if isinstance(error, StatusError) else None
        if isinstance(error, ServerUnreachableError):
            await self._recovery.wait(self._pace.sleep(self._outage.next_seconds()))
        else:
            await self._pace.sleep(self._retries.next_seconds() + (asked_seconds or 0.0))

    def _failed(self, error: KubeError) -> None:
        known = self._failure is not None and type(self._failure) is type(error)
        level = logging.DEBUG if known else logging.WARNING
        logger.log(level, "cannot follow resource=%s error=%s", self._resource.name, error)
        self._failure = error
        self._report()

    def _recovered(self) -> None:
        self._pulse.received()
        self.following.last_received = asyncio.get_running_loop().time()
        self._recovery.reached()
        self._outage.reset()  # an answer ends it; if the server answers and then breaks off, the other backoff applies
        if self._failure is not None:
            logger.info("following again resource=%s", self._resource.name)
            self._failure = None
            self._report()

    def _report(self) -> None:
        problems = [undecodable.problem(self._resource.kind.__name__) for undecodable in self._undecodable.values()]
        failure = self._failure
        if failure is None and self._pulse.is_late and (self.following.lists or not self._resource.optional):
            failure = self._no_sign_of_life(self._pace.timing.late)
        if failure is not None:
            problems.append(following_problem(self._resource.name, failure))
        self._sink.report(problems)


def following_problem(resource: str, error: KubeError) -> Problem:
    """Returns the problem of a resource that cannot be followed, with what to do."""
    reason = type(error).__name__.removesuffix("Error")
    return Problem(f"API resource {resource}", reason, f"not followed: {error}; {error.cure}")
