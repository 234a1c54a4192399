"""Requests written out as bytes, so that nothing between a test and the server is polite; free ports; waiting."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from tests.harness.free_ports import free_ports as find_ports


@dataclass(frozen=True)
class Reply:
    """What came back; header names as they were sent."""

    status: int
    headers: dict[str, str]
    body: bytes


Get = Callable[..., Awaitable[Reply]]


async def _get(port: int, path: str = "/", *, host: str = "127.0.0.1", method: str = "GET") -> Reply:
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return Reply(int(status.split()[1]), headers, body)


async def _until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event to tell of it
            await asyncio.sleep(0.005)


@asynccontextmanager
async def _running(task: Any) -> AsyncIterator["asyncio.Task[None]"]:
    running = asyncio.ensure_future(task)
    try:
        yield running
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


@pytest.fixture
def get() -> Get:
    """`await get(port, path, host=…, method=…)`: one request on a connection of its own."""
    return _get


@pytest.fixture
def until() -> Callable[..., Awaitable[None]]:
    """Waits for a condition; TimeoutError after five seconds."""
    return _until


@pytest.fixture
def running() -> Callable[..., Any]:
    """`async with running(part.run()) as task`: cancelled and awaited at the end."""
    return _running


@pytest.fixture
def free_ports() -> Callable[[int], list[int]]:
    """That many different ports nobody listens at right now, in either family."""
    return find_ports
