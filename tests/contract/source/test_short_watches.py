"""Watches that a server ends early: how long a change then waits, and how many requests it takes.

Where a watch lasts for a time, times are a twentieth of the real ones; what an informer wants to wait is recorded and not waited for.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from nodeagent.proxy.source.pace import Timing
from tests.contract.source.following import SERVICES, Follower, Server, Servers, event, follow, service, start_with

REAL = Timing()
SCALE = 20
TIMING = replace(REAL, healthy=REAL.healthy / SCALE, brief=REAL.brief / SCALE, spacing=REAL.spacing / SCALE)
PATIENT = replace(TIMING, healthy=REAL.healthy)
"""For a watch that is cut: however late a busy machine cuts it, it was not healthy."""
AT_ONCE = replace(REAL, brief=60.0, healthy=60.0)
"""For a watch that ends at once: however late a busy machine sees its end, it was brief."""
COUNT = 8
NEWS = [event("MODIFIED", service("web", str(version))) for version in range(6, 6 + COUNT)]


def short_watches(lasting_seconds: float, end: str, *, news: bool) -> Callable[[Server], None]:
    """A server that ends each watch after so many seconds, with a change as its last word or without any."""

    def prepare(server: Server) -> None:
        start_with("5", "web")(server)
        for said in NEWS:
            server.stream(SERVICES, [said if news else b""], end, lasting_seconds / SCALE)

    return prepare


def all_watched(count: int) -> Callable[[Follower], Awaitable[None]]:
    """Until the server has ended so many watches, and was asked for the next one."""

    async def scenario(follower: Follower) -> None:
        await follower.until_watching(1 + count + 1, names=["web"])

    return scenario


@pytest.mark.parametrize("news", [False, True], ids=["silent", "with a change"])
@pytest.mark.parametrize("lasting", [0.5, 1.0, 2.9])
def test_an_orderly_end_is_no_failure(fake_api_server: Servers, lasting: float, news: bool) -> None:
    follower = follow(fake_api_server, short_watches(lasting, "close", news=news), all_watched(COUNT), TIMING)
    assert sum(follower.waits) <= TIMING.spacing
    assert len(follower.server.lists(SERVICES)) == 1


def test_changes_that_end_their_watch_at_once_are_asked_for_at_a_bounded_rate(fake_api_server: Servers) -> None:
    spaced = replace(TIMING, spacing=30.0)
    follower = follow(fake_api_server, short_watches(0.0, "close", news=True), all_watched(COUNT), spaced)
    assert len(follower.waits) == COUNT
    assert all(spaced.spacing / 2 < wait <= spaced.spacing for wait in follower.waits)


@pytest.mark.parametrize("lasting", [0.0, 0.5, 2.9])
def test_a_change_ends_the_failures_of_watches_that_are_cut(fake_api_server: Servers, lasting: float) -> None:
    follower = follow(fake_api_server, short_watches(lasting, "abort", news=True), all_watched(COUNT), TIMING)
    assert max(follower.waits) <= TIMING.backoff.first_seconds
    pauses = [wait for wait in follower.waits if wait == TIMING.backoff.first_seconds / 2]
    assert len(pauses) == COUNT, "the first wait of a series, with half of the chance"


@pytest.mark.parametrize(
    ("lasting", "end", "timing"),
    [(0.0, "close", AT_ONCE), (0.0, "abort", AT_ONCE), (0.5, "abort", PATIENT)],
    ids=["closed at once", "cut at once", "cut"],
)
def test_watches_that_fail_and_bring_nothing_meet_ever_longer_waits(
    fake_api_server: Servers, lasting: float, end: str, timing: Timing
) -> None:
    follower = follow(fake_api_server, short_watches(lasting, end, news=False), all_watched(COUNT), timing)
    waits = [wait for wait in follower.waits if wait > timing.spacing]
    assert waits == sorted(waits)
    assert waits[-1] == timing.backoff.longest_seconds / 2


def test_the_wait_of_earlier_failures_is_over_with_the_first_change(fake_api_server: Servers) -> None:
    def prepare(server: Server) -> None:
        start_with("5", "web")(server)
        for _ in range(5):
            server.stream(SERVICES, [])
        server.stream(SERVICES, [NEWS[0]])
        server.stream(SERVICES, [])

    follower = follow(fake_api_server, prepare, all_watched(7), replace(AT_ONCE, spacing=TIMING.spacing))
    longest, *after = follower.waits[4:]
    assert longest > 1.0
    assert max(after) <= REAL.backoff.first_seconds
