"""A follower's hands on its partition's log: what `replication.follower` decided, done.

The log takes over whole batches with the leader's offsets, each one's checksum looked at first. The high watermark is
the leader's, as far as the log reaches; the log's start is the leader's.
"""

from headrace.broker.partition import Partition
from headrace.errors import CorruptMessage
from headrace.protocol import messages as m
from headrace.records.any_format import any_crc_is_valid, iter_any_headers
from headrace.records.header import BatchHeader
from headrace.replication.follower import EpochEnd

PIECE_BYTES = 256 << 10
"""How much is checked and appended at once: a few milliseconds, also when each record is a batch of its own."""


def end_of_epoch(partition: Partition, epoch: int) -> EpochEnd:
    """The largest epoch of the log's records that is not above `epoch`, and where it ends; (-1, -1) when none is
    known."""
    log = partition.log
    return EpochEnd(*log.leader_epochs.end_offset_for(epoch, log.log_end_offset))


def last_epoch(partition: Partition) -> int:
    """The epoch of the log's last record; -1 when that is not known."""
    return partition.log.leader_epochs.latest


def whole_batches(records: memoryview, bytes_max: int) -> tuple[int, BatchHeader | None]:
    """How many bytes the batches are that came whole, about `bytes_max` of them, and the first one's header.

    The leader may cut the last one off. Raises `CorruptMessage` for one that does not match its checksum, and for what
    is no batch.
    """
    end, first = 0, None
    for position, header in iter_any_headers(records):
        if not any_crc_is_valid(records, position, header):
            raise CorruptMessage(f"the batch at offset {header.base_offset} does not match its checksum")
        first = first or header
        end = position + header.size_bytes
        if end >= bytes_max:
            break
    return end, first


def take_over(
    partition: Partition, answer: m.FetchResponse.PartitionData, records: memoryview, now_ms: int
) -> memoryview:
    """Appends the first of `records`, which the leader sent with `answer`, and follows its high watermark and its log's
    start; what is left to be appended.

    Raises `CorruptMessage`, `StorageError`, and OFFSET_OUT_OF_RANGE for records that the log has already.
    """
    log, state = partition.log, partition.state
    size, first = whole_batches(records, PIECE_BYTES)
    if first is not None:
        if first.base_offset < log.log_end_offset <= first.last_offset and log.log_end_offset == log.log_start_offset:
            log.truncate_fully(first.base_offset, now_ms)  # the leader's log begins inside its first batch
        log.append_replicated(records[:size], now_ms=now_ms)
    state.on_replicated(log.log_end_offset, answer.high_watermark)
    log.update_high_watermark(state.high_watermark)
    if answer.log_start_offset > log.log_start_offset:
        log.delete_records_before(min(answer.log_start_offset, log.high_watermark), now_ms)
    return records[size:] if size else records[:0]


def truncate(partition: Partition, offset: int, now_ms: int) -> None:
    """Drops everything from `offset` on. Raises `StorageError`."""
    partition.log.truncate_to(offset, now_ms)
    _truncated(partition)


def restart(partition: Partition, offset: int, now_ms: int) -> None:
    """Drops everything, and goes on at `offset`. Raises `StorageError`."""
    partition.log.truncate_fully(offset, now_ms)
    _truncated(partition)


def _truncated(partition: Partition) -> None:
    partition.state.on_truncated(partition.log.log_start_offset, partition.log.log_end_offset)
    partition.log.update_high_watermark(partition.state.high_watermark)
