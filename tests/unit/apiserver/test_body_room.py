"""How much of bodies is kept, and for whom."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from nodeagent.apiserver.api.body_room import BodyRoom
from nodeagent.kinds.description.status import ApiError


class Sender:
    """A client that sends pieces of a body when a test says so."""

    def __init__(self, room: BodyRoom, user: str) -> None:
        self._room = room
        self._user = user
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self.read = 0
        self.done = asyncio.Event()
        self.task = asyncio.ensure_future(self._run())

    async def _arriving(self) -> AsyncIterator[bytes]:
        while piece := await self._pieces.get():
            yield piece

    async def _run(self) -> None:
        with self._room.body(self._user) as body:
            async for piece in body.pieces(self._arriving()):
                self.read += len(piece)
            await self.done.wait()

    async def send(self, *sizes: int) -> None:
        for size in sizes:
            self._pieces.put_nowait(b"x" * size)
        for _ in range(20):
            await asyncio.sleep(0)


def test_a_body_that_is_only_announced_takes_no_room() -> None:
    async def scenario() -> None:
        room = BodyRoom(most_bytes=100, of_a_user=100)
        silent = [Sender(room, "agent") for _ in range(1000)]
        admin = Sender(room, "admin")
        await admin.send(90)
        assert admin.read == 90
        for sender in [*silent, admin]:
            sender.task.cancel()

    asyncio.run(scenario())


def test_the_first_body_of_a_user_is_always_read_and_others_share() -> None:
    async def scenario() -> None:
        room = BodyRoom(most_bytes=1000, of_a_user=50)
        first, second, third = (Sender(room, "agent") for _ in range(3))
        await asyncio.sleep(0)
        await second.send(40)
        await third.send(20)
        await first.send(500)
        assert (first.read, second.read, third.read) == (500, 40, 0)
        first.done.set()
        await first.send(0)
        assert third.read == 0, "the second is the first now, and has its room"
        second.done.set()
        await second.send(0)
        assert third.read == 20
        third.task.cancel()

    asyncio.run(scenario())


def test_however_much_others_have_sent_a_user_has_room_for_a_body() -> None:
    async def scenario() -> None:
        room = BodyRoom(most_bytes=100, of_a_user=60)
        agents = [Sender(room, f"agent-{number // 2}") for number in range(8)]
        for sender in agents:
            await sender.send(60)
        admin = Sender(room, "admin")
        await admin.send(300)
        assert admin.read == 300
        assert sum(sender.read for sender in agents) <= 4 * 60 + 100
        for sender in [*agents, admin]:
            sender.task.cancel()

    asyncio.run(scenario())


@pytest.mark.parametrize(("every_seconds", "ends"), [(0.001, True), (0.05, False)], ids=["in time", "too slow"])
def test_a_client_has_to_send_at_a_minimum_rate(every_seconds: float, ends: bool) -> None:
    async def dribble() -> AsyncIterator[bytes]:
        for _ in range(30):
            await asyncio.sleep(every_seconds)
            yield b"x" * 10

    async def scenario() -> int:
        room = BodyRoom(grace_seconds=0.5, bytes_a_second=1000)
        with room.body("agent") as body:
            return sum([len(piece) async for piece in body.pieces(dribble())])

    if ends:
        assert asyncio.run(scenario()) == 300
    else:
        with pytest.raises(ApiError) as caught:
            asyncio.run(scenario())
        assert caught.value.code == 408
