"""Writes the log lines of our processes to standard output, where a Procfile's runner collects them.

Text from outside cannot look like one of our lines: control characters are escaped, and further lines begin with `|`.

With TICKER_LOG=json, each line is a JSON object: `time`, `level`, `logger`, `event`, `message`, the fields that the
message names (`task=%s`), and `traceback` if there is one. Each of our log calls passes its stable event name in
`extra`.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any

from ticker.errors import escaped

FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"

OURS = ("ticker", "ticker.run", "ticker.notify", "ticker.web", "rq", "rq.worker")

_PLACEHOLDER = re.compile(r"(?:(\w+)=)?%[-#0 +]*\d*(?:\.\d+)?([a-zA-Z%])")
_PLAIN = (str, int, float, dict, type(None))


class TextFormatter(logging.Formatter):
    """Writes lines of text, with the time in UTC. A message takes more than one line only if its format string does."""

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - logging's name
        at = datetime.fromtimestamp(record.created, UTC)
        return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        line = super().formatMessage(record)
        return line if "\n" in str(record.msg) else escaped(line)

    def format(self, record: logging.LogRecord) -> str:
        return "\n  | ".join(map(escaped, super().format(record).split("\n")))


class JsonFormatter(TextFormatter):
    """Writes one JSON object per line. The event of another library's line is the library's name."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "event": getattr(record, "event", record.name.partition(".")[0]),
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[0]:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps({**fields(record), **line}, default=str)


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """Returns the values that the message names (`task=%s`), and those that the call passed as `fields`."""
    names = [name for name, kind in _PLACEHOLDER.findall(str(record.msg)) if kind != "%"]
    args = record.args if isinstance(record.args, tuple) else ()
    named = {name: value for name, value in zip(names, args, strict=False) if name}
    shown = {**named, **getattr(record, "fields", {})}
    return {name: value if isinstance(value, _PLAIN) else str(value) for name, value in shown.items()}


class LastingLogger(logging.Logger):
    """A logger that `logging.config` does not disable. By default, it disables all loggers that it does not configure."""

    disabled = property(lambda self: False, lambda self, _: None)


def keep_enabled() -> None:
    """Keeps our loggers enabled, whatever a module of the application configures, before or after this call."""
    for name in OURS:
        logger = logging.getLogger(name)
        if type(logger) is logging.Logger:
            logger.__class__ = LastingLogger


def to_stdout(form: str) -> None:
    """Sends the messages of the loggers `ticker` and `ticker.run` to standard output. Leaves other loggers as they are."""
    keep_enabled()
    logger = logging.getLogger("ticker")
    send(logger, form)
    logger.setLevel(logging.INFO)


def send(logger: logging.Logger, form: str) -> None:
    """Sends the messages of a logger to standard output, and not to the handlers of its parents."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logger.handlers = [handler]
    logger.propagate = False
