"""Decides the size of a micro-batch: a maximum, a minimum, and a maximum delay.

    waiting  = ends - starts, over all partitions
    due      : no minimum | waiting >= minimum | the last batch is `max_delay_ms` ago (at first: always)
    share_out: every waiting partition gets 1, the rest in proportion to what waits there, whole numbers, exact

Spark's Python API has one limit at a time, where the JVM's connector composes a minimum and a maximum, so both are
counted here. Invariants of `share_out`: never beyond an end; the sum is min(max, waiting); no partition starves while
the maximum is at least the number of waiting ones. (The connector rounds each share by itself, so its sum is only near
the maximum.) Pure: times are arguments. Source: Spark's KafkaMicroBatchStream.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.types import TopicPartition

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """The limits in the options; None is no limit. `max_delay_ms` bounds the wait for `min_offsets`."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 15 * 60_000


NO_LIMITS = AdmissionLimits()


def waiting(starts: Offsets, ends: Offsets) -> int:
    """The number of offsets between starts and ends; a partition without a start counts as 0."""
    return sum(max(end - starts.get(partition, end), 0) for partition, end in ends.items())


def is_due(limits: AdmissionLimits, waiting_offsets: int, last_batch_ms: float | None, now_ms: float) -> bool:
    """Whether a batch begins now; `last_batch_ms` is the start of the last one, None before the first."""
    if limits.min_offsets is None or waiting_offsets >= limits.min_offsets or last_batch_ms is None:
        return True
    return now_ms - last_batch_ms >= limits.max_delay_ms


def share_out(max_offsets: int | None, starts: Offsets, ends: Offsets) -> dict[TopicPartition, int]:
    """The ends of a batch of at most `max_offsets` offsets (None: all)."""
    sizes = {partition: end - starts[partition] for partition, end in ends.items() if end > starts[partition]}
    total = sum(sizes.values())
    if max_offsets is None or total <= max_offsets:
        return dict(ends)
    taken = dict.fromkeys(ends, 0) | _shares(max_offsets, sizes, total)
    return {partition: starts[partition] + taken[partition] for partition in ends}


def _shares(budget: int, sizes: Offsets, total: int) -> dict[TopicPartition, int]:
    """Divides `budget`, which is less than `total`, among the partitions."""
    largest_first = sorted(sizes, key=lambda partition: (-sizes[partition], partition))
    if budget <= len(sizes):
        return dict.fromkeys(largest_first[:budget], 1)
    rest, rest_total = budget - len(sizes), total - len(sizes)
    shares = {partition: divmod(rest * (size - 1), rest_total) for partition, size in sizes.items()}
    taken = {partition: 1 + share for partition, (share, _) in shares.items()}
    most_left_over = sorted(largest_first, key=lambda partition: -shares[partition][1])
    for partition in most_left_over[: budget - sum(taken.values())]:
        taken[partition] += 1
    return taken
