"""Clients that wait for an unreachable server are woken by the first that reaches it."""

import asyncio
import time

import pytest

from nodeagent.proxy.source.recovery import Recovery

FOR_EVER_SECONDS = 3600.0
DEADLINE_SECONDS = 60.0


def test_all_who_wait_are_woken() -> None:
    async def scenario() -> None:
        recovery = Recovery()
        waiting = [asyncio.create_task(recovery.wait(asyncio.sleep(FOR_EVER_SECONDS))) for _ in range(3)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        recovery.reached()
        await asyncio.wait_for(asyncio.gather(*waiting), DEADLINE_SECONDS)

    asyncio.run(scenario())


def test_a_wait_ends_by_itself_and_one_that_begins_later_is_not_shortened() -> None:
    async def scenario() -> None:
        recovery = Recovery()
        recovery.reached()
        began = time.monotonic()
        await recovery.wait(asyncio.sleep(0.05))
        assert time.monotonic() - began >= 0.05

    asyncio.run(scenario())


def test_cancelling_who_waits_cancels_the_wait() -> None:
    async def scenario() -> None:
        recovery = Recovery()
        ended = asyncio.Event()

        async def sleep() -> None:
            try:
                await asyncio.sleep(FOR_EVER_SECONDS)
            finally:
                ended.set()

        waiting = asyncio.create_task(recovery.wait(sleep()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert ended.is_set()
        recovery.reached()

    asyncio.run(scenario())
