"""What /healthz and /livez say, byte by byte."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from nodeagent.model.addresses import Family
from nodeagent.proxy.observe.health import HealthState, go_time, health_response
from nodeagent.runtime.serving.responses import Response

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
IDLE = HealthState.before_any_pass([Family.IPV6, Family.IPV4])
PROGRAMMED = IDLE.passed({Family.IPV4: True, Family.IPV6: True}, started=99, finished=100)
ONE_LATE = PROGRAMMED.changed(110).passed({Family.IPV4: True, Family.IPV6: False}, started=110, finished=112.5)
NEVER_IPV6 = IDLE.passed({Family.IPV4: True, Family.IPV6: False}, started=100, finished=100.25)


def ask(path: str, state: HealthState, *, eligible: bool = True, now: float = 160) -> Response:
    return health_response(path, state, node_eligible=eligible, now=now, timeout=60, wall=NOON)


@pytest.mark.parametrize(
    ("path", "state", "eligible", "now", "status", "body"),
    [
        pytest.param(
            "/healthz", IDLE, True, 160, 200,
            b'{"lastUpdated":"2026-03-01T12:00:00Z","currentTime":"2026-03-01T12:00:00Z","nodeEligible":true,'
            b'"healthy":true}',
            id="before the first pass",
        ),
        pytest.param(
            "/healthz", PROGRAMMED, True, 160, 200,
            b'{"lastUpdated":"2026-03-01T12:00:00Z","currentTime":"2026-03-01T12:00:00Z","nodeEligible":true,'
            b'"healthy":true,"status":{"IPv4":{"lastUpdated":"2026-03-01T11:59:00Z","healthy":true},'
            b'"IPv6":{"lastUpdated":"2026-03-01T11:59:00Z","healthy":true}}}',
            id="healthy: lastUpdated is now",
        ),
        pytest.param(
            "/livez", PROGRAMMED, True, 160, 200,
            b'{"lastUpdated":"2026-03-01T12:00:00Z","currentTime":"2026-03-01T12:00:00Z","healthy":true,'
            b'"status":{"IPv4":{"lastUpdated":"2026-03-01T11:59:00Z","healthy":true},'
            b'"IPv6":{"lastUpdated":"2026-03-01T11:59:00Z","healthy":true}}}',
            id="livez does not mention the node",
        ),
        pytest.param(
            "/healthz", PROGRAMMED, False, 160, 503,
            b'{"lastUpdated":"2026-03-01T11:59:00Z","currentTime":"2026-03-01T12:00:00Z","nodeEligible":false,'
            b'"healthy":true,"status":{"IPv4":{"lastUpdated":"2026-03-01T11:59:00Z","healthy":true},'
            b'"IPv6":{"lastUpdated":"2026-03-01T11:59:00Z","healthy":true}}}',
            id="a node that goes fails healthz although the agent is healthy",
        ),
        pytest.param(
            "/livez", PROGRAMMED, False, 160, 200,
            b'{"lastUpdated":"2026-03-01T12:00:00Z","currentTime":"2026-03-01T12:00:00Z","healthy":true,'
            b'"status":{"IPv4":{"lastUpdated":"2026-03-01T11:59:00Z","healthy":true},'
            b'"IPv6":{"lastUpdated":"2026-03-01T11:59:00Z","healthy":true}}}',
            id="a node that goes does not fail livez",
        ),
        pytest.param(
            "/healthz", ONE_LATE, True, 170, 503,
            b'{"lastUpdated":"2026-03-01T11:59:02.5Z","currentTime":"2026-03-01T12:00:00Z","nodeEligible":true,'
            b'"healthy":false,"status":{"IPv4":{"lastUpdated":"2026-03-01T11:59:02.5Z","healthy":true},'
            b'"IPv6":{"lastUpdated":"2026-03-01T11:58:50Z","healthy":false}}}',
            id="one family is late: lastUpdated is the latest of any",
        ),
        pytest.param(
            "/livez", ONE_LATE, True, 169, 200,
            b'{"lastUpdated":"2026-03-01T12:00:00Z","currentTime":"2026-03-01T12:00:00Z","healthy":true,'
            b'"status":{"IPv4":{"lastUpdated":"2026-03-01T11:59:03.5Z","healthy":true},'
            b'"IPv6":{"lastUpdated":"2026-03-01T11:58:51Z","healthy":true}}}',
            id="one family fails and is not late yet",
        ),
        pytest.param(
            "/livez", NEVER_IPV6, True, 160, 503,
            b'{"lastUpdated":"2026-03-01T11:59:00.25Z","currentTime":"2026-03-01T12:00:00Z","healthy":false,'
            b'"status":{"IPv4":{"lastUpdated":"2026-03-01T11:59:00.25Z","healthy":true},'
            b'"IPv6":{"lastUpdated":"0001-01-01T00:00:00Z","healthy":false}}}',
            id="a family that was never programmed",
        ),
    ],
)  # fmt: skip
def test_the_answer_is_exactly_this(
    path: str, state: HealthState, eligible: bool, now: float, status: int, body: bytes
) -> None:
    response = ask(path, state, eligible=eligible, now=now)
    assert (response.status, response.body) == (status, body)
    assert response.headers == {"Content-Type": "application/json", "X-Content-Type-Options": "nosniff"}


@pytest.mark.parametrize("path", ["/", "/healthz/", "/readyz", "/metrics", ""])
def test_other_paths_do_not_exist(path: str) -> None:
    response = ask(path, PROGRAMMED)
    assert (response.status, response.body) == (404, b"404 page not found\n")


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        pytest.param(NOON, "2026-03-01T12:00:00Z", id="whole second"),
        pytest.param(NOON + timedelta(microseconds=1), "2026-03-01T12:00:00.000001Z", id="microsecond"),
        pytest.param(NOON + timedelta(milliseconds=120), "2026-03-01T12:00:00.12Z", id="no trailing zeros"),
        pytest.param(NOON.replace(second=50), "2026-03-01T12:00:50Z", id="a zero that counts"),
        pytest.param(NOON.astimezone(timezone(timedelta(hours=5))), "2026-03-01T12:00:00Z", id="always UTC"),
    ],
)
def test_times_are_written_as_go_writes_them(moment: datetime, text: str) -> None:
    assert go_time(moment) == text
