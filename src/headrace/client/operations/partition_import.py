"""The copy of one stored partition to a topic.

    stored log ─▶ columns ─▶ producer, acks=all, idempotent ─▶ the partition of the same number

Records keep their order, so a partition that only an import has written to holds the first N records of its source. To
resume, the import reads N from the partition's end, compares the last record with the source, and skips N records. It
stores no state besides the data.
"""

from array import array
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple, Protocol

from headrace.client.consumer.reader import read_range
from headrace.client.core.cluster import Cluster
from headrace.client.operations.admin import Admin
from headrace.client.producer.delivery import ColumnsDelivery
from headrace.client.producer.producer import Producer
from headrace.errors import ErrorCode, KafkaError
from headrace.limits import INT32_MAX
from headrace.records.binary import BinaryColumn, HeadersColumn, as_int32s
from headrace.records.format2.columns import RecordColumns, column_of
from headrace.records.format2.header import HEADER_BYTES
from headrace.types import Offset, TopicPartition

BATCH_OVERHEAD_BYTES = HEADER_BYTES + 32
"""Upper bound of a one-record batch's bytes beside its key, value and headers."""


class CannotResume(KafkaError):
    """The partition's records are not the first records of the source."""


class RecordTooLarge(KafkaError):
    """A record is larger than the topic's max.message.bytes."""


class Imported(NamedTuple):
    """The result of importing one partition."""

    partition: TopicPartition
    records: int
    """Records written by this import. `resumed_at` counts those of an earlier one."""
    resumed_at: int
    bytes_read: int
    first_offset: int
    """In the topic; -1 when nothing was written."""
    source_first_offset: int
    source_last_offset: int
    newest_ms: int


class RecordSource(Protocol):
    """The records of one stored partition, in order."""

    @property
    def bytes_read(self) -> int:
        """The bytes of stored data that were read so far."""
        ...

    def columns(self) -> Iterator[RecordColumns]:
        """All records, in chunks."""
        ...


def resume_at(cluster: Cluster, source: RecordSource, to: TopicPartition) -> int:
    """The number of source records that the partition holds. CannotResume if they are not the first ones."""
    start, end = Admin(cluster).watermarks([to])[to]
    if end == 0:
        return 0
    if start == end:
        raise _cannot_resume(f"{to}: all {end} records have been deleted, so they cannot be compared with the source")
    theirs = None
    for chunk in read_range(cluster, to, Offset(end - 1), Offset(end)):
        theirs = _row(chunk, chunk.count - 1)
    seen = 0
    for rows in source.columns():
        if seen + rows.count >= end:
            if _row(rows, end - 1 - seen) == theirs:
                return int(end)
            raise _cannot_resume(f"{to}: the record at offset {end - 1} differs from the source")
        seen += rows.count
    raise _cannot_resume(f"{to}: the partition has {end} records, but the source only {seen}")


def _cannot_resume(message: str) -> CannotResume:
    return CannotResume(message, ErrorCode.INVALID_RECORD)


def _row(rows: RecordColumns, row: int) -> tuple[bytes | None, bytes | None]:
    key = None if rows.keys is None else rows.keys.value(row)
    return key, None if rows.values is None else rows.values.value(row)


def import_partition(
    source: RecordSource,
    producer: Producer | None,
    to: TopicPartition,
    *,
    skip: int = 0,
    record_bytes_max: int = INT32_MAX,
    on_progress: Callable[[int], None] = lambda records: None,
) -> Imported:
    """Write the source's records from the `skip`th on; without a producer, only read and count them. Calls
    `on_progress` periodically with the number of sent records.

    Raises RecordTooLarge for a record over `record_bytes_max`: no later record is sent, so that a later import can
    continue. Raises KafkaError if the broker refuses.
    """
    waiting: deque[ColumnsDelivery] = deque()
    left, written, first_offset = skip, 0, -1
    source_first = source_last = newest_ms = -1
    for rows in source.columns():
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
        on_progress(written)
    if producer is not None:
        producer.flush()
        while waiting:
            first_offset = _settled(waiting.popleft(), first_offset)
    return Imported(to, written, skip - left, source.bytes_read, first_offset, source_first, source_last, newest_ms)


def _check_sizes(rows: RecordColumns, to: TopicPartition, bytes_max: int) -> None:
    """Raises RecordTooLarge for the first record whose key and value do not fit into a batch of `bytes_max`."""
    if sum(len(memoryview(column.data)) for column in (rows.keys, rows.values) if column is not None) <= bytes_max:
        return
    for row in range(rows.count):
        size = BATCH_OVERHEAD_BYTES + sum(
            column.offsets[row + 1] - column.offsets[row] for column in (rows.keys, rows.values) if column is not None
        )
        if size > bytes_max:
            raise RecordTooLarge(
                f"{to}: the record at the source's offset {rows.offsets[row]} has {size} bytes, more than the topic's "
                f"max.message.bytes={bytes_max}: headrace config set topic {to.topic} max.message.bytes={size}",
                ErrorCode.MESSAGE_TOO_LARGE,
            )


def _settled(delivery: ColumnsDelivery, first_offset: int) -> int:
    """The offset of the first delivered record; raises the broker's error if it refused one."""
    offsets = [metadata.offset for metadata in delivery.result()]
    return first_offset if first_offset >= 0 or not offsets else offsets[0]


def _without_first(rows: RecordColumns, count: int) -> RecordColumns:
    """The rows from row `count` on."""
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
