"""Long work takes turns: some milliseconds of each turn of the loop, for every client and every amount."""

import asyncio
from collections.abc import Callable, Generator, Iterator

import pytest

from nodeagent.apiserver.machinery.loop_time import PIECE_SECONDS, LoopTime


class Clock:
    """Time that passes by work alone."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def __call__(self) -> float:
        return self.now

    def steps(self, name: str, count: int, seconds: float = PIECE_SECONDS / 10) -> Generator[None, None, str]:
        for _ in range(count):
            self.now += seconds
            self.log.append(name)
            yield
        return name


async def longest_turn(clock: Clock, work: Callable[[LoopTime], list[asyncio.Task[str]]]) -> tuple[float, list[str]]:
    """(the seconds of work in one turn of the loop at most, what the work returned)."""
    tasks = work(LoopTime(clock))
    longest = 0.0
    while not all(task.done() for task in tasks):
        before = clock.now
        await asyncio.sleep(0)
        longest = max(longest, clock.now - before)
    return longest, [task.result() for task in tasks]


@pytest.mark.parametrize("clients", [1, 3, 50])
def test_a_turn_of_the_loop_is_short_however_many_work(clients: int) -> None:
    clock = Clock()

    def begin(loop_time: LoopTime) -> list[asyncio.Task[str]]:
        return [asyncio.create_task(loop_time.run(str(n), clock.steps(str(n), 100))) for n in range(clients)]

    longest, results = asyncio.run(longest_turn(clock, begin))
    assert results == [str(n) for n in range(clients)]
    # What is left of one turn and the next one lie within the same look.
    assert longest <= 2.2 * PIECE_SECONDS


def test_a_client_with_many_requests_gets_no_more_than_one_with_one() -> None:
    clock = Clock()

    def begin(loop_time: LoopTime) -> list[asyncio.Task[str]]:
        greedy = [asyncio.create_task(loop_time.run("greedy", clock.steps("greedy", 100))) for _ in range(30)]
        return [*greedy, asyncio.create_task(loop_time.run("modest", clock.steps("modest", 100)))]

    asyncio.run(longest_turn(clock, begin))
    end = len(clock.log) - clock.log[::-1].index("modest")
    assert clock.log[:end].count("greedy") < 2 * 100


def test_short_work_is_done_at_once() -> None:
    async def scenario() -> None:
        clock = Clock()
        running = LoopTime(clock).run("a", clock.steps("a", 3))
        with pytest.raises(StopIteration) as end:
            running.send(None)
        assert end.value.value == "a"

    asyncio.run(scenario())


def test_errors_arrive_where_the_work_was_asked_for() -> None:
    def broken(clock: Clock) -> Generator[None, None, None]:
        yield from clock.steps("a", 100)
        raise KeyError("a")

    async def scenario() -> None:
        clock = Clock()
        with pytest.raises(KeyError):
            await LoopTime(clock).run("a", broken(clock))

    asyncio.run(scenario())


def test_work_whose_client_has_gone_is_not_continued() -> None:
    async def scenario() -> None:
        clock = Clock()
        loop_time = LoopTime(clock)
        gone = asyncio.create_task(loop_time.run("a", clock.steps("gone", 1000)))
        await asyncio.sleep(0)
        gone.cancel()
        assert await loop_time.run("a", clock.steps("next", 1000)) == "next"
        assert clock.log.count("gone") < 100

    asyncio.run(scenario())


def test_empty_pieces_lead_to_the_next_step() -> None:
    def made(clock: Clock) -> Iterator[bytes]:
        for _ in clock.steps("a", 100):
            yield b""
        yield b"first"
        yield b""
        yield b"second"

    async def scenario() -> None:
        clock = Clock()
        loop_time, pieces = LoopTime(clock), made(clock)
        assert [bytes(await loop_time.next_piece("a", pieces)) for _ in range(3)] == [b"first", b"second", b""]

    asyncio.run(scenario())
