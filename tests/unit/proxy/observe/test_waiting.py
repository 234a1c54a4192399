"""What is said while the source has not answered, and that the watchdog hears of it."""

import asyncio
import logging
from dataclasses import dataclass

import pytest

from nodeagent.model.problem import Problem
from nodeagent.proxy.engine.change_queue import ChangeQueue
from nodeagent.proxy.observe.waiting import StartWait

REFUSED = Problem("API resource services", "ServerUnreachable", "not followed: https://192.0.2.1: Connection refused")
DEADLINE_SECONDS = 60.0


@dataclass
class Store:
    """A source that has delivered nothing but a problem."""

    awaited: tuple[str, ...] = ("Service", "EndpointSlice", "Node")
    problems: tuple[Problem, ...] = (REFUSED,)


class Heart:
    def __init__(self) -> None:
        self.beats = 0

    def beat(self) -> None:
        self.beats += 1


def test_waits_are_logged_from_time_to_time_and_feed_the_watchdog(caplog: pytest.LogCaptureFixture) -> None:
    said: list[str] = []
    heart = Heart()

    async def scenario() -> None:
        changes = ChangeQueue(asyncio.get_running_loop().time)
        wait = StartWait("kubeconfig /k", Store(), heart, say=said.append, say_seconds=0.05, beat_seconds=0.005)
        waiting = asyncio.create_task(wait.until(changes.wait_synced()))
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(said) < 3:  # noqa: ASYNC110  # time alone makes it speak
                await asyncio.sleep(0.005)
            assert not waiting.done()
            changes.synced()
            await waiting

    with caplog.at_level(logging.INFO):
        asyncio.run(scenario())
    line = "waiting for Service, EndpointSlice, Node from kubeconfig /k; " + REFUSED.detail
    assert set(said) == {line}
    assert [record.getMessage().startswith(line) for record in caplog.records] == [True] * len(said)
    assert heart.beats >= len(said)


def test_an_answer_at_once_is_nothing_to_speak_of(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        changes = ChangeQueue(asyncio.get_running_loop().time)
        changes.synced()
        changes.all_listed()
        await StartWait("manifests /m", Store(), Heart()).until(changes.wait_synced(DEADLINE_SECONDS))

    asyncio.run(scenario())
    assert caplog.records == []


@pytest.mark.parametrize("listed", [True, False])
def test_the_node_and_the_service_cidrs_are_waited_for_but_not_for_ever(listed: bool) -> None:
    """Without them a pass over adopted tables would take node ports out, and put them back in."""

    async def scenario() -> None:
        changes = ChangeQueue(asyncio.get_running_loop().time)
        patience = DEADLINE_SECONDS if listed else 0.1
        wait = StartWait("kubeconfig /k", Store(), Heart(), beat_seconds=0.01)
        waiting = asyncio.create_task(wait.until(changes.wait_synced(patience)))
        changes.synced()
        await asyncio.sleep(0.03)
        assert not waiting.done()
        if listed:
            changes.all_listed()
        await asyncio.wait_for(waiting, DEADLINE_SECONDS / 2)

    asyncio.run(scenario())


def test_cancelling_leaves_nobody_waiting() -> None:
    async def scenario() -> None:
        changes = ChangeQueue(asyncio.get_running_loop().time)
        waiting = asyncio.create_task(StartWait("x", Store(), Heart()).until(changes.wait_synced()))
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("store", "hinted"), [(Store(), True), (Store(problems=()), False), (Store(awaited=()), False)]
)
def test_a_silent_source_is_logged_with_advice(store: Store, hinted: bool) -> None:
    wait = StartWait("in-cluster", store, Heart(), hint="name another address")
    assert str(wait).endswith("; name another address") is hinted
