"""Record columns as Arrow record batches, with the columns of Spark's Kafka source. Imports pyarrow.

    key binary | value binary | topic string | partition int32 | offset int64 | timestamp timestamp[us, UTC]
    | timestampType int32 | headers list<struct<key: string, value: binary>>

Keys, values, offsets and headers share the memory of their source columns. Only wider columns (timestamps in
microseconds, the timestamp type) and repeated ones (topic, partition) are computed.
"""

from collections.abc import Sequence

import pyarrow

from headrace.columns.arrow_types import Array, DataType, Field, RecordBatch, Schema
from headrace.records.format2.columns import BinaryColumn, HeadersColumn, RecordColumns

HEADER_FIELDS: list[Field] = [pyarrow.field("key", pyarrow.string()), pyarrow.field("value", pyarrow.binary())]
TIMESTAMP: DataType = pyarrow.timestamp("us", "UTC")
TYPES: dict[str, DataType] = {
    "key": pyarrow.binary(),
    "value": pyarrow.binary(),
    "topic": pyarrow.string(),
    "partition": pyarrow.int32(),
    "offset": pyarrow.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pyarrow.int32(),
    "headers": pyarrow.list_(pyarrow.struct(HEADER_FIELDS)),
}
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""What is given when nothing else is asked for: everything but the headers, as Spark's source does."""


def arrow_schema(names: Sequence[str] = COLUMNS) -> Schema:
    """The schema of the named columns, in that order. KeyError names an unknown one."""
    return pyarrow.schema([pyarrow.field(name, TYPES[name]) for name in names])


def to_record_batch(columns: RecordColumns, topic: str, partition: int, names: Sequence[str] = COLUMNS) -> RecordBatch:
    """The named columns of some records; a column that was not decoded is null in every row."""
    arrays = [_array(name, columns, topic, partition) for name in names]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=arrow_schema(names))


def _array(name: str, columns: RecordColumns, topic: str, partition: int) -> Array:
    count = columns.count
    match name:
        case "key":
            return _binary(columns.keys, count, pyarrow.binary())
        case "value":
            return _binary(columns.values, count, pyarrow.binary())
        case "topic":
            return pyarrow.repeat(pyarrow.scalar(topic, pyarrow.string()), count)
        case "partition":
            return pyarrow.repeat(pyarrow.scalar(partition, pyarrow.int32()), count)
        case "offset":
            return _fixed(pyarrow.int64(), count, columns.offsets)
        case "timestamp":
            # safe=False: a timestamp too far off for microseconds wraps instead of failing the whole read
            return _fixed(pyarrow.timestamp("ms", "UTC"), count, columns.timestamps_ms).cast(TIMESTAMP, safe=False)
        case "timestampType":
            return _fixed(pyarrow.int8(), count, columns.timestamp_types).cast(pyarrow.int32())
        case "headers":
            return _headers(columns.headers, count)
        case _:
            raise KeyError(name)


def _fixed(kind: DataType, count: int, values: object) -> Array:
    return pyarrow.Array.from_buffers(kind, count, [None, pyarrow.py_buffer(values)])


def _binary(column: BinaryColumn | None, count: int, kind: DataType) -> Array:
    if column is None:
        return pyarrow.nulls(count, kind)
    validity = None if column.validity is None else pyarrow.py_buffer(column.validity)
    buffers = [validity, pyarrow.py_buffer(column.offsets), pyarrow.py_buffer(column.data)]
    return pyarrow.Array.from_buffers(kind, count, buffers, column.null_count)


def _headers(headers: HeadersColumn | None, count: int) -> Array:
    kind = TYPES["headers"]
    if headers is None:
        return pyarrow.nulls(count, kind)
    entries = memoryview(headers.keys.offsets).nbytes // 4 - 1
    names = _binary(headers.keys, entries, pyarrow.string())
    values = _binary(headers.values, entries, pyarrow.binary())
    pairs = pyarrow.StructArray.from_arrays([names, values], fields=HEADER_FIELDS)
    return pyarrow.Array.from_buffers(kind, count, [None, pyarrow.py_buffer(headers.list_offsets)], 0, 0, [pairs])
