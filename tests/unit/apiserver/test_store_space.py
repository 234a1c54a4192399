"""That a store was full is said once, when there is room to say it."""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from nodeagent.apiserver.controllers.store_space import StoreSpace
from nodeagent.kinds.description.status import storage_full


@dataclass
class Written:
    """What is asked of the registry: refused while the store is full, as there."""

    store: Any
    events: list[Any] = field(default_factory=list)

    async def create(self, _: object, namespace: str, event: Any, __: object) -> None:
        if self.store.short:
            raise storage_full()
        self.events.append((namespace, event))


@pytest.mark.parametrize(
    ("states", "said"),
    [
        pytest.param([False] * 4, [], id="never full"),
        pytest.param([True] * 4, [], id="full"),
        pytest.param([True, True, False, False, False], [(0, 2)], id="once"),
        pytest.param([False, True, False, True, True, False, False], [(1, 5)], id="it flutters"),
        pytest.param([True, False, False, True, False, False], [(0, 1), (3, 4)], id="twice"),
    ],
)
def test_a_full_store_is_reported_once_there_is_room(states: list[bool], said: list[tuple[int, int]]) -> None:
    store = SimpleNamespace(short=False)
    written = Written(store)
    now = 0
    catalog: Any = SimpleNamespace(named=lambda _: None)
    space: Any = StoreSpace(store, written, catalog, address="192.0.2.1", clock=lambda: 60.0 * (now + 1))  # type: ignore[arg-type]

    async def pass_time() -> None:
        nonlocal now
        for now, store.short in enumerate(states):  # noqa: B007 - the clock shows it
            await space.check()

    asyncio.run(pass_time())
    times = [(event["firstTimestamp"], event["lastTimestamp"]) for _, event in written.events]
    assert times == [(f"1970-01-01T00:{a + 1:02}:00Z", f"1970-01-01T00:{b + 1:02}:00Z") for a, b in said]
    assert {namespace for namespace, _ in written.events} <= {"default"}
    assert len({event["metadata"]["name"] for _, event in written.events}) == len(said)
