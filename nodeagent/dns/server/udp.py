"""Queries by UDP: the socket is drained, and most replies leave before the next query is read."""

import asyncio
import socket
from contextlib import suppress

from nodeagent.dns.server.front import Front, Tasks, Waiting

AT_ONCE = 64
"""Packets that are read before the loop looks at anything else; about 0.5 ms."""
LARGEST_QUERY = 4096


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
        """Read no more."""
        asyncio.get_running_loop().remove_reader(self._socket)

    def _read(self) -> None:
        receive, send, reply = self._socket.recvfrom, self._socket.sendto, self._front.answers.reply
        for _ in range(AT_ONCE):
            try:
                packet, peer = receive(LARGEST_QUERY)
            except OSError:  # nothing left, or an ICMP error of an earlier reply
                return
            answer = reply(packet)
            if answer is None:
                self._other(packet, peer)
                continue
            self.quick += 1
            with suppress(OSError):  # the client's network or our buffer: a lost packet, as DNS clients expect
                send(answer, peer)

    def _other(self, packet: bytes, peer: object) -> None:
        answer = self._front.reply(packet, tcp=False)
        if isinstance(answer, Waiting):
            work = asyncio.get_running_loop().create_task(self._wait(answer, peer), name="forwarded query")
            self._tasks.start(work)
        elif answer is not None:
            self._send(answer, peer)

    async def _wait(self, waiting: Waiting, peer: object) -> None:
        self._send(await self._front.resolve(waiting), peer)

    def _send(self, answer: bytes, peer: object) -> None:
        with suppress(OSError):
            self._socket.sendto(answer, peer)  # type: ignore[call-overload]  # as recvfrom gave it
