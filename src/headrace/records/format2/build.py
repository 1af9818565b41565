"""Builds record batches from columns in Arrow's layout, without a Python object per record.

The kernel measures the rows first, so that a batch is allocated once at the right size, and then writes them. Source:
Kafka's MemoryRecordsBuilder, DefaultRecord; its Utils.murmur2 and BuiltInPartitioner for the partitions.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple, TypeAlias

from headrace.limits import INT32_MAX
from headrace.records.binary import BinaryColumn, Buffer, HeadersColumn, as_bytes, as_int32s, as_int64s, int32s
from headrace.records.codecs.compression import Codec, compress
from headrace.records.format2 import kernel
from headrace.records.format2.header import (
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    pack_header,
    write_header,
)
from headrace.records.format2.rows import RowBuffer

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
    """Build one batch of the rows [start, stop). A column that is None is null in every row.

    `timestamps_ms` is int64. With an `order` (int32, see `scatter`) the batch has the rows `order[start:stop]`. Raises
    ValueError without rows, for columns that do not have these rows, and for a batch of 2 GiB or more.
    """
    if stop <= start:
        raise ValueError("a batch needs at least one record")
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
    is_transactional: bool = False,
) -> bytearray:
    """Build one batch of the records in a `RowBuffer`, which has HEADER_BYTES free bytes at its start.

    An uncompressed batch is the buffer itself, cut to its length. A later call writes another header into it.
    """
    batch, count = rows.data, rows.count
    if codec is Codec.NONE:
        del batch[rows.end :]
    else:
        batch = batch[:HEADER_BYTES] + compress(codec, memoryview(batch)[HEADER_BYTES : rows.end], level)
    first_ms, max_ms = rows.timestamps_ms[0], rows.max_timestamp
    attributes = codec | (TRANSACTIONAL_BIT if is_transactional else 0)
    write_header(batch, attributes, first_ms, max_ms, producer_id, producer_epoch, base_sequence, count)
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
    """The end (exclusive) of the rows from `start` that fit an uncompressed batch, and the batch's size in bytes.

    At least one row fits. With an `order` the end is a position in it. Raises ValueError for a row outside its columns.
    """
    columns = _flat(keys, values, headers, timestamps_ms, order)
    reached, size = kernel.measure(*columns, start, stop, max_batch_bytes - HEADER_BYTES, int32s(stop - start))
    if reached < 0:
        raise ValueError(f"row {size} does not lie in its columns")
    return reached, HEADER_BYTES + size


def partitions_of(keys: BinaryColumn, start: int, stop: int, partition_count: int) -> array[int]:
    """The partition of each key of the rows [start, stop) by Java's default partitioner, int32; -1 for a null key.

    Raises ValueError for a row outside its column.
    """
    out = int32s(stop - start)
    bad = kernel.partitions_of(*_flat_column(keys), start, stop, partition_count, out)
    if bad >= 0:
        raise ValueError(f"row {bad} does not lie in its column")
    return out


def scatter(keys: BinaryColumn, start: int, stop: int, partition_count: int, keyless: int) -> tuple[Ints, Ints]:
    """Sort the rows [start, stop) by the partition of their key, and keep their order within each partition.

    Returns two int32 columns, `order` and `starts`: partition p has the rows `order[starts[p]:starts[p + 1]]`. Rows
    without a key go to partition `keyless`. Raises ValueError for a row outside its column.
    """
    partitions = partitions_of(keys, start, stop, partition_count)
    order, starts = int32s(stop - start), int32s(partition_count + 2)
    bad = kernel.scatter(partitions, start, keyless, order, starts)
    if bad >= 0:
        raise ValueError(f"row {bad} has no partition among {partition_count}")
    return order, starts


class _Flat(NamedTuple):
    """Columns in the kernel's form: only buffers, empty ones for missing columns."""

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
