"""How the agent and the DNS process connect: a unix socket to which only we may connect."""

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

from nodeagent.names.feed import feed_messages as messages
from nodeagent.names.feed.heartbeat import ProcessHung, kill, unless_hung

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 10.0
MOST_SOCKETS = 64
POLL_SECONDS = 0.002
PIECE = 1 << 16
_CREDENTIALS = struct.Struct("iII")
"""struct ucred (unix(7)): pid, uid, gid."""


@dataclass(frozen=True, slots=True)
class GreetedProcess:
    """A connected process that has sent Hello. pid: from the kernel, so that no process can name another one; 0 if the
    kernel does not show it to us."""

    connection: socket.socket
    pid: int
    hello: messages.Hello
    sockets: tuple[socket.socket, ...]


async def meet(path: Path) -> GreetedProcess | None:
    """Connects to the process at a path; None if there is no process. Kills one that does not send Hello in time."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    pid = 0
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, str(path))
        pid = peer_of(connection)
        async with asyncio.timeout(CONNECT_SECONDS):
            hello, sockets = await unless_hung(_receive_hello(connection), pid)
    except ProcessHung:
        logger.warning("the DNS process pid=%d does not answer and is killed", pid)
        kill(pid)
        connection.close()
        return None
    except (OSError, messages.BadFrame, TimeoutError) as error:
        connection.close()
        logger.debug("no DNS process at %s: %s", path, error)
        return None
    return GreetedProcess(connection, pid, hello, tuple(sockets))


def peer_of(connection: socket.socket) -> int:
    """Returns the pid of the process that listens at the other end of a unix socket."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid: int = _CREDENTIALS.unpack(credentials)[0]
    return pid


async def running_settings(path: Path) -> messages.Settings | None:
    """Returns the settings of the process at a path; None if there is no process, or it has no settings."""
    met = await _meet_without_sockets(path)
    if met is None:
        return None
    met.connection.close()
    return met.hello.settings


async def request_end(path: Path) -> socket.socket | None:
    """Asks the process at a path to end. Returns a connection that it closes at its end; None without a process."""
    met = await _meet_without_sockets(path)
    if met is None:
        return None
    with suppress(OSError, TimeoutError):
        met.connection.sendall(messages.encode(messages.Retire()))
        async with asyncio.timeout(CONNECT_SECONDS):
            await _until_read(met.connection)
    return met.connection


async def until_closed(connection: socket.socket) -> None:
    """Waits until the process has closed its end of the connection."""
    with connection, suppress(OSError):
        while await asyncio.get_running_loop().sock_recv(connection, PIECE):
            pass


def bind_at(path: Path) -> socket.socket:
    """Returns a unix socket at the path, to which only we may connect. The process calls listen on it: so the kernel
    reports its pid to clients, and refuses them while there is no process."""
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


async def _meet_without_sockets(path: Path) -> GreetedProcess | None:
    met = await meet(path)
    for sock in () if met is None else met.sockets:
        sock.close()
    return met


async def _until_read(connection: socket.socket) -> None:
    """Waits until the other side has read what was sent: when another agent connects, the process discards the rest."""
    unread = array("i", [1])
    while True:
        ioctl(connection, TIOCOUTQ, unread)
        if not unread[0]:
            return
        await asyncio.sleep(POLL_SECONDS)


async def _receive_hello(connection: socket.socket) -> tuple[messages.Hello, list[socket.socket]]:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(connection, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(connection)
    data, descriptors, _, _ = socket.recv_fds(connection, PIECE, MOST_SOCKETS)
    sockets = [socket.socket(fileno=number) for number in descriptors]
    for message in messages.Decoder(messages.FromProcess, messages.LARGEST_FROM_PROCESS).feed(data):
        if isinstance(message, messages.Hello) and sockets:
            return message, sockets
    for sock in sockets:
        sock.close()
    raise messages.BadFrame("the first message is not Hello")
