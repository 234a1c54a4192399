"""Keeps a DNS process alive and up to date: adopts a running one, or starts one.

The listening sockets are held by the agent and by the process, so names answer while either of them is restarted.
"""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Protocol

from nodeagent.model.problem import Problem
from nodeagent.names.feed import places_file
from nodeagent.names.feed.feed_messages import (
    LARGEST_FROM_PROCESS,
    Answering,
    BadFrame,
    Decoder,
    FromProcess,
    Pong,
    Queries,
    Replaced,
    Report,
    Retire,
    Settings,
    ToProcess,
    encode,
)
from nodeagent.names.feed.heartbeat import PATIENCE_SECONDS, Heartbeat, Hung, kill
from nodeagent.names.feed.meeting import CONNECT_SECONDS, PIECE, POLL_SECONDS, Met, bind_at, meet
from nodeagent.names.feed.sockets import CannotListen, ListenAddress, address_of, open_sockets
from nodeagent.names.feed.spawn import exit_status, spawn

logger = logging.getLogger(__name__)
query_logger = logging.getLogger("nodeagent.dns.queries")

SHORTEST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 5.0
REAP_TRIES = 50
REAP_SECONDS = 0.02


class Feed(Protocol):
    """The settings that the process receives."""

    def everything(self) -> AsyncIterator[ToProcess]:
        """A full state, from Begin to End; empty when no state is known yet."""
        ...

    def changes(self) -> AsyncIterator[ToProcess]:
        """Changes since the last full state, for ever."""
        ...


class Gone(Exception):
    """The process ended, or speaks another language. reason: that of the Problem."""

    def __init__(self, detail: str, *, reason: str = "ProcessGone") -> None:
        super().__init__(detail)
        self.reason = reason


class TakenOver(Exception):
    """Another agent looks after the process now."""


class Supervisor:
    """Runs until cancelled, or another agent has taken the process over.

    path: of the unix socket; its directory must be root's. adopts: whether the process of a former agent may go on; in a pod it
    ends with that agent, so that one of our own takes its place, with its sockets. on_problems: what is wrong with the process, in one line.
    on_answering: whether a process reads queries and knows everything.
    """

    def __init__(
        self,
        path: Path,
        places: tuple[ListenAddress, ...],
        settings: Settings,
        feed: Feed,
        *,
        adopts: bool = True,
        on_problems: Callable[[tuple[Problem, ...]], None] = lambda problems: None,  # noqa: ARG005
        on_report: Callable[[Report], None] = lambda report: None,  # noqa: ARG005
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
        self._adopted: Met | None = None
        self._predecessor: socket.socket | None = None
        self._sockets: dict[tuple[ListenAddress, int], socket.socket] = {}
        self._held: tuple[int, ...] = ()
        self._child = 0
        self._answering = False
        self.killed = 0
        """How often a process was killed because it answered nothing."""
        self.pid = 0
        """The id of the process, 0 while no process runs."""

    async def adopt(self) -> None:
        """Connect to the process that a former agent left, if there is one; `run` goes on with it."""
        self._adopted = await self._connect()
        self._on_answering(self._adopted is not None and self._adopted.hello.answering)

    async def run(self) -> None:
        """An address that cannot be had is a Problem, and tried again."""
        pause = SHORTEST_PAUSE_SECONDS
        held = places_file.hold(self._path.with_suffix(".listen"), self._places)
        self._held = () if held is None else (held,)
        try:
            while True:
                try:
                    met = await self._process()
                    pause = SHORTEST_PAUSE_SECONDS
                    await self._look_after(met)
                except Gone as gone:
                    self.pid = 0
                    self._on_answering(False)
                    logger.warning("the DNS process is gone: %s; starting another", gone)
                    self._on_problems((Problem("dns", gone.reason, f"starting another: {gone}"),))
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                except CannotListen as error:
                    logger.warning("%s; trying again", error)
                    self._on_problems((Problem("dns", "CannotListen", f"{error}; tried again all the time"),))
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                except OSError as error:  # no room or no right in the socket's directory, no file or process to spare
                    logger.warning("the DNS process cannot be started: %s; trying again", error)
                    self._on_problems((Problem("dns", "CannotStart", f"{error}; tried again all the time"),))
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                except TakenOver:
                    logger.info("another agent looks after the DNS process now")
                    return
        finally:
            self._retire_predecessor()
            self._close()

    async def _process(self) -> Met:
        """A process of our settings: the one that is there, or a new one."""
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
        return await self._meet_started()

    async def _meet_started(self) -> Met:
        """The process that was started, as soon as it listens. Raises Gone."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                while (met := await self._connect()) is None:
                    status = exit_status(self._child)
                    if status is not None:
                        self._child = 0
                        raise Gone(f"it ended with status {status}")
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise Gone("it does not answer") from None
        return met

    def _retire_predecessor(self) -> None:
        """End the process of other settings, which answered until its successor did."""
        connection, self._predecessor = self._predecessor, None
        if connection is not None:
            with connection, suppress(OSError):
                connection.sendall(encode(Retire(replaced=True)))

    async def _connect(self) -> Met | None:
        """Meet the process behind the path and take a share of its sockets; None when there is no process."""
        met = await meet(self._path)
        if met is not None:
            self._keep(met.sockets)
        return met

    def _keep(self, sockets: Iterable[socket.socket]) -> None:
        """Of the sockets of a process keep those we have not got."""
        for sock in sockets:
            key = (address_of(sock), sock.type)
            if key in self._sockets or key[0] not in self._places:
                sock.close()
            else:
                self._sockets[key] = sock

    def _has_places(self) -> bool:
        return {place for place, _ in self._sockets} == set(self._places)

    async def _start(self) -> None:
        """Start a process with all our sockets, opening those that are missing. Raises CannotListen."""
        for place in self._places:
            if (place, socket.SOCK_DGRAM) not in self._sockets:
                for sock in open_sockets(place):
                    self._sockets[place, sock.type] = sock
        descriptors = [sock.fileno() for sock in self._sockets.values()]
        # The process alone holds this one: who connects while there is no process must be refused.
        with bind_at(self._path) as listener:
            start = partial(spawn, listener.fileno(), descriptors, self._settings.user, held=self._held)
            self._child = await asyncio.to_thread(start)
        logger.info("started a DNS process pid=%d", self._child)

    async def _look_after(self, met: Met) -> None:
        """Feed the process until it is gone, or has to be killed."""
        self.pid = met.pid
        self._answering = met.hello.answering
        reader, writer = await asyncio.open_unix_connection(sock=met.connection)
        heartbeat = Heartbeat(
            met.pid,
            self._settings.zones[0],
            say=lambda ping: writer.write(encode(ping)),
            unread=self._to_be_read,
            on_late=self._is_late,
        )
        try:
            writer.write(encode(self._settings))
            self._on_problems(())
            tasks = (
                asyncio.create_task(self._listen_to(reader, heartbeat), name="words of the DNS process"),
                asyncio.create_task(self._tell(writer), name="feed of the DNS process"),
                asyncio.create_task(heartbeat.run(), name="heartbeat of the DNS process"),
            )
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            for task in tasks:  # what the process said last counts more than that nothing can be sent to it
                if task in done:
                    task.result()
        except Hung as hung:
            self._on_answering(False)
            self.killed += 1
            kill(met.pid)
            await self._how_it_ended()
            detail = f"it answered no query for {PATIENCE_SECONDS:g} s, and was killed"
            raise Gone(detail, reason="ProcessHung") from hung
        except OSError as error:
            raise Gone(await self._how_it_ended()) from error
        finally:
            writer.close()

    def _is_late(self, late: bool) -> None:
        """Queries go elsewhere while the process does not answer in time."""
        logger.warning("the DNS process %s", "answers nothing" if late else "answers again")
        self._on_answering(self._answering and not late)

    def _to_be_read(self) -> Iterable[socket.socket]:
        """Where queries may not wait for long."""
        return [sock for (_, kind), sock in self._sockets.items() if self._answering and kind == socket.SOCK_DGRAM]

    async def _tell(self, writer: asyncio.StreamWriter) -> None:
        async for message in self._feed.everything():
            writer.write(encode(message))
            await writer.drain()
        async for message in self._feed.changes():
            writer.write(encode(message))
            await writer.drain()

    async def _listen_to(self, reader: asyncio.StreamReader, heartbeat: Heartbeat) -> None:
        decoder = Decoder(FromProcess, LARGEST_FROM_PROCESS)
        while data := await reader.read(PIECE):
            try:
                for message in decoder.feed(data):
                    if isinstance(message, Replaced):
                        raise TakenOver
                    if isinstance(message, Pong):
                        heartbeat.answered(message)
                    if isinstance(message, Answering):
                        self._answering = True
                        self._on_answering(True)
                        self._retire_predecessor()
                    if isinstance(message, Report):
                        self._on_report(message)
                    if isinstance(message, Queries):
                        for line in message.lines:
                            query_logger.info("%s", line)
            except BadFrame as error:
                raise Gone(f"it speaks another language: {error}") from error
        raise Gone(await self._how_it_ended())

    async def _how_it_ended(self) -> str:
        """Its exit status if it was our child; waits a moment for it, so that no zombie is left."""
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
