"""Log lines: text for people and journald, or one JSON object per line.

Names and texts of objects come from others: what a terminal would execute is written as an escape, in either format.
"""

import json
import logging
import sys
import time

from nodeagent.model.text import printable
from nodeagent.runtime.logs.repeats import RepeatFilter

# journald reads `<N>` at the start of a line of standard error as its priority (sd-daemon(3)).
_PRIORITIES = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (logging.DEBUG, 7))


class TextFormatter(logging.Formatter):
    """`LEVEL logger: message`; under systemd with the priority instead of the level."""

    def __init__(self, *, journald: bool) -> None:
        super().__init__()
        self._journald = journald

    def format(self, record: logging.LogRecord) -> str:
        name = record.name.removeprefix("nodeagent.")
        lines = [f"{name}: {printable(record.getMessage())}"]
        if record.exc_info:
            lines += _traceback(self, record)
        if self._journald:
            priority = next((number for level, number in _PRIORITIES if record.levelno >= level), 7)
            return "\n".join(f"<{priority}>{line}" for line in lines)
        stamp = time.strftime("%H:%M:%S", time.localtime(record.created))
        lines[0] = f"{stamp}.{int(record.msecs):03d} {record.levelname.lower()} {lines[0]}"
        return "\n".join(lines)


class JsonFormatter(logging.Formatter):
    """ts (RFC 3339, UTC), level, logger, msg."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry = {
            "ts": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": printable(record.getMessage()),
        }
        if record.exc_info:
            entry["exception"] = "\n".join(_traceback(self, record))
        return json.dumps(entry, ensure_ascii=False)


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    assert record.exc_info, "only records of exceptions have a traceback"
    return [printable(line) for line in formatter.formatException(record.exc_info).split("\n")]


def set_up_logging(level: int, *, as_json: bool, journald: bool) -> None:
    """Sends all log lines to standard error; called once, by the command line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter(journald=journald))
    handler.addFilter(RepeatFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # It counts changed paths at INFO; the pass logs their effect.
    logging.getLogger("watchfiles").setLevel(max(level, logging.WARNING))
    logging.captureWarnings(capture=True)
