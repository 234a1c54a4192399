"""Keeps a DNS process running and up to date: adopts a running one, or starts one.

Both the agent and the process hold the listening sockets, so names are answered while either of them restarts.
"""

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Protocol

from nodeagent.model.problem import Problem
from nodeagent.names.feed import feed_messages as messages
from nodeagent.names.feed import places_file
from nodeagent.names.feed.heartbeat import PATIENCE_SECONDS, Heartbeat, ProcessHung, kill
from nodeagent.names.feed.meeting import CONNECT_SECONDS, PIECE, POLL_SECONDS, GreetedProcess, bind_at, meet
from nodeagent.names.feed.sockets import CannotListen, ListenAddress, address_of, open_sockets
from nodeagent.names.feed.spawn import exit_status, spawn
from nodeagent.runtime.first_end import until_one_ends

logger = logging.getLogger(__name__)
query_logger = logging.getLogger("nodeagent.dns.queries")

SHORTEST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 5.0
OFTEN = 3
OFTEN_SECONDS = 20.0
"""The process is a problem if it ended this many times within this time. A single end is repaired at once."""
REAP_TRIES = 50
REAP_SECONDS = 0.02


class Feed(Protocol):
    """Produces the messages that the process receives."""

    def everything(self) -> AsyncIterator[messages.ToProcess]:
        """Yields a full state, from Begin to End; waits until the first state is known."""
        ...

    def changes(self) -> AsyncIterator[messages.ToProcess]:
        """Yields each change since the last full state; never ends."""
        ...


class ProcessGone(Exception):
    """The process ended, or sent bytes that are no message. reason: the reason of the Problem."""

    def __init__(self, detail: str, *, reason: str = "ProcessGone") -> None:
        super().__init__(detail)
        self.reason = reason


class TakenOver(Exception):
    """Another agent supervises the process now."""


class Supervisor:
    """Runs until it is cancelled, or until another agent takes the process over.

    path: of the unix socket; its directory must belong to root. adopts: whether to adopt the process of an earlier
    agent. In a pod such a process ends with that agent, so it is replaced by one of our own, which gets its sockets.
    on_problems: receives all present problems of the process, one line each. on_answering: receives whether a process
    reads queries and has the full state.
    """

    def __init__(
        self,
        path: Path,
        places: tuple[ListenAddress, ...],
        settings: messages.Settings,
        feed: Feed,
        *,
        adopts: bool = True,
        on_problems: Callable[[tuple[Problem, ...]], None] = lambda problems: None,  # noqa: ARG005
        on_report: Callable[[messages.Report], None] = lambda report: None,  # noqa: ARG005
        on_answering: Callable[[bool], None] = lambda answering: None,  # noqa: ARG005
    ) -> None:
        self._path = path
        self._places = places
        self._settings = settings
        self._feed = feed
        self._adopts = adopts
        self._on_problems = on_problems
        self._on_report = on_report
        self._on_answering = on_answering
        self._adopted: GreetedProcess | None = None
        self._predecessor: socket.socket | None = None
        self._sockets: dict[tuple[ListenAddress, int], socket.socket] = {}
        self._held: tuple[int, ...] = ()
        self._child = 0
        self._answering = False
        self._ends: deque[float] = deque(maxlen=OFTEN)
        self._unsteady: tuple[Problem, ...] = ()
        self._calming: asyncio.TimerHandle | None = None
        self.killed = 0
        """How often a process was killed because it did not answer."""
        self.pid = 0
        """The id of the process; 0 if no process runs."""

    async def adopt(self) -> None:
        """Connects to the process that an earlier agent left, if there is one; `run` continues with it."""
        self._adopted = await self._connect()
        self._on_answering(self._adopted is not None and self._adopted.hello.answering)

    async def run(self) -> None:
        """Starts or adopts a process, again and again. If it cannot bind an address, it reports a Problem and retries."""
        pause = SHORTEST_PAUSE_SECONDS
        held = places_file.hold(self._path.with_suffix(".listen"), self._places)
        self._held = () if held is None else (held,)
        try:
            while True:
                try:
                    met = await self._adopt_or_start()
                    pause = SHORTEST_PAUSE_SECONDS
                    await self._supervise(met)
                except ProcessGone as gone:
                    self.pid = 0
                    self._on_answering(False)
                    logger.warning("the DNS process ended: %s; starting another", gone)
                    self._on_problems((Problem("dns", gone.reason, f"starting another: {gone}"),))
                    self._note_end(gone)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                except CannotListen as error:
                    logger.warning("%s; trying again", error)
                    self._on_problems((Problem("dns", "CannotListen", f"{error}; retrying; see who has it: ss -lnup"),))
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                except OSError as error:  # disk full, no permission, or no free descriptor or process
                    logger.warning("the DNS process cannot be started: %s; trying again", error)
                    self._on_problems((Problem("dns", "CannotStart", f"{error}; retrying"),))
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                except TakenOver:
                    logger.info("another agent supervises the DNS process now")
                    return
        finally:
            if self._calming is not None:
                self._calming.cancel()
            self._retire_predecessor()
            self._close()

    def _note_end(self, gone: ProcessGone) -> None:
        """Keeps a problem for some time if the process ends often: each end is over before anybody looks."""
        loop = asyncio.get_running_loop()
        self._ends.append(loop.time())
        if len(self._ends) == OFTEN and self._ends[0] > loop.time() - OFTEN_SECONDS:
            detail = (
                f"its process ends again and again, and names are not answered here meanwhile ({gone}); see who ends it: "
                "journalctl -u nodeagent, dmesg, the memory limit of the unit"
            )
            self._unsteady = (Problem("dns", gone.reason, detail),)
            if self._calming is not None:
                self._calming.cancel()
            self._calming = loop.call_later(OFTEN_SECONDS, self._calm)

    def _calm(self) -> None:
        self._unsteady = ()
        if self.pid:
            self._on_problems(())

    async def _adopt_or_start(self) -> GreetedProcess:
        """Returns a process with our settings: the running one, or a new one. Raises ProcessGone, CannotListen or OSError."""
        found, self._adopted = self._adopted, None
        found = found or await self._connect()
        if found is not None:
            hello = found.hello
            if hello.settings in (None, self._settings) and self._adopts and not hello.ending and self._has_places():
                logger.info("adopted the DNS process pid=%d", found.pid)
                self._on_answering(hello.answering)
                return found
            self._retire_predecessor()
            self._predecessor = found.connection
        await self._start()
        return await self._connect_to_started()

    async def _connect_to_started(self) -> GreetedProcess:
        """Waits until the started process listens, and returns it. Raises ProcessGone if it ends or stays silent."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                while (met := await self._connect()) is None:
                    status = exit_status(self._child)
                    if status is not None:
                        self._child = 0
                        raise ProcessGone(f"it ended with status {status}")
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise ProcessGone("it does not answer") from None
        return met

    def _retire_predecessor(self) -> None:
        """Ends the process with other settings, which answered until its successor did."""
        connection, self._predecessor = self._predecessor, None
        if connection is not None:
            with connection, suppress(OSError):
                connection.sendall(messages.encode(messages.Retire(replaced=True)))

    async def _connect(self) -> GreetedProcess | None:
        """Connects to the process at the path and copies its sockets. Returns None if there is no process."""
        met = await meet(self._path)
        if met is not None:
            self._keep_missing(met.sockets)
        return met

    def _keep_missing(self, sockets: Iterable[socket.socket]) -> None:
        """Keeps the sockets of a process that we do not have yet, and closes the others."""
        for sock in sockets:
            key = (address_of(sock), sock.type)
            if key in self._sockets or key[0] not in self._places:
                sock.close()
            else:
                self._sockets[key] = sock

    def _has_places(self) -> bool:
        return {place for place, _ in self._sockets} == set(self._places)

    async def _start(self) -> None:
        """Starts a process with all our sockets; opens the missing ones first. Raises CannotListen or OSError."""
        for place in self._places:
            if (place, socket.SOCK_DGRAM) not in self._sockets:
                for sock in open_sockets(place):
                    self._sockets[place, sock.type] = sock
        descriptors = [sock.fileno() for sock in self._sockets.values()]
        # Only the process keeps this one open, so that the kernel refuses connections while there is no process.
        with bind_at(self._path) as listener:
            start = partial(spawn, listener.fileno(), descriptors, self._settings.user, held=self._held)
            self._child = await asyncio.to_thread(start)
        logger.info("started a DNS process pid=%d", self._child)

    async def _supervise(self, met: GreetedProcess) -> None:
        """Feeds the process until it ends or has to be killed. Raises ProcessGone or TakenOver."""
        self.pid = met.pid
        self._answering = met.hello.answering
        reader, writer = await asyncio.open_unix_connection(sock=met.connection)
        heartbeat = Heartbeat(
            met.pid,
            self._settings.zones[0],
            send=lambda ping: writer.write(messages.encode(ping)),
            unread=self._sockets_to_read,
            on_late=self._on_late,
        )
        try:
            writer.write(messages.encode(self._settings))
            self._on_problems(self._unsteady)
            tasks = (
                asyncio.create_task(self._read_messages(reader, heartbeat), name="messages of the DNS process"),
                asyncio.create_task(self._send_feed(writer), name="feed of the DNS process"),
                asyncio.create_task(heartbeat.run(), name="heartbeat of the DNS process"),
            )
            await until_one_ends(tasks)  # the reader first: its error explains more than one of the writer
        except ProcessHung as hung:
            self._on_answering(False)
            self.killed += 1
            kill(met.pid)
            await self._exit_reason()
            detail = f"it answered no query for {PATIENCE_SECONDS:g} s, and was killed"
            raise ProcessGone(detail, reason="ProcessHung") from hung
        except OSError as error:
            raise ProcessGone(await self._exit_reason()) from error
        finally:
            writer.close()

    def _on_late(self, late: bool) -> None:
        """Sends queries elsewhere while the process does not answer in time."""
        logger.warning("the DNS process %s", "does not answer" if late else "answers again")
        self._on_answering(self._answering and not late)

    def _sockets_to_read(self) -> Iterable[socket.socket]:
        """The sockets that the process must read without delay: its UDP sockets, once it answers."""
        return [sock for (_, kind), sock in self._sockets.items() if self._answering and kind == socket.SOCK_DGRAM]

    async def _send_feed(self, writer: asyncio.StreamWriter) -> None:
        async for message in self._feed.everything():
            writer.write(messages.encode(message))
            await writer.drain()
        async for message in self._feed.changes():
            writer.write(messages.encode(message))
            await writer.drain()

    async def _read_messages(self, reader: asyncio.StreamReader, heartbeat: Heartbeat) -> None:
        decoder = messages.Decoder(messages.FromProcess, messages.LARGEST_FROM_PROCESS)
        while data := await reader.read(PIECE):
            try:
                for message in decoder.feed(data):
                    if isinstance(message, messages.Replaced):
                        raise TakenOver
                    if isinstance(message, messages.Pong):
                        heartbeat.answered(message)
                    if isinstance(message, messages.Answering):
                        self._answering = True
                        self._on_answering(True)
                        self._retire_predecessor()
                    if isinstance(message, messages.Report):
                        self._on_report(message)
                    if isinstance(message, messages.Queries):
                        for line in message.lines:
                            query_logger.info("%s", line)
            except messages.BadFrame as error:
                raise ProcessGone(f"it sent an invalid message: {error}") from error
        raise ProcessGone(await self._exit_reason())

    async def _exit_reason(self) -> str:
        """Returns how the process ended: its exit status if it is our child, which is reaped."""
        for _ in range(REAP_TRIES):
            if self._child != self.pid:
                break
            status = exit_status(self._child)
            if status is not None:
                self._child = 0
                return f"it ended with status {status}"
            await asyncio.sleep(REAP_SECONDS)
        return "it closed its socket"

    def _close(self) -> None:
        if self._adopted is not None:
            self._adopted.connection.close()
        for sock in self._sockets.values():
            sock.close()
        for descriptor in self._held:
            os.close(descriptor)
