"""Stands between an agent and an API server: of the requests, and of the pieces of watches, one in ten is not what the server said."""

import asyncio
import json
import random
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

PROPORTION = 0.1
ANSWERS = ("reset", "stall", "cut off", "410", "429", "500", "garbage")
PIECES = ("reset", "stall", "cut off", "410", "garbage")
_REASONS = {410: "Expired", 429: "TooManyRequests", 500: "InternalError"}


class LyingApiProxy:
    """Speaks HTTP to the agent, and HTTPS with a token to the server. counts: the lies so far, by name.

    seed: of what is chosen. proportion: of answers and pieces that are lies; it may be changed at any time.
    """

    def __init__(self, server: str, token: str, trust: ssl.SSLContext, seed: int) -> None:
        self.seed = seed
        self.proportion = PROPORTION
        self.counts: Counter[str] = Counter()
        self.url = ""
        self._server = server
        self._headers = {"Authorization": f"Bearer {token}"}
        self._trust = trust
        self._random = random.Random(seed)
        self._ending = asyncio.Event()

    def __str__(self) -> str:
        return f"lies of seed {self.seed}: {dict(self.counts)}"

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["LyingApiProxy"]:
        """Listens at `url` inside. An error that leaves the block names the seed."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._trust)) as self._session:
                yield self
        except BaseException as error:
            error.add_note(str(self))
            raise
        finally:
            self._ending.set()
            await runner.cleanup()

    def _draw(self, names: tuple[str, ...]) -> str:
        if self._random.random() >= self.proportion:
            return ""
        name = self._random.choice(names)
        self.counts[name] += 1
        return name

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        lie = self._draw(ANSWERS)
        if lie.isdigit():
            status = int(lie)
            after = {"Retry-After": "1"} if status == 429 else {}
            return web.json_response(_failure(status), status=status, headers=after)
        if lie == "garbage":
            return web.Response(body=self._random.randbytes(200), content_type="application/json")
        if lie == "stall":
            await self._ending.wait()
        if lie == "reset":
            _break_off(request)
        passed = {name: request.headers[name] for name in ("Accept", "Content-Type") if name in request.headers}
        async with self._session.get(
            self._server + request.path_qs, headers={**passed, **self._headers}, timeout=aiohttp.ClientTimeout()
        ) as answer:
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
            await response.prepare(request)
            if "watch" in request.query and answer.status == 200:
                async for line in answer.content:
                    await response.write(await self._piece(request, line))
            else:
                body = await answer.read()
                if lie == "cut off":
                    await response.write(body[: len(body) // 2])
                    _break_off(request)
                await response.write(body)
            return response

    async def _piece(self, request: web.Request, line: bytes) -> bytes:
        lie = self._draw(PIECES)
        if lie == "stall":
            await self._ending.wait()
        if lie == "reset":
            _break_off(request)
        if lie == "410":
            return json.dumps({"type": "ERROR", "object": _failure(410)}).encode() + b"\n"
        if lie == "garbage":
            return self._random.randbytes(100) + b"\n"
        return line[: len(line) // 2] + b"\n" if lie == "cut off" else line


def _failure(status: int) -> dict[str, object]:
    return {"kind": "Status", "apiVersion": "v1", "code": status, "reason": _REASONS[status], "message": "a lie"}


def _break_off(request: web.Request) -> None:
    """Ends the connection with a reset."""
    if request.transport is not None:
        request.transport.abort()
    raise ConnectionResetError
