"""What is logged of failures that the event loop tells nobody else."""

import asyncio
import errno
import os
from collections.abc import Iterator
from typing import Any

import pytest

from nodeagent.daemon.loop_failures import REPORT_SECONDS, LoopFailures


class Loop(asyncio.SelectorEventLoop):
    """Notes what is left to asyncio itself, which logs it with a traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.left: list[dict[str, Any]] = []

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.left.append(context)


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


def refused(number: int) -> dict[str, Any]:
    """As asyncio tells of an accept that failed (selector_events.py, _accept_connection)."""
    error = OSError(number, os.strerror(number))
    return {"message": "socket.accept() out of system resource", "exception": error, "socket": object()}


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_connections_that_cannot_be_accepted_are_one_line(
    loop: Loop, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    failures = LoopFailures(lambda: now[0])
    for _ in range(1000):
        failures(loop, refused(number))
    now[0] = REPORT_SECONDS
    failures(loop, refused(number))
    assert len(caplog.records) == 2
    assert all(os.strerror(number) in line.getMessage() and not line.exc_info for line in caplog.records)
    assert not loop.left


@pytest.mark.parametrize(
    "context",
    [
        pytest.param(
            {"message": "Task exception was never retrieved", "exception": OSError(errno.EMFILE, "")}, id="task"
        ),
        pytest.param(refused(errno.EINVAL), id="another errno"),
        pytest.param({"message": "Unclosed connection"}, id="no exception"),
    ],
)
def test_other_failures_are_logged_as_by_asyncio(
    loop: Loop, context: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    LoopFailures(lambda: 0.0)(loop, context)
    assert loop.left == [context]
    assert not caplog.records
