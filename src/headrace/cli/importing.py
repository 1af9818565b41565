"""Copying one stored partition to a topic: what `headrace log import` does for each.

    stored log ─▶ columns ─▶ producer, acks=all, idempotent ─▶ the partition of the same number

Records keep their order, so a partition that only an import has written to holds the first N records of its source.
That is all that resuming needs: N is read off the partition's end, compared with the source by its last record, and
passed over. Nothing is kept beside the data.
"""

import sys
import time
from array import array
from collections import deque
from itertools import islice
from typing import NamedTuple

from headrace.cli.output import printable
from headrace.client.admin import Admin
from headrace.client.cluster import Cluster
from headrace.client.delivery import ColumnsDelivery
from headrace.client.producer import Producer
from headrace.client.reader import read_range
from headrace.errors import ErrorCode, KafkaError
from headrace.limits import INT32_MAX
from headrace.log.offline import StoredLog
from headrace.records.binary import BinaryColumn, HeadersColumn, as_int32s
from headrace.records.columns import RecordColumns, column_of
from headrace.records.header import HEADER_BYTES
from headrace.types import Offset, TopicPartition

BATCH_OVERHEAD_BYTES = HEADER_BYTES + 32
"""A batch of one record, beside its key, value and headers, has at most so many."""

_PROGRESS_SECONDS = 0.5


class CannotResume(KafkaError):
    """The partition holds something that is not the beginning of the source."""


class RecordTooLarge(KafkaError):
    """A record that the topic does not take."""


class Imported(NamedTuple):
    """What became of one partition."""

    partition: TopicPartition
    records: int
    """Written now; those of an import before are in `resumed_at`."""
    resumed_at: int
    bytes_read: int
    first_offset: int
    """In the topic; -1 when nothing was written."""
    source_first_offset: int
    source_last_offset: int
    newest_ms: int


class Progress:
    """One line on a terminal's stderr, written over; nothing elsewhere."""

    def __init__(self, size_bytes: int) -> None:
        self._size = size_bytes
        self._started = self._shown = time.monotonic()
        self._on = sys.stderr.isatty()
        self._before = 0

    def show(self, partition: TopicPartition, records: int, bytes_read: int) -> None:
        """At most twice a second."""
        now = time.monotonic()
        if not self._on or now - self._shown < _PROGRESS_SECONDS:
            return
        self._shown = now
        done = self._before + bytes_read
        rate = done / 1e6 / (now - self._started)
        share = done / self._size if self._size else 1.0
        print(
            f"\r{printable(str(partition))}: {records:,} records, {share:.0%} of all, {rate:.0f} MB/s\x1b[K",
            end="",
            file=sys.stderr,
            flush=True,
        )

    def finished(self, size_bytes: int) -> None:
        """Another partition is done."""
        self._before += size_bytes
        if self._on:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def resume_at(cluster: Cluster, log: StoredLog, to: TopicPartition) -> int:
    """How many records of the source the partition holds. CannotResume when they are not its first ones."""
    start, end = Admin(cluster).watermarks([to])[to]
    if end == 0:
        return 0
    if start == end:
        raise _cannot_resume(f"{to}: its {end} records are deleted again, so that nothing tells what they were")
    theirs = None
    for chunk in read_range(cluster, to, Offset(end - 1), Offset(end)):
        theirs = _row(chunk, chunk.count - 1)
    seen = 0
    for rows in log.columns():
        if seen + rows.count >= end:
            if _row(rows, end - 1 - seen) == theirs:
                return int(end)
            raise _cannot_resume(f"{to}: its record {end - 1} is not the source's")
        seen += rows.count
    raise _cannot_resume(f"{to}: it holds {end} records, the source {seen}")


def _cannot_resume(message: str) -> CannotResume:
    return CannotResume(message, ErrorCode.INVALID_RECORD)


def _row(rows: RecordColumns, row: int) -> tuple[bytes | None, bytes | None]:
    key = None if rows.keys is None else rows.keys.value(row)
    return key, None if rows.values is None else rows.values.value(row)


def copy(
    log: StoredLog,
    producer: Producer | None,
    to: TopicPartition,
    *,
    skip: int = 0,
    record_bytes_max: int = INT32_MAX,
    progress: Progress,
) -> Imported:
    """Write the source's records from the `skip`th on; without a producer they are only read and counted.

    RecordTooLarge for one over `record_bytes_max`: none behind it is sent, so that a later import can go on. KafkaError
    when the broker refuses.
    """
    waiting: deque[ColumnsDelivery] = deque()
    left, written, first_offset = skip, 0, -1
    source_first = source_last = newest_ms = -1
    for rows in log.columns():
        newest_ms = max(newest_ms, max(rows.timestamps_ms))
        source_last = rows.offsets[-1]
        if source_first < 0:
            source_first = rows.offsets[0]
        if rows.count <= left:
            left -= rows.count
            continue
        rest = _without_first(rows, left)
        left = 0
        _check_sizes(rest, to, record_bytes_max)
        if producer is not None:
            waiting.append(
                producer.send_columns(to.topic, rest.keys, rest.values, rest.timestamps_ms, to.partition, rest.headers)
            )
        written += rest.count
        while waiting and waiting[0].done():
            first_offset = _settled(waiting.popleft(), first_offset)
        progress.show(to, written, log.bytes_read)
    if producer is not None:
        producer.flush()
        while waiting:
            first_offset = _settled(waiting.popleft(), first_offset)
    progress.finished(log.size_bytes)
    return Imported(to, written, skip - left, log.bytes_read, first_offset, source_first, source_last, newest_ms)


def _check_sizes(rows: RecordColumns, to: TopicPartition, bytes_max: int) -> None:
    """RecordTooLarge for the first record whose key and value do not fit a batch of so many bytes."""
    if sum(len(memoryview(column.data)) for column in (rows.keys, rows.values) if column is not None) <= bytes_max:
        return
    for row in range(rows.count):
        size = BATCH_OVERHEAD_BYTES + sum(
            column.offsets[row + 1] - column.offsets[row] for column in (rows.keys, rows.values) if column is not None
        )
        if size > bytes_max:
            raise RecordTooLarge(
                f"{to}: the record at the source's offset {rows.offsets[row]} takes {size} bytes, over the topic's "
                f"max.message.bytes={bytes_max}: headrace config set topic {to.topic} max.message.bytes={size}",
                ErrorCode.MESSAGE_TOO_LARGE,
            )


def _settled(delivery: ColumnsDelivery, first_offset: int) -> int:
    """The offset of the first record ever delivered; raises what the broker refused with."""
    offsets = [metadata.offset for metadata in delivery.result()]
    return first_offset if first_offset >= 0 or not offsets else offsets[0]


def _without_first(rows: RecordColumns, count: int) -> RecordColumns:
    """The rows from `count` on."""
    if count == 0:
        return rows
    headers = rows.headers
    if headers is not None:
        headers = HeadersColumn(as_int32s(headers.list_offsets)[count:], headers.keys, headers.values)
    return rows._replace(
        count=rows.count - count,
        offsets=array("q", rows.offsets[count:]),
        timestamps_ms=array("q", rows.timestamps_ms[count:]),
        timestamp_types=rows.timestamp_types[count:],
        keys=_column_from(rows.keys, count, rows.count),
        values=_column_from(rows.values, count, rows.count),
        headers=headers,
    )


def _column_from(column: BinaryColumn | None, start: int, stop: int) -> BinaryColumn | None:
    return None if column is None else column_of([column.value(row) for row in islice(range(stop), start, None)])
