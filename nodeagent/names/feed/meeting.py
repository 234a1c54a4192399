"""How the agent and the DNS process meet: a unix socket that only we may connect to."""

import asyncio
import logging
import os
import socket
import stat
import struct
from array import array
from contextlib import suppress
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from termios import TIOCOUTQ

from nodeagent.names.feed.feed_messages import (
    LARGEST_FROM_PROCESS,
    BadFrame,
    Decoder,
    FromProcess,
    Hello,
    Retire,
    Settings,
    encode,
)
from nodeagent.names.feed.heartbeat import Hung, in_time, kill

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 10.0
MOST_SOCKETS = 64
POLL_SECONDS = 0.002
PIECE = 1 << 16
_CREDENTIALS = struct.Struct("iII")
"""struct ucred (unix(7)): pid, uid, gid."""


@dataclass(frozen=True, slots=True)
class Met:
    """A process that has said Hello. pid: as the kernel says it, so that no process can name another one; 0 for one that the
    kernel does not show us."""

    connection: socket.socket
    pid: int
    hello: Hello
    sockets: tuple[socket.socket, ...]


async def meet(path: Path) -> Met | None:
    """Connects to the process behind a path; None when there is no process. One that does not say Hello in time is killed."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    pid = 0
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, str(path))
        pid = peer_of(connection)
        async with asyncio.timeout(CONNECT_SECONDS):
            hello, sockets = await in_time(_receive_hello(connection), pid)
    except Hung:
        logger.warning("the DNS process pid=%d answers nothing and is killed", pid)
        kill(pid)
        connection.close()
        return None
    except (OSError, BadFrame, TimeoutError) as error:
        connection.close()
        logger.debug("no DNS process at %s: %s", path, error)
        return None
    return Met(connection, pid, hello, tuple(sockets))


def peer_of(connection: socket.socket) -> int:
    """The pid of the process that listens at the other end of a unix socket."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid: int = _CREDENTIALS.unpack(credentials)[0]
    return pid


async def look(path: Path) -> Settings | None:
    """The settings of the process behind a path; None when there is no process, or it has none."""
    met = await _meet_without_sockets(path)
    if met is None:
        return None
    met.connection.close()
    return met.hello.settings


async def part_with(path: Path) -> socket.socket | None:
    """Tell the process behind a path to end; a connection that it closes when it has ended, None when there is no process."""
    met = await _meet_without_sockets(path)
    if met is None:
        return None
    with suppress(OSError, TimeoutError):
        met.connection.sendall(encode(Retire()))
        async with asyncio.timeout(CONNECT_SECONDS):
            await _until_read(met.connection)
    return met.connection


async def until_closed(connection: socket.socket) -> None:
    """Until the process has closed its end."""
    with connection, suppress(OSError):
        while await asyncio.get_running_loop().sock_recv(connection, PIECE):
            pass


def bind_at(path: Path) -> socket.socket:
    """A unix socket at the path that only we may connect to. The process listens on it, so that the kernel names the
    process to those who connect, and refuses them while there is no process."""
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
    return listener


async def _meet_without_sockets(path: Path) -> Met | None:
    met = await meet(path)
    for sock in () if met is None else met.sockets:
        sock.close()
    return met


async def _until_read(connection: socket.socket) -> None:
    """Until the other side has read what was sent: when another agent connects, the process forgets the rest."""
    unread = array("i", [1])
    while True:
        ioctl(connection, TIOCOUTQ, unread)
        if not unread[0]:
            return
        await asyncio.sleep(POLL_SECONDS)


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
    for message in Decoder(FromProcess, LARGEST_FROM_PROCESS).feed(data):
        if isinstance(message, Hello) and sockets:
            return message, sockets
    for sock in sockets:
        sock.close()
    raise BadFrame("no word of greeting")
