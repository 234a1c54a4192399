"""A pass waits for readers of the ruleset in churn alone, and for so long at most."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from nodeagent.proxy.engine.reader_window import CHURN_SECONDS, LONG_SECONDS, LOOK_SECONDS, SEARCH_SECONDS, ReaderWindow

from .virtual_time import run_in_virtual_time


class Readers:
    """Sockets, and until when each dumps and exists."""

    def __init__(self) -> None:
        self.looks = 0
        self._until: dict[str, tuple[float, float]] = {}

    def add(self, name: str, *, dumps: float, exists: float) -> None:
        now = asyncio.get_running_loop().time()
        self._until[name] = now + dumps, now + exists

    def __call__(self) -> dict[int, bool]:
        self.looks += 1
        now = asyncio.get_running_loop().time()
        return {number: now < dumps for number, (dumps, exists) in enumerate(self._until.values()) if now < exists}


async def waited(window: ReaderWindow) -> float:
    before = asyncio.get_running_loop().time()
    await window.wait()
    return asyncio.get_running_loop().time() - before


def run(scenario: Callable[[Readers, ReaderWindow], Awaitable[None]]) -> None:
    async def main() -> None:
        readers = Readers()
        await asyncio.sleep(100)
        await scenario(readers, ReaderWindow(readers))

    run_in_virtual_time(main())


def test_a_change_alone_waits_for_nobody_and_does_not_even_look() -> None:
    async def scenario(readers: Readers, window: ReaderWindow) -> None:
        readers.add("nft", dumps=9, exists=9)
        assert await waited(window) == 0
        window.committed()
        await asyncio.sleep(CHURN_SECONDS)
        assert await waited(window) == 0
        assert readers.looks == 0

    run(scenario)


def test_in_churn_a_reader_gets_to_its_end() -> None:
    async def scenario(readers: Readers, window: ReaderWindow) -> None:
        window.committed()
        readers.add("nft", dumps=0.1, exists=0.6)  # it takes apart what it read, and reads on
        assert 0.6 <= await waited(window) <= 0.6 + 2 * LOOK_SECONDS

    run(scenario)


@pytest.mark.parametrize("changes_a_second", [5, 20])
def test_readers_without_an_end_delay_few_changes_for_long_and_not_all(changes_a_second: int) -> None:
    async def scenario(readers: Readers, window: ReaderWindow) -> None:
        readers.add("watch nft list ruleset", dumps=10_000, exists=10_000)
        loop = asyncio.get_running_loop()
        next_change = began = loop.time()
        delays: list[float] = []
        quiet = 0.0
        while loop.time() < began + 1200:
            await asyncio.sleep(max(0.0, next_change - loop.time()))
            quiet += await waited(window)
            window.committed()
            while next_change <= loop.time():  # all that came meanwhile are in this pass
                delays.append(loop.time() - next_change)
                next_change += 1 / changes_a_second
        delays.sort()
        assert delays[-1] <= LONG_SECONDS + LOOK_SECONDS
        assert delays[int(0.99 * len(delays))] < 1.5
        assert 0.2 < quiet / 1200 < 0.5

    run(scenario)


def test_a_reader_for_whom_no_wait_was_enough_gets_a_long_one() -> None:
    async def scenario(readers: Readers, window: ReaderWindow) -> None:
        readers.add("nft", dumps=100, exists=100)
        loop = asyncio.get_running_loop()
        began, granted = loop.time(), list[float]()
        while loop.time() < began + 45:
            window.committed()
            await asyncio.sleep(0.05)
            granted.append(round(await waited(window), 1))
        assert max(granted) == LONG_SECONDS
        assert granted.count(LONG_SECONDS) == 1

    run(scenario)


def test_who_has_a_socket_and_reads_nothing_is_not_waited_for() -> None:
    async def scenario(readers: Readers, window: ReaderWindow) -> None:
        readers.add("a firewall's daemon", dumps=0, exists=1000)
        window.committed()
        assert await waited(window) == 0

    run(scenario)


def test_in_churn_without_readers_few_changes_look_for_them() -> None:
    async def scenario(readers: Readers, window: ReaderWindow) -> None:
        for _ in range(200):
            window.committed()
            await asyncio.sleep(0.05)
            assert await waited(window) == 0
        assert readers.looks <= 10 / SEARCH_SECONDS

    run(scenario)


def test_a_reader_that_comes_in_churn_is_found_soon() -> None:
    async def scenario(readers: Readers, window: ReaderWindow) -> None:
        window.committed()
        assert await waited(window) == 0
        readers.add("nft", dumps=9, exists=9)
        loop = asyncio.get_running_loop()
        began = loop.time()
        while await waited(window) == 0:
            assert loop.time() < began + SEARCH_SECONDS + 0.05
            window.committed()
            await asyncio.sleep(0.05)

    run(scenario)
