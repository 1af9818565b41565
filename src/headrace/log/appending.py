"""Appending to a partition's log: what a producer sent, or what the leader has.

    v2 batch          its producer's sequence is checked; base offset and leader epoch are written into it, in place
    set of messages   formats 0 and 1: every message gets its offset (`records.produced_sets`); no producer, no epoch

These functions are methods of `PartitionLog`. A message of an older format makes the log forget its leader epochs, as
Apache Kafka does: it carries none, so what the epochs say of a truncation would be wrong. Source: Kafka's UnifiedLog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.errors import ErrorCode, KafkaError, OffsetOutOfRange, StorageError
from headrace.log.aborted import note_aborted
from headrace.log.recent import RecentBatches
from headrace.log.segment import ENTRY_HEAD
from headrace.records.any_format import iter_any_headers
from headrace.records.control import read_marker
from headrace.records.header import MAGIC, NO_TIMESTAMP, BatchHeader, set_base_offset, set_log_append_time
from headrace.records.produced_sets import PlacedSet

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog
    from headrace.log.segment import Segment


class AppendResult(NamedTuple):
    """Where a batch is, by offsets (both inclusive). `log_append_time_ms` is -1 unless the broker's clock stamps."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool


def append(
    log: PartitionLog, batch: memoryview, header: BatchHeader, *, leader_epoch: int, now_ms: int
) -> AppendResult:
    """Append one v2 batch, checked by the caller, as the partition's leader; offsets are written into it.

    Raises what `Producers.check` and `check_marker` do; StorageError; RECORD_LIST_TOO_LARGE for a batch that is
    larger than a segment.
    """
    if log.failure is not None:  # also for what it has already: nobody knows whether that is on the disk
        raise StorageError(log.failure)
    if header.is_control:
        log.producers.check_marker(header, read_marker(batch).coordinator_epoch)
    elif header.producer_id >= 0:
        kept = log.producers.check(header)
        if kept is not None:
            stamped_ms = kept.timestamp_ms if log.config.message_timestamp_type == "LogAppendTime" else -1
            return AppendResult(kept.first_offset, kept.last_offset, stamped_ms, log.log_start_offset, True)
    base_offset = log.log_end_offset
    stamped_ms = NO_TIMESTAMP
    if log.config.message_timestamp_type == "LogAppendTime":
        stamped_ms = now_ms
        header = set_log_append_time(batch, header, now_ms)
    set_base_offset(batch, base_offset, leader_epoch)
    last_offset = _write(log, batch, header, base_offset, leader_epoch, now_ms)
    return AppendResult(base_offset, last_offset, stamped_ms, log.log_start_offset, False)


def append_set(log: PartitionLog, placed: PlacedSet, *, log_append_time_ms: int, now_ms: int) -> AppendResult:
    """Append a set of messages of format 0 or 1, placed at the log's end by `place_set`, as the partition's leader.

    Raises StorageError; RECORD_LIST_TOO_LARGE for a set that is larger than a segment.
    """
    base_offset, data = log.log_end_offset, placed.data
    active = _ready(log, len(data), placed.last_offset, placed.max_timestamp, now_ms)
    try:
        _forget_epochs(log)
        position = active.append_set(data, placed.last_offset, placed.max_timestamp, placed.offset_of_max)
    except OSError as error:
        raise _storage_error(log, error) from error
    log.log_end_offset = log.producers.end_offset = placed.last_offset + 1
    if ENTRY_HEAD.unpack_from(data)[1] + ENTRY_HEAD.size == len(data):
        log.recent.add(base_offset, position)
    else:
        log.recent = RecentBatches()  # readers go to the message that they ask for, by the index
    return AppendResult(base_offset, placed.last_offset, log_append_time_ms, log.log_start_offset, False)


def append_replicated(log: PartitionLog, batches: memoryview, *, now_ms: int) -> int:
    """Append whole batches of any format as a follower, with the offsets that the leader gave them; returns the log
    end offset.

    Raises OffsetOutOfRange for a batch that begins before the log's end; StorageError.
    """
    for position, header in iter_any_headers(batches):
        if header.base_offset < log.log_end_offset:
            raise OffsetOutOfRange(f"{log.partition} ends at {log.log_end_offset}, not at {header.base_offset}")
        if header.base_offset > log.log_end_offset:
            log.recent = RecentBatches()  # a wrapper's last offset; or the leader's log has a gap, from compaction
        batch = batches[position : position + header.size_bytes]
        _write(log, batch, header, header.base_offset, header.leader_epoch, now_ms)
    return log.log_end_offset


def _write(
    log: PartitionLog, batch: memoryview, header: BatchHeader, base_offset: int, leader_epoch: int, now_ms: int
) -> int:
    """Write a batch that has its offsets, and note it everywhere; returns its last offset."""
    last_offset = base_offset + header.last_offset_delta
    max_timestamp_ms = header.max_timestamp
    active = _ready(log, len(batch), last_offset, max_timestamp_ms, now_ms, base_offset)
    try:
        if header.magic < MAGIC:
            _forget_epochs(log)
        elif leader_epoch != log.leader_epochs.latest:
            log.leader_epochs.assign(leader_epoch, base_offset)
        position = active.append(batch, last_offset, max_timestamp_ms)
    except OSError as error:
        raise _storage_error(log, error) from error
    log.log_end_offset = last_offset + 1
    if header.producer_id >= 0:
        _note_producer(log, batch, header, base_offset, now_ms)
    log.producers.end_offset = last_offset + 1
    log.recent.add(base_offset, position)
    return last_offset


def _ready(
    log: PartitionLog,
    size: int,
    last_offset: int,
    max_timestamp_ms: int,
    now_ms: int,
    base_offset: int | None = None,
) -> Segment:
    """The segment that so many bytes go to, rolled when it is time to."""
    active = log.active
    if log.failure is not None:
        raise StorageError(log.failure)
    try:
        if active.must_roll(size, last_offset, max_timestamp_ms, now_ms):
            if size > log.config.segment_bytes:
                raise KafkaError(
                    f"a batch of {size} bytes is larger than a segment, {log.config.segment_bytes}",
                    ErrorCode.RECORD_LIST_TOO_LARGE,
                )
            return log.roll(now_ms, base_offset)
    except OSError as error:
        raise _storage_error(log, error) from error
    return active


def _storage_error(log: PartitionLog, error: OSError) -> StorageError:
    return StorageError(f"{log.partition} could not be written: {error}")


def _forget_epochs(log: PartitionLog) -> None:
    if log.leader_epochs.latest >= 0:
        log.leader_epochs.clear()


def _note_producer(log: PartitionLog, batch: memoryview, header: BatchHeader, base_offset: int, now_ms: int) -> None:
    if not header.is_control:
        log.producers.append(header, base_offset, now_ms)
        return
    if not header.record_count:  # emptied by the leader's compaction: it ended a transaction that is gone
        return
    marker = read_marker(batch)
    aborted = log.producers.end_transaction(
        header, base_offset, marker.coordinator_epoch, is_abort=marker.is_abort, now_ms=now_ms
    )
    if aborted is not None:
        try:
            note_aborted(log.active, aborted)
        except OSError as error:  # recovery makes the index again
            log.failure = f"{log.partition} has an aborted transaction that could not be indexed: {error}"
            raise StorageError(log.failure) from error
