"""Answers of the metrics server: `/metrics`, and the other paths of kube-proxy. Nothing can be changed here, and no page of another
origin can read it (`nodeagent.runtime.serving.origins`)."""

import asyncio
import platform
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from nodeagent.runtime.figures.instruments import Instrument
from nodeagent.runtime.serving.origins import AllowedHosts
from nodeagent.runtime.serving.responses import JSON_HEADERS, NOT_FOUND, Request, Response, Stream

if TYPE_CHECKING:
    from nodeagent.runtime.figures.exposition import Exposition

TEXT_HEADERS = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}
_PROMETHEUS = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
_NOT_ALLOWED = Response(405, {**TEXT_HEADERS, "Allow": "GET, HEAD"}, b"only GET and HEAD\n")


class Figures(Protocol):
    """A part that has instruments."""

    def instruments(self) -> Iterable[Instrument]:
        """Returns all of them, with their present values."""
        ...


class MetricsAnswers:
    """Answers requests to the metrics server. figures: in the order of the text. late: renders series outside of the event loop.
    config: the configuration as JSON. ready: None if ready, else why not, in one line. clock: loop time. hosts: names for the
    server. page: answers all other paths."""

    def __init__(
        self,
        figures: Sequence[Figures],
        *,
        late: Callable[[], Awaitable[bytes]],
        config: bytes,
        version: str,
        ready: Callable[[], str | None],
        clock: Callable[[], float],
        hosts: AllowedHosts,
        page: Callable[[Request], Response | Stream | Awaitable[Response]] = lambda _: NOT_FOUND,
    ) -> None:
        self._figures = figures
        self._late = late
        self._config = config
        self._version = version
        self._ready = ready
        self._clock = clock
        self._started = clock()
        self._hosts = hosts
        self._exposition: Exposition | None = None
        self._page = page
        self._pages: dict[str, Callable[[Request], Response | Stream | Awaitable[Response]]] = {
            "/metrics": lambda _: self._metrics(),
            "/proxyMode": lambda _: Response(200, TEXT_HEADERS, b"nftables"),
            "/configz": lambda _: Response(200, JSON_HEADERS, self._config),
            "/statusz": lambda _: Response(200, TEXT_HEADERS, self._statusz()),
            "/readyz": lambda _: self._readyz(),
        }

    def answer(self, request: Request) -> Response | Stream | Awaitable[Response]:
        why = self._hosts.why_refused(request.host, request.origin)
        if why:
            return Response(403, TEXT_HEADERS, f"{why} (reporting.metricsHostNames)\n".encode())
        if request.method not in {"GET", "HEAD"}:
            return _NOT_ALLOWED
        return self._pages.get(request.path, self._page)(request)

    async def _metrics(self) -> Response:
        """Returns a scrape: metrics counted on the loop are rendered there, in a few milliseconds; the rest outside of it."""
        late = await self._late()
        if self._exposition is None:
            self._exposition = await asyncio.to_thread(_load)
        text = self._exposition.text(one for figures in self._figures for one in figures.instruments())
        return Response(200, _PROMETHEUS, text + late)

    def _readyz(self) -> Response:
        why_not = self._ready()
        if why_not is None:
            return Response(200, TEXT_HEADERS, b"ok\n")
        return Response(503, TEXT_HEADERS, f"not ready: {why_not}\n".encode())

    def _statusz(self) -> bytes:
        lines = (
            "nodeagent statusz",
            "",
            f"Up: {self._clock() - self._started:.0f} seconds",
            f"Version: {self._version}",
            f"Python: {platform.python_version()}",
            f"Kernel: {platform.release()}",
            f"Ready: {self._ready() or 'yes'}",
        )
        return "".join(f"{line}\n" for line in lines).encode()


def _load() -> "Exposition":
    """Loads prometheus-client at the first scrape: an agent that is never scraped does not need it."""
    from nodeagent.runtime.figures.exposition import Exposition  # noqa: PLC0415

    return Exposition()
