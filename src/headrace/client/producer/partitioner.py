"""Chooses the partition of a record as Java's default partitioner does.

A record with a key goes to `toPositive(murmur2(key)) % partitions`. Clients in every language do the same, so a key
stays in one partition. Records without a key stick to one partition until a batch is full, and then move to another
(KIP-480), which makes fewer and larger batches than a round robin. Source: Kafka's `Utils.murmur2`,
`BuiltInPartitioner`. Left out: the choice by queue length of KIP-794.
"""

import random
from collections.abc import Callable, Sequence

from headrace.records.format2.kernel import murmur2


def partition_for_key(key: bytes, partition_count: int) -> int:
    """`Utils.toPositive(murmur2(key)) % partition_count`."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartition:
    """The partition for a topic's records without keys, until `move_on`."""

    __slots__ = ("_choose", "_current")

    def __init__(self, choose: Callable[[Sequence[int]], int] = random.choice) -> None:
        self._choose = choose
        self._current = -1

    def current(self, available: Sequence[int]) -> int:
        """The partition in use; one of `available` (those that have a leader)."""
        if self._current not in available:
            self._current = self._choose(available)
        return self._current

    def move_on(self, available: Sequence[int]) -> None:
        """Choose another partition if there is one. Called when a batch of the current one is full."""
        others = [partition for partition in available if partition != self._current]
        if others:
            self._current = self._choose(others)
