"""Log levels of this broker's loggers (KIP-412). A change takes effect at once, and ends with the process.

    root                              the level of every logger that has none of its own
    headrace, headrace.log, ...       each package and module that logs, and everything below it

Levels have Apache Kafka's names: TRACE, DEBUG, INFO, WARN, ERROR, FATAL. Source: Kafka's `RuntimeLoggerManager`.
"""

import logging
from collections.abc import Iterator

from headrace.broker.configs.entries import ConfigSource, Entry
from headrace.broker.request.context import RequestContext
from headrace.errors import InvalidConfig, InvalidRequest
from headrace.metadata.config_changes import Alteration, ConfigChange, ConfigOperation

log = logging.getLogger(__name__)

ROOT = "root"
_TRACE = 5
LEVELS = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": _TRACE,
    "WARN": logging.WARNING,
}


def describe(ctx: RequestContext, name: str) -> Iterator[Entry]:
    """The level of every logger, its own or that of the nearest one above it."""
    own_id = str(ctx.services.replication.broker_id)
    if not name:
        raise InvalidRequest("Broker id must not be empty")
    if not name.lstrip("-").isdecimal():
        raise InvalidRequest(f"Broker id must be an integer, but it is: {name}")
    if name != own_id:
        raise InvalidRequest(f"Unexpected broker id, expected {own_id} but received {name}")
    return (
        Entry(name=each, value=_level(each), config_source=ConfigSource.BROKER_LOGGER, synonyms=[]) for each in _names()
    )


async def alter(ctx: RequestContext, name: str, alteration: Alteration, *, validate_only: bool) -> None:
    """Sets levels, or takes them away so that those above apply."""
    own_id = str(ctx.services.replication.broker_id)
    if not name.lstrip("-").isdecimal():
        raise InvalidRequest(f"Node id must be an integer, but it is: {name}")
    if name != own_id:
        raise InvalidRequest(f"Unexpected node id. Expected {own_id}, but received {name}")
    known = frozenset(_names())
    changes = alteration.changes or ()
    for change in changes:
        _check(change, known)
    if validate_only:
        return
    for change in changes:
        level = LEVELS[change.value or ""] if change.operation is ConfigOperation.SET else logging.NOTSET
        _logger(change.name).setLevel(level)
        log.warning("the level of logger %s is now %s", change.name, _level(change.name))
    ctx.services.admission.audit_changed()


def _check(change: ConfigChange, known: frozenset[str]) -> None:
    name, operation, value = change
    if operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
        raise InvalidRequest(f"{operation.name} operation is not allowed for the BROKER_LOGGER resource")
    if name not in known:
        raise InvalidConfig(f"Logger {name} does not exist!")
    if operation is ConfigOperation.SET and value is None:
        raise InvalidRequest(f"Null value not supported for : {name}")
    if operation is ConfigOperation.SET and value not in LEVELS:
        raise InvalidConfig(
            f"Cannot set the log level of {name} to {value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(LEVELS)}"
        )
    if operation is ConfigOperation.DELETE and name == ROOT:
        raise InvalidRequest(f"Removing the log level of the {ROOT} logger is not allowed")


def _names() -> list[str]:
    """Every logger, and every package that has one in it."""
    return [ROOT, *sorted(logging.root.manager.loggerDict)]


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _level(name: str) -> str:
    """The effective level, without making a logger for a package that has none."""
    found = logging.root.manager.loggerDict.get(name) if name != ROOT else logging.root
    while not isinstance(found, logging.Logger):
        name = name.rpartition(".")[0]
        found = logging.root.manager.loggerDict.get(name) if name else logging.root
    level = found.getEffectiveLevel()
    return next(
        (text for text, number in sorted(LEVELS.items(), key=lambda each: -each[1]) if number <= level), "TRACE"
    )
