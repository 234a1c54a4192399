"""Events over HTTP, to an API server that keeps, refuses or does not answer."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from aiohttp import web

from nodeagent.model.backoff import Backoff
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem
from nodeagent.proxy.observe.event_documents import Event, EventType, Regarding, node_regarding, starting
from nodeagent.proxy.observe.event_sender import EventRecorder, EventTiming, ProblemEvents
from nodeagent.proxy.observe.problem_board import ProblemBoard
from nodeagent.proxy.source.client.api_client import ApiClient, Timeouts
from nodeagent.proxy.source.client.credentials import FixedCredential
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess
from nodeagent.proxy.source.client.tls import TlsTrust
from nodeagent.proxy.source.event_api import EventApi

NODE = node_regarding("n1")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
FAST = EventTiming(spacing=0.0, series=0.05, retry=Backoff(first_seconds=0.01, longest_seconds=0.02), farewell=1.0)


def warning(number: int = 0) -> Event:
    return Event(
        EventType.WARNING, "AddressConflict", "Program", f"conflict {number}", Regarding("Service", "shop", "web", "u")
    )


class EventServer:
    """Keeps events as the API server does. status: what to answer instead; 0: hang up."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str, str]] = []
        self.status: int | None = None

    async def handle(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        self.requests.append((request.method, request.path, request.content_type))
        if self.status == 0:
            assert request.transport is not None
            request.transport.abort()
        if self.status is not None:
            status = {"kind": "Status", "reason": "Forbidden", "message": "events is forbidden"}
            return web.json_response(status, status=self.status or 500)
        if request.method == "POST":
            path = f"{request.path}/{body['metadata']['name']}"
            if path in self.events:
                return web.json_response({"kind": "Status", "reason": "AlreadyExists", "message": "exists"}, status=409)
            self.events[path] = body
            return web.json_response(body, status=201)
        if request.path not in self.events:
            return web.json_response({"kind": "Status", "reason": "NotFound", "message": "gone"}, status=404)
        self.events[request.path].update(body)
        return web.json_response(self.events[request.path])


SHARED = Event(
    EventType.WARNING, "InvalidPort", "Program", "70000", Regarding("Service", "shop", "web", "u"), shared=True
)


class Bench:
    """A recorder, its server, and the time of day, which stands still unless moved."""

    def __init__(self, server: EventServer, client: ApiClient, **options: Any) -> None:
        self.server = server
        self.wall = NOON
        self._names = count(1)
        self._client = client
        self._options = {"timing": FAST, **options}
        self.recorder = self.recorder_of("n1")

    def recorder_of(self, node: str) -> EventRecorder:
        return EventRecorder(
            EventApi(self._client),
            instance=f"nodeagent-{node}",
            clock=asyncio.get_running_loop().time,
            wall=lambda: self.wall,
            suffixes=lambda: f"{next(self._names):x}",
            **self._options,
        )


@asynccontextmanager
async def bench(**options: Any) -> AsyncIterator[Bench]:
    server = EventServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    access = ClusterAccess(f"http://127.0.0.1:{runner.addresses[0][1]}", TlsTrust(), FixedCredential())
    try:
        async with ApiClient(access, timeouts=Timeouts(connect=1, headers=1, body=1)) as client:
            yield Bench(server, client, **options)
    finally:
        await runner.cleanup()


def test_an_event_is_created_as_the_api_wants_it(until: Any, running: Any) -> None:
    async def scenario() -> None:
        async with bench() as here, running(here.recorder.run()):
            here.recorder.record(starting(NODE))
            await until(lambda: here.recorder.sent)
        path = "/apis/events.k8s.io/v1/namespaces/default/events"
        assert here.server.requests == [("POST", path, "application/json")]
        assert here.server.events[f"{path}/n1.1"] == {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": "n1.1", "namespace": "default"},
            "eventTime": "2026-03-01T12:00:00.000000Z",
            "reportingController": "nodeagent",
            "reportingInstance": "nodeagent-n1",
            "action": "Start",
            "reason": "Starting",
            "regarding": {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"},
            "note": "",
            "type": "Normal",
        }

    asyncio.run(scenario())


def test_repeats_count_up_one_event(until: Any, running: Any) -> None:
    async def scenario() -> None:
        async with bench() as here, running(here.recorder.run()):
            here.recorder.record(warning())
            await until(lambda: here.recorder.sent == 1)
            here.wall += timedelta(seconds=5)
            for _ in range(10):
                here.recorder.record(warning())
            await until(lambda: here.recorder.sent == 2)
            (event,) = here.server.events.values()
            assert event["series"] == {"count": 11, "lastObservedTime": "2026-03-01T12:00:05.000000Z"}
            assert event["eventTime"] == "2026-03-01T12:00:00.000000Z"
            assert [request[0] for request in here.server.requests] == ["POST", "PATCH"]
            assert here.server.requests[1][2] == "application/merge-patch+json"

    asyncio.run(scenario())


def test_repeats_before_the_first_could_be_sent_are_one_request(until: Any, running: Any) -> None:
    async def scenario() -> None:
        async with bench() as here:
            for _ in range(3):
                here.recorder.record(warning())
            async with running(here.recorder.run()):
                await until(lambda: here.recorder.sent)
            (event,) = here.server.events.values()
            assert event["series"]["count"] == 3
            assert len(here.server.requests) == 1

    asyncio.run(scenario())


def test_an_event_the_server_forgot_is_created_again(until: Any, running: Any) -> None:
    async def scenario() -> None:
        async with bench() as here, running(here.recorder.run()):
            here.recorder.record(warning())
            await until(lambda: here.recorder.sent == 1)
            here.server.events.clear()
            here.recorder.record(warning())
            await until(lambda: here.recorder.sent == 2)
            (event,) = here.server.events.values()
            assert (event["metadata"]["name"], event["series"]["count"]) == ("web.2", 2)

    asyncio.run(scenario())


def test_an_equal_event_after_a_long_time_is_a_new_one(until: Any, running: Any) -> None:
    async def scenario() -> None:
        async with bench(timing=EventTiming(spacing=0, memory=0.0)) as here, running(here.recorder.run()):
            here.recorder.record(warning())
            await until(lambda: here.recorder.sent == 1)
            here.recorder.record(warning())
            await until(lambda: here.recorder.sent == 2)
            assert len(here.server.events) == 2
            assert all("series" not in event for event in here.server.events.values())

    asyncio.run(scenario())


@pytest.mark.parametrize("status", [pytest.param(0, id="hangs up"), 401, 429, 500, 503])
def test_events_outlast_a_server_that_is_away(
    status: int, until: Any, running: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with bench() as here, running(here.recorder.run()):
            here.server.status = status
            for number in range(3):
                here.recorder.record(warning(number))
            await until(lambda: len(here.server.requests) >= 4)
            here.server.status = None
            await until(lambda: here.recorder.sent == 3)
            assert {event["note"] for event in here.server.events.values()} == {f"conflict {n}" for n in range(3)}
            assert (here.recorder.dropped, here.recorder.refused) == (0, 0)

    asyncio.run(scenario())
    assert len(caplog.records) == 1, "said once, not at every attempt"


def test_events_beyond_the_limit_are_counted_and_dropped(until: Any, running: Any) -> None:
    async def scenario() -> None:
        async with bench(capacity=3) as here, running(here.recorder.run()):
            here.server.status = 503
            for number in range(10):
                here.recorder.record(warning(number))
            assert here.recorder.dropped == 7
            here.recorder.record(warning(0))
            assert here.recorder.dropped == 7, "a repeat needs no room"
            here.server.status = None
            await until(lambda: here.recorder.sent == 3)
            assert {event["note"] for event in here.server.events.values()} == {f"conflict {n}" for n in range(3)}

    asyncio.run(scenario())


def test_a_missing_permission_is_reported_once(until: Any, running: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with bench() as here, running(here.recorder.run()):
            here.server.status = 403
            for number in range(3):
                here.recorder.record(warning(number))
            await until(lambda: here.recorder.refused == 3)
            assert len(here.server.requests) == 3, "a refusal is not tried again"
            here.server.status = None
            here.recorder.record(warning(9))
            await until(lambda: here.recorder.sent == 1)

    asyncio.run(scenario())
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == ["event AddressConflict refused status=403: 403 Forbidden: events is forbidden"]


def test_events_that_are_due_at_the_end_are_still_sent(running: Any) -> None:
    async def scenario() -> None:
        async with bench(timing=EventTiming(spacing=60)) as here:
            async with running(here.recorder.run()):
                await asyncio.sleep(0)
                here.recorder.record(warning(1))
                here.recorder.record(warning(2))
            assert here.recorder.sent == 2

    asyncio.run(scenario())


def test_a_server_that_is_away_does_not_hold_up_the_end(running: Any) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with bench(timing=EventTiming(farewell=0.1)) as here:
            here.server.status = 503
            async with running(here.recorder.run()):
                here.recorder.record(warning())
                await asyncio.sleep(0)
                began = loop.time()
            assert loop.time() - began < 1

    asyncio.run(scenario())


def test_of_many_nodes_that_say_the_same_one_writes_and_counts(until: Any, running: Any) -> None:
    async def scenario() -> None:
        async with bench() as here:
            recorders = [here.recorder_of(f"n{number}") for number in range(20)]
            async with AsyncExitStack() as stack:
                for recorder in recorders:
                    await stack.enter_async_context(running(recorder.run()))
                for recorder in recorders:
                    recorder.record(SHARED)
                await until(lambda: all(recorder.sent == 1 for recorder in recorders))
                (event,) = here.server.events.values()
                assert "series" not in event
                assert len(here.server.requests) == 20
                here.wall += timedelta(seconds=5)
                for recorder in recorders:
                    recorder.record(SHARED)
                await until(lambda: "series" in event)
                await until(lambda: max(recorder.sent for recorder in recorders) == 2)
            assert event["series"] == {"count": 2, "lastObservedTime": "2026-03-01T12:00:05.000000Z"}
            writers = [recorder for recorder in recorders if recorder.sent == 2]
            assert len(writers) == 1, "the others know that somebody else counts"
            assert [method for method, _, _ in here.server.requests[20:]] == ["PATCH"]
            assert not any(recorder.refused for recorder in recorders)

    asyncio.run(scenario())


def test_a_shared_event_that_the_server_forgot_is_written_by_the_next_agent(until: Any, running: Any) -> None:
    async def scenario() -> None:
        async with bench(timing=EventTiming(spacing=0, memory=0.0)) as here:
            second = here.recorder_of("n2")
            async with running(here.recorder.run()), running(second.run()):
                here.recorder.record(SHARED)
                await until(lambda: here.recorder.sent)
                second.record(SHARED)
                await until(lambda: second.sent == 1)
                here.server.events.clear()
                second.record(SHARED)
                await until(lambda: bool(here.server.events))
            (event,) = here.server.events.values()
            assert event["reportingInstance"] == "nodeagent-n2"

    asyncio.run(scenario())


def test_an_event_that_cannot_even_be_sent_is_dropped_and_the_next_is_sent(
    until: Any, running: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Defective(EventApi):
        async def send(self, method: str, path: str, body: Any, content_type: str) -> tuple[int, str]:
            if "conflict 3" not in body["note"]:
                raise OverflowError("no such number")
            return await super().send(method, path, body, content_type)

    async def scenario() -> None:
        async with bench() as here:
            here.recorder._post = Defective(here.recorder._post._client)  # type: ignore[attr-defined]
            async with running(here.recorder.run()) as task:
                for number in range(4):
                    here.recorder.record(warning(number))
                await until(lambda: here.recorder.sent == 1)
                assert not task.done()
            assert here.recorder.refused == 3

    asyncio.run(scenario())
    said = "event AddressConflict on Service shop/web cannot be sent: OverflowError: no such number"
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [said]


def test_problems_become_events_when_they_come(until: Any, running: Any) -> None:
    async def scenario() -> None:
        async with bench() as here, running(here.recorder.run()):
            events = ProblemEvents(here.recorder.record, node=NODE, uid_of=lambda kind, key: f"uid of {kind} {key}")
            board = ProblemBoard([events])
            conflict = Problem("Service shop/web", "AddressConflict", "taken")
            board.replace("sync", [conflict, Problem("interface nodeagent0", "NotProgrammed", "no object's")])
            board.replace("sync", [conflict])
            board.replace("sync", [])
            await until(lambda: here.recorder.sent == 1)
            ((path, event),) = here.server.events.items()
            assert path.startswith("/apis/events.k8s.io/v1/namespaces/shop/events/web.")
            assert event["regarding"]["uid"] == f"uid of Service {ObjectKey('shop', 'web')}"
            assert (event["type"], event["note"]) == ("Warning", "taken")

    asyncio.run(scenario())
