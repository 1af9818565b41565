"""The batch reader behind `spark.read.format("headrace")`.

    driver     partitions()   options ─▶ offset ranges ─▶ split ─▶ one RangePartition per task
    executor   read()         fetch ─▶ record columns ─▶ Arrow batches ─▶ JVM        no Python object per record

Spark makes the reader in a planning process, pickles it, and calls `read` in worker processes, so the reader holds
options only. The reader accepts no pushed-down filters: a reader that defines `pushFilters` fails every query while
spark.sql.python.filterPushdown.enabled is off, which is the default. Support for partition and offset filters would
need a subclass that this setting selects.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition

from headrace.client.consumer import reader
from headrace.client.consumer.arrow import to_record_batch
from headrace.client.core.cluster import Cluster
from headrace.client.operations.admin import EARLIEST, Admin
from headrace.errors import OffsetOutOfRange
from headrace.records.format2.columns import RecordColumns
from headrace.spark.source.cluster_access import ClusterBounds, connect, fetch_sizes, isolation_level
from headrace.spark.source.offsets import DataLossError, resolve_ranges, split_ranges
from headrace.spark.source.options import SourceOptions
from headrace.spark.worker import settle
from headrace.types import OffsetRange, TopicPartition

BATCH_ROWS = 8_192
"""Rows of an Arrow batch: larger ones make the JVM wait and its buffers grow, smaller ones cost per batch."""


class RangePartition(InputPartition):
    """The input of one Spark task."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(tuple(wanted))

    @property
    def range(self) -> OffsetRange:
        return OffsetRange(*self.value)


class BatchReader(DataSourceReader):
    """Reads the offsets that the options select when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with connect(options) as cluster:
            ranges = resolve_ranges(options, ClusterBounds(cluster, isolation_level(options.client_settings)))
        parts = split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
        # Spark turns an empty list into one partition of unknown content, so return one empty partition.
        return [RangePartition(part) for part in parts] or [RangePartition(NOTHING)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition)


def read_partition(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Fetch the range of a task and yield it as Arrow batches."""
    assert isinstance(partition, RangePartition)
    settle()
    wanted = partition.range
    if not wanted.size:
        return
    with connect(options) as cluster:
        for columns in read_columns(cluster, options, wanted):
            yield arrow_batch(columns, wanted, options)


def arrow_batch(columns: RecordColumns, wanted: OffsetRange, options: SourceOptions) -> pa.RecordBatch:
    """Records of a range, with the columns of the schema."""
    batch = to_record_batch(columns, wanted.topic, wanted.partition, options.columns)
    return _without_empty_headers(batch) if options.include_headers else batch


NOTHING = OffsetRange("", 0, 0, 0)


def read_columns(cluster: Cluster, options: SourceOptions, wanted: OffsetRange) -> Iterator[RecordColumns]:
    """The records of a range. Raises DataLossError if some were deleted meanwhile, unless failOnDataLoss is false."""
    partition = TopicPartition(wanted.topic, wanted.partition)
    how = reader.ReadOptions(
        batch_rows=BATCH_ROWS,
        keys="key" in options.columns,
        values="value" in options.columns,
        headers=options.include_headers,
        isolation_level=isolation_level(options.client_settings),
        sizes=fetch_sizes(options.client_settings),
        rack=options.client_settings.get("client.rack", "").strip(),
    )
    position = wanted.start
    while position < wanted.end:
        try:
            for columns in reader.read_range(cluster, partition, position, wanted.end, how):
                position = columns.next_offset
                yield columns
            return
        except OffsetOutOfRange as gone:
            if options.fail_on_data_loss:
                raise DataLossError(
                    f"{partition}: records were deleted while offsets {position} to {wanted.end} were read ({gone}). "
                    "To read the remaining records, set failOnDataLoss to false."
                ) from gone
            log_start = Admin(cluster).list_offsets({partition: EARLIEST})[partition].offset
            if log_start <= position:
                return
            position = log_start


def _without_empty_headers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Null instead of an empty list for a record without headers, as in the connector."""
    index = batch.schema.get_field_index("headers")
    headers = batch.column(index)
    is_empty = pc.equal(pc.list_value_length(headers), 0)
    return batch.set_column(
        index, batch.schema.field(index), pc.if_else(is_empty, pa.scalar(None, headers.type), headers)
    )
