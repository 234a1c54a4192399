"""The socket of the page. The HTTP code is loaded at the first connection; until then there is only the socket."""

import asyncio
import secrets
import socket
from typing import TYPE_CHECKING, Self

from nodeagent.lab.cluster import LiveCluster
from nodeagent.lab.lab_thread import Work
from nodeagent.lab.page.cuts import Cuts
from nodeagent.lab.page.page_access import Access
from nodeagent.lab.page.page_answers import PageAnswers
from nodeagent.lab.page.page_watch import Watch

if TYPE_CHECKING:
    from nodeagent.runtime.serving.http import HttpListeners

TOKEN_BYTES = 24


class PageServer:
    """Serves at a port of 127.0.0.1 that the kernel chooses; an async context manager. address: the URL for a browser."""

    def __init__(self, cluster: LiveCluster, work: Work) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        port, token = self._listener.getsockname()[1], secrets.token_urlsafe(TOKEN_BYTES)
        self.address = f"http://127.0.0.1:{port}/#{token}"
        cuts = Cuts(cluster, work)
        self._watch = Watch(cluster, work, cuts)
        self._answers = PageAnswers(Access(token, port), self._watch, cuts)
        self._listeners: HttpListeners | None = None
        self._serving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._listener, self._begin)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._serving is None:
            asyncio.get_running_loop().remove_reader(self._listener)
        else:
            await self._serving
        if self._listeners is not None:
            await self._listeners.close()
        self._listener.close()
        await self._watch.close()

    @property
    def serving(self) -> bool:
        """Whether a client has connected."""
        return self._serving is not None

    def _begin(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listener)
        self._serving = asyncio.create_task(self._serve(), name="page")

    async def _serve(self) -> None:
        make = await asyncio.to_thread(_http_listeners)
        self._listeners = make(self._answers.answer)
        await self._listeners.listen(self._listener)


def _http_listeners() -> "type[HttpListeners]":
    from nodeagent.runtime.serving.http import HttpListeners  # noqa: PLC0415

    return HttpListeners
