"""By which names the metrics server is called, and which pages it answers."""

import asyncio

import pytest

from nodeagent.model.addresses import Family
from nodeagent.proxy.observe.metrics.metrics_answers import MetricsAnswers
from nodeagent.runtime.serving.origins import AllowedHosts
from nodeagent.runtime.serving.responses import Request, Response, Stream


async def no_series() -> bytes:
    return b""


async def status(path: str, host: str, origin: str = "") -> int:
    answers = MetricsAnswers(
        (),
        late=no_series,
        config=b"{}",
        version="1",
        ready=lambda: None,
        clock=lambda: 0.0,
        hosts=AllowedHosts(["node-a"]),
        page=lambda _: Response(200, {}, b"page"),
    )
    given = answers.answer(Request(path, Family.IPV4, 10249, host=host, origin=origin))
    assert not isinstance(given, Stream)
    return (given if isinstance(given, Response) else await given).status


@pytest.mark.parametrize("path", ["/metrics", "/configz", "/proxyMode", "/statusz", "/readyz", "/", "/api/services"])
@pytest.mark.parametrize(
    ("host", "origin", "expected"),
    [
        ("127.0.0.1:10249", "", 200),
        ("node-a:10249", "", 200),
        ("evil.example:10249", "", 403),
        ("127.0.0.1:10249", "http://evil.example", 403),
    ],
)
def test_pages_of_others_read_nothing(path: str, host: str, origin: str, expected: int) -> None:
    assert asyncio.run(status(path, host, origin)) == expected
