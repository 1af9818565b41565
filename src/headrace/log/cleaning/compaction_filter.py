"""The compaction filter: decides which records of a batch stay when a log is compacted.

    record                                             stays
    older than a known record with the same key        no
    a tombstone (no value)                             until the batch's delete horizon
    without a key                                      no
    above the offset map's last offset                 yes
    of an aborted transaction                          no

    batch                                              result
    all records stay                                   the same bytes
    some records stay                                  the same header with fewer records; offsets, sequence and last
                                                       offset do not change
    no record stays                                    nothing, or an empty batch when it is its producer's last
    a needless marker                                  the same, after its delete horizon

The delete horizon (KIP-534) is `delete.retention.ms` after the cleaning that first finds a tombstone or a needless
marker. The batch has it: attribute bit 6 is set, and the base timestamp is the horizon. Messages of formats 0 and 1
have no place for it, so the age of their segment decides about their tombstones. Source: Kafka's Cleaner,
MemoryRecords.filterTo, DefaultRecordBatch.writeEmptyHeader.
"""

from array import array
from collections.abc import Mapping
from typing import NamedTuple

from headrace.errors import CorruptMessage
from headrace.limits import INT64_MAX
from headrace.log.cleaning import compaction_kernel as kernel
from headrace.log.cleaning.compaction_transactions import PassedTransactions
from headrace.log.cleaning.compaction_writer import CleanedWriter
from headrace.log.cleaning.offset_map import Marked, OffsetMap
from headrace.records.codecs.compression import Bytes, compress
from headrace.records.format2.batch import Record
from headrace.records.format2.header import (
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    pack_header,
    records_of,
)
from headrace.records.legacy.message import TimestampType
from headrace.records.legacy.message_set import encode_message_set, iter_messages

_CODEC_BITS = 0x07
_NO_OFFSET = -1


class LastRecord(NamedTuple):
    """The offset of a live producer's last record, -1 for none, and the producer's epoch."""

    last_offset: int
    epoch: int


class FilteredBatch(NamedTuple):
    """A batch to write to the cleaned segment, with the records that stay."""

    batch: Bytes
    last_offset: int
    max_timestamp_ms: int
    record_count: int


class BatchFilter:
    """Filters a log's batches in order, and counts their records."""

    def __init__(
        self,
        known: OffsetMap,
        transactions: PassedTransactions,
        producers: Mapping[int, LastRecord],
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._known = known
        self._transactions = transactions
        self._producers = producers
        self._lasts = array("q", sorted(last.last_offset for last in producers.values()))
        self._now_ms = now_ms
        self._horizon_ms = min(now_ms + delete_retention_ms, INT64_MAX)
        self._keep = bytearray(1024)
        self.records_read = 0
        self.records_kept = 0
        self.records_without_key = 0

    def sift(self, window: Bytes, at: int, expected: int, next_base: int, writer: CleanedWriter) -> tuple[int, int]:
        """Filter and write the next plain batches of a window, up to the first batch that needs `kept`.

        Returns the position of that batch in the window, and the lowest offset that it may have.
        """
        at, expected, read, kept, keyless = self._known.sift(
            window, at, expected, next_base, writer, self._keep, self._lasts
        )
        self.records_read += read
        self.records_kept += kept
        self.records_without_key += keyless
        return at, expected

    def kept(self, batch: Bytes, header: BatchHeader, *, drop_old_tombstones: bool) -> FilteredBatch | None:
        """The next batch of the log with the records that stay; None when no record stays.

        The caller has checked the CRC. `drop_old_tombstones` is for formats 0 and 1 only. Raises CorruptMessage.
        """
        if header.magic < MAGIC:
            found = self._kept_messages(batch, header, drop_old_tombstones)
        else:
            self.records_read += header.record_count
            found = self._kept_batch(batch, header)
        if found is not None:
            self.records_kept += found.record_count
        return found

    def _kept_batch(self, batch: Bytes, header: BatchHeader) -> FilteredBatch | None:
        is_needless = self._transactions.is_needless(batch, header)
        horizon_ms = header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None
        is_past = horizon_ms is not None and horizon_ms <= self._now_ms
        if header.record_count == 0 or (is_needless and (is_past or not header.is_control)):
            return self._emptied(header)
        if header.is_control:
            if not is_needless or horizon_ms is not None:
                return _unchanged(batch, header)
            return self._marker_with_horizon(batch, header)
        records, start, end = records_of(batch, 0, header)
        if len(self._keep) < header.record_count:
            if header.record_count > end - start:
                raise CorruptMessage(f"the batch at offset {header.base_offset} claims {header.record_count} records")
            self._keep = bytearray(header.record_count)
        marked = self._known.mark(records, start, end, header, drop_tombstones=is_past, keep=self._keep)
        self.records_without_key += marked.without_key
        if not marked.kept:
            return self._emptied(header)
        needs_horizon = marked.tombstones > 0 and horizon_ms is None
        if marked.kept == header.record_count and not needs_horizon:
            return _unchanged(batch, header)
        return self._rewritten(header, records, start, end, marked, self._horizon_ms if needs_horizon else horizon_ms)

    def _emptied(self, header: BatchHeader) -> FilteredBatch | None:
        """The batch without records if it is its producer's last one, else None."""
        return emptied(header) if header.producer_id >= 0 and self._is_last_of_producer(header) else None

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._producers.get(header.producer_id)
        if last is None:
            return False
        if last.last_offset != _NO_OFFSET:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.epoch

    def _marker_with_horizon(self, batch: Bytes, header: BatchHeader) -> FilteredBatch:
        records, start, end = records_of(batch, 0, header)
        self._keep[: header.record_count] = b"\1" * header.record_count
        marked = Marked(header.record_count, 0, header.max_timestamp - header.base_timestamp, 0)
        return self._rewritten(header, records, start, end, marked, self._horizon_ms)

    def _rewritten(
        self, header: BatchHeader, records: Bytes, start: int, end: int, marked: Marked, horizon_ms: int | None
    ) -> FilteredBatch:
        """The batch with the records that `_keep` marks, and the delete horizon in place of its base timestamp."""
        max_timestamp = header.max_timestamp
        if not header.is_log_append_time:
            max_timestamp = header.base_timestamp + marked.latest_delta
        base_timestamp = header.base_timestamp if horizon_ms is None else horizon_ms
        room = HEADER_BYTES + (end - start) + (marked.kept + 1) * kernel.GROWTH_BYTES_MAX
        out = bytearray(room)
        shift = header.base_timestamp - base_timestamp
        size = kernel.OUT_OF_RANGE
        if -INT64_MAX <= shift <= INT64_MAX:
            size = kernel.copy(records, start, end, header.record_count, self._keep, shift, out, HEADER_BYTES)
        if size == kernel.OUT_OF_RANGE:  # absurd timestamps: the tombstones stay without a horizon
            horizon_ms, base_timestamp = None, header.base_timestamp
            size = kernel.copy(records, start, end, header.record_count, self._keep, 0, out, HEADER_BYTES)
        if size < 0:
            raise CorruptMessage(f"the batch at offset {header.base_offset} does not hold the records that it counts")
        del out[size:]
        if header.attributes & _CODEC_BITS:
            out[HEADER_BYTES:] = compress(header.codec, memoryview(out)[HEADER_BYTES:])
        attributes = header.attributes & ~DELETE_HORIZON_BIT
        rewritten = header._replace(
            batch_length=len(out) - LOG_OVERHEAD_BYTES,
            attributes=attributes if horizon_ms is None else attributes | DELETE_HORIZON_BIT,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            record_count=marked.kept,
        )
        pack_header(out, 0, rewritten)
        return FilteredBatch(out, header.last_offset, max_timestamp, marked.kept)

    def _kept_messages(self, batch: Bytes, header: BatchHeader, drop_tombstones: bool) -> FilteredBatch | None:
        """A message of format 0 or 1, or a wrapper of several."""
        messages = list(iter_messages(batch, check_crcs=False))
        self.records_read += len(messages)
        kept: list[Record] = []
        stamp_ms = None
        for offset, timestamp_ms, timestamp_type, message in messages:
            if timestamp_type is TimestampType.LOG_APPEND_TIME:
                stamp_ms = timestamp_ms
            if offset <= self._known.latest_offset:
                if message.key is None:
                    self.records_without_key += 1
                    continue
                if self._known.newest(message.key) > offset or (drop_tombstones and message.value is None):
                    continue
            kept.append(Record(offset, timestamp_ms, message.key, message.value))
        if not kept:
            return None
        if len(kept) == len(messages):
            return FilteredBatch(batch, header.last_offset, header.max_timestamp, len(kept))
        written = encode_message_set(
            kept, magic=header.magic, codec=header.codec, base_offset=None, log_append_time_ms=stamp_ms
        )
        latest_ms = max(record.timestamp_ms for record in kept) if header.magic else NO_TIMESTAMP
        return FilteredBatch(written, kept[-1].offset, latest_ms, len(kept))


def _unchanged(batch: Bytes, header: BatchHeader) -> FilteredBatch:
    return FilteredBatch(batch, header.last_offset, header.max_timestamp, header.record_count)


def emptied(header: BatchHeader) -> FilteredBatch:
    """A batch of format 2 without its records, which keeps the producer's epoch and last sequence."""
    out = bytearray(HEADER_BYTES)
    empty = header._replace(
        batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES,
        attributes=header.attributes & ~(_CODEC_BITS | DELETE_HORIZON_BIT),
        base_timestamp=NO_TIMESTAMP,
        record_count=0,
    )
    pack_header(out, 0, empty)
    return FilteredBatch(out, header.last_offset, header.max_timestamp, 0)
