"""What clients receive that open the page of a lab one after the other; its nodes are not asked."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from itertools import groupby
from pathlib import Path

import pytest

from nodeagent.lab.cluster import LiveCluster
from nodeagent.lab.directory import LabDirectory
from nodeagent.lab.lab_plan import Settings
from nodeagent.lab.lab_thread import Worker
from nodeagent.lab.page import page_watch as module
from nodeagent.lab.page.cuts import Cuts
from nodeagent.lab.page.page_state import NodeLook
from nodeagent.lab.page.page_watch import Watch

Watched = Callable[[Callable[[Watch], Awaitable[None]]], None]


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Carries out a scene with the page of a lab of two nodes, within a minute."""
    monkeypatch.setattr(module, "look_at", lambda *_: NodeLook(0.0, "running", 0, healthy=True, services={}))
    monkeypatch.setattr(module, "tracked_on", lambda *_: [])

    def carry_out(scene: Callable[[Watch], Awaitable[None]]) -> None:
        async def run() -> None:
            work = Worker()
            cluster = LiveCluster(Settings(nodes=2), LabDirectory(tmp_path, "lab"), print)
            watch = Watch(cluster, work, Cuts(cluster, work))
            try:
                async with asyncio.timeout(60):
                    await scene(watch)
            finally:
                await watch.close()
                work.close()

        asyncio.run(run())

    return carry_out


async def reported_nodes(states: AsyncGenerator[bytes, None]) -> list[int]:
    """How many nodes each state has, repeated numbers once, up to the second state that has both nodes."""
    counts: list[int] = []
    async for state in states:
        counts.append(len(json.loads(state)["nodes"]))
        if counts.count(2) == 2:
            return [number for number, _ in groupby(counts)]
    raise AssertionError(f"the page ended after {counts}")


def test_a_viewer_after_the_last_has_left_gets_no_old_state(watched: Watched) -> None:
    async def scene(watch: Watch) -> None:
        for _ in range(2):
            async with aclosing(watch.states()) as states:
                assert await reported_nodes(states) == [0, 2]

    watched(scene)


def test_a_viewer_who_comes_while_the_last_leaves_is_served_to_the_end(watched: Watched) -> None:
    async def scene(watch: Watch) -> None:
        async with aclosing(watch.states()) as first, aclosing(watch.states()) as second:
            await reported_nodes(first)
            leaving = asyncio.create_task(first.aclose())
            await asyncio.sleep(0)
            assert not leaving.done(), "the control: its looks are still being ended"
            assert await reported_nodes(second) == [0, 2]
            await leaving

    watched(scene)
