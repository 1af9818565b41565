"""Offset ranges of a batch read: from the options to the range of each Spark task.

    options ──resolve──▶ one [start, end) per topic partition ──split──▶ one [start, end) per Spark task

Invariants: ranges are half-open; an empty range makes no task; the parts of a split cover the range without gap or
overlap. `LogBounds` abstracts the cluster, so this module works the same with a broker and with a dictionary.

A start below the log start or an end beyond the log end means that requested records do not exist (they were deleted,
or the topic was created again): DataLossError, or with failOnDataLoss=false the remaining range.
Source: Spark's KafkaOffsetReaderAdmin (resolve) and KafkaOffsetRangeCalculator (split).
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import floor
from types import MappingProxyType
from typing import Final, Protocol

from headrace.spark.source.options import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Boundary,
    Earliest,
    Latest,
    OptionError,
    Selection,
    SourceOptions,
)
from headrace.types import OffsetRange, TopicPartition

JsonOffsets = dict[str, dict[str, int]]
"""{"topic":{"0":23}}: the next offset of each partition, as the connector writes it."""


def offsets_to_json(offsets: Mapping[TopicPartition, int]) -> JsonOffsets:
    """In order of topic and partition, so that equal offsets are equal text."""
    found: JsonOffsets = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def offsets_of_json(given: JsonOffsets) -> dict[TopicPartition, int]:
    """The inverse of `offsets_to_json`."""
    return {TopicPartition(topic, int(index)): at for topic, by in given.items() for index, at in by.items()}


class LogBounds(Protocol):
    """The offsets that the resolver needs from a cluster."""

    def partitions_of(self, selection: Selection) -> list[TopicPartition]: ...
    def earliest(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def latest(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def at_time(self, timestamps_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        """The first offset whose record is at or after the time; None when there is none."""


NOWHERE: Final[Mapping[TopicPartition, int]] = MappingProxyType({})


class DataLossError(Exception):
    """Requested records are no longer (or not yet) in the log."""


def resolve_ranges(
    options: SourceOptions, log: LogBounds, resume_at: Mapping[TopicPartition, int] = NOWHERE
) -> list[OffsetRange]:
    """The non-empty range of every selected partition, in order of topic and partition.

    A partition in `resume_at` starts there, independent of the starting options.
    """
    partitions = sorted(log.partitions_of(options.selection))
    earliest, latest = log.earliest(partitions), log.latest(partitions)
    starts = {**_resolve(options.starting, partitions, earliest, latest, log), **resume_at}
    ends = _resolve(options.ending, partitions, earliest, latest, log)
    ranges = []
    for partition in partitions:
        start, end = starts[partition], ends[partition]
        if start is None:
            start = _start_after_all(options, partition, latest[partition])
        wanted = OffsetRange(*partition, start, latest[partition] if end is None else end)
        present = _what_is_left(wanted, earliest[partition], latest[partition])
        is_beyond_the_end = wanted.start > latest[partition]
        if options.fail_on_data_loss and (is_beyond_the_end or (wanted.size > 0 and present != wanted)):
            raise DataLossError(_loss(wanted, earliest[partition], latest[partition]))
        if present.size > 0:
            ranges.append(present)
    return ranges


def resolve_starts(options: SourceOptions, log: LogBounds) -> dict[TopicPartition, int]:
    """The starting offset of a new stream in every selected partition."""
    partitions = sorted(log.partitions_of(options.selection))
    latest = log.latest(partitions)
    starts = _resolve(options.starting, partitions, log.earliest(partitions), latest, log)
    return {
        partition: _start_after_all(options, partition, latest[partition]) if start is None else start
        for partition, start in starts.items()
    }


def _resolve(
    boundary: Boundary,
    partitions: Sequence[TopicPartition],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    log: LogBounds,
) -> Mapping[TopicPartition, int | None]:
    """An offset for every partition; None if the time is after all its records."""
    match boundary:
        case Earliest():
            return earliest
        case Latest():
            return latest
        case AtOffsets(offsets, option):
            _check_names_all(offsets, partitions, option)
            special = {EARLIEST_OFFSET: earliest, LATEST_OFFSET: latest}
            return {tp: special[offsets[tp]][tp] if offsets[tp] in special else offsets[tp] for tp in partitions}
        case AtTimestamp(timestamp_ms, _):
            return log.at_time(dict.fromkeys(partitions, timestamp_ms))
        case AtTimestamps(timestamps_ms, option):
            _check_names_all(timestamps_ms, partitions, option)
            return log.at_time({tp: timestamps_ms[tp] for tp in partitions})


def _check_names_all(given: Mapping[TopicPartition, int], partitions: Sequence[TopicPartition], option: str) -> None:
    missing = sorted(set(partitions) - set(given))
    extra = sorted(set(given) - set(partitions))
    if missing or extra:
        differences = [f"{word} {_names(some)}" for word, some in (("missing", missing), ("not read", extra)) if some]
        raise OptionError(option, None, f"must name every partition that is read; {', '.join(differences)}")


def _start_after_all(options: SourceOptions, partition: TopicPartition, latest: int) -> int:
    if options.start_at_latest_when_no_time_matches:
        return latest
    starting = options.starting
    raise OptionError(
        starting.option if isinstance(starting, AtTimestamp | AtTimestamps) else "startingTimestamp",
        None,
        f"{partition} has no record at or after that time; "
        "to read nothing from such partitions, set startingOffsetsByTimestampStrategy to latest",
    )


def _what_is_left(wanted: OffsetRange, earliest: int, latest: int) -> OffsetRange:
    start = min(max(wanted.start, earliest), latest)
    return wanted._replace(start=start, end=max(min(wanted.end, latest), start))


def _loss(wanted: OffsetRange, earliest: int, latest: int) -> str:
    return (
        f"{wanted.topic}-{wanted.partition} no longer has all offsets from {wanted.start} to {wanted.end}; it has "
        f"those from {earliest} to {latest}. Records were deleted, or the topic was deleted and created again. "
        "To read the remaining records, set failOnDataLoss to false."
    )


def split_ranges(
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records_per_partition: int | None
) -> list[OffsetRange]:
    """Cut ranges so that none is above `max_records_per_partition`, then large ones until about `min_partitions`.

    As in the connector `min_partitions` is a goal: rounding may give a few more or fewer.
    """
    parts = [wanted for wanted in ranges if wanted.size > 0]
    if max_records_per_partition is not None:
        parts = [cut for part in parts for cut in _cut(part, -(-part.size // max_records_per_partition))]
    if min_partitions is None or len(parts) >= min_partitions:
        return parts
    total = sum(part.size for part in parts)
    small = {part for part in parts if _share(part.size, total, min_partitions) == 1}
    large_total = total - sum(part.size for part in small)
    large_goal = max(min_partitions - len(small), 1)
    pieces: list[OffsetRange] = []
    for part in parts:
        pieces += [part] if part in small else _cut(part, _share(part.size, large_total, large_goal))
    return pieces


def _share(size: int, total: int, goal: int) -> int:
    return max(floor(size / total * goal + 0.5), 1)


def _cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """`count` neighbouring parts of nearly equal size; empty ones are left out."""
    edges = [whole.start]
    for part in range(count):
        edges.append(edges[-1] + (whole.end - edges[-1]) // (count - part))
    return [whole._replace(start=low, end=high) for low, high in pairwise(edges) if high > low]


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))
