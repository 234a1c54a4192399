"""The DNS process: what starts, in which order, and how it ends.

It is started with a unix socket and its listening sockets as open files. It drops its privileges, waits for an agent to
connect, and reads queries once it has a full state; until then they wait in the sockets.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

from nodeagent.model.name_counts import NameCounts
from nodeagent.names.feed import feed_messages as messages
from nodeagent.names.server.clients import Clients, SearchPaths
from nodeagent.names.server.control import Control
from nodeagent.names.server.fed_state import ReceivedState
from nodeagent.names.server.front import Front, Tasks, Upstream
from nodeagent.names.server.privileges import drop_privileges
from nodeagent.names.server.query_log import QueryLog
from nodeagent.names.server.tcp import TcpListener
from nodeagent.names.server.udp import UdpListener
from nodeagent.runtime.logs.setup import set_up_logging

PATIENCE_SECONDS = 5.0
"""How long queries wait for the first full state; after that, names of the zones get SERVFAIL and others work."""
PARTING_SECONDS = 2.0
"""For queries in progress when the process is asked to end."""
PARTING_LOOKS = 100
LINGERING_SECONDS = 3.0
"""For UDP queries that still arrive although they are sent elsewhere by then."""
ACCEPTING_SECONDS = 0.2
"""For TCP connections that wait in the listening sockets then."""
REPORT_SECONDS = 1.0
GARBAGE_THRESHOLD = 50_000


class Process:
    """The DNS process. search: returns the node's search domains."""

    def __init__(
        self,
        control: socket.socket,
        sockets: tuple[socket.socket, ...],
        upstream: Callable[[messages.Settings], Upstream],
        search: Callable[[], Sequence[str]],
    ) -> None:
        self._search = search
        self._control = Control(control, sockets, pid=os.getpid(), take=self._handle, lost=self._on_agent_lost)
        self._sockets = sockets
        self._make_upstream = upstream
        self._received: ReceivedState | None = None
        self._front: Front | None = None
        self._listeners: tuple[UdpListener | TcpListener, ...] = ()
        self._tasks = Tasks()
        self._background: list[asyncio.Task[None]] = []
        self._serving = False
        self._alone = False
        """Whether no other process will read the sockets after this one."""
        self._started = asyncio.Event()
        self._retired = asyncio.Event()

    async def run(self) -> None:
        """Serves until it is retired or cancelled."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._retire)
        self._background += [
            asyncio.create_task(self._control.run(), name="control"),
            asyncio.create_task(self._serve_after_deadline(), name="patience"),
            asyncio.create_task(self._report(), name="report"),
        ]
        try:
            await self._retired.wait()
        finally:
            await self._linger()
            await self._finish_connections()
            await self._tasks.finish(PARTING_SECONDS)
            self._stop_reading()
            for task in self._background:
                task.cancel()
            await asyncio.gather(*self._background, return_exceptions=True)

    def _retire(self) -> None:
        """Begins the end: an agent that connects from now on gets the sockets, but no promise of answers."""
        self._control.answering = False
        self._control.ending = True
        self._retired.set()

    def _stop_reading(self) -> None:
        for listener in self._listeners:
            if isinstance(listener, UdpListener):
                listener.stop()

    async def _linger(self) -> None:
        """Answers queries that were already sent to us when the rules changed: on a busy machine a sender may be
        interrupted after its packet has passed the rules. Ends early when an agent has fetched the sockets."""
        if self._alone:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._control.greeted.wait(), LINGERING_SECONDS)

    async def _finish_connections(self) -> None:
        """Accepts the connections that have begun, and serves them for a while."""
        listeners = [listener for listener in self._listeners if isinstance(listener, TcpListener)]
        if not listeners:
            return
        await asyncio.sleep(ACCEPTING_SECONDS)
        for listener in listeners:
            await listener.stop()
        for _ in range(PARTING_LOOKS):
            if not any(listener.connections for listener in listeners):
                return
            await asyncio.sleep(PARTING_SECONDS / PARTING_LOOKS)

    async def _handle(self, message: messages.ToProcess) -> None:
        if isinstance(message, messages.Retire):
            self._alone = not message.replaced
            if message.replaced:
                self._stop_reading()  # the other process has newer state
            self._control.greeted.clear()
            self._retire()
        elif isinstance(message, messages.Settings):
            if self._received is None:
                self._apply_settings(message)
        elif isinstance(message, messages.Ping):
            self._control.send(messages.Pong(message.number, self._reply(message.query), self._reads()))
        elif isinstance(message, messages.Served):
            if self._front is not None:
                self._front.clients.serve(message)
        elif self._received is not None and self._front is not None and self._received.take(message):
            self._front.answers = self._received.answers
            if not self._control.answering:
                gc.collect()  # takes tens of milliseconds; no client waits yet
            gc.freeze()
            await self._serve()
            if not self._retired.is_set():  # else clients would be sent here and away again at once
                self._control.answering = True
                self._control.send(messages.Answering())

    def _reply(self, query: bytes) -> bytes:
        """Returns the response to a Ping, from the same code that answers clients; empty for no response."""
        made = self._front.reply(query, tcp=False) if self._front is not None else None
        return made if isinstance(made, bytes) else b""

    def _reads(self) -> int:
        return sum(listener.reads for listener in self._listeners if isinstance(listener, UdpListener))

    def _on_agent_lost(self) -> None:
        if self._received is not None:
            self._received.discard_incomplete_state()

    def _apply_settings(self, settings: messages.Settings) -> None:
        self._control.settings = settings
        self._received = ReceivedState(settings)
        upstream = self._make_upstream(settings)
        self._background.append(asyncio.create_task(upstream.run(), name="upstream"))
        clients = Clients([address for address, _ in settings.listening])
        paths = SearchPaths(settings.zones[0], self._search) if settings.autopath else None
        log = QueryLog(settings.log_every)
        self._front = front = Front(self._received.answers, upstream, clients, paths, log)
        self._listeners = tuple(
            (UdpListener if sock.type == socket.SOCK_DGRAM else TcpListener)(sock, front, self._tasks)
            for sock in self._sockets
        )
        self._started.set()

    async def _serve_after_deadline(self) -> None:
        await self._started.wait()
        await asyncio.sleep(PATIENCE_SECONDS)
        await self._serve()

    async def _serve(self) -> None:
        if self._serving:
            return
        self._serving = True
        for listener in self._listeners:
            started = listener.start()
            if started is not None:
                await started

    async def _report(self) -> None:
        last = None
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            if self._front is None or self._received is None:
                continue
            if lines := self._front.log.take():
                self._control.send(messages.Queries(tuple(lines)))
            report = messages.Report(self._received.answers.synced, self._counts(self._front, self._received))
            if report != last:
                last = report
                self._control.send(report)

    def _counts(self, front: Front, fed: ReceivedState) -> NameCounts:
        tallies = [listener.tally for listener in self._listeners]
        return NameCounts(
            os.getpid(),
            len(fed.answers.lookup.index),
            fed.answers.bytes_held,
            tuple(found for tally in tallies for found in tally.replies(fed.zone)),
            tuple(found for tally in tallies for found in tally.durations(fed.zone)),
            front.upstream_counts(),
            front.unserved,
            front.dropped,
        )


def run_process(
    control_fd: int,
    socket_fds: tuple[int, ...],
    user: int,
    upstream: Callable[[messages.Settings], Upstream],
    search: Callable[[], Sequence[str]],
) -> None:
    """Drops all privileges and serves until the end. Raises OSError."""
    set_up_logging(logging.WARNING, as_json=False, journald="JOURNAL_STREAM" in os.environ)
    control = socket.socket(fileno=control_fd)
    sockets = tuple(socket.socket(fileno=number) for number in socket_fds)
    drop_privileges(user)
    gc.set_threshold(GARBAGE_THRESHOLD, 20, 100)
    asyncio.run(_run(control, sockets, upstream, search))


async def _run(
    control: socket.socket,
    sockets: tuple[socket.socket, ...],
    upstream: Callable[[messages.Settings], Upstream],
    search: Callable[[], Sequence[str]],
) -> None:
    await Process(control, sockets, upstream, search).run()
