"""From columns of records to columns of a table: the part of a writer that depends on what values mean.

A decoder never fails for a value and never drops one: what it cannot read is in a column of bytes. The columns of its
batches may grow as records come; the writer adds new ones to the table before it commits their rows.
"""

from typing import Protocol

import pyarrow as pa

from headrace.client.consumer.arrow import COLUMNS, HEADER_FIELDS, arrow_schema, to_record_batch
from headrace.records.format2.columns import RecordColumns
from headrace.types import TopicPartition

HEADERS = "headers"


class Decoder(Protocol):
    """Makes rows of records."""

    widens: bool
    """Whether columns may get a wider type of number. The table is written anew then, so its writer decides."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the next batch, unless its records bring more."""

    @property
    def rescued(self) -> int:
        """How many records so far did not fit, and are kept as bytes."""

    def decode(self, columns: RecordColumns, partition: TopicPartition) -> pa.RecordBatch:
        """One row for each record, in order."""


class RawDecoder:
    """Keys and values as bytes, with the columns of Spark's Kafka source: every record fits."""

    def __init__(self, *, headers: bool = False) -> None:
        self._names = (*COLUMNS, HEADERS) if headers else COLUMNS
        self.schema: pa.Schema = arrow_schema(self._names)
        self.rescued = 0
        self.widens = False

    def decode(self, columns: RecordColumns, partition: TopicPartition) -> pa.RecordBatch:
        """One row for each record, in order."""
        return readable(to_record_batch(columns, partition.topic, partition.partition, self._names))


def readable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with names of headers that every reader of Parquet accepts.

    Names are bytes to a producer. What is no UTF-8 in them becomes U+FFFD, as in the load job.
    """
    place = batch.schema.get_field_index(HEADERS)
    if place < 0:
        return batch
    headers = batch.column(place)
    names = headers.values.field(0)
    try:
        names.cast(pa.binary()).cast(pa.string())  # the only check there is
    except pa.ArrowInvalid:
        texts = [
            None if name is None else name.decode(errors="replace") for name in names.cast(pa.binary()).to_pylist()
        ]
        pairs = pa.StructArray.from_arrays(
            [pa.array(texts, pa.string()), headers.values.field(1)], fields=HEADER_FIELDS
        )
        return batch.set_column(place, batch.schema.field(place), _with_values(headers, pairs))
    return batch


def _with_values(lists: pa.ListArray, values: pa.Array) -> pa.ListArray:
    """The lists with other elements, one for each."""
    return pa.Array.from_buffers(lists.type, len(lists), lists.buffers()[:2], lists.null_count, 0, [values])
