"""A line of the log is one line, whatever the names in it."""

import json
import logging

import pytest

from nodeagent.model.problem import Problem
from nodeagent.runtime.logs.setup import JsonFormatter, TextFormatter

HOSTILE = Problem("Service a/b\n<3>forged: line", "InvalidPort", "\x1b[2Jgone \u202eevil")
SHOWN = r"problem: Service a/b\n<3>forged: line: InvalidPort: \x1b[2Jgone \u202eevil"


def record(error: BaseException | None = None) -> logging.LogRecord:
    information = (type(error), error, error.__traceback__) if error is not None else None
    return logging.LogRecord("nodeagent.proxy.observe", logging.WARNING, "", 0, "problem: %s", (HOSTILE,), information)


@pytest.mark.parametrize("journald", [False, True])
def test_text(journald: bool) -> None:
    line = TextFormatter(journald=journald).format(record())
    assert line.endswith(f"observe: {SHOWN}")
    assert line.startswith("<4>") is journald


def test_json() -> None:
    line = JsonFormatter().format(record())
    assert line.isprintable()
    assert json.loads(line)["msg"] == SHOWN


def test_a_traceback_keeps_its_lines_and_nothing_else() -> None:
    with pytest.raises(ValueError) as caught:
        int("\x1b[2J\u202e")
    error = caught.value
    text = TextFormatter(journald=True).format(record(error))
    assert len(text.split("\n")) > 2
    assert all(line.startswith("<4>") and line.isprintable() for line in text.split("\n"))
    assert "ValueError: invalid literal" in text
    exception = json.loads(JsonFormatter().format(record(error)))["exception"]
    assert all(line.isprintable() for line in exception.split("\n"))
