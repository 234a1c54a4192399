"""The DNS process, but that some names of others make it hang: ``python -m`` this in place of `nodeagent.names.server`."""

import asyncio
import sys
import threading

from nodeagent.names.feed.feed_messages import Settings
from nodeagent.names.server.dns_process import run_process
from nodeagent.names.shares import Client
from tests.harness.dns.no_upstream import NoUpstream

LOOP, LOCK, DEAF = b"\x04loop", b"\x04lock", b"\x04deaf"


class Hanging(NoUpstream):
    """sockets: those that queries come to."""

    def __init__(self, sockets: tuple[int, ...]) -> None:
        self._sockets = sockets

    async def resolve(self, query: bytes, client: Client) -> bytes:
        if LOOP in query:
            while True:
                pass
        if LOCK in query:
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        if DEAF in query:
            for number in self._sockets:
                asyncio.get_running_loop().remove_reader(number)
        return await super().resolve(query, client)


def main() -> None:
    control, user, *sockets = map(int, sys.argv[1:])

    def upstream(settings: Settings) -> Hanging:
        return Hanging(tuple(sockets))

    run_process(control, tuple(sockets), user, upstream, tuple)


if __name__ == "__main__":
    main()
