"""Deadlines and retry back-off of the client.

A public call creates one `Deadline` and passes it down, so that nested retries end in time. `Backoff` is Kafka's:
exponential from `retry.backoff.ms` to `retry.backoff.max.ms`, with a jitter of up to a fifth in each direction, so that
clients that failed together do not retry together. Source: Kafka's `ExponentialBackoff` (KIP-580).
"""

import random
import time

JITTER = 0.2
_MAX_DOUBLINGS = 16


def now_ms() -> int:
    """Wall-clock milliseconds since 1970, as in record timestamps."""
    return time.time_ns() // 1_000_000


class Deadline:
    """A moment of the monotonic clock after which a call gives up."""

    __slots__ = ("_at_s",)

    def __init__(self, at_s: float) -> None:
        self._at_s = at_s

    @classmethod
    def after_ms(cls, timeout_ms: float) -> "Deadline":
        """The moment `timeout_ms` from now. TypeError for what is no number."""
        try:
            return cls(time.monotonic() + timeout_ms / 1000)
        except TypeError:
            kind = type(timeout_ms).__name__
            raise TypeError(f"the time-out {timeout_ms!r} is a {kind}: give a number of milliseconds") from None

    @property
    def remaining_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._at_s - time.monotonic())

    @property
    def expired(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() >= self._at_s

    def sooner(self, timeout_ms: float) -> "Deadline":
        """This deadline, or `timeout_ms` from now if that is earlier."""
        return Deadline(min(self._at_s, time.monotonic() + timeout_ms / 1000))

    def sleep_ms(self, wait_ms: float) -> None:
        """Sleep for `wait_ms`, but not past the deadline."""
        time.sleep(min(wait_ms / 1000, self.remaining_s))


class Backoff:
    """Waits between attempts: exponential, bounded, jittered; `reset` after a success."""

    __slots__ = ("_base_ms", "_failures", "_max_ms")

    def __init__(self, base_ms: int, max_ms: int) -> None:
        self._base_ms = base_ms
        self._max_ms = max_ms
        self._failures = 0

    def next_ms(self) -> float:
        """The wait before the next attempt."""
        plain = min(self._max_ms, self._base_ms << min(self._failures, _MAX_DOUBLINGS))
        self._failures += 1
        return plain * random.uniform(1 - JITTER, 1 + JITTER)

    def reset(self) -> None:
        """Start again from the shortest wait."""
        self._failures = 0
