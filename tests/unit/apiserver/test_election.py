"""One of several servers runs the controllers; another one when that dies, is cut off, or stops."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from nodeagent.apiserver.controllers.election import LEASES, PATH, Election, LeaseTimes
from nodeagent.apiserver.storage.records import Change
from nodeagent.apiserver.storage.store import Store
from tests.harness.shared_memory import Clock, Member, SharedMemory, run

TERMS = LeaseTimes()


class Servers:
    """Servers on one storage. `leading`: who runs controllers at this moment."""

    def __init__(self, memory: SharedMemory, stack: AsyncExitStack) -> None:
        self.memory = memory
        self.leading: list[str] = []
        self.most = 0
        self.members: dict[str, Member] = {}
        self.stores: dict[str, Store] = {}
        self._stack = stack
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def start(self, name: str, clock_offset: float = 0.0) -> None:
        member = self.members[name] = self.memory.member()
        clock = Clock(clock_offset)
        store = self.stores[name] = await self._stack.enter_async_context(Store(member, clock=clock.time))
        election = Election(store, name, uid=lambda: f"uid-{name}", clock=clock)
        self._tasks[name] = asyncio.create_task(election.run(lambda: self._lead(name)))

    async def start_behind(self, first: str, *others: str) -> None:
        """All of them, and the first one leads."""
        for name in (first, *others):
            await self.start(name)
        await self.until_leading(first)

    async def _lead(self, name: str) -> None:
        self.leading.append(name)
        self.most = max(self.most, len(self.leading))
        try:
            await asyncio.Event().wait()
        finally:
            self.leading.remove(name)

    async def stop(self, name: str) -> None:
        task = self._tasks.pop(name)
        task.cancel()
        await asyncio.wait([task])

    async def kill(self, name: str) -> None:
        """It ends without a word: none of what it still writes arrives."""
        self.members[name].cut = True
        await self.stop(name)

    def cut_all(self) -> None:
        for member in self.members.values():
            member.cut = True

    def mend_all(self) -> None:
        for member in self.members.values():
            member.cut = False
            member.read()

    async def until_leading(self, *names: str) -> float:
        """Seconds it took until exactly these lead."""
        begun = asyncio.get_running_loop().time()
        async with asyncio.timeout(600):
            while self.leading != list(names):  # noqa: ASYNC110  # the time is not real
                await asyncio.sleep(0.01)
        return asyncio.get_running_loop().time() - begun

    @property
    def lease(self) -> dict[str, Any]:
        record = next(iter(self.stores.values())).get(LEASES, PATH)
        assert record is not None
        return dict(record.document()["spec"])

    async def end(self) -> None:
        for name in list(self._tasks):
            await self.stop(name)


def scene(play: Any) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            servers = Servers(SharedMemory(), stack)
            try:
                await play(servers)
            finally:
                await servers.end()
            assert servers.most == 1, "two ran the controllers at once"

    run(scenario())


def test_one_of_three_leads_and_goes_on_leading() -> None:
    async def play(servers: Servers) -> None:
        await servers.start_behind("a", "b", "c")
        await asyncio.sleep(600)
        assert servers.leading == ["a"]
        assert servers.lease["leaseTransitions"] == 0

    scene(play)


@pytest.mark.parametrize("instant", [0.0, 1.3, 4.99, 5.01, 77.7])
def test_a_successor_takes_over_within_15_seconds_of_a_crash(instant: float) -> None:
    async def play(servers: Servers) -> None:
        await servers.start_behind("a", "b", "c")
        await asyncio.sleep(instant)
        await servers.kill("a")
        async with asyncio.timeout(60):
            while not servers.leading:  # noqa: ASYNC110  # the time is not real
                await asyncio.sleep(0.01)

    scene(play)


def test_a_successor_takes_over_at_once_after_an_orderly_stop() -> None:
    async def play(servers: Servers) -> None:
        await servers.start_behind("a", "b")
        await servers.stop("a")
        assert await servers.until_leading("b") <= 0.05
        assert servers.lease["leaseTransitions"] == 1

    scene(play)


def test_who_comes_back_under_its_name_goes_on_at_once() -> None:
    async def play(servers: Servers) -> None:
        await servers.start("a")
        await servers.until_leading("a")
        await servers.kill("a")
        await servers.start("a")
        assert await servers.until_leading("a") <= 0.05

    scene(play)


@pytest.mark.parametrize("offset", [-86_400.0, 86_400.0])
def test_clocks_that_are_wrong_by_a_day_change_nothing(offset: float) -> None:
    async def play(servers: Servers) -> None:
        await servers.start("a", offset)
        await servers.until_leading("a")
        await servers.start("b")
        await servers.start("c", -offset)
        await asyncio.sleep(100)
        assert servers.leading == ["a"]
        await servers.kill("a")
        async with asyncio.timeout(60):
            while not servers.leading:  # noqa: ASYNC110  # the time is not real
                await asyncio.sleep(0.01)

    scene(play)


@pytest.mark.parametrize("how", ["cut", "stalled"])
def test_who_cannot_write_stops_before_another_starts(how: str) -> None:
    async def play(servers: Servers) -> None:
        await servers.start_behind("a", "b")
        setattr(servers.members["a"], how, True)
        stopped = await servers.until_leading()
        assert stopped <= TERMS.give_up + TERMS.retry
        assert stopped + await servers.until_leading("b") <= 15
        setattr(servers.members["a"], how, False)
        servers.members["a"].read()
        await asyncio.sleep(100)
        assert servers.leading == ["b"]

    scene(play)


def test_a_short_outage_of_the_storage_moves_nothing() -> None:
    async def play(servers: Servers) -> None:
        await servers.start_behind("a", "b")
        servers.cut_all()
        await asyncio.sleep(7)
        servers.mend_all()
        await asyncio.sleep(60)
        assert servers.leading == ["a"]
        assert servers.lease["leaseTransitions"] == 0

    scene(play)


def test_after_a_long_outage_of_the_storage_one_leads_again() -> None:
    async def play(servers: Servers) -> None:
        await servers.start_behind("a", "b")
        servers.cut_all()
        await servers.until_leading()
        await asyncio.sleep(100)
        assert servers.leading == []
        servers.mend_all()
        await asyncio.sleep(15)
        assert len(servers.leading) == 1

    scene(play)


def test_a_full_store_does_not_take_the_controllers_away() -> None:
    """They are what makes room."""

    async def play(servers: Servers) -> None:
        await servers.start_behind("a", "b")
        servers.memory.full = True
        await asyncio.sleep(8)
        assert servers.leading == ["a"]
        servers.memory.full = False
        await asyncio.sleep(100)
        assert servers.leading == ["a"]

    scene(play)


def test_a_lease_that_somebody_deleted_is_made_again() -> None:
    async def play(servers: Servers) -> None:
        await servers.start_behind("a", "b")
        await servers.stores["b"].commit([Change(LEASES, PATH, None, None, b'{"resourceVersion":"0"}')])
        await asyncio.sleep(60)
        assert len(servers.leading) == 1
        assert servers.lease["holderIdentity"] == servers.leading[0]

    scene(play)
