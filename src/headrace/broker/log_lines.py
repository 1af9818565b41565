"""Formatters for the broker's log: each event is one line, whatever names clients choose.

    text   2026-01-31 12:00:00,000 INFO headrace.network.server: a connection is refused host=10.0.0.7 open=500
    json   {"time": "2026-01-31T12:00:00.000Z", "level": "info", "logger": "headrace.network.server",
            "message": "a connection is refused", "host": "10.0.0.7", "open": 500}         (on one line)

Variable values go into fields: `log.info("a member joins", extra={"group": group_id})`. A client's name could contain
a line end and forge a line, an escape sequence and repaint the reader's terminal, or a right-to-left mark and reverse
the text after it. Every character that is not printable is therefore escaped as Python (in JSON: as JSON) does it, and
a text of excessive length is cut. Tracebacks contain our own text and keep their lines.

This is the standard library's logging with a formatter of 60 lines, not structlog: importing structlog takes longer
than a broker's start may.
"""

import json
import logging
import sys
import time
from collections.abc import Mapping

from headrace.limits import LOG_LINE_CHARS_MAX
from headrace.printable import printable, shortened

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_NOT_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_JSON_NAMES = frozenset({"time", "level", "logger", "message", "exception"})


def log_to_stderr(form: str = "text", level: str = "info", worker: int | None = None) -> None:
    """Sends the log to stderr, as `headrace.log.format` and `headrace.log.level` say. Each event of a worker has its
    number as a field."""
    handler = logging.StreamHandler(sys.stderr)
    if worker is not None:
        handler.addFilter(lambda record: record.__dict__.setdefault("worker", worker) is not None)
    handler.setFormatter(JsonFormatter() if form == "json" else LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class LineFormatter(logging.Formatter):
    """Formats an event so that its message and fields are one line of printable text."""

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # logging's name
        """The line: `record.message`, made printable, then the fields."""
        message = printable(_cut(record.message))
        fields = "".join(f" {name}={_word(value)}" for name, value in fields_of(record).items())
        record.message = message + fields
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """Formats an event as one JSON object in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        """The object: fields are members beside the message, a traceback is one string."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        event: dict[str, object] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _cut(record.getMessage()),
        }
        for name, value in fields_of(record).items():
            is_plain = value is None or isinstance(value, int | float)
            event[f"{name}_" if name in _JSON_NAMES else name] = value if is_plain else _cut(str(value))
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event)


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    """The values passed as `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _NOT_FIELDS}


def _word(value: object) -> str:
    """A field's value, quoted unless it is one word, so that no name can forge a field."""
    text = str(value)
    if text and text.isprintable() and not any(each in text for each in ' "=\\'):
        return _cut(text)
    return '"' + printable(_cut(text.replace("\\", "\\\\").replace('"', '\\"'))) + '"'


def _cut(text: str) -> str:
    return shortened(text, LOG_LINE_CHARS_MAX)
