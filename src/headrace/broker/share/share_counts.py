"""What share groups have done since the broker started, for the metrics page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from headrace.coordinators.share_partitions.acknowledgement import RENEW, Acknowledged


class ShareCounts:
    """Counters that only grow."""

    __slots__ = ("acknowledged", "load_ns", "loaded", "lock_timeouts")

    def __init__(self) -> None:
        self.acknowledged = [0] * (RENEW + 1)
        """Records by the type of their acknowledgement."""
        self.loaded = self.load_ns = 0
        self.lock_timeouts = 0

    def acknowledge(self, acknowledged: Iterable[Acknowledged]) -> None:
        """Adds what a member has acknowledged: one type for a range, or one for each record."""
        for first, last, types in acknowledged:
            if len(types) == 1:
                self.acknowledged[types[0]] += last - first + 1
            else:
                for kind, count in Counter(types).items():
                    self.acknowledged[kind] += count
