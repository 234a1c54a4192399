"""Admits requests: reads bodies as they arrive, and makes expensive work wait for its turn. Both are bounded for each user."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from aiohttp import web

from nodeagent.apiserver.api.authorization import User
from nodeagent.apiserver.api.bodies import read_body
from nodeagent.apiserver.api.body_room import BodyRoom
from nodeagent.apiserver.api.request_options import Request
from nodeagent.apiserver.api.turns import Turns

_MOST_WRITES: Final = 4
_MOST_LISTS: Final = 4
_OF_A_USER: Final = 2


class Intake:
    """The limits of one server. A client gets a turn only after it has sent its body, so nobody waits for a slow sender."""

    def __init__(self) -> None:
        self._bodies = BodyRoom()
        self._writes = Turns(_MOST_WRITES, _OF_A_USER)
        self._lists = Turns(_MOST_LISTS, _OF_A_USER)

    @asynccontextmanager
    async def write(
        self,
        request: web.BaseRequest,
        query: Mapping[str, str],
        user: User,
        accept: str,
        admit: Callable[[int], bool],
    ) -> AsyncIterator[Request]:
        """Yields the request; `read` returns its body and then waits for a turn if it is large. Raises ApiError.

        accept: media types that the client accepts.
        admit: returns whether a body of this many bytes makes the write expensive; may raise ApiError.
        """
        async with AsyncExitStack() as stack:

            async def read() -> bytes:
                body = stack.enter_context(self._bodies.body(user.name))
                sent = await read_body(body.pieces(request.content.iter_any()), request.content_length)
                if admit(len(sent)):
                    await stack.enter_async_context(self._writes.turn(user.name))
                return sent

            yield Request(query, request.headers, read, user, accept, request.query.getall("dryRun", ()))

    @asynccontextmanager
    async def read(
        self, request: web.BaseRequest, query: Mapping[str, str], user: User, accept: str, *, is_large: bool
    ) -> AsyncIterator[Request]:
        """Yields a request that reads objects and has no body. Waits for a turn if `is_large`."""
        async with AsyncExitStack() as stack:
            if is_large:
                await stack.enter_async_context(self._lists.turn(user.name))
            yield Request(query, request.headers, _no_body, user, accept)


async def _no_body() -> bytes:
    return b""
