"""The broker's log: one event is one line, whatever clients call themselves, their groups and topics.

    text   2026-01-31 12:00:00,000 INFO headrace.broker.server: a connection is refused host=10.0.0.7 open=500
    json   {"time": "2026-01-31T12:00:00.000Z", "level": "info", "logger": "headrace.broker.server",
            "message": "a connection is refused", "host": "10.0.0.7", "open": 500}         (on one line)

What varies from event to event goes into fields: `log.info("a member joins", extra={"group": group_id})`. A name with
a line end could forge a line, one with an escape sequence could repaint the terminal of whoever reads the log, and a
right-to-left mark could turn what follows around: every character that is not printable is written as Python (in
JSON: as JSON) escapes it, and a text of excessive length is cut. Tracebacks are ours and keep their lines in text.

The standard library's logging with a formatter of 60 lines, not structlog, whose import takes longer than a broker's
start may.
"""

import json
import logging
import sys
import time
from collections.abc import Mapping

from headrace.limits import LOG_LINE_CHARS_MAX

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_NOT_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_JSON_NAMES = frozenset({"time", "level", "logger", "message", "exception"})


def log_to_stderr(form: str = "text", level: str = "info") -> None:
    """All that is logged from now on: `headrace.log.format` and `headrace.log.level`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class LineFormatter(logging.Formatter):
    """Formats an event so that its message and fields are one line of printable text."""

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # logging's name
        """The line, with `record.message` made harmless and the fields behind it."""
        message = harmless(record.message)
        fields = "".join(f" {name}={_word(value)}" for name, value in fields_of(record).items())
        record.message = message + fields
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """Formats an event as one JSON object in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        """The object; fields stand beside the message, a traceback is one string."""
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
    """What was given with `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _NOT_FIELDS}


def harmless(text: str) -> str:
    """`text` on one line, escaped where it is not printable, and no longer than `LOG_LINE_CHARS_MAX`."""
    text = _cut(text)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)


def _word(value: object) -> str:
    """A field's value: quoted where it would not read as one word, so that no name can forge a field."""
    text = str(value)
    if text and text.isprintable() and not any(each in text for each in ' "=\\'):
        return _cut(text)
    return '"' + harmless(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _cut(text: str) -> str:
    if len(text) <= LOG_LINE_CHARS_MAX:
        return text
    return f"{text[:LOG_LINE_CHARS_MAX]}… ({len(text)} characters)"
