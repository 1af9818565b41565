"""The streaming reader behind `spark.readStream.format("headrace")`.

    initialOffset       starting options ─▶ {"t":{"0":23}}              once in a query's life; then the checkpoint
    latestOffset        ends of the log ─▶ admission ─▶ {"t":{"0":42}}  every trigger
    partitions          start, end ─▶ ranges ─▶ tasks                   also of a batch that a killed driver had begun
    read                in a worker, as in a batch read
    commit              the batch before is done ─▶ offsets of kafka.group.id

All methods but `read` run in one long-lived process beside the driver. `read` runs on copies of the reader that a
second process pickled: a copy has only the options, and `read` sees no state of other methods.

Offsets are the connector's: {"topic":{"partition":next offset}}, in order, so that equal offsets are equal text. Spark
compares this text to see whether anything is new. Partitions, with failOnDataLoss and without:

    new                            from its log start
    start below the log start      DataLossError         or from the log start
    start above the end            DataLossError         or, because the topic was created again, from its log start
                                                         (both only after a second request: an answer may be old)
    no longer exists               DataLossError         or forgotten
    another topic id than before   DataLossError         or from the same offset; known only while the query runs

`commit(end)` arrives with the next trigger, so the last batch of a query is committed by `headrace.spark.progress`.
Source: Spark's KafkaMicroBatchStream.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from headrace.client.core.cluster import Cluster
from headrace.errors import KafkaError
from headrace.spark.progress import commit_offsets
from headrace.spark.source.admission import NO_LIMITS, AdmissionLimits, is_due, share_out, waiting
from headrace.spark.source.cluster_access import ClusterBounds, connect, existing, isolation_level, refresh
from headrace.spark.source.offsets import (
    DataLossError,
    JsonOffsets,
    offsets_of_json,
    offsets_to_json,
    resolve_starts,
    split_ranges,
)
from headrace.spark.source.options import SourceOptions
from headrace.spark.source.source import RangePartition, read_partition
from headrace.types import OffsetRange, TopicPartition

_log = logging.getLogger(__name__)
Offsets = Mapping[TopicPartition, int]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads from the query's current offsets on."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._opened: Cluster | None = None
        self._target: Offsets | None = None
        self._newest: Offsets | None = None
        self._last_batch_ms: float | None = None
        self._topic_ids: dict[str, bytes] = {}

    def __reduce__(self) -> tuple[type["StreamReader"], tuple[SourceOptions]]:
        return StreamReader, (self._options,)

    # -- which offsets

    def initialOffset(self) -> JsonOffsets:
        return offsets_to_json(resolve_starts(self._options, self._log_bounds()))

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark takes one limit; `latestOffset` reads both from the options.
        limits = self._options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        return ReadAllAvailable() if limits.min_offsets is None else ReadMinRows(limits.min_offsets)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._log_bounds().latest(self._partitions())

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:
        begun = offsets_of_json(start)
        ends = self._newest = self._ends(begun)
        starts = self._starts(begun, ends)
        limits = NO_LIMITS if isinstance(limit, ReadAllAvailable) else self._options.limits
        if not self._is_due(limits, waiting(starts, ends)):
            return start
        chosen = share_out(limits.max_offsets, starts, ends)
        return start if chosen == begun else offsets_to_json(chosen)

    def reportLatestOffset(self) -> JsonOffsets | None:
        return None if self._newest is None else offsets_to_json(self._newest)

    def _is_due(self, limits: AdmissionLimits, waiting_offsets: int) -> bool:
        """Whether a batch begins now. AvailableNow ends when there are no new offsets, so it ignores the minimum."""
        now_ms = time.monotonic() * 1000
        if self._target is None and not is_due(limits, waiting_offsets, self._last_batch_ms, now_ms):
            return False
        if waiting_offsets:
            self._last_batch_ms = now_ms
        return True

    # -- what the log holds

    def _ends(self, begun: Offsets) -> Offsets:
        """The end of every selected partition. Raises DataLossError if the offsets of `begun` do not fit."""
        retries = self._options.behind_retries
        while True:
            ends = self._target if self._target is not None else self._log_bounds().latest(self._partitions())
            behind = [partition for partition, end in ends.items() if end < begun.get(partition, 0)]
            if not behind or not retries or self._target is not None:
                break
            retries -= 1
            time.sleep(self._options.behind_retry_ms / 1000)
        for partition in behind:
            self._lost(
                f"{partition} was read up to offset {begun[partition]}, but now ends at offset {ends[partition]}"
            )
        for partition in sorted(begun.keys() - ends.keys()):
            self._lost(f"{partition} was read up to offset {begun[partition]}, but no longer exists")
        return ends

    def _starts(self, begun: Offsets, ends: Offsets) -> dict[TopicPartition, int]:
        """The start of each partition: the offset in `begun`, or the log start."""
        new = [partition for partition, end in ends.items() if not begun.get(partition, end + 1) <= end]
        earliest = self._log_bounds().earliest(new) if new else {}
        return {partition: earliest[partition] if partition in earliest else begun[partition] for partition in ends}

    def _partitions(self) -> list[TopicPartition]:
        """The partitions that are selected now."""
        cluster, selection = self._cluster(), self._options.selection
        refresh(cluster, selection)
        if not self._options.fail_on_data_loss:
            selection = existing(selection, cluster.view)
        found = self._log_bounds().partitions_of(selection)
        for topic in sorted({partition.topic for partition in found}):
            topic_id = cluster.view.topics[topic].topic_id
            if self._topic_ids.setdefault(topic, topic_id) != topic_id:
                self._topic_ids[topic] = topic_id
                self._lost(f"topic {topic} was deleted and created again")
        return found

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{what}: the query would skip records. To continue with the remaining records, set failOnDataLoss to "
                "false."
            )
        _log.warning("%s; the query continues, because failOnDataLoss is false", what)

    def _log_bounds(self) -> ClusterBounds:
        return ClusterBounds(self._cluster(), isolation_level(self._options.client_settings))

    def _cluster(self) -> Cluster:
        if self._opened is None:
            self._opened = connect(self._options)
        return self._opened

    # -- one batch

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
        starts, ends = offsets_of_json(start), offsets_of_json(end)
        if starts == ends:
            return []
        there = set(self._partitions())
        for partition in sorted(ends.keys() - there):
            self._lost(f"{partition} no longer exists")
        earliest = self._log_bounds().earliest(sorted(ends.keys() & there))
        ranges = [self._range(partition, starts.get(partition), ends[partition], earliest) for partition in earliest]
        parts = split_ranges(ranges, self._options.min_partitions, self._options.max_records_per_partition)
        return [RangePartition(part) for part in parts]

    def _range(self, partition: TopicPartition, start: int | None, end: int, earliest: Offsets) -> OffsetRange:
        first = earliest[partition]
        if start is None or start > end:
            start = first
        elif start < min(first, end):
            self._lost(f"{partition} has lost offsets {start} to {min(first, end)}")
            start = first
        return OffsetRange(*partition, min(start, end), end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition)

    # -- afterwards

    def commit(self, end: JsonOffsets) -> None:
        try:
            commit_offsets(self._options, offsets_of_json(end))
        except KafkaError as failed:  # the checkpoint has the progress; the group only shows it
            _log.warning("the progress of group %s could not be committed: %s", self._options.group_id, failed)

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None
