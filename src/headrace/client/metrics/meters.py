# cython: language_level=3, annotation_typing=False, binding=False
"""Counts something that happens now and then: how often, how much, and at most how much. Pure; the clock is given.
Compiled, since a request, sent and answered, is counted in a dozen meters.

A total counts from the beginning. Rates, averages and maxima are those of two samples of 30 seconds, the current one
and the one before; a rate is over at least 30 seconds, so that a first event is not a flood. Source: Kafka's
`SampledStat`, `Rate`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

WINDOW_S = 30.0
_SAMPLES = 2

Clock = Callable[[], float]


class _Sample:
    __slots__ = ("count", "most", "start_s", "sum")

    def __init__(self, start_s: float) -> None:
        self.start_s = start_s
        self.sum = 0.0
        self.count = 0
        self.most = -math.inf


class Meter:
    """One thing that is counted. Any thread may record and read."""

    __slots__ = ("_clock", "_current", "_lock", "_samples", "count", "total")

    def __init__(self, clock: Clock) -> None:
        """`clock` gives seconds, which never decrease."""
        self.total: float = 0.0
        """The sum of all values."""
        self.count: int = 0
        """How many values there were."""
        self._clock = clock
        self._lock = threading.Lock()
        self._samples: list[_Sample] = []
        self._current: _Sample | None = None

    def record(self, value: float = 1.0) -> None:
        """It happened, with this value."""
        self._count(value, self._clock())

    def _count(self, value: float, now_s: float) -> None:
        self._lock.acquire()  # not `with`, which costs more when compiled
        try:
            sample = self._current
            if sample is None or now_s >= sample.start_s + WINDOW_S:
                self._forget_old(now_s)
                sample = self._current = _Sample(now_s)
                self._samples.append(sample)
            sample.sum += value
            sample.count += 1
            if value > sample.most:
                sample.most = value
            self.total += value
            self.count += 1
        finally:
            self._lock.release()

    @property
    def rate(self) -> float:
        """The sum of the values per second."""
        return self._per_second(lambda sample: sample.sum)

    @property
    def frequency(self) -> float:
        """How often it happens per second."""
        return self._per_second(lambda sample: sample.count)

    @property
    def average(self) -> float:
        """The average value; not a number where there was none."""
        with self._lock:
            self._forget_old(self._clock())
            count = sum(sample.count for sample in self._samples)
            return sum(sample.sum for sample in self._samples) / count if count else math.nan

    @property
    def most(self) -> float:
        """The largest value; not a number where there was none."""
        with self._lock:
            self._forget_old(self._clock())
            return max((sample.most for sample in self._samples), default=math.nan)

    def _per_second(self, part: Callable[[_Sample], float]) -> float:
        with self._lock:
            now_s = self._clock()
            self._forget_old(now_s)
            if not self._samples:
                return 0.0
            elapsed_s = max(now_s - self._samples[0].start_s, WINDOW_S * (_SAMPLES - 1))
            return sum(map(part, self._samples)) / elapsed_s

    def _forget_old(self, now_s: float) -> None:
        while self._samples and now_s >= self._samples[0].start_s + WINDOW_S * _SAMPLES:
            del self._samples[0]


def record_each(meters: tuple[Meter, ...], values: tuple[float, ...]) -> None:
    """As many things happened together, each with its value. The meters have the same clock."""
    meter = meters[0]
    now_s = meter._clock()
    for place in range(len(meters)):
        meter = meters[place]
        meter._count(values[place], now_s)
