"""Limits the memory for request bodies that arrive or are worked on, for each user and in all.

Room is taken for bytes that arrived, never for bytes that were announced. A body for which there is no room waits, and no more
of it is read. The oldest body of each user is always read, so no user waits for bodies of other users, and bodies do not wait
for each other. A client has to send at a minimum rate.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator
from typing import Final, Self

from nodeagent.kinds.description.status import ApiError

GRACE_SECONDS: Final = 10.0
BYTES_A_SECOND: Final = 16 * 1024
"""The minimum rate, after `GRACE_SECONDS`. Only the time in which the server waits for the client counts."""
_MOST_BYTES: Final = 32 * 1024 * 1024
_MOST_BYTES_OF_A_USER: Final = 8 * 1024 * 1024


class BodyRoom:
    """Bounds the bytes of request bodies that are in memory.
    most_bytes: limit for all bodies. of_a_user: for those of one user. The oldest body of each user may exceed both."""

    def __init__(
        self,
        *,
        most_bytes: int = _MOST_BYTES,
        of_a_user: int = _MOST_BYTES_OF_A_USER,
        grace_seconds: float = GRACE_SECONDS,
        bytes_a_second: int = BYTES_A_SECOND,
    ) -> None:
        self._most_bytes = most_bytes
        self._of_a_user = of_a_user
        self._grace_seconds = grace_seconds
        self._bytes_a_second = bytes_a_second
        self._total = 0
        self._per_user: Counter[str] = Counter()
        self._bodies: dict[str, dict[Body, None]] = {}
        """The bodies of each user, in the order in which they began."""
        self._changed = asyncio.Event()

    def body(self, user: str) -> "Body":
        """Returns a context manager for a body that this user is about to send; leave it when the request is answered."""
        return Body(self, user)

    def seconds_for(self, size_bytes: int) -> float:
        """Returns how many seconds a client may take to send this many bytes."""
        return self._grace_seconds + size_bytes / self._bytes_a_second

    def enter(self, body: "Body") -> None:
        self._bodies.setdefault(body.user, {})[body] = None

    def leave(self, body: "Body") -> None:
        user = body.user
        self._total -= body.size_bytes
        self._per_user[user] -= body.size_bytes
        del self._bodies[user][body]
        if not self._bodies[user]:
            del self._bodies[user], self._per_user[user]
        self._wake()

    async def take(self, body: "Body", size_bytes: int) -> None:
        """Waits until there is room for this many more bytes of the body, and takes it."""
        while not self._fits(body, size_bytes):
            await self._changed.wait()
        self._total += size_bytes
        self._per_user[body.user] += size_bytes
        body.size_bytes += size_bytes

    def _fits(self, body: "Body", size_bytes: int) -> bool:
        if next(iter(self._bodies[body.user])) is body:
            return True
        has_share = self._per_user[body.user] + size_bytes <= self._of_a_user
        return has_share and self._total + size_bytes <= self._most_bytes

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Body:
    """The body of one request."""

    def __init__(self, room: BodyRoom, user: str) -> None:
        self._room = room
        self.user = user
        self.size_bytes = 0

    def __enter__(self) -> Self:
        self._room.enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._room.leave(self)

    async def pieces(self, arriving: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        """Yields the pieces as they arrive, each when there is room for it. Raises ApiError 408 if the client is too slow."""
        loop = asyncio.get_running_loop()
        iterator = aiter(arriving)
        waited = 0.0
        while True:
            began = loop.time()
            try:
                async with asyncio.timeout(self._room.seconds_for(self.size_bytes) - waited):
                    piece = await anext(iterator)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise ApiError(408, "Timeout", "the body did not arrive in time") from None
            waited += loop.time() - began
            await self._room.take(self, len(piece))
            yield piece
