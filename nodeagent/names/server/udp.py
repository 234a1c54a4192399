"""Queries by UDP: many are read at once, and most of their replies are sent together before the next are read."""

import asyncio
import select
import socket
import time
from contextlib import suppress
from typing import Any

from nodeagent.names.server.datagrams import AT_ONCE, Datagrams
from nodeagent.names.server.front import Front, Tasks, Waiting
from nodeagent.names.server.tally import OTHER, tally_of
from nodeagent.wire.dns.codes import Rcode

MOST_LEFT = 200
"""How often the socket is read at most when listening ends: by then no more queries come, or another process reads
them, too."""


class UdpListener:
    """Answers on one socket, bound to one address, from `start` until `stop`."""

    def __init__(self, sock: socket.socket, front: Front, tasks: Tasks) -> None:
        self._socket = sock
        self._front = front
        self._tasks = tasks
        self._datagrams = Datagrams(sock)
        self._stopped = False
        self.reads = 0
        """How often datagrams were read."""
        self.tally = tally_of(sock, "udp")

    def start(self) -> None:
        """Begins to read; earlier datagrams have waited in the socket."""
        self._socket.setblocking(False)
        asyncio.get_running_loop().add_reader(self._socket, self._read_repeatedly)

    def stop(self) -> None:
        """Answers what has arrived, and stops reading; does nothing if called again."""
        if self._stopped:
            return
        self._stopped = True
        for _ in range(MOST_LEFT):  # a read that only reports an ICMP error does not end the loop
            if not select.select((self._socket,), (), (), 0)[0]:
                break
            self._read()
        asyncio.get_running_loop().remove_reader(self._socket)

    def _read_repeatedly(self) -> None:
        """Reads until nothing is left, but at most AT_ONCE datagrams: reading again costs less than being woken again."""
        left = AT_ONCE
        while left > 0 and (count := self._read()):
            left -= count

    def _read(self) -> int:
        """Reads and answers the datagrams that have arrived. Returns their number."""
        box = self._datagrams
        count = box.receive()
        if not count:
            return 0
        self.reads += 1
        front, answers = self._front, self._front.answers
        known = front.clients.known
        ready_at_once, make_ready = answers.ready.get, answers.make_ready
        inbox, names, sizes = box.inbox, box.names, box.sizes
        ours = self.tally.ours
        by_kind = ours.by_kind
        answer = box.answer
        begun = time.monotonic()
        quick = 0
        last = None
        for index, start, address, end in box.slots[:count]:
            packet = inbox[start : start + sizes[index]]
            if names[address:end] not in known and not self._is_served(packet, index):
                continue
            ready = ready_at_once(packet[2:]) or make_ready(packet)
            if ready is None:
                self._answer_other(packet, box.peer(index))
                continue
            rest, kind, rcode = ready
            if rcode == Rcode.NXDOMAIN and front.may_walk_for(box.peer(index)[0]):
                self._answer_other(packet, box.peer(index))
                continue
            reply = packet[:2] + (rest if type(rest) is bytes else rest.next())  # type: ignore[union-attr]  # see prepared
            answer(index, reply)
            (by_kind.get(kind) or by_kind[OTHER])[rcode] += 1
            quick += 1
            last = packet, reply, index
        box.send()
        if last is not None:
            seconds = time.monotonic() - begun
            ours.add_duration(seconds, quick)
            if front.log.every:
                front.log.note(last[0], last[1], _text_of(box.peer(last[2])), "udp", seconds / quick, quick)
        return count

    def _is_served(self, packet: bytes, index: int) -> bool:
        """Returns whether the client is served; if not, sends a refusal."""
        peer = self._datagrams.peer(index)
        if self._front.clients.are_served(peer[0]):
            return True
        self._send(self._front.refuse(packet), peer)
        return False

    def _answer_other(self, packet: bytes, peer: tuple[Any, ...]) -> None:
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
        """Sends an answer; None: no answer."""
        if answer is not None:
            with suppress(OSError):
                self._socket.sendto(answer, peer)


def _text_of(peer: tuple[Any, ...]) -> str:
    return f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"
