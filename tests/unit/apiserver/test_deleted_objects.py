"""What is gone leaves nothing behind, in the store and in what follows it."""

import asyncio
import gc
import tracemalloc

from nodeagent.apiserver.controllers.workloads import Workloads
from nodeagent.apiserver.storage.log import Log
from nodeagent.apiserver.storage.records import Change, draft
from nodeagent.apiserver.storage.store import Store

OBJECTS = 150
KEPT_BYTES = 80


def test_an_object_made_and_deleted_takes_no_memory_once_history_has_moved_on() -> None:
    async def scenario() -> tuple[int, int]:
        now = 1000.0
        sizes = []
        async with Store(Log(":memory:"), clock=lambda: now) as store:
            workloads = Workloads(store)
            for turn in range(3):
                for number in range(OBJECTS):
                    name = f"n{turn}-{number}"
                    meta = {"name": name, "namespace": "a", "resourceVersion": "0", "labels": {"app": name}}
                    for collection, spec in (("pods", {}), ("services", {"selector": {"app": name}})):
                        body = draft({"metadata": meta, "spec": spec})
                        (record,) = await store.commit([Change(collection, f"a/{name}", 0, body)])
                        await store.commit([Change(collection, f"a/{name}", record.revision, None, body)])
                        for event in store.collection(collection).events_after(record.revision - 1):
                            (workloads.pod_event if collection == "pods" else workloads.service_event)(event)
                now += 1000
                await store.compact()
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
        return sizes[-2], sizes[-1]

    tracemalloc.start()
    try:
        before, after = asyncio.run(scenario())
    finally:
        tracemalloc.stop()
    assert (after - before) / (2 * OBJECTS) < KEPT_BYTES
