"""Executes a follower's decisions on its log: appends, comparisons and truncations (`replication.follower` decides).

The log takes over whole batches with the leader's offsets, after a check of each checksum. The follower's high
watermark is the leader's, up to its own log end offset, or to the end of what it has compared with the leader's log;
its log start offset is the leader's.
"""

from collections.abc import Iterator
from typing import NamedTuple

from headrace.broker.partitions.partition import Partition
from headrace.errors import CorruptMessage, StorageError
from headrace.log import appending, truncation, upkeep
from headrace.protocol import messages as m
from headrace.records.any_format import any_crc_is_valid, iter_any_headers
from headrace.records.format2.header import BatchHeader
from headrace.replication.follower import EpochEnd

PIECE_BYTES = 256 << 10
"""Bytes checked and appended at once: a few milliseconds of work, even if each record is a batch of its own."""


class LeaderOffsets(NamedTuple):
    """What a leader says of a partition beside the records."""

    high_watermark: int
    log_start_offset: int


def end_of_epoch(partition: Partition, epoch: int) -> EpochEnd:
    """The largest epoch up to `epoch` in the log, and its end offset; (-1, -1) if none is known."""
    log = partition.log
    return EpochEnd(*log.leader_epochs.end_offset_for(epoch, log.log_end_offset))


def last_epoch(partition: Partition) -> int:
    """The epoch of the log's last record; -1 if not known."""
    return partition.log.leader_epochs.latest


def whole_batches(records: memoryview, bytes_max: int) -> tuple[int, BatchHeader | None]:
    """The size of the complete batches, up to about `bytes_max`, and the header of the first one.

    The leader may cut the last batch. Raises `CorruptMessage` for a wrong checksum and for bytes that are no batch.
    """
    end, first = 0, None
    for position, header in iter_any_headers(records):
        if not any_crc_is_valid(records, position, header):
            raise CorruptMessage(f"the batch at offset {header.base_offset} does not match its CRC")
        first = first or header
        end = position + header.size_bytes
        if end >= bytes_max:
            break
    return end, first


def append_all(
    partition: Partition, answer: LeaderOffsets | m.FetchResponse.PartitionData, records: memoryview, now_ms: int
) -> None:
    """Appends all pieces of `records`, which are few. Raises as `append_piece`."""
    while records := append_piece(partition, answer, records, now_ms):
        pass


def append_piece(
    partition: Partition, answer: LeaderOffsets | m.FetchResponse.PartitionData, records: memoryview, now_ms: int
) -> memoryview:
    """Appends the first piece of `records`, and applies the leader's high watermark and log start offset from `answer`.
    Returns the records that are left.

    Raises `CorruptMessage`, `StorageError`, and OFFSET_OUT_OF_RANGE for records that the log has already.
    """
    log = partition.log
    size = log.append_run(records, 0, len(records), PIECE_BYTES, now_ms)
    first = None
    if not size:
        size, first = whole_batches(records, PIECE_BYTES)
    if first is not None:
        if first.base_offset < log.log_end_offset <= first.last_offset and log.log_end_offset == log.log_start_offset:
            # The leader's log begins inside its first batch. To ask again from there would be out of its range.
            truncation.truncate_fully(log, first.base_offset, now_ms, at_once=True)
        appending.append_replicated(log, records[:size], now_ms=now_ms)
    apply_offsets(partition, answer, log.log_end_offset, now_ms)
    return records[size:] if size else records[:0]


def apply_offsets(
    partition: Partition, answer: LeaderOffsets | m.FetchResponse.PartitionData, end_offset: int, now_ms: int
) -> None:
    """Applies the leader's high watermark, up to `end_offset`, and its log start offset. Raises `StorageError`."""
    log = partition.log
    partition.state.on_replicated(log.log_end_offset, min(answer.high_watermark, end_offset))
    if answer.log_start_offset > log.log_start_offset:
        upkeep.delete_records_before(log, min(answer.log_start_offset, log.high_watermark), now_ms)


class ComparedPiece(NamedTuple):
    """The result of a comparison of one piece."""

    offset: int
    """The end of what both logs have."""
    records: memoryview
    """The leader's records from there on."""
    differs: bool
    """Whether this log has other records there."""


def compare(partition: Partition, offset: int, records: memoryview) -> ComparedPiece:
    """Compares the first piece of the leader's `records` with the log from `offset` on, below the log end offset.

    Raises `CorruptMessage`, and OSError.
    """
    log = partition.log
    size, _ = whole_batches(records, PIECE_BYTES)
    if not size:  # the leader cut off even the first batch
        return ComparedPiece(offset, records[:0], False)
    found = log.read(offset, size, end_offset=log.log_end_offset, at_least_one=False)
    own, theirs, same = log.read_bytes(found), bytes(records[:size]), 0
    is_same = own == theirs
    for position, header in iter_any_headers(theirs):
        end = position + header.size_bytes
        if not is_same and (end > len(own) or own[position:end] != theirs[position:end]):
            break
        same, offset = end, header.next_offset
    is_read = 0 < same == len(own)  # of one segment, the next one is yet to be compared
    return ComparedPiece(offset, records[same:], same < size and not is_read)


def truncate(partition: Partition, offset: int, now_ms: int) -> None:
    """Drops everything from `offset` on. Raises `StorageError`."""
    truncation.truncate_to(partition.log, offset, now_ms)


def restart(partition: Partition, offset: int, now_ms: int) -> Iterator[None]:
    """Drops the whole log and starts it at `offset`, in slices. Raises `StorageError`.

    The caller knows that the leader deleted all these records. So the committed ones go as retention deletes them, the
    oldest first: the log is whole after each slice, and a crash leaves no hole. The last slice, which drops the rest,
    is a truncation. It also drops records above the high watermark, however many segments they take.
    """
    log, most = partition.log, upkeep.SEGMENTS_PER_SLICE
    if len(log.segments) > most and log.high_watermark > log.log_start_offset:
        log.start_at(log.high_watermark)
    while len(log.segments) > most and upkeep.delete_below_start(log, now_ms, most):
        yield
        if log.failure is not None:
            raise StorageError(log.failure)
    truncation.truncate_fully(log, offset, now_ms)
