"""Tasks that run until the first of them ends."""

import asyncio

import pytest

from nodeagent.runtime.first_end import until_one_ends


async def fail(text: str) -> None:
    raise OSError(text)


def test_the_others_have_ended_when_the_first_has() -> None:
    async def story() -> bool:
        endless = asyncio.create_task(asyncio.sleep(3600))
        await until_one_ends((endless, asyncio.create_task(asyncio.sleep(0))))
        return endless.cancelled()

    assert asyncio.run(story())


def test_of_two_errors_the_first_in_order_is_raised() -> None:
    async def story() -> None:
        await until_one_ends((asyncio.create_task(fail("reader")), asyncio.create_task(fail("writer"))))

    with pytest.raises(OSError, match="reader"):
        asyncio.run(story())


def test_cancellation_ends_all_tasks() -> None:
    async def story() -> bool:
        endless = asyncio.create_task(asyncio.sleep(3600))
        waiting = asyncio.create_task(until_one_ends((endless,)))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        return waiting.cancelled() and endless.cancelled()

    assert asyncio.run(story())
