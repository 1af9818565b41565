"""Records that could not be delivered, and whose result nobody has asked for or can ask for any more.

A batch that is garbage notes itself here. The garbage collector may run in any thread at any moment, also in one that
holds a lock of the logging, so nothing is logged there: a sender does it in its next turn, or the end of a producer, or
the end of the process.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from contextlib import suppress
from typing import Final, NamedTuple

from headrace.errors import KafkaError
from headrace.types import TopicPartition

_log = logging.getLogger(__name__)

PAUSE_S: Final = 1.0
"""The least time between two looks at what was noted."""
_LINES_MAX: Final = 10
"""Of one look, each for a partition."""
_NOTED_MAX: Final = 1_000


class _Noted(NamedTuple):
    partition: TopicPartition
    records: int
    error: KafkaError


class LostRecords:
    """What was noted, and not logged yet. Notes beyond a thousand are dropped, the oldest first."""

    def __init__(self) -> None:
        self._noted: deque[_Noted] = deque(maxlen=_NOTED_MAX)
        self._next_s = float("-inf")

    def note(self, partition: TopicPartition, count: int, error: KafkaError) -> None:
        """Any thread may call, also a finalizer."""
        self._noted.append(_Noted(partition, count, error))

    def tell(self, *, now: bool = False) -> None:
        """Log what was noted, a line for each partition, every `PAUSE_S` at most; `now`: whatever the time is."""
        if not self._noted or (time.monotonic() < self._next_s and not now):
            return
        self._next_s = time.monotonic() + PAUSE_S
        counts: Counter[TopicPartition] = Counter()
        errors: dict[TopicPartition, KafkaError] = {}
        with suppress(IndexError):  # another sender takes some, too
            while self._noted:
                partition, records, errors[partition] = self._noted.popleft()
                counts[partition] += records
        others = sum(count for _, count in counts.most_common()[_LINES_MAX:])
        for partition, count in counts.most_common(_LINES_MAX):
            _log.error(
                "%d %s for %s not delivered%s, and nobody asked for their result: %s. "
                "Call result() on what send() returns, or await it, or add_done_callback()",
                count,
                "record" if count == 1 else "records",
                partition,
                f" (and {others} for other partitions)" if others else "",
                errors[partition],
            )


LOST = LostRecords()
