"""Queries by UDP: the socket is drained, and most replies leave before the next query is read."""

import asyncio
import select
import socket
from contextlib import suppress
from typing import Any

from nodeagent.dns.server.front import Front, Tasks, Waiting
from nodeagent.dns.wire.codes import Rcode

AT_ONCE = 64
"""Packets that are read before the loop looks at anything else; about 0.5 ms."""
LARGEST_QUERY = 4096
MOST_LEFT = 200
"""Times that the socket is read when listening ends: queries come no more by then, or somebody else reads them too."""


class UdpListener:
    """Answers on one socket, bound to one address, from `start` till `stop`."""

    def __init__(self, sock: socket.socket, front: Front, tasks: Tasks) -> None:
        self._socket = sock
        self._front = front
        self._tasks = tasks
        self.quick = 0
        """Queries whose answer was prepared."""

    def start(self) -> None:
        """Begin to read; what came before waits in the socket."""
        self._socket.setblocking(False)
        asyncio.get_running_loop().add_reader(self._socket, self._read)

    def stop(self) -> None:
        """Answer what has come, and read no more."""
        for _ in range(MOST_LEFT):
            if not select.select((self._socket,), (), (), 0)[0]:
                break
            self._read()
        asyncio.get_running_loop().remove_reader(self._socket)

    def _read(self) -> None:
        receive, send, reply = self._socket.recvfrom, self._socket.sendto, self._front.answers.reply
        clients = self._front.clients
        known = clients.known
        for _ in range(AT_ONCE):
            try:
                packet, peer = receive(LARGEST_QUERY)
            except OSError:  # nothing left, or an ICMP error of an earlier reply
                return
            if peer[0] not in known and not clients.are_served(peer[0]):
                self._send(self._front.refuse(packet), peer)
                continue
            answer = reply(packet)
            if answer is None or (answer[3] & 0x0F == Rcode.NXDOMAIN and self._front.walks_for(peer[0])):
                self._other(packet, peer)
                continue
            self.quick += 1
            with suppress(OSError):  # the client's network or our buffer: a lost packet, as DNS clients expect
                send(answer, peer)

    def _other(self, packet: bytes, peer: tuple[Any, ...]) -> None:
        answer = self._front.reply(packet, tcp=False, client=peer[0])
        if isinstance(answer, Waiting):
            work = asyncio.get_running_loop().create_task(self._wait(answer, peer), name="forwarded query")
            self._tasks.start(work)
        else:
            self._send(answer, peer)

    async def _wait(self, waiting: Waiting, peer: tuple[Any, ...]) -> None:
        self._send(await self._front.resolve(waiting), peer)

    def _send(self, answer: bytes | None, peer: tuple[Any, ...]) -> None:
        """None: silence."""
        if answer is not None:
            with suppress(OSError):
                self._socket.sendto(answer, peer)
