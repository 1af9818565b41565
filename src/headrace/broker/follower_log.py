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

INTACT_MIN_BYTES = 12


def end_of_epoch(partition: Partition, epoch: int) -> EpochEnd:
    """The largest epoch of the log's records that is not above `epoch`, and where it ends; (-1, -1) when none is
    known."""
    log = partition.log
    return EpochEnd(*log.leader_epochs.end_offset_for(epoch, log.log_end_offset))


def last_epoch(partition: Partition) -> int:
    """The epoch of the log's last record; -1 when that is not known."""
    return partition.log.leader_epochs.latest


def whole_batches(records: memoryview) -> tuple[memoryview, BatchHeader | None]:
    """The batches that came whole, and the first one's header; the leader may cut the last one off. Raises
    `CorruptMessage` for one that does not match its checksum, and when a first batch is there that is no batch."""
    end, first = 0, None
    for position, header in iter_any_headers(records):
        if not any_crc_is_valid(records, position, header):
            raise CorruptMessage(f"the batch at offset {header.base_offset} does not match its checksum")
        first = first or header
        end = position + header.size_bytes
    return records[:end], first


def take_over(partition: Partition, answer: m.FetchResponse.PartitionData, now_ms: int) -> int:
    """Appends what the leader sent, and follows its high watermark and its log's start; how many bytes were appended.

    Raises `CorruptMessage`, `StorageError`, and OFFSET_OUT_OF_RANGE for records that the log has already.
    """
    log, state = partition.log, partition.state
    batches, first = whole_batches(memoryview(answer.records or b""))
    if first is not None:
        if first.base_offset < log.log_end_offset <= first.last_offset and log.log_end_offset == log.log_start_offset:
            log.truncate_fully(first.base_offset, now_ms)  # the leader's log begins inside its first batch
        log.append_replicated(batches, now_ms=now_ms)
        log.flush_by_count(now_ms)  # nobody waits for it here, but soon this disk has it as well
    state.on_replicated(log.log_end_offset, answer.high_watermark)
    log.update_high_watermark(state.high_watermark)
    if answer.log_start_offset > log.log_start_offset:
        log.delete_records_before(min(answer.log_start_offset, log.high_watermark), now_ms)
    return len(batches)


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
