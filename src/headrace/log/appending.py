"""Appends to a partition's log, as the leader or as a follower.

    v2 batch      checks the producer's sequence; writes the base offset and the leader epoch into the batch, in place
    message set   formats 0 and 1: every message gets its offset (`records.legacy.produced_sets`); it has no producer
                  and no leader epoch

A message of an older format makes the log forget its leader epochs, as in Apache Kafka. The message has no leader
epoch, so the known epochs would give a wrong offset for a truncation. Source: Kafka's UnifiedLog.
"""

from enum import Enum
from typing import NamedTuple

from headrace.errors import CorruptMessage, ErrorCode, KafkaError, NotLeaderOrFollower, OffsetOutOfRange, StorageError
from headrace.log.append_state import NOT_APPENDED
from headrace.log.partition_log import PartitionLog
from headrace.log.producers.verification import Verification
from headrace.log.segment.aborted_transactions import end_transaction, note_aborted
from headrace.log.segment.segment import GAP_IN_SEGMENT_MAX, Segment
from headrace.log.segment.segment_indexes import ENTRY_HEAD
from headrace.records.any_format import iter_any_headers
from headrace.records.format2.control import Marker, encode_marker, read_marker
from headrace.records.format2.header import (
    CONTROL_BIT,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
    set_base_offset,
    set_log_append_time,
)
from headrace.records.legacy.produced_sets import PlacedSet

_SPECIAL_BITS = TRANSACTIONAL_BIT | CONTROL_BIT


class AppendOrigin(Enum):
    """The origin of a batch. A coordinator's own batches have no sequences, as offsets committed in a transaction."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


class AppendResult(NamedTuple):
    """The offsets of an appended batch (both inclusive), or of the batch that a duplicate repeats.

    `log_append_time_ms` is -1 unless `message.timestamp.type` is LogAppendTime. A duplicate has the largest timestamp
    of the batch that it repeats, as in Apache Kafka.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool


def append(
    log: PartitionLog,
    batch: memoryview,
    header: BatchHeader,
    *,
    leader_epoch: int,
    now_ms: int,
    verification: Verification | None = None,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> AppendResult:
    """Append one v2 batch of records, which the caller has validated, as the partition's leader.

    Writes the base offset, `leader_epoch` and, for LogAppendTime, `now_ms` into the batch, in place. A transactional
    batch is appended to its producer's open transaction; to open one it needs the `verification` that
    `PartitionLog.begin_verification` returned, or `verification.NOT_REQUIRED`. Raises the errors of `Producers.check`
    and `check_transactional`; StorageError; NotLeaderOrFollower during a truncation; KafkaError with
    RECORD_LIST_TOO_LARGE for a batch larger than a segment.
    """
    if log.failure is not None or log.is_truncating:  # duplicates too: nobody knows whether the batch is on the disk
        raise _refusal(log)
    if not log.stamps and _has_nothing_special(header):
        base_offset = _append_plain(log, batch, 0, header, leader_epoch, now_ms)
        if base_offset != NOT_APPENDED:
            last_offset = base_offset + header.last_offset_delta
            return AppendResult(base_offset, last_offset, NO_TIMESTAMP, log.log_start_offset, False)
    if header.producer_id >= 0:
        if header.attributes & TRANSACTIONAL_BIT:
            kept = log.producers.check_transactional(header, verification, has_sequences=origin is AppendOrigin.CLIENT)
        else:
            kept = log.producers.check(header)
        if kept is not None:
            return AppendResult(kept.first_offset, kept.last_offset, kept.timestamp_ms, log.log_start_offset, True)
    return _append_checked(log, batch, header, leader_epoch, now_ms)


def _has_nothing_special(header: BatchHeader) -> bool:
    """Whether a batch is one for `LogEnd.append_plain`, as far as its header tells."""
    return not header.attributes & _SPECIAL_BITS and header.last_offset_delta + 1 == header.record_count


def _append_plain(
    log: PartitionLog, batches: memoryview, position: int, header: BatchHeader, leader_epoch: int, now_ms: int
) -> int:
    return log.append_plain(
        batches, position, position + header.size_bytes, leader_epoch, now_ms, header.record_count,
        header.max_timestamp, header.producer_id, header.producer_epoch, header.base_sequence,
    )  # fmt: skip


def append_marker(
    log: PartitionLog,
    marker: Marker,
    *,
    producer_id: int,
    producer_epoch: int,
    transaction_version: int,
    leader_epoch: int,
    now_ms: int,
) -> AppendResult:
    """Append the marker that ends a producer's transaction, as the partition's leader.

    The coordinator asks for it with WriteTxnMarkers: `transaction_version` is in the request from version 2 on, and 0
    before. A producer without an open transaction gets the marker too, as in Apache Kafka: it may have written nothing
    to the partition. Raises the errors of `Producers.check_marker`, and those of `append` for a log that refuses
    appends.
    """
    if log.failure is not None or log.is_truncating:
        raise _refusal(log)
    log.producers.check_marker(
        producer_id, producer_epoch, marker.coordinator_epoch, transaction_version=transaction_version
    )
    batch = memoryview(
        encode_marker(marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp_ms=now_ms)
    )
    return _append_checked(log, batch, read_header(batch), leader_epoch, now_ms)


def _append_checked(
    log: PartitionLog, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int
) -> AppendResult:
    base_offset = log.log_end_offset
    stamped_ms = NO_TIMESTAMP
    if log.config.message_timestamp_type == "LogAppendTime":
        stamped_ms = now_ms
        header = set_log_append_time(batch, header, now_ms)
    set_base_offset(batch, base_offset, leader_epoch)
    last_offset = _write(log, batch, header, base_offset, leader_epoch, now_ms)
    return AppendResult(base_offset, last_offset, stamped_ms, log.log_start_offset, False)


def append_set(log: PartitionLog, placed: PlacedSet, *, log_append_time_ms: int, now_ms: int) -> AppendResult:
    """Append a message set of format 0 or 1 as the partition's leader. `place_set` gave it offsets from the log's end.

    Raises StorageError; NotLeaderOrFollower during a truncation; KafkaError with RECORD_LIST_TOO_LARGE for a set larger
    than a segment.
    """
    base_offset, data = log.log_end_offset, placed.data
    active = _ready(log, len(data), placed.last_offset, placed.max_timestamp, now_ms)
    try:
        _forget_epochs(log)
        position = active.append_set(data, placed.last_offset, placed.max_timestamp, placed.offset_of_max)
    except OSError as error:
        raise _storage_error(log, error) from error
    log.appended(base_offset, placed.last_offset, position)
    if ENTRY_HEAD.unpack_from(data)[1] + ENTRY_HEAD.size != len(data):
        log.forget_positions()  # readers find the message that they ask for through the index
    return AppendResult(base_offset, placed.last_offset, log_append_time_ms, log.log_start_offset, False)


def append_replicated(log: PartitionLog, batches: memoryview, *, now_ms: int) -> int:
    """Append whole batches of any format as a follower, with the leader's offsets, and return the log end offset.

    Raises OffsetOutOfRange for a batch that begins below the log end offset; StorageError; NotLeaderOrFollower during a
    truncation; KafkaError with RECORD_LIST_TOO_LARGE for a batch larger than a segment.
    """
    for position, header in iter_any_headers(batches):
        if header.base_offset < log.log_end_offset:
            raise OffsetOutOfRange(
                f"{log.partition} ends at offset {log.log_end_offset}; a batch at {header.base_offset} is refused"
            )
        if header.base_offset > log.log_end_offset:
            log.forget_positions()  # a wrapper has its last offset here, or compaction left a gap in the leader's log
        elif (
            header.magic == MAGIC
            and _has_nothing_special(header)
            and not batches.readonly
            and _append_plain(log, batches, position, header, header.leader_epoch, now_ms) != NOT_APPENDED
        ):  # written at the end that it has already, with the epoch that it has already
            continue
        batch = batches[position : position + header.size_bytes]
        _write(log, batch, header, header.base_offset, header.leader_epoch, now_ms)
    return log.log_end_offset


def _write(
    log: PartitionLog, batch: memoryview, header: BatchHeader, base_offset: int, leader_epoch: int, now_ms: int
) -> int:
    """Write a batch that has its offsets, update the log's state, and return the batch's last offset."""
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
    log.appended(base_offset, last_offset, position)
    if header.producer_id >= 0:
        _note_producer(log, batch, header, base_offset, now_ms)
    return last_offset


def _ready(
    log: PartitionLog,
    size: int,
    last_offset: int,
    max_timestamp_ms: int,
    now_ms: int,
    base_offset: int | None = None,
) -> Segment:
    """The segment for the next `size` bytes, after a roll when one is due."""
    active = log.active
    if log.failure is not None or log.is_truncating:
        raise _refusal(log)
    try:
        if active.must_roll(size, last_offset, max_timestamp_ms, now_ms):
            if size > log.config.segment_bytes:
                raise KafkaError(
                    f"a batch of {size} bytes is larger than segment.bytes={log.config.segment_bytes}",
                    ErrorCode.RECORD_LIST_TOO_LARGE,
                )
            has_gap = base_offset is not None and base_offset - log.log_end_offset > GAP_IN_SEGMENT_MAX
            return log.roll(now_ms, base_offset if has_gap else None)
    except OSError as error:
        raise _storage_error(log, error) from error
    return active


def _refusal(log: PartitionLog) -> KafkaError:
    """The error for a log that refuses appends.

    A new leader that still truncates its log answers that it is not the leader yet.
    """
    if log.failure is not None:
        return StorageError(log.failure)
    return NotLeaderOrFollower(f"{log.partition} is being truncated")


def _storage_error(log: PartitionLog, error: OSError) -> StorageError:
    return StorageError(f"{log.partition} could not be written: {error}")


def _forget_epochs(log: PartitionLog) -> None:
    if log.leader_epochs.latest >= 0:
        log.leader_epochs.clear()


def _note_producer(log: PartitionLog, batch: memoryview, header: BatchHeader, base_offset: int, now_ms: int) -> None:
    if not header.is_control:
        log.producers.append(header, base_offset, now_ms)
        return
    if not header.record_count:  # the leader's compaction emptied the marker: the transaction's records are gone
        return
    log.producers.transactions.forget_committed(log.high_watermark)
    try:
        end_transaction(
            log.producers,
            header,
            base_offset,
            read_marker(batch),
            now_ms,
            lambda aborted: note_aborted(log.active, aborted),
        )
    except (CorruptMessage, OSError) as error:  # recovery rebuilds the index
        reason = f"{log.partition} has an aborted transaction that could not be indexed: {error}"
        log.fail(reason)
        raise StorageError(reason) from error
