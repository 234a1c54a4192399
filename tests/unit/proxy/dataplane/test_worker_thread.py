"""Blocking work beside the loop: results, errors, and what cancellation means."""

import asyncio
import threading

import pytest

from nodeagent.proxy.dataplane.worker_thread import in_thread


def test_the_result_and_the_error_come_back() -> None:
    assert asyncio.run(in_thread(lambda: 7)) == 7
    with pytest.raises(ZeroDivisionError):
        asyncio.run(in_thread(lambda: 1 // 0))


def test_a_cancelled_caller_waits_until_the_work_has_ended() -> None:
    started, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        may_end.wait(60)
        ended.set()

    async def story() -> None:
        task = asyncio.create_task(in_thread(work))
        await asyncio.to_thread(started.wait, 10)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        may_end.set()
        await asyncio.wait({task})
        assert task.cancelled()
        assert ended.is_set()

    asyncio.run(story())


def test_work_is_asked_to_hurry_and_its_error_is_raised() -> None:
    started, stop = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        stop.wait(60)
        raise OSError("stopped half way")

    async def story() -> None:
        task = asyncio.create_task(in_thread(work, hurry=stop.set))
        await asyncio.to_thread(started.wait, 10)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()

    asyncio.run(story())
