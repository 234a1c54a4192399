"""An observer that fails is reported once, by the names of the objects that it failed to handle."""

import logging

import pytest

from nodeagent.model.names import ObjectKey
from nodeagent.proxy.observe.observer_guard import ObserverGuard

KEYS = [ObjectKey("default", f"s{number}") for number in range(7)]


def test_a_failing_observer_is_reported_once_and_the_others_are_called(caplog: pytest.LogCaptureFixture) -> None:
    guard = ObserverGuard()
    heard: list[int] = []

    def fails(number: int) -> None:
        raise OverflowError(f"no {number}")

    for number in range(3):
        guard.call(fails, number, KEYS)
        guard.call(heard.append, number, KEYS)
    assert heard == [0, 1, 2]
    (reported,) = caplog.records
    assert reported.levelno == logging.ERROR
    assert (
        "fails failed to handle default/s0, default/s1, default/s2, default/s3, default/s4 and 2 more"
        in reported.getMessage()
    )
    assert reported.exc_info is not None
