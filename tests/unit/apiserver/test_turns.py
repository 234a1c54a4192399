"""Whose turn it is where work is much."""

import asyncio
from collections.abc import Coroutine

from nodeagent.apiserver.api.turns import Turns


class Bench:
    """Pieces of work that last until a test ends them; `begun` has the users in the order of their turns."""

    def __init__(self, most: int, per_user: int) -> None:
        self.turns = Turns(most, per_user)
        self.begun: list[str] = []
        self.ends: list[asyncio.Event] = []

    async def work(self, user: str) -> None:
        async with self.turns.turn(user):
            self.begun.append(user)
            end = asyncio.Event()
            self.ends.append(end)
            await end.wait()

    async def end(self, number: int) -> None:
        self.ends[number].set()
        await settle()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def run(scenario: Coroutine[None, None, None]) -> None:
    asyncio.run(scenario)


def test_a_user_who_asks_for_much_waits_for_himself() -> None:
    async def scenario() -> None:
        bench = Bench(4, 2)
        tasks = [asyncio.ensure_future(bench.work("agent")) for _ in range(10)]
        await settle()
        tasks.append(asyncio.ensure_future(bench.work("admin")))
        await settle()
        assert bench.begun == ["agent", "agent", "admin"]
        for task in tasks:
            task.cancel()

    run(scenario())


def test_users_who_wait_take_turns() -> None:
    async def scenario() -> None:
        bench = Bench(1, 1)
        tasks = [asyncio.ensure_future(bench.work(user)) for user in ["a", "a", "a", "b", "c"]]
        await settle()
        for number in range(4):
            await bench.end(number)
        assert bench.begun == ["a", "a", "b", "c", "a"]
        for task in tasks:
            task.cancel()

    run(scenario())


def test_one_who_gives_up_takes_no_turn_with_him() -> None:
    async def scenario() -> None:
        bench = Bench(1, 1)
        first, second, third = (asyncio.ensure_future(bench.work(user)) for user in "abc")
        await settle()
        second.cancel()
        await settle()
        bench.ends[0].set()
        third_was_called = asyncio.ensure_future(bench.work("d"))
        await settle()
        assert bench.begun == ["a", "c"]
        third.cancel()
        await settle()
        assert bench.begun == ["a", "c", "d"]
        first.cancel()
        third_was_called.cancel()

    run(scenario())
