"""Events that come fast wake the process for many at a time."""

import time

import pytest

from nodeagent.model.objects import Service
from nodeagent.model.spacing import BURST, SPACING_SECONDS
from nodeagent.proxy.source.watch import ListWatch
from nodeagent.proxy.source.watch_events import Event
from tests.contract.source.following import (
    SERVICES,
    Follower,
    Server,
    Servers,
    event,
    follow,
    service,
    start_with,
)


def test_events_that_come_fast_are_read_together(fake_api_server: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[bytes] = []
    times: list[float] = []
    receive = ListWatch.receive_bytes

    def noting(protocol: ListWatch[Service], data: bytes) -> list[Event[Service]]:
        pieces.append(data)
        times.append(time.monotonic())
        return receive(protocol, data)

    monkeypatch.setattr(ListWatch, "receive_bytes", noting)
    events = [event("ADDED", service(f"web-{number:03}", str(number + 11))) for number in range(400)]

    def prepare(server: Server) -> None:
        start_with("10")(server)
        server.stream(SERVICES, events, end="hang", every_seconds=0.001)

    async def scenario(follower: Follower) -> None:
        await follower.until(lambda: len(follower.names) == len(events))

    follow(fake_api_server, prepare, scenario)
    assert [len(piece.splitlines()) for piece in pieces[:10]] == [1] * 10, "the first events wait for nothing"
    assert len(pieces) <= BURST + 1 + (times[-1] - times[0]) / SPACING_SECONDS, "on a busy machine events come slowly"
    assert b"".join(pieces) == b"".join(events)
