"""HTTP over the admin socket. The mode and the group of the socket decide who may connect."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Protocol

import msgspec
from aiohttp import web

from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem
from nodeagent.proxy.observe.admin.admin_documents import (
    LOG_LEVELS,
    ClusterDns,
    KnownProblem,
    LogLevelDocument,
    Status,
    TableBelief,
    Transaction,
)
from nodeagent.proxy.observe.admin.place import listen_at, namespaced_path, remove_own, sweep
from nodeagent.wire.unreadable import UNREADABLE

SOCKET_MODE = 0o660
RETRY_SECONDS = 5.0
_LEVELS = {name: logging.getLevelNamesMapping()[name.upper()] for name in LOG_LEVELS}

logger = logging.getLogger(__name__)


class View(Protocol):
    """The documents that the socket serves."""

    def status(self) -> Status: ...
    def problems(self) -> tuple[KnownProblem, ...]: ...
    def transactions(self) -> tuple[Transaction, ...]: ...
    def belief(self) -> tuple[TableBelief, ...]: ...
    def names(self) -> list[str]: ...
    def nodes(self) -> list[str]: ...
    def cluster_dns(self, pod: str | None) -> ClusterDns: ...

    def world(self, only: ObjectKey | None) -> AsyncIterator[bytes]:
        """Yields a line of JSON for the head, and one for each Service."""
        ...


class AdminServer:
    """Serves `view` at `path`, or next to it if an agent of another network namespace has that path.

    group: the group that may connect besides the owner; None: the group of this process, also if this machine has no group
    `missing_group`. report: called with all problems.
    """

    def __init__(
        self,
        path: Path,
        view: View,
        *,
        group: int | None,
        missing_group: str | None = None,
        report: Callable[[Iterable[Problem]], None],
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._path = path
        self._view = view
        self._group = group
        self._missing_group = missing_group
        self._report = report
        self._retry_seconds = retry_seconds

    async def run(self) -> None:
        """Serves until cancelled, and then removes the socket. If it cannot be created, that is reported and retried."""
        place, listener = await self._listen()
        inode = _inode(place)
        server = web.Server(self._handle, access_log=None)
        listening = await asyncio.get_running_loop().create_unix_server(server, sock=listener)
        try:
            logger.info("admin socket listens at %s", place)
            for left in await asyncio.to_thread(sweep, self._path):
                logger.info("removed %s, which an agent that was killed left behind", left)
            await asyncio.Event().wait()
        finally:
            listening.close()
            for connection in server.connections:
                connection.force_close()
            await server.shutdown(timeout=1.0)
            remove_own(place, inode)

    async def _listen(self) -> tuple[Path, socket.socket]:
        while True:
            try:
                found = await asyncio.to_thread(self._claim)
            except OSError as error:
                detail = (
                    f"cannot listen at {self._path}: {error.strerror or error}; commands read the kernel instead; "
                    f"tried again every {self._retry_seconds:g} seconds (reporting.socket names another place)"
                )
                self._report((Problem("admin socket", "NotListening", detail),))
                await asyncio.sleep(self._retry_seconds)
            else:
                self._report(self._problems(found[0]))
                return found

    def _problems(self, place: Path) -> tuple[Problem, ...]:
        name = self._missing_group
        if name is None:
            return ()
        detail = (
            f"reporting.socketGroup is {name}, and this machine has no such group: only the agent's own group may use {place}; "
            f"create it (groupadd --system {name}) and restart the agent"
        )
        return (Problem("admin socket", "NoSuchGroup", detail),)

    def _claim(self) -> tuple[Path, socket.socket]:
        try:
            return self._path, listen_at(self._path, mode=SOCKET_MODE, group=self._group)
        except FileExistsError:
            place = namespaced_path(self._path)
            return place, listen_at(place, mode=SOCKET_MODE, group=self._group)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        answers: dict[tuple[str, str], Callable[[], object]] = {
            ("GET", "/v1/status"): self._view.status,
            ("GET", "/v1/problems"): self._view.problems,
            ("GET", "/v1/transactions"): self._view.transactions,
            ("GET", "/v1/belief"): self._view.belief,
            ("GET", "/v1/services"): self._view.names,
            ("GET", "/v1/nodes"): self._view.nodes,
            ("GET", "/v1/cluster-dns"): lambda: self._view.cluster_dns(request.query.get("pod")),
            ("GET", "/v1/log-level"): _log_level,
        }
        special: dict[tuple[str, str], Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]] = {
            ("GET", "/v1/world"): self._world,
            ("PUT", "/v1/log-level"): _set_log_level,
        }
        wanted = (request.method, request.path)
        if wanted in special:
            return await special[wanted](request)
        if wanted in answers:
            return web.Response(body=msgspec.json.encode(answers[wanted]()), content_type="application/json")
        paths = sorted({path for _, path in (*answers, *special)})
        return web.Response(status=404, text=f"there is: {', '.join(paths)}\n")

    async def _world(self, request: web.BaseRequest) -> web.StreamResponse:
        namespace, _, name = request.query.get("service", "").rpartition("/")
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        async for line in self._view.world(ObjectKey(namespace, name) if name else None):
            await response.write(line)
        await response.write_eof()
        return response


def _log_level() -> LogLevelDocument:
    level = logging.getLogger().level
    return LogLevelDocument(min(_LEVELS, key=lambda name: abs(_LEVELS[name] - level)))


async def _set_log_level(request: web.BaseRequest) -> web.StreamResponse:
    try:
        wanted = msgspec.json.decode(await request.read(), type=LogLevelDocument).level
        level = _LEVELS[wanted]
    except (*UNREADABLE, KeyError):
        return web.Response(status=400, text=f"level must be one of {', '.join(_LEVELS)}\n")
    logging.getLogger().setLevel(level)
    logger.warning("log level is %s from now on, as asked at the admin socket", wanted)
    return web.Response(body=msgspec.json.encode(_log_level()), content_type="application/json")


def _inode(place: Path) -> int | None:
    """Returns the inode; None if the file was removed already."""
    try:
        return place.stat().st_ino
    except OSError:
        return None
