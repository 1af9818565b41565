"""Decodes a Fetch answer for one partition into columns, or into one Python object per record. Does no IO."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

from headrace.client.consumer.fetching import FETCH_SIZES, READ_UNCOMMITTED, Fetched, FetchSizes
from headrace.client.consumer.isolation import aborted_filter
from headrace.errors import CorruptMessage
from headrace.records.any_format import scan_any, scan_any_spans
from headrace.records.format2 import rows
from headrace.records.format2.batch import Headers, headers_at
from headrace.records.format2.columns import BATCHES_BYTES_MAX, RecordColumns, SpanTable
from headrace.records.format2.header import BatchHeader
from headrace.types import Offset, TopicPartition

BATCH_ROWS = 65_536
SCANNED_ROWS = 8_192  # at a time, for records as objects: they are wanted soon


class ReadOptions(NamedTuple):
    """The columns to decode, the approximate rows and bytes of a chunk, the fetch sizes, and the reader's rack.

    `producer_ids` are the producers whose records are wanted (None: all). Formats before 2 have no producer ids, so
    their records are always there.
    """

    batch_rows: int = BATCH_ROWS
    batch_bytes: int = BATCHES_BYTES_MAX
    keys: bool = True
    values: bool = True
    headers: bool = False
    isolation_level: int = READ_UNCOMMITTED
    sizes: FetchSizes = FETCH_SIZES
    producer_ids: Collection[int] | None = None
    rack: str = ""


READ_OPTIONS = ReadOptions()


class ConsumerRecord(NamedTuple):
    """One record with its place; `timestamp_type` is 0 for the producer's time, 1 for the broker's.

    `key` and `value` are bytes or None, or what the consumer's deserializers made of the bytes.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: Any
    value: Any
    headers: Headers


def columns_of(
    answer: Fetched, position: Offset, end: Offset | None = None, options: ReadOptions = READ_OPTIONS
) -> Iterator[RecordColumns]:
    """The records in [position, end), in chunks of about `batch_rows`: whole batches, no empty chunk."""
    skip = _skip_of(answer, options)
    rest, offset = answer.records, int(position)
    while len(rest):
        columns = scan_any(
            rest,
            from_offset=offset,
            to_offset=end,
            keys=options.keys,
            values=options.values,
            headers=options.headers,
            max_records=options.batch_rows,
            max_bytes=options.batch_bytes,
            skip=skip,
        )
        if columns.count:
            yield columns
        if columns.bytes_consumed == 0 or (end is not None and columns.next_offset >= end):
            return
        rest, offset = rest[columns.bytes_consumed :], columns.next_offset


def _skip_of(answer: Fetched, options: ReadOptions) -> Callable[[BatchHeader, memoryview], bool] | None:
    """The batches to leave out; None if there are none."""
    is_aborted = aborted_filter(answer.aborted) if options.isolation_level else None
    wanted = options.producer_ids
    if wanted is None:
        return is_aborted

    def skip(header: BatchHeader, batch: memoryview) -> bool:
        is_dropped = is_aborted is not None and is_aborted(header, batch)  # sees every batch, to follow transactions
        return is_dropped or header.is_control or header.producer_id not in wanted

    return skip


class ChunkRecords:
    """The records of an answer from `position` on, as Python objects that are created when taken."""

    __slots__ = ("_offset", "_partition", "_rest", "_row", "_skip", "_table", "is_done")

    def __init__(self, partition: TopicPartition, answer: Fetched, position: Offset, isolation_level: int) -> None:
        self._partition = partition
        self._rest = answer.records
        self._offset = int(position)
        self._skip = aborted_filter(answer.aborted) if isolation_level else None
        self._table = SpanTable(0)
        self._row = 0
        self.is_done: bool = False

    @property
    def has_rows(self) -> bool:
        """Whether records are decoded already, so that `take` returns some."""
        return self._row < self._table.count

    def take(self, limit: int) -> list[ConsumerRecord]:
        """The next records; fewer than `limit` if these are the last (`is_done`), or if a corrupt batch follows.

        Raises CorruptMessage, which names the partition and the batch, on this and every later call.
        """
        found: list[ConsumerRecord] = []
        while len(found) < limit:
            if self._row == self._table.count and (self.is_done or not self._scan(bool(found))):
                break
            found += self._made(self._row, min(self._table.count, self._row + limit - len(found)))
        return found

    def _scan(self, is_short_allowed: bool) -> bool:
        """Advance to the next rows; returns whether there are any."""
        try:
            scanned = scan_any_spans(self._rest, from_offset=self._offset, max_records=SCANNED_ROWS, skip=self._skip)
        except CorruptMessage as damage:
            if is_short_allowed:
                return False
            raise CorruptMessage(f"{self._partition}: {damage.message}") from damage
        self._rest = self._rest[scanned.bytes_consumed :]
        self._table, self._offset, self._row = scanned.table, scanned.next_offset, 0
        self.is_done = scanned.bytes_consumed == 0
        return not self.is_done

    def _made(self, start: int, stop: int) -> list[ConsumerRecord]:
        table, found = self._table, []
        topic, partition = self._partition
        for data, first, last in table.pieces:
            if first < stop and last > start:
                found += rows.take(
                    ConsumerRecord, topic, partition, data, table.spans, table.offsets, table.timestamps_ms,
                    table.timestamp_types, max(first, start), min(last, stop), headers_at,
                )  # fmt: skip
        self._row = stop
        return found
