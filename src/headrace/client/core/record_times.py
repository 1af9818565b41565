"""Checks times that a caller gives: milliseconds since 1970, which are often given in seconds or as a float. Pure."""

from __future__ import annotations

from operator import index
from typing import Any

from headrace.errors import InvalidRecord

NO_TIME = -1
EARLIEST_PLAUSIBLE_MS = 10_000_000_000
"""In April 1970. A time from there to `LATEST_PLAUSIBLE_MS` is taken without a closer look."""
LATEST_PLAUSIBLE_MS = 100_000_000_000_000
"""In the year 5138; larger numbers are microseconds or nanoseconds."""
_SECONDS_FROM = 1_000_000_000
"""Seconds since 1970 have been larger since 2001. As milliseconds it is a day of January 1970."""
_SHOWN = 60


def is_in_seconds(time: int) -> bool:
    """Whether a time is so far before our time in milliseconds, and so near to it in seconds, that it must be these."""
    return _SECONDS_FROM <= time < EARLIEST_PLAUSIBLE_MS


def checked_ms(given: Any) -> int:
    """A time in milliseconds since 1970. Raises InvalidRecord for seconds, finer units and what is no whole number."""
    try:
        time_ms = index(given)
    except TypeError:
        hint = "int(when.timestamp() * 1000)" if hasattr(given, "timestamp") else "int(time.time() * 1000)"
        raise InvalidRecord(
            f"timestamp_ms={shown(given)} is a {type(given).__name__}: give whole milliseconds since 1970, as {hint}"
        ) from None
    if is_in_seconds(time_ms):
        raise InvalidRecord(
            f"timestamp_ms={time_ms} is in seconds (as milliseconds it is early 1970): give int(time.time() * 1000)"
        )
    if time_ms >= LATEST_PLAUSIBLE_MS:
        raise InvalidRecord(
            f"timestamp_ms={time_ms} is finer than milliseconds (as such it is after the year 5138): "
            "give time.time_ns() // 1_000_000"
        )
    if time_ms < NO_TIME:
        raise InvalidRecord(f"timestamp_ms={time_ms} is before 1970, which no record can hold")
    return time_ms


def shown(value: Any) -> str:
    """A value as it is typed, shortened."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
