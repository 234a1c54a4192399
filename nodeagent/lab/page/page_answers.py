"""Responses of a lab's page: the document, the stream of states, and the orders."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qs

from nodeagent.lab.net.network_namespaces import LabError
from nodeagent.lab.page.cuts import Cuts
from nodeagent.lab.page.page_access import Access, text
from nodeagent.lab.page.page_watch import Watch
from nodeagent.runtime.serving.page_document import page_document
from nodeagent.runtime.serving.responses import NOT_FOUND, Request, Response, Stream

MOST_WATCHERS = 16
_DOCUMENT = Path(__file__).with_name("page.html")
_STREAM = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_DONE = Response(HTTPStatus.NO_CONTENT, {"Cache-Control": "no-store"}, b"")


class PageAnswers:
    """Answers requests to the page of one lab."""

    def __init__(self, access: Access, watch: Watch, cuts: Cuts) -> None:
        self._access = access
        self._watch = watch
        self._cuts = cuts
        self._watchers = 0
        self._document = page_document(_DOCUMENT)
        self._orders: dict[str, Callable[[str], Awaitable[None]]] = {
            "/api/cut": cuts.cut,
            "/api/mend": cuts.mend,
            "/api/load/start": self._start_load,
            "/api/load/stop": self._stop_load,
        }

    def answer(self, request: Request) -> Response | Stream | Awaitable[Response]:
        """Returns the response. The document contains nothing about the lab, so it needs no token; all other paths do."""
        is_document = request.path == "/"
        refusal = self._access.refusal(request, open_to_all=is_document)
        if refusal is not None:
            return refusal
        if is_document:
            return self._document
        if request.path == "/api/events":
            return self._stream()
        order = self._orders.get(request.path)
        if order is None:
            return NOT_FOUND
        if request.method != "POST":
            return text(HTTPStatus.METHOD_NOT_ALLOWED, "this changes something: use POST")
        return self._carry_out(order, parse_qs(request.query).get("node", [""])[0])

    def _stream(self) -> Response | Stream:
        if self._watchers >= MOST_WATCHERS:
            return text(HTTPStatus.SERVICE_UNAVAILABLE, "this page has too many watchers")
        return Stream(_STREAM, self._events())

    async def _events(self) -> AsyncGenerator[bytes, None]:
        self._watchers += 1
        states = self._watch.states()
        try:
            async for state in states:
                yield b"data: " + state + b"\n\n"
        finally:
            self._watchers -= 1
            await states.aclose()

    async def _carry_out(self, order: Callable[[str], Awaitable[None]], node: str) -> Response:
        """Carries out an order, even if the client disconnects meanwhile. Returns 204, or 400 or 409 with the reason."""
        try:
            await asyncio.shield(asyncio.ensure_future(order(node)))
        except ValueError as error:
            return text(HTTPStatus.BAD_REQUEST, str(error))
        except (LabError, OSError) as error:
            return text(HTTPStatus.CONFLICT, str(error))
        finally:
            self._watch.notify()
        return _DONE

    async def _start_load(self, _: str) -> None:
        self._watch.start_load()

    async def _stop_load(self, _: str) -> None:
        await self._watch.stop_load()
