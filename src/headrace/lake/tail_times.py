"""The times of records that this process has read behind a table, so that a later query need not read them again.

    partition   table's end ──[0, 900): 10:00–10:04──[900, 1700): 10:03–10:09── end of the log
    until 10:00   nothing of [0, 1700) is wanted: reading begins at 1700

Brokers tell the first record at or after a time, but not whether all that follow are later. A broker's records below
its high watermark stay what they are, as long as it has the same leader; deleted ones make no bound wrong. So bounds
are kept by the topic's id, the partition and its leader's epoch, and by what the reader saw (aborted records or not).
Bounds of a topic without an id are not kept.
"""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, NamedTuple

KEPT_PARTITIONS: Final = 4096
SPANS_MAX: Final = 64


class Times(NamedTuple):
    """The least and the greatest, in ms."""

    first_ms: int
    last_ms: int


class _Span(NamedTuple):
    """Offsets from `start` to `end`, whose records have such times; None if there are no records."""

    start: int
    end: int
    times: Times | None


class Window(NamedTuple):
    """Wanted times in ms; `until_ms` is exclusive."""

    since_ms: int | None
    until_ms: int | None

    def may_have(self, times: Times) -> bool:
        """Whether some record may be wanted."""
        return (self.since_ms is None or times.last_ms >= self.since_ms) and (
            self.until_ms is None or times.first_ms < self.until_ms
        )


class TailTimes:
    """The times of records, by partition. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: OrderedDict[Hashable, list[_Span]] = OrderedDict()

    def first_wanted(self, partition: Hashable, start: int, window: Window) -> int:
        """The offset at which reading has to begin: nothing is wanted between `start` and there."""
        with self._lock:
            for span in self._spans.get(partition, ()):
                if span.start <= start < span.end and (span.times is None or not window.may_have(span.times)):
                    start = span.end
        return start

    def learn(self, partition: Hashable, start: int, end: int, times: Times | None) -> None:
        """The records from `start` to `end` have these times. What does not follow the known offsets replaces them."""
        if start >= end:
            return
        with self._lock:
            spans = self._spans.setdefault(partition, [])
            self._spans.move_to_end(partition)
            if spans and spans[0].start <= start and end <= spans[-1].end:
                return
            if spans and spans[-1].end != start:
                spans.clear()
            spans.append(_Span(start, end, times))
            if len(spans) > SPANS_MAX:
                spans[:] = [_joined(spans)]
            while len(self._spans) > KEPT_PARTITIONS:
                self._spans.popitem(last=False)


def _joined(spans: list[_Span]) -> _Span:
    known = [span.times for span in spans if span.times is not None]
    times = Times(min(one.first_ms for one in known), max(one.last_ms for one in known)) if known else None
    return _Span(spans[0].start, spans[-1].end, times)
