"""Answers for the status page: the document, its JSON, and a stream of changes.

Nothing can be changed here. The server decides which pages may read it (`proxy.observe.metrics.metrics_answers`).
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from itertools import islice
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qs

import msgspec

from nodeagent.model.reports import KernelCounts
from nodeagent.proxy.observe.status_page.book import ServiceBook, compare, picks_of_service
from nodeagent.proxy.observe.status_page.packet_ways import packet_path
from nodeagent.runtime.serving.page_document import page_document
from nodeagent.runtime.serving.responses import JSON_HEADERS, NOT_FOUND, Request, Response, Stream

TICK_SECONDS = 1.0
MOST_STREAMS = 16
MOST_TRANSACTIONS = 50
MOST_PROBLEMS = 500
MOST_REASONS = 60
MOST_JUDGED = 100
"""This many Services that lack endpoints are judged each tick; of more, one after the other."""
_DOCUMENT = Path(__file__).with_name("page.html")
_PORTION = 1000
_JSON = {**JSON_HEADERS, "Cache-Control": "no-store"}
_BUSY = Response(503, {"Content-Type": "text/plain; charset=utf-8"}, b"too many watch this page\n")

_encode = msgspec.json.encode


class BrokenService(msgspec.Struct, frozen=True):
    """Why a Service does not work. line: what is wrong, why and what to do. because: why."""

    line: str
    because: str


Reasons = Callable[[Collection[str]], Awaitable[Mapping[str, BrokenService]]]
"""For those of the given Services that do not work, by `namespace/name`: the reason."""


class Journal(Protocol):
    """What the last passes did, and the present problems."""

    @property
    def transactions(self) -> Collection[msgspec.Struct]: ...
    @property
    def problems(self) -> Collection[msgspec.Struct]: ...


class StatusPage:
    """Answers requests for the status page. counts: reads the kernel's. about: constants, by name. ready: None if ready, else why
    not. reasons: why Services do not work."""

    def __init__(
        self,
        book: ServiceBook,
        journal: Journal,
        *,
        counts: Callable[[], Awaitable[KernelCounts]],
        about: Mapping[str, str],
        ready: Callable[[], str | None],
        reasons: Reasons,
        clock: Callable[[], float],
    ) -> None:
        self._book = book
        self._journal = journal
        self._counts = counts
        self._about = dict(about)
        self._ready = ready
        self._reasons = reasons
        self._clock = clock
        self._started = clock()
        self._counted: float | None = None
        self._latest = KernelCounts()
        self._streams = 0
        self._judged: dict[str, bool] = {}
        self._document = page_document(_DOCUMENT)
        self._paths: dict[str, Callable[[Request], Response | Stream | Awaitable[Response]]] = {
            "/": lambda _: self._document,
            "/api/services": lambda _: self._services(),
            "/api/service": self._service,
            "/api/reasons": self._why,
            "/api/events": self._events,
        }

    def answer(self, request: Request) -> Response | Stream | Awaitable[Response]:
        found = self._paths.get(request.path)
        if found is None:
            return NOT_FOUND
        return found(request)

    async def _services(self) -> Response:
        """Returns the first problem, how many there are, and all services, built in portions: 10,000 rows at once would block the loop for
        50 ms."""
        await self._count()
        revision, portions, rows = self._book.revision, list[bytes](), self._book.all_rows()
        while portion := list(islice(rows, _PORTION)):
            portions.append(_encode(portion)[1:-1])
            await asyncio.sleep(0)
        problems = list(self._journal.problems)
        first = _encode(problems[0] if problems else None)
        about = (revision, len(problems), first, b",".join(portions))
        body = b'{"revision":%d,"problem_count":%d,"problem":%s,"services":[%s]}' % about
        return Response(200, _JSON, body)

    async def _service(self, request: Request) -> Response:
        name = parse_qs(request.query).get("name", [""])[0]
        await self._count()
        picked = await asyncio.to_thread(picks_of_service, self._latest, name.encode())
        ways = [packet_path(*found, picked.get(str(found[0].service_port), {})) for found in self._book.frontends(name)]
        verdict = (await self._reasons([name])).get(name)
        return _json({"name": name, "verdict": verdict and verdict.line, "ways": ways})

    async def _why(self, request: Request) -> Response:
        """Returns the reasons for those of the named Services that do not work. Names beyond the maximum are ignored."""
        return _json(await self._reasons(parse_qs(request.query).get("name", [])[:MOST_REASONS]))

    def _events(self, request: Request) -> Response | Stream:
        if self._streams >= MOST_STREAMS:
            return _BUSY
        headers = {
            "Content-Type": "text/event-stream",
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
        }
        since = parse_qs(request.query).get("since", [""])[0]
        return Stream(
            headers, self._changes(int(since) if since.isascii() and since.isdigit() else self._book.revision)
        )

    async def _changes(self, revision: int) -> AsyncGenerator[bytes, None]:
        """Yields the overview, and the services that changed after this revision: once a tick."""
        self._streams += 1
        try:
            while True:
                await self._count()
                await self._judge()
                rows = self._book.rows(revision)
                revision = self._book.revision
                overview = {**self._overview(), "revision": revision, "services": rows}
                yield b"data: " + _encode(overview) + b"\n\n"
                await asyncio.sleep(TICK_SECONDS)
        finally:
            self._streams -= 1

    def _overview(self) -> dict[str, object]:
        transactions, problems = list(self._journal.transactions), list(self._journal.problems)
        return {
            "about": self._about,
            "up": round(self._clock() - self._started),
            "not_ready": self._ready(),
            "count": self._book.services,
            "unserved": sum(self._judged.values()),
            "connections": self._book.connections,
            "problem_count": len(problems),
            "problems": problems[:MOST_PROBLEMS],
            "transactions": transactions[: -MOST_TRANSACTIONS - 1 : -1],
        }

    async def _count(self) -> None:
        """Reads the counters, once a tick however many watch."""
        now = self._clock()
        if self._counted is None or now - self._counted >= TICK_SECONDS:
            self._counted = now
            self._latest = await self._counts()
            self._book.counted(*await asyncio.to_thread(compare, self._latest, self._book.counts))

    async def _judge(self) -> None:
        """Which of the Services that lack endpoints do not work: names that the node answers itself need none. One that was not
        judged yet counts as one that does not."""
        lacking = self._book.unserved
        known = {name: broken for name, broken in self._judged.items() if name in lacking}
        self._judged = {**dict.fromkeys(lacking - known.keys(), True), **known}
        names = list(islice(self._judged, MOST_JUDGED))
        found = await self._reasons(names) if names else {}
        for name in names:
            if self._judged.pop(name, None) is not None:
                self._judged[name] = name in found


def _json(document: object) -> Response:
    return Response(200, _JSON, _encode(document))
