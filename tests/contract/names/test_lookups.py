"""Lookups all the time while addresses change, the process is killed, the agent restarts and hears nothing for a while.

`EFFORT=50` makes 100,000 of them and says how old the oldest answer was.
"""

import asyncio
import os
import signal
import socket
import time
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path

import dns.message

from tests.contract.names.test_process import WEB, Node, a_node, until
from tests.harness.effort import EFFORT, examples

LOOKUPS = examples(2000)
ASKERS = 8
RESOLVER_SECONDS = 5.0
"""After which resolvers ask again: of what a process had read when it was killed there is no answer."""
TRIES = 12
FIRST = int(IPv4Address("10.100.0.0"))
QUERY = dns.message.make_query(WEB, "A", id=1).to_wire()
RECORD_SIZE = 16
LONG = 10
"""The effort from which on times are judged: shorter runs share their processors with other tests."""
MOST_STALE_SECONDS = 0.1


@dataclass
class History:
    """Which version of an address was sent when. latest_seen: by any answer so far."""

    reported: list[float] = field(default_factory=list)
    latest_seen: int = 0
    lookups: int = 0
    repeated: int = 0
    most_stale_seconds: float = 0.0
    ended: bool = False

    def take(self, version: int, asked: float, seen_before: int) -> None:
        """An answer to a query that was asked then, when `seen_before` was the latest seen. Never an older one."""
        assert version >= seen_before, f"{version} after {seen_before}"
        self.latest_seen = max(self.latest_seen, version)
        self.lookups += 1
        if version + 1 < len(self.reported):
            self.most_stale_seconds = max(self.most_stale_seconds, asked - self.reported[version + 1])


def address_of(version: int) -> str:
    return str(IPv4Address(FIRST + version))


def test_no_lookup_fails_and_none_goes_back_in_time(tmp_path: Path) -> None:
    asyncio.run(whole(tmp_path))


async def whole(path: Path) -> None:
    async with a_node(path) as node:
        history = History()
        change(node, history)
        await node.until_said(address_of(0))
        async with asyncio.TaskGroup() as tasks:
            for _ in range(ASKERS):
                tasks.create_task(keep_asking(node, history))
            await go_on(node, history)
            killed = node.supervisor.pid
            os.kill(killed, signal.SIGKILL)  # the process
            # An agent that ends before it has another process leaves nobody who has the sockets.
            await until(lambda: node.supervisor.pid not in (0, killed))
            await go_on(node, history)
            await node.stop()  # the agent goes, and its successor knows more
            silent = history.lookups
            await until(lambda: history.lookups > silent + LOOKUPS // 20)
            node.start(listed=False)
            change(node, history)
            node.feeder.passed(None)
            history.reported[-1] = time.monotonic() + RESOLVER_SECONDS  # its first full state takes its time
            await until(lambda: history.latest_seen == len(history.reported) - 1)
            await go_on(node, history)
            silent = history.lookups
            await until(lambda: history.lookups > silent + LOOKUPS // 5)  # the API server is away: nothing new
            await go_on(node, history)
            history.ended = True
        assert history.lookups >= LOOKUPS
        assert history.latest_seen > 1
        reported = f"{history.lookups} lookups, {len(history.reported)} changes, {history.repeated} asked again"
        print(f"{reported}, oldest answer {history.most_stale_seconds * 1000:.1f} ms after the change")
        if EFFORT >= LONG:
            assert history.most_stale_seconds < MOST_STALE_SECONDS


def change(node: Node, history: History) -> None:
    """Sends the next version, as a pass sends it."""
    key = node.objects.put("web", address_of(len(history.reported)))
    history.reported.append(time.monotonic())
    node.feeder.passed({key})


async def go_on(node: Node, history: History) -> None:
    """Change the address whenever everybody knows the latest, for a fifth of all lookups."""
    lookups = history.lookups + LOOKUPS // 5
    while history.lookups < lookups:
        latest = len(history.reported) - 1
        if history.latest_seen == latest:
            change(node, history)
        await asyncio.sleep(0.002)


async def ask(node: Node) -> bytes:
    """The four bytes of the answer's address, from a port of its own; empty when none came in time."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.connect(node.place)
        sock.send(QUERY)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(RESOLVER_SECONDS):
                reply = await loop.sock_recv(sock, 512)
        except TimeoutError:
            return b""
    assert len(reply) == len(QUERY) + RECORD_SIZE, reply
    return reply[-4:]


async def keep_asking(node: Node, history: History) -> None:
    while not history.ended:
        seen, asked = history.latest_seen, time.monotonic()
        for _ in range(TRIES):
            if address := await ask(node):
                break
            history.repeated += 1
        assert address, "no answer"
        history.take(int.from_bytes(address, "big") - FIRST, asked, seen)
