"""Connections to HTTP servers until standard input ends: new ones all the time, and some that are held. Prints what failed, as JSON.

A signal would reach the nsenter that runs it, and not this process: in a PID namespace it is a child.

load.py HOST:PORT... (standard library alone: it runs in a network namespace that tests enter with nsenter)
"""

import asyncio
import json
import sys
import time

EVERY_SECONDS = 0.05
HELD = 5
"""Connections to each server that are opened once, and used again and again."""
HELD_EVERY_SECONDS = 0.2
PATIENCE_SECONDS = 20.0
SLOW_SECONDS = 3.0
REQUEST = b"GET /hostname HTTP/1.1\r\nHost: x\r\n\r\n"


class Load:
    """Counts connections, and keeps the first failures and slow ones with their moment."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.opened = self.held_requests = self.failed = self.broken = self.slow = 0
        self.slowest = 0.0
        self.failures: list[str] = []

    def note(self, what: str, error: BaseException) -> None:
        if len(self.failures) < 20:
            self.failures.append(f"{time.monotonic() - self.begun:.2f} s: {what}: {type(error).__name__} {error}")

    async def open_one(self, host: str, port: int) -> None:
        started = time.monotonic()
        self.opened += 1
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                reader, writer = await asyncio.open_connection(host, port)
                await request(reader, writer)
            writer.close()
        except (OSError, TimeoutError, EOFError) as error:
            self.failed += 1
            self.note(f"new connection to {host}:{port}", error)
        seconds = time.monotonic() - started
        if seconds > SLOW_SECONDS:
            self.slow += 1
            self.note(f"slow connection to {host}:{port}, {seconds:.1f} s", TimeoutError())
        self.slowest = max(self.slowest, seconds)

    async def hold(self, host: str, port: int) -> None:
        try:
            reader, writer = await asyncio.open_connection(host, port)
            while True:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await request(reader, writer)
                self.held_requests += 1
                await asyncio.sleep(HELD_EVERY_SECONDS)
        except (OSError, TimeoutError, EOFError) as error:
            self.broken += 1
            self.note(f"held connection to {host}:{port}", error)


async def request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One request, and its answer as far as the body's end."""
    writer.write(REQUEST)
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise OSError(head.split(b"\r\n")[0].decode())
    length = next(
        int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
    )
    await reader.readexactly(length)


async def main() -> None:
    load, ending = Load(), asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ending.set)
    servers = [(host.strip("[]"), int(port)) for host, _, port in (one.rpartition(":") for one in sys.argv[1:])]
    held = [asyncio.create_task(load.hold(*server)) for server in servers for _ in range(HELD)]
    opened: set[asyncio.Task[None]] = set()
    turn = 0
    while not ending.is_set():
        task = asyncio.create_task(load.open_one(*servers[turn % len(servers)]))
        opened.add(task)
        task.add_done_callback(opened.discard)
        turn += 1
        await asyncio.sleep(EVERY_SECONDS)
    await asyncio.gather(*opened)
    for one in held:
        one.cancel()
    seconds = time.monotonic() - load.begun
    print(json.dumps({**vars(load), "begun": None, "seconds": round(seconds, 1), "held": len(held)}), flush=True)


asyncio.run(main())
