"""Checks whether the DNS process answers: the agent sends it a query five times a second.

If an answer is late, queries are sent elsewhere until the next answer. A process that had PATIENCE_SECONDS of processor
time and did not answer is killed. A check that is itself late (busy machine, suspended machine, stopped agent) counts
as one interval. Time during which the process waited for a processor makes it late, but does not get it killed.
"""

import asyncio
import logging
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from nodeagent.names.feed.feed_messages import Ping, Pong
from nodeagent.wire.dns.codes import QR, RecordType
from nodeagent.wire.dns.domain_names import from_text
from nodeagent.wire.dns.query import query_packet, question_of

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 0.2
PATIENCE_SECONDS = 1.0
"""Seconds without an answer until a process is late, and until it is killed. With one interval and the start of another
process (half a second), names are not answered for less than 2 s."""
_ENOUGH_SECONDS = PATIENCE_SECONDS - INTERVAL_SECONDS / 2
"""A little less than PATIENCE_SECONDS, because sums of intervals are never exact."""
_NANOSECONDS = 1e9

T = TypeVar("T")


class ProcessHung(Exception):
    """The process runs and answers no query."""


class SilenceTimer:
    """Counts the seconds without an answer. Pure: the caller gives the times."""

    def __init__(self) -> None:
        self._unanswered = 0.0
        self._could_answer = 0.0

    def record(self, *, answered: bool, elapsed: float, waited: float) -> None:
        """Records one check. elapsed: seconds since the check before. waited: of these, the seconds for which the
        process waited for a processor."""
        if answered:
            self._unanswered = self._could_answer = 0.0
            return
        counted = min(elapsed, INTERVAL_SECONDS)
        self._unanswered += counted
        self._could_answer += max(0.0, counted - waited)

    @property
    def is_late(self) -> bool:
        """Whether clients should use another server."""
        return self._unanswered >= _ENOUGH_SECONDS

    @property
    def has_hung(self) -> bool:
        """Whether the process could have answered during all that time."""
        return self._could_answer >= _ENOUGH_SECONDS


class Stopwatch:
    """Measures the seconds between two checks of a process, and those for which it waited for a processor."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._at = time.monotonic()
        self._waited = seconds_waited(pid)

    def lap(self) -> tuple[float, float]:
        """Returns (seconds, seconds waited for a processor) since the last call, or since the start."""
        at, waited = time.monotonic(), seconds_waited(self._pid)
        lap = at - self._at, waited - self._waited
        self._at, self._waited = at, waited
        return lap


class Heartbeat:
    """Pings the process. send: sends a message to it. unread: returns the sockets whose datagrams it should have read
    by now. on_late: called with True when the process becomes late, and with False when it answers again."""

    def __init__(
        self,
        pid: int,
        zone: str,
        *,
        send: Callable[[Ping], None],
        unread: Callable[[], Iterable[socket.socket]],
        on_late: Callable[[bool], None],
    ) -> None:
        self._pid = pid
        self._question = question_of(from_text(f"dns-version.{zone}"), RecordType.TXT)
        self._send = send
        self._unread = unread
        self._on_late = on_late
        self._number = 0
        self._answered = 0
        self._reads = 0

    def answered(self, pong: Pong) -> None:
        """Records an answer of the process."""
        ident = (pong.number & 0xFFFF).to_bytes(2, "big")
        if pong.reply[:2] == ident and pong.reply[2:3] and pong.reply[2] & QR:
            self._answered = pong.number
            self._reads = pong.reads

    async def run(self) -> None:
        """Pings until cancelled. Raises ProcessHung."""
        patience = SilenceTimer()
        watch = Stopwatch(self._pid)
        while True:
            self._number += 1
            reads = self._reads
            self._send(Ping(self._number, query_packet(self._number & 0xFFFF, self._question, flags=0)))
            await asyncio.sleep(INTERVAL_SECONDS)
            answered = self._answered == self._number and (self._reads != reads or not is_readable(self._unread()))
            elapsed, waited = watch.lap()
            before = patience.is_late
            patience.record(answered=answered, elapsed=elapsed, waited=waited)
            if patience.is_late is not before:
                self._on_late(patience.is_late)
            if patience.has_hung:
                raise ProcessHung


async def unless_hung(work: Coroutine[None, None, T], pid: int) -> T:
    """Awaits work that depends on the process. Raises ProcessHung if it takes as long as a heartbeat may fail."""
    task = asyncio.create_task(work, name="answer of the DNS process")
    patience = SilenceTimer()
    watch = Stopwatch(pid)
    try:
        while not (await asyncio.wait((task,), timeout=INTERVAL_SECONDS))[0]:
            elapsed, waited = watch.lap()
            patience.record(answered=False, elapsed=elapsed, waited=waited)
            if patience.has_hung:
                raise ProcessHung
        return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def kill(pid: int) -> None:
    """Sends SIGKILL to a process that does not end on request. pid: 0 if it is not known; then nothing happens."""
    if pid not in (0, os.getpid()):
        with suppress(ProcessLookupError):
            try:
                os.kill(pid, signal.SIGKILL)
            except PermissionError:
                logger.warning("the DNS process pid=%d hangs and cannot be killed: that takes CAP_KILL", pid)


def seconds_waited(pid: int) -> float:
    """Returns for how many seconds of its life a process was ready to run without a processor; 0 if unreadable."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / _NANOSECONDS
    except (OSError, IndexError, ValueError):
        return 0.0


def is_readable(sockets: Iterable[socket.socket]) -> bool:
    """Returns whether data waits in one of the sockets."""
    poll = select.poll()
    for sock in sockets:
        poll.register(sock, select.POLLIN)
    return any(event & select.POLLIN for _, event in poll.poll(0))
