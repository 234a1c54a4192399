"""A line that is said again and again is said so many times a minute, and how often it was left out is said too."""

import logging

import pytest

from nodeagent.runtime.logs.repeats import LINES, PERIOD_SECONDS, RepeatFilter


class Log:
    """A logger's lines at moments that the test chooses."""

    def __init__(self) -> None:
        self.now = 100.0
        self.lines: list[str] = []
        self.repeats = RepeatFilter(lambda: self.now)

    def say(
        self,
        text: str,
        *values: object,
        level: int = logging.WARNING,
        logger: str = "nodeagent.a",
        error: Exception | None = None,
    ) -> None:
        information = None if error is None else (type(error), error, None)
        record = logging.LogRecord(logger, level, "", 0, text, values, information)
        if self.repeats.filter(record):
            self.lines.append(record.getMessage())


def test_the_rest_of_a_minute_is_left_out_and_counted() -> None:
    log = Log()
    for number in range(LINES + 7):
        log.say("table %s failed (%d in a row)", "IPv4", number)
    assert len(log.lines) == LINES
    assert log.lines[0] == "table IPv4 failed (0 in a row)"
    log.now += PERIOD_SECONDS
    log.say("table %s failed (%d in a row)", "IPv4", 99)
    log.say("table %s failed (%d in a row)", "IPv4", 100)
    assert log.lines[LINES:] == [
        "table IPv4 failed (99 in a row) (left out before: 7 such lines)",
        "table IPv4 failed (100 in a row)",
    ]


@pytest.mark.parametrize(
    "other",
    [
        {"text": "table %s failed", "values": ("IPv6",)},
        {"text": "table %s is gone", "values": ("IPv4",)},
        {"text": "table %s failed", "values": ("IPv4",), "logger": "nodeagent.b"},
        {"text": "table %s failed", "values": ("IPv4",), "level": logging.ERROR},
    ],
    ids=["another object", "another form", "another part", "another level"],
)
def test_other_lines_are_not_left_out(other: dict[str, object]) -> None:
    log = Log()
    for _ in range(LINES + 1):
        log.say("table %s failed", "IPv4")
    values = other.pop("values")
    assert isinstance(values, tuple)
    log.say(str(other.pop("text")), *values, **other)  # type: ignore[arg-type]
    assert len(log.lines) == LINES + 1


def test_exceptions_are_one_kind_of_line_with_any_message() -> None:
    log = Log()
    for number in range(LINES + 5):
        log.say("query for %s broke", f"a{number}.example.", error=ValueError())
    assert len(log.lines) == LINES


def test_lines_about_success_are_always_written() -> None:
    log = Log()
    for _ in range(3 * LINES):
        log.say("pass done", level=logging.INFO)
    assert len(log.lines) == 3 * LINES


def test_lines_at_a_slow_pace_are_all_written() -> None:
    log = Log()
    for _ in range(3 * LINES):
        log.say("cannot look at table %s", "IPv4")
        log.now += 1.1 * PERIOD_SECONDS / LINES
    assert len(log.lines) == 3 * LINES


def test_of_endless_kinds_the_oldest_are_forgotten() -> None:
    log = Log()
    for number in range(5000):
        log.say("name %s", f"a{number}")
    assert len(log.lines) == 5000
    assert len(log.repeats._said) <= 1000
