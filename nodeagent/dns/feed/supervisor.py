"""Keeps a DNS process alive and told: adopts one that is there, starts one when there is none.

The listening sockets are held by the agent and by the process, so names answer while either of them is started anew.
"""

import asyncio
import logging
import os
import socket
import stat
from array import array
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from fcntl import ioctl
from functools import partial
from pathlib import Path
from termios import TIOCOUTQ
from typing import Protocol

from nodeagent.dns.feed import places_file
from nodeagent.dns.feed.messages import (
    Answering,
    BadFrame,
    Decoder,
    FromProcess,
    Hello,
    Queries,
    Replaced,
    Report,
    Retire,
    Settings,
    ToProcess,
    encode,
)
from nodeagent.dns.feed.sockets import CannotListen, ListenAddress, address_of, open_sockets
from nodeagent.dns.feed.spawn import exit_status, spawn
from nodeagent.model.problem import Problem

logger = logging.getLogger(__name__)
query_logger = logging.getLogger("nodeagent.dns.queries")

CONNECT_SECONDS = 10.0
MOST_SOCKETS = 64
POLL_SECONDS = 0.002
SHORTEST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 5.0
PIECE = 1 << 16
REAP_TRIES = 50
REAP_SECONDS = 0.02


class Feed(Protocol):
    """What the process is told."""

    def everything(self) -> AsyncIterator[ToProcess]:
        """A full state, from Begin to End; nothing when there is none yet."""
        ...

    def changes(self) -> AsyncIterator[ToProcess]:
        """Changes since the last full state, for ever."""
        ...


class Gone(Exception):
    """The process ended, or speaks another language."""


class TakenOver(Exception):
    """Another agent looks after the process now."""


class Supervisor:
    """Runs until cancelled, or another agent has taken the process over.

    path: of the unix socket; its directory must be root's. on_problems: what is wrong with the process, in one line.
    on_answering: whether a process reads queries and knows everything.
    """

    def __init__(
        self,
        path: Path,
        places: tuple[ListenAddress, ...],
        settings: Settings,
        feed: Feed,
        *,
        on_problems: Callable[[tuple[Problem, ...]], None] = lambda problems: None,  # noqa: ARG005
        on_report: Callable[[Report], None] = lambda report: None,  # noqa: ARG005
        on_answering: Callable[[bool], None] = lambda answering: None,  # noqa: ARG005
    ) -> None:
        self._path = path
        self._places = places
        self._settings = settings
        self._feed = feed
        self._on_problems = on_problems
        self._on_report = on_report
        self._on_answering = on_answering
        self._adopted: tuple[socket.socket, Hello] | None = None
        self._predecessor: socket.socket | None = None
        self._sockets: dict[tuple[ListenAddress, int], socket.socket] = {}
        self._held: tuple[int, ...] = ()
        self._child = 0
        self.pid = 0
        """Of the process, 0 while there is none."""

    async def adopt(self) -> None:
        """Connect to the process that a former agent left, if there is one; `run` goes on with it."""
        self._adopted = await self._connect()
        self._on_answering(self._adopted is not None and self._adopted[1].answering)

    async def run(self) -> None:
        """An address that cannot be had is a Problem, and tried again."""
        pause = SHORTEST_PAUSE_SECONDS
        held = places_file.hold(self._path.with_suffix(".listen"), self._places)
        self._held = () if held is None else (held,)
        try:
            while True:
                try:
                    connection, hello = await self._process()
                    pause = SHORTEST_PAUSE_SECONDS
                    await self._look_after(connection, hello)
                except Gone as gone:
                    self.pid = 0
                    self._on_answering(False)
                    logger.warning("the DNS process is gone: %s; starting another", gone)
                    self._on_problems((Problem("dns", "ProcessGone", f"starting another: {gone}"),))
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

    async def _process(self) -> tuple[socket.socket, Hello]:
        """A connection to a process of our settings: the one that is there, or a new one."""
        adopted, self._adopted = self._adopted, None
        found = adopted or await self._connect()
        if found is not None:
            connection, hello = found
            if hello.settings in (None, self._settings) and not hello.ending and self._has_places():
                logger.info("adopted the DNS process pid=%d", hello.pid)
                self._on_answering(hello.answering)
                return found
            self._retire_predecessor()
            self._predecessor = connection
        await self._start()
        successor = await self._connect()
        if successor is None:
            raise Gone("it does not answer")
        return successor

    def _retire_predecessor(self) -> None:
        """End the process of other settings, which answered until its successor did."""
        connection, self._predecessor = self._predecessor, None
        if connection is not None:
            with connection, suppress(OSError):
                connection.sendall(encode(Retire(replaced=True)))

    async def _connect(self) -> tuple[socket.socket, Hello] | None:
        """Connect to the process behind the path and take a share of its sockets; None when there is none."""
        loop = asyncio.get_running_loop()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            await loop.sock_connect(connection, str(self._path))
            async with asyncio.timeout(CONNECT_SECONDS):
                hello, sockets = await _receive_hello(connection)
        except (OSError, BadFrame, TimeoutError) as error:
            connection.close()
            logger.debug("no DNS process at %s: %s", self._path, error)
            return None
        self._keep(sockets)
        return connection, hello

    def _keep(self, sockets: list[socket.socket]) -> None:
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
        with _listen(self._path) as listener:
            start = partial(spawn, listener.fileno(), descriptors, self._settings.user, held=self._held)
            self._child = await asyncio.to_thread(start)
        logger.info("started a DNS process pid=%d", self._child)

    async def _look_after(self, connection: socket.socket, hello: Hello) -> None:
        """Feed the process until it is gone."""
        self.pid = hello.pid
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        try:
            writer.write(encode(self._settings))
            self._on_problems(())
            listening = asyncio.create_task(self._listen_to(reader), name="words of the DNS process")
            feeding = asyncio.create_task(self._tell(writer), name="feed of the DNS process")
            try:
                done, _ = await asyncio.wait((listening, feeding), return_when=asyncio.FIRST_COMPLETED)
            finally:
                listening.cancel()
                feeding.cancel()
                await asyncio.gather(listening, feeding, return_exceptions=True)
            for task in (listening, feeding):  # what the process said last counts more than that it cannot be told
                if task in done:
                    task.result()
        except OSError as error:
            raise Gone(await self._how_it_ended()) from error
        finally:
            writer.close()

    async def _tell(self, writer: asyncio.StreamWriter) -> None:
        async for message in self._feed.everything():
            writer.write(encode(message))
            await writer.drain()
        async for message in self._feed.changes():
            writer.write(encode(message))
            await writer.drain()

    async def _listen_to(self, reader: asyncio.StreamReader) -> None:
        decoder = Decoder(FromProcess)
        while data := await reader.read(PIECE):
            try:
                for message in decoder.feed(data):
                    if isinstance(message, Replaced):
                        raise TakenOver
                    if isinstance(message, Answering):
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
            self._adopted[0].close()
        for sock in self._sockets.values():
            sock.close()
        for descriptor in self._held:
            os.close(descriptor)


async def look(path: Path) -> Settings | None:
    """The settings of the process behind a path; None when there is no process, or it has none."""
    met = await _meet(path)
    if met is None:
        return None
    met[0].close()
    return met[1].settings


async def part_with(path: Path) -> socket.socket | None:
    """Tell the process behind a path to end; a connection that it closes when it has, None when there is none."""
    met = await _meet(path)
    if met is None:
        return None
    with suppress(OSError, TimeoutError):
        met[0].sendall(encode(Retire()))
        async with asyncio.timeout(CONNECT_SECONDS):
            await _until_read(met[0])
    return met[0]


async def _until_read(connection: socket.socket) -> None:
    """Until the other side has read what was sent: when another agent connects, the process forgets the rest."""
    unread = array("i", [1])
    while True:
        ioctl(connection, TIOCOUTQ, unread)
        if not unread[0]:
            return
        await asyncio.sleep(POLL_SECONDS)


async def until_closed(connection: socket.socket) -> None:
    """Until the process has closed its end."""
    with connection, suppress(OSError):
        while await asyncio.get_running_loop().sock_recv(connection, PIECE):
            pass


async def _meet(path: Path) -> tuple[socket.socket, Hello] | None:
    """A connection to the process behind a path, without its sockets."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(connection, str(path))
        async with asyncio.timeout(CONNECT_SECONDS):
            hello, sockets = await _receive_hello(connection)
    except (OSError, BadFrame, TimeoutError):
        connection.close()
        return None
    for sock in sockets:
        sock.close()
    return connection, hello


def _listen(path: Path) -> socket.socket:
    """A unix socket at the path that only we may connect to."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.stat().st_mode):
            path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(4)
    return listener


async def _receive_hello(connection: socket.socket) -> tuple[Hello, list[socket.socket]]:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(connection, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(connection)
    data, descriptors, _, _ = socket.recv_fds(connection, PIECE, MOST_SOCKETS)
    sockets = [socket.socket(fileno=number) for number in descriptors]
    for message in Decoder(FromProcess).feed(data):
        if isinstance(message, Hello) and sockets:
            return message, sockets
    for sock in sockets:
        sock.close()
    raise BadFrame("no word of greeting")
