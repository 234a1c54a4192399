"""The kernel starts no more threads, at the start of the daemon or later."""

import asyncio
import threading
from contextlib import closing

import pytest

from nodeagent.daemon.event_loop import DaemonLoop, NoThreads


def refuse_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)


def test_without_any_thread_there_is_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_threads(monkeypatch)
    with pytest.raises(NoThreads, match="ulimit -u"):
        DaemonLoop()


def test_work_waits_for_the_threads_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pieces at a time, of which one occupies the only thread until the other has been given; then the loop ends."""

    async def work() -> list[str]:
        held = threading.Event()
        first = asyncio.create_task(asyncio.to_thread(lambda: held.wait(60) and "first"))
        second = asyncio.create_task(asyncio.to_thread(lambda: "second"))
        await asyncio.sleep(0)
        held.set()
        return [str(await first), await second]

    with asyncio.Runner(loop_factory=DaemonLoop) as runner:
        runner.get_loop()
        refuse_threads(monkeypatch)
        assert runner.run(work()) == ["first", "second"]


def test_the_loop_of_asyncio_itself_fails_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control."""
    with closing(asyncio.new_event_loop()) as loop:
        refuse_threads(monkeypatch)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            loop.run_until_complete(asyncio.to_thread(int))
