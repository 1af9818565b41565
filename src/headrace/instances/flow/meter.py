"""What one direction of an instance used on a broker in an interval, and how long its clients were held. Pure."""

from typing import NamedTuple


class Metered(NamedTuple):
    """One interval."""

    bytes_per_s: float
    throttled_s: float
    """Seconds in which the bucket was overdrawn."""


class BucketMeter:
    """Counts beside a token bucket. Times in seconds of the bucket's clock."""

    __slots__ = ("_bytes", "_held_from", "_held_until", "_since", "_throttled_s")

    def __init__(self, now: float) -> None:
        """`now` is when the interval began in which it is made: the time of the broker's last report."""
        self._bytes = 0.0
        self._since = self._held_from = self._held_until = now
        self._throttled_s = 0.0

    def count(self, used_bytes: float, wait_s: float, now: float) -> None:
        """Counts a request, and the wait that the bucket's `spend` returned for it."""
        self._bytes += used_bytes
        if wait_s > 0:
            if now > self._held_until:
                self._throttled_s += self._held_until - self._held_from
                self._held_from = now
            self._held_until = now + wait_s

    def hold_until(self, until: float, now: float) -> None:
        """The bucket's rate changed: a debt is now paid at `until`."""
        if now < self._held_until:
            self._held_until = max(until, now)

    def take(self, now: float) -> Metered:
        """What was used since the last call; begins the next interval."""
        elapsed = now - self._since
        if elapsed <= 0:
            return Metered(0.0, 0.0)
        throttled = self._throttled_s + max(min(self._held_until, now) - self._held_from, 0.0)
        metered = Metered(self._bytes / elapsed, min(throttled, elapsed))
        self._bytes = self._throttled_s = 0.0
        self._since = now
        self._held_from = max(self._held_from, now)
        self._held_until = max(self._held_until, now)
        return metered
