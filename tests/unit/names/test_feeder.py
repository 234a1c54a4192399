"""What the process receives beside Services."""

import asyncio
from collections.abc import Collection

import pytest

from nodeagent.names.feed import feeder
from nodeagent.names.feed.feed_messages import Begin, End, Namespaces, Pods, Served
from nodeagent.names.feed.feeder import Feeder
from tests.harness.dns.reference import RecordedObjects

SERIAL = 7


class Running:
    def __init__(self, pods: dict[str, tuple[str, ...]]) -> None:
        self.pods = pods
        self.listed = asyncio.Event()

    @property
    def addresses(self) -> Collection[str]:
        return self.pods.keys()

    def namespaces_at(self, address: str) -> tuple[str, ...]:
        return self.pods.get(address, ())


def no_objects() -> RecordedObjects:
    objects = RecordedObjects()
    objects.services.clear()
    return objects


def test_pods_and_clients_are_sent_at_first_and_when_they_change() -> None:
    async def scene() -> None:
        running = Running({"10.0.0.1": ("shop",)})
        running.listed.set()
        reported = Feeder(no_objects(), wall=lambda: SERIAL, namespaces=lambda: ["shop"], pods=running)
        reported.serve(Served(("10.0.0.0/8",)))
        reported.passed(None)
        pods = Pods((("10.0.0.1", ("shop",)),), SERIAL)
        first = [Served(("10.0.0.0/8",)), Begin(), Namespaces(("shop",), SERIAL), pods, End(SERIAL)]
        assert [message async for message in reported.everything()] == first
        running.pods = {"10.0.0.2": ("shop", "web")}
        reported.pods_changed({"10.0.0.1"})
        reported.pods_changed({"10.0.0.2"})
        reported.serve(Served(("10.0.0.0/8",)))
        reported.serve(Served(("10.0.0.0/16",)))
        changes = reported.changes()
        assert await anext(changes) == Served(("10.0.0.0/16",))
        message = await anext(changes)
        assert isinstance(message, Pods)
        assert set(message.pods) == {("10.0.0.1", ()), ("10.0.0.2", ("shop", "web"))}
        await changes.aclose()  # type: ignore[attr-defined]  # it is a generator

    asyncio.run(scene())


def test_names_wait_for_pods_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        running = Running({})
        reported = Feeder(no_objects(), wall=lambda: SERIAL, pods=running)
        reported.passed(None)
        everything = reported.everything()
        first = asyncio.ensure_future(anext(everything))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not first.done()
        running.listed.set()
        assert await first == Begin()

    async def patience_ends() -> None:
        reported = Feeder(no_objects(), wall=lambda: SERIAL, pods=Running({}))
        reported.passed(None)
        assert await anext(reported.everything()) == Begin()

    asyncio.run(scene())
    monkeypatch.setattr(feeder, "LIST_PATIENCE_SECONDS", 0.01)
    asyncio.run(patience_ends())


def test_a_full_state_waits_for_namespaces_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else names in those without Services would be gone for a moment when an agent starts again."""
    known: list[frozenset[str] | None] = [None]

    def names() -> Feeder:
        reported = Feeder(no_objects(), wall=lambda: SERIAL, namespaces=lambda: known[0])
        reported.passed(None)
        return reported

    async def scene() -> None:
        reported = names()
        everything = reported.everything()
        first = asyncio.ensure_future(anext(everything))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not first.done()
        known[0] = frozenset({"empty"})
        reported.namespaces_changed()
        assert [await first, await anext(everything)] == [Begin(), Namespaces(("empty",), SERIAL)]

    async def patience_ends() -> None:
        known[0] = None
        assert await anext(names().everything()) == Begin()

    asyncio.run(scene())
    monkeypatch.setattr(feeder, "LIST_PATIENCE_SECONDS", 0.01)
    asyncio.run(patience_ends())
