"""When Events are forgotten: by the server's clock at the last write, whatever a client says of times."""

import asyncio
from typing import Any

import pytest

from nodeagent.apiserver.controllers.event_expiry import EventExpiry
from nodeagent.apiserver.machinery.managed import Manager, track_update
from nodeagent.apiserver.storage.log import Log
from nodeagent.apiserver.storage.records import Change
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.documents import encode
from nodeagent.kinds.description.moments import rfc3339
from nodeagent.kinds.event import SHAPES

CREATED = 1_800_000_000
HOUR = 3600


def entry(time: str) -> dict[str, Any]:
    return {"manager": "evil", "operation": "Update", "apiVersion": "v1", "time": time, "fieldsV1": {"f:reason": {}}}


def left(now: int, *times: str) -> float | None:
    """How long an Event that was created at CREATED has left at `now`, with these times in managedFields."""
    meta = {
        "name": "e",
        "namespace": "default",
        "resourceVersion": "0",
        "creationTimestamp": rfc3339(CREATED),
        "managedFields": [entry(time) for time in times],
    }

    async def scenario() -> float | None:
        async with Store(Log(":memory:"), clock=lambda: float(now)) as store:
            await store.commit([Change("events", "default/e", 0, encode({"metadata": meta}))])
            answer = await EventExpiry(store, lambda: float(now)).reconcile("default/e")
            assert (store.get("events", "default/e") is None) is (answer is None)
            return answer

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("after", "times", "expected"),
    [
        pytest.param(0, [], HOUR, id="new"),
        pytest.param(HOUR - 1, [], 1, id="nearly"),
        pytest.param(HOUR, [], None, id="over"),
        pytest.param(HOUR, [rfc3339(CREATED + 60)], 60, id="written again"),
        pytest.param(HOUR, ["9999-12-31T23:59:59Z"], None, id="a time that is yet to come"),
        pytest.param(HOUR, [rfc3339(CREATED + 60), "9999-12-31T23:59:59Z"], 60, id="both"),
        pytest.param(HOUR, [rfc3339(CREATED - HOUR)], None, id="dated back"),
    ],
)
def test_an_event_stays_for_an_hour_after_it_was_written(after: int, times: list[str], expected: float | None) -> None:
    assert left(CREATED + after, *times) == expected


def test_a_server_whose_clock_is_behind_keeps_an_event_for_an_hour() -> None:
    assert left(CREATED - 600) == HOUR


def test_no_client_says_that_a_field_was_written_in_the_future() -> None:
    struct = SHAPES["CoreEvent"]
    new: Any = {"metadata": {"managedFields": [entry("9999-12-31T23:59:59Z")]}, "reason": "Seen", "message": "new"}
    live = {"metadata": {}, "reason": "Seen"}
    track_update(struct, live, new, Manager("Update", "kubectl", "v1"), "2026-01-01T00:00:00Z")
    times = {one["manager"]: one["time"] for one in new["metadata"]["managedFields"]}
    assert times == {"evil": "2026-01-01T00:00:00Z", "kubectl": "2026-01-01T00:00:00Z"}
