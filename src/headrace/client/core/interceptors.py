"""Interceptors as they are set: objects, or classes of them, with any of some methods.

An exception of an interceptor is logged and goes no further: it watches the records of a program, and must not stop it.
Source: Kafka's `ProducerInterceptors`, `ConsumerInterceptors`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headrace.errors import InvalidConfig

_log = logging.getLogger(__name__)

CLOSE = "close"


def interceptors_of(given: Any, calls: Sequence[str]) -> tuple[Any, ...]:
    """The interceptors in the order in which they are called; classes are made objects. Raises InvalidConfig."""
    if given is None:
        return ()
    several = given if isinstance(given, Iterable) and not isinstance(given, str | bytes) else [given]
    return tuple(_made(each, calls) for each in several)


def _made(given: Any, calls: Sequence[str]) -> Any:
    found = given() if isinstance(given, type) else given
    if not any(callable(getattr(found, call, None)) for call in calls):
        raise InvalidConfig(f"interceptors: {given!r} has none of the methods {', '.join(calls)}")
    return found


def call_of(interceptor: Any, name: str) -> Callable[..., Any] | None:
    """One of its methods, or None if it has not got it."""
    found: Callable[..., Any] | None = getattr(interceptor, name, None)
    return found


def told(interceptors: Iterable[Any], name: str, *arguments: Any) -> None:
    """Call a method of each; exceptions are logged."""
    for each in interceptors:
        call = call_of(each, name)
        if call is not None:
            try:
                call(*arguments)
            except Exception:
                failed(each, name)


def passed_through(interceptors: Iterable[Any], name: str, value: Any) -> Any:
    """What the last one made of the value, each from what the one before returned; one that fails changes nothing."""
    for each in interceptors:
        call = call_of(each, name)
        if call is not None:
            try:
                value = call(value)
            except Exception:
                failed(each, name)
    return value


def failed(interceptor: Any, name: str) -> None:
    """Log the exception that is handled at the moment."""
    _log.warning("%s of the interceptor %r raised an exception", name, interceptor, exc_info=True)
