"""Columns in Arrow's layout to record batches, with no Python object per record.

The kernel measures the rows first, so that a batch is made in one piece of the right size, then writes them. Source:
Kafka's MemoryRecordsBuilder, DefaultRecord; its Utils.murmur2 and BuiltInPartitioner for the partitions.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple, TypeAlias

from headrace.limits import INT32_MAX
from headrace.records import kernel
from headrace.records.binary import BinaryColumn, Buffer, HeadersColumn, as_bytes, as_int32s, as_int64s, int32s
from headrace.records.compression import Codec, compress
from headrace.records.header import (
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    pack_header,
)
from headrace.records.rows import RowBuffer

Ints: TypeAlias = "array[int]"
_Column: TypeAlias = tuple[memoryview, memoryview, memoryview]

_NO_INTS = memoryview(array("i"))
_NO_BYTES = memoryview(b"")


def build_batch(
    keys: BinaryColumn | None,
    values: BinaryColumn | None,
    start: int,
    stop: int,
    timestamps_ms: Buffer,
    headers: HeadersColumn | None = None,
    order: Buffer | None = None,
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """The rows [start, stop) of some columns as one batch; a column that is None is null in every row.

    With an `order` (int32, see `scatter`) they are the rows that it names at its places [start, stop).
    ValueError when there is no row, or the columns are shorter than `stop` or than their own offsets.
    """
    if stop <= start:
        raise ValueError("a batch holds at least one record")
    columns = _flat(keys, values, headers, timestamps_ms, order)
    sizes = int32s(stop - start)
    reached, size = kernel.measure(*columns, start, stop, INT32_MAX - HEADER_BYTES, sizes)
    if reached != stop:
        raise ValueError(
            f"row {size} does not lie in its columns" if reached < 0 else "the rows do not fit a batch of 2 GiB"
        )
    batch = kernel.room(HEADER_BYTES + size)
    end, max_timestamp = kernel.build(*columns, start, stop, sizes, batch, HEADER_BYTES)
    if end != len(batch):
        raise ValueError("the columns changed while a batch was built from them")
    if codec is not Codec.NONE:
        batch[HEADER_BYTES:] = compress(codec, memoryview(batch)[HEADER_BYTES:], level)
    first = start if order is None else as_int32s(order)[start]
    attributes = codec | (TRANSACTIONAL_BIT if is_transactional else 0) | (CONTROL_BIT if is_control else 0)
    header = BatchHeader(
        base_offset, len(batch) - LOG_OVERHEAD_BYTES, leader_epoch, MAGIC, 0, attributes, stop - start - 1,
        as_int64s(timestamps_ms)[first], max_timestamp, producer_id, producer_epoch, base_sequence, stop - start,
    )  # fmt: skip
    pack_header(batch, 0, header)
    return batch


def batch_of_rows(
    rows: RowBuffer,
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """The records of a `RowBuffer` that left HEADER_BYTES free, as one batch.

    Uncompressed it is the buffer itself, cut to its length, with another header each time.
    """
    batch, count = rows.data, rows.count
    if codec is Codec.NONE:
        del batch[rows.end :]
    else:
        batch = batch[:HEADER_BYTES] + compress(codec, memoryview(batch)[HEADER_BYTES : rows.end], level)
    header = BatchHeader(
        0, len(batch) - LOG_OVERHEAD_BYTES, -1, MAGIC, 0, codec, count - 1, rows.timestamps_ms[0], rows.max_timestamp,
        producer_id, producer_epoch, base_sequence, count,
    )  # fmt: skip
    pack_header(batch, 0, header)
    return batch


def fitting_rows(
    keys: BinaryColumn | None,
    values: BinaryColumn | None,
    start: int,
    stop: int,
    timestamps_ms: Buffer,
    headers: HeadersColumn | None = None,
    order: Buffer | None = None,
    *,
    max_batch_bytes: int,
) -> tuple[int, int]:
    """Up to which row (exclusive) the rows from `start` fit an uncompressed batch, one at least, and its bytes.

    With an `order`, up to which of its places.
    """
    columns = _flat(keys, values, headers, timestamps_ms, order)
    reached, size = kernel.measure(*columns, start, stop, max_batch_bytes - HEADER_BYTES, int32s(stop - start))
    if reached < 0:
        raise ValueError(f"row {size} does not lie in its columns")
    return reached, HEADER_BYTES + size


def partitions_of(keys: BinaryColumn, start: int, stop: int, partition_count: int) -> array[int]:
    """The partition that Java's default partitioner gives each key, -1 for a null key; int32."""
    out = int32s(stop - start)
    bad = kernel.partitions_of(*_flat_column(keys), start, stop, partition_count, out)
    if bad >= 0:
        raise ValueError(f"row {bad} does not lie in its column")
    return out


def scatter(keys: BinaryColumn, start: int, stop: int, partition_count: int, keyless: int) -> tuple[Ints, Ints]:
    """The rows [start, stop) sorted by the partitions of their keys, those of one partition in their order.

    Two int32 columns, `order` and `starts`: partition p has the rows `order[starts[p]:starts[p + 1]]`. Rows without a
    key go to `keyless`.
    """
    partitions = partitions_of(keys, start, stop, partition_count)
    order, starts = int32s(stop - start), int32s(partition_count + 2)
    bad = kernel.scatter(partitions, start, keyless, order, starts)
    if bad >= 0:
        raise ValueError(f"row {bad} has no partition among {partition_count}")
    return order, starts


class _Flat(NamedTuple):
    """Columns as the kernel takes them: nothing but buffers, empty ones for what is not there."""

    key_offsets: memoryview
    key_data: memoryview
    key_validity: memoryview
    value_offsets: memoryview
    value_data: memoryview
    value_validity: memoryview
    list_offsets: memoryview
    header_key_offsets: memoryview
    header_key_data: memoryview
    header_key_validity: memoryview
    header_value_offsets: memoryview
    header_value_data: memoryview
    header_value_validity: memoryview
    timestamps: memoryview
    order: memoryview


def _flat(
    keys: BinaryColumn | None,
    values: BinaryColumn | None,
    headers: HeadersColumn | None,
    timestamps_ms: Buffer,
    order: Buffer | None,
) -> _Flat:
    return _Flat(
        *_flat_column(keys),
        *_flat_column(values),
        _NO_INTS if headers is None else as_int32s(headers.list_offsets),
        *_flat_column(headers and headers.keys),
        *_flat_column(headers and headers.values),
        as_int64s(timestamps_ms),
        _NO_INTS if order is None else as_int32s(order),
    )


def _flat_column(column: BinaryColumn | None) -> _Column:
    if column is None:
        return _NO_INTS, _NO_BYTES, _NO_BYTES
    validity = None if column.null_count == 0 else column.validity
    return as_int32s(column.offsets), as_bytes(column.data), _NO_BYTES if validity is None else as_bytes(validity)
