"""Log lines: text for people and journald, or one JSON object per line."""

import json
import logging
import sys
import time

# journald reads `<N>` at the start of a line of standard error as its priority (sd-daemon(3)).
_PRIORITIES = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (logging.DEBUG, 7))


class TextFormatter(logging.Formatter):
    """`LEVEL logger: message`; under systemd with the priority instead of the level."""

    def __init__(self, *, journald: bool) -> None:
        super().__init__()
        self._journald = journald

    def format(self, record: logging.LogRecord) -> str:
        name = record.name.removeprefix("nodeagent.")
        text = f"{name}: {record.getMessage()}"
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        if self._journald:
            priority = next((number for level, number in _PRIORITIES if record.levelno >= level), 7)
            return "\n".join(f"<{priority}>{line}" for line in text.splitlines())
        stamp = time.strftime("%H:%M:%S", time.localtime(record.created))
        return f"{stamp}.{int(record.msecs):03d} {record.levelname.lower()} {text}"


class JsonFormatter(logging.Formatter):
    """ts (RFC 3339, UTC), level, logger, msg."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry = {
            "ts": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def set_up_logging(level: int, *, as_json: bool, journald: bool) -> None:
    """Everything to standard error; called once, by the command line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter(journald=journald))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # It counts changed paths at INFO; what they lead to is told by the pass.
    logging.getLogger("watchfiles").setLevel(max(level, logging.WARNING))
    logging.captureWarnings(capture=True)
