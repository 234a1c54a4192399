"""What passes leave in the log: nothing that did not change anything, and never more than a line a second."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.reports import PassReport, TableReport
from nodeagent.proxy.observe.pass_log import PassLog


def a_pass(elements: int, milliseconds: float = 1.0) -> PassReport:
    families = {Family.IPV4: TableReport(touched=elements)}
    return PassReport(10.0, 10.0 + milliseconds / 1000, families, services=3)


@dataclass
class Clock:
    """A loop's timers, in the hands of the test."""

    now: float = 0.0
    timers: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self.timers.append((self.now + seconds, action))

    def go_to(self, moment: float) -> None:
        while self.timers and self.timers[0][0] <= moment:
            self.now, action = self.timers.pop(0)
            action()
        self.now = moment


def summaries(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]


def test_the_first_pass_is_logged_without_changes_and_later_ones_are_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    log = PassLog(clock.later)
    for moment in range(5):
        clock.go_to(moment * 10.0)
        log.passed(a_pass(0, 12.5))
    assert summaries(caplog) == ["sync done passes=1 full=no elements=0 ms=12.5 services=3 tables=IPv4:ok"]


def test_a_single_change_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    log = PassLog(clock.later)
    for moment in (0.0, 5.0, 10.0):
        clock.go_to(moment)
        log.passed(a_pass(3))
        assert summaries(caplog)[-1].startswith("sync done passes=1 full=no elements=3 ms=1.0 ")
    assert len(summaries(caplog)) == 3


def test_under_load_there_is_a_line_a_second_and_nothing_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """400 changes a second for 10 seconds."""
    caplog.set_level(logging.INFO)
    clock = Clock()
    log = PassLog(clock.later)
    for number in range(4000):
        clock.go_to(number / 400)
        log.passed(a_pass(3, milliseconds=9.0 if number == 1000 else 0.5))
    clock.go_to(60.0)

    lines = summaries(caplog)
    assert len(lines) == 11
    figures = [dict(item.split("=") for item in line.split()[2:]) for line in lines]
    assert sum(int(one["passes"]) for one in figures) == 4000
    assert sum(int(one["elements"]) for one in figures) == 12_000
    assert max(float(one["ms"]) for one in figures) == 9.0


def test_the_end_of_the_agent_does_not_swallow_the_last_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = PassLog(Clock().later)
    log.passed(a_pass(0))
    log.passed(a_pass(2))
    log.flush()
    log.flush()
    assert [line.split()[2:5] for line in summaries(caplog)] == [
        ["passes=1", "full=no", "elements=0"],
        ["passes=1", "full=no", "elements=2"],
    ]


def test_details_are_for_debugging(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    log = PassLog(Clock().later)
    for _ in range(3):
        log.passed(a_pass(1))
    reported = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    assert reported == ["pass done full=no elements=1 ms=1.0 services=3 tables=IPv4:ok"] * 3
