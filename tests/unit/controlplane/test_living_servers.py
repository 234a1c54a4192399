"""Servers say that they live; whoever stops saying so is forgotten."""

import asyncio

from nodeagent.controlplane.controllers.kubernetes_service import SERVERS, Advertised, KubernetesService
from nodeagent.controlplane.kinds.catalog import all_kinds
from nodeagent.controlplane.machinery.registry import Registry
from nodeagent.controlplane.machinery.worker import Worker
from nodeagent.controlplane.storage.log import Log
from nodeagent.controlplane.storage.records import Change, draft
from nodeagent.controlplane.storage.store import Store


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Chance:
    """Nothing here asks for a name."""

    def suffix(self, length: int) -> str:
        raise AssertionError(length)

    def uid(self) -> str:
        raise AssertionError


def test_a_server_that_was_written_down_without_an_end_gets_one() -> None:
    """As earlier versions left it when they were killed."""

    async def scenario() -> None:
        clock = Clock()
        async with Store(Log(":memory:"), clock=clock) as store:
            body: dict[str, object] = {"metadata": {"name": "192.0.2.1:6443", "resourceVersion": "0"}}
            body |= {"address": "192.0.2.1", "port": 6443}
            await store.commit([Change(SERVERS, "192.0.2.1:6443", 0, draft(body))])
            clock.now += 1000
            await store.catch_up()
            assert set(store.collection(SERVERS).records) == {"192.0.2.1:6443"}
            kinds = all_kinds()
            registry = Registry(store, kinds, {}, chance=Chance(), clock=clock, worker=Worker())
            mine = Advertised("192.0.2.2", 6443)
            service = KubernetesService(store, registry, kinds, address="10.96.0.1", advertised=mine)
            said = asyncio.Event()
            store.collection(SERVERS).register(said.set)
            beating = asyncio.ensure_future(service.beat())
            async with asyncio.timeout(30):
                while len(store.collection(SERVERS).records) < 2:
                    await said.wait()
                    said.clear()
            clock.now += 14
            await store.catch_up()
            assert set(store.collection(SERVERS).records) == {"192.0.2.1:6443", "192.0.2.2:6443"}
            clock.now += 2
            await store.catch_up()
            assert "192.0.2.1:6443" not in store.collection(SERVERS).records
            beating.cancel()
            await asyncio.wait([beating])

    asyncio.run(scenario())
