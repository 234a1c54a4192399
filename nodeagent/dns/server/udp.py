"""Queries by UDP: the socket is drained, and most replies leave before the next query is read."""

import asyncio
import select
import socket
import time
from contextlib import suppress
from typing import Any

from nodeagent.dns.server.front import Front, Tasks, Waiting
from nodeagent.dns.server.tally import OTHER, tally_of
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
        self.tally = tally_of(sock, "udp")

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
        ours = self.tally.ours
        by_kind = ours.by_kind
        begun = time.monotonic()
        quick = 0
        last = None
        for _ in range(AT_ONCE):
            try:
                packet, peer = receive(LARGEST_QUERY)
            except OSError:  # nothing left, or an ICMP error of an earlier reply
                break
            if peer[0] not in known and not clients.are_served(peer[0]):
                self._send(self._front.refuse(packet), peer)
                continue
            answer = reply(packet)
            if answer is None:
                self._other(packet, peer)
                continue
            rcode = answer[3] & 0x0F
            if rcode == Rcode.NXDOMAIN and self._front.walks_for(peer[0]):
                self._other(packet, peer)
                continue
            kind = packet[-15:-13] if packet[11] else packet[-4:-2]  # an OPT record of 11 bytes stands behind it
            (by_kind.get(kind) or by_kind[OTHER])[rcode] += 1
            quick += 1
            last = packet, answer, peer
            try:  # cheaper than suppress
                send(answer, peer)
            except OSError:  # the client's network or our buffer: a lost packet, as DNS clients expect
                continue
        if last is not None:
            seconds = time.monotonic() - begun
            ours.took(seconds, quick)
            self._front.log.note(last[0], last[1], _text_of(last[2]), "udp", seconds / quick, quick)

    def _other(self, packet: bytes, peer: tuple[Any, ...]) -> None:
        begun = time.monotonic()
        answer = self._front.reply(packet, tcp=False, client=peer[0])
        if isinstance(answer, Waiting):
            work = asyncio.get_running_loop().create_task(self._wait(answer, peer, begun), name="forwarded query")
            self._tasks.start(work)
            return
        self._send(answer, peer)
        self._front.count(self.tally.ours, packet, answer, _text_of(peer), "udp", time.monotonic() - begun)

    async def _wait(self, waiting: Waiting, peer: tuple[Any, ...], begun: float) -> None:
        answer = await self._front.resolve(waiting)
        self._send(answer, peer)
        seconds = time.monotonic() - begun
        self._front.count(self.tally.theirs, waiting.query.packet, answer, _text_of(peer), "udp", seconds)

    def _send(self, answer: bytes | None, peer: tuple[Any, ...]) -> None:
        """None: silence."""
        if answer is not None:
            with suppress(OSError):
                self._socket.sendto(answer, peer)


def _text_of(peer: tuple[Any, ...]) -> str:
    return f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"
