"""The writers behind `frame.write.format("headrace")` and `frame.writeStream.format("headrace")`.

    task   Arrow batches ─▶ by topic, by partition ─▶ Producer.send_columns ─▶ acknowledged by all        no Python
           object per record, unless rows have headers of their own or a task runs again

A writer is made beside the driver, pickled, and its `write` called in each task; a task that returns has everything
acknowledged. `sink_marks` says what happens to rows of a task that runs again. Rows with a key go to the partition that
Java's producer would choose, others where the column `partition` says, or to one partition after the other.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from headrace.client.core.cluster import Cluster
from headrace.client.producer.delivery import ColumnsDelivery
from headrace.client.producer.producer import Producer
from headrace.records.format2.columns import HeadersColumn
from headrace.spark.sink.sink_marks import Headers, Mark, digest, found_of, headers_of_all, left_over
from headrace.spark.sink.sink_options import SinkOptions
from headrace.spark.source.cluster_access import client_settings


@dataclass
class Written(WriterCommitMessage):
    """The result of a task; an earlier run had written `found` of its rows."""

    rows: int = 0
    found: int = 0


class BatchWriter(DataSourceArrowWriter):
    """Appends the rows of a batch query."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._write_id = options.write_id or uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(self._options, Mark(self._write_id, 0, _context().partitionId()), iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends the rows of each micro-batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _context()
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        assert query is not None and batch is not None
        return write_rows(self._options, Mark(query, int(batch), context.partitionId()), iterator)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context


def write_rows(options: SinkOptions, mark: Mark, batches: Iterator[pa.RecordBatch]) -> Written:
    """Write the rows of one task, and wait until all are acknowledged. Raises KafkaError if a row failed."""
    settings = client_settings(options.client_settings)
    with (
        Cluster(options.bootstrap_servers, settings) as cluster,
        Producer(options.bootstrap_servers, options.producer, settings) as producer,
    ):
        task = _Task(options, mark, cluster, producer)
        for batch in batches:
            task.add(batch)
        return task.finish()


@dataclass(slots=True)
class _Task:
    options: SinkOptions
    mark: Mark
    cluster: Cluster
    producer: Producer
    found: dict[str, Counter[bytes]] = field(default_factory=dict)
    deliveries: list[ColumnsDelivery] = field(default_factory=list)
    written: Written = field(default_factory=Written)

    def add(self, batch: pa.RecordBatch) -> None:
        """Give the rows to the producer; waits while its buffer is full."""
        for topic, rows in self._by_topic(batch):
            missing = self._missing(topic, rows)
            self.written.found += rows.num_rows - missing.num_rows
            self.written.rows += missing.num_rows
            for partition, part in _groups(missing, "partition"):
                assert partition is None or isinstance(partition, int)
                self._send(topic, partition, part)
        self._settle(wait=False)

    def finish(self) -> Written:
        """Wait until all rows are acknowledged."""
        self.producer.flush()
        self._settle(wait=True)
        return self.written

    def _settle(self, *, wait: bool) -> None:
        """Remove acknowledged deliveries; raises the error of a failed one."""
        waiting = []
        for delivery in self.deliveries:
            if wait or delivery.done():
                delivery.result()
            else:
                waiting.append(delivery)
        self.deliveries = waiting

    def _send(self, topic: str, partition: int | None, rows: pa.RecordBatch) -> None:
        keys, values, headers = _column(rows, "key"), rows.column("value"), self._headers(rows)
        self.deliveries.append(self.producer.send_columns(topic, keys, values, partition=partition, headers=headers))

    def _headers(self, rows: pa.RecordBatch) -> HeadersColumn | list[Headers] | None:
        marks = [self.mark.header] if self.options.is_idempotent else []
        if self.options.with_headers:
            return [[*own, *marks] for own in _own_headers(rows)]
        return headers_of_all(self.mark, rows.num_rows) if marks else None

    def _missing(self, topic: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that earlier runs of the task did not write."""
        if not self.options.is_idempotent:
            return rows
        if topic not in self.found:
            self.found[topic] = found_of(self.cluster, self.mark, topic)
        if not self.found[topic].total():
            return rows
        keys = _column(rows, "key")
        own = _own_headers(rows) if self.options.with_headers else [()] * rows.num_rows
        pairs = zip(_bytes(keys, rows.num_rows), _bytes(rows.column("value"), rows.num_rows), own, strict=True)
        digests = [digest(topic, key, value, headers) for key, value, headers in pairs]
        missing, self.found[topic] = left_over(digests, self.found[topic])
        return rows.take(pa.array(missing, pa.int64()))

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self.options.topic is not None:
            yield self.options.topic, batch
            return
        for topic, rows in _groups(batch, "topic"):
            if topic is None:
                raise ValueError("headrace sink: a row has a null topic; fill the column, or set the option topic")
            assert isinstance(topic, str)
            yield topic, rows


def _groups(batch: pa.RecordBatch, name: str) -> Iterator[tuple[object, pa.RecordBatch]]:
    """The rows of each value of a column, each in their order; all of them under None where there is no such column."""
    column = _column(batch, name)
    if column is None or batch.num_rows == 0:
        yield None, batch
        return
    for value in pc.unique(column):
        chosen = pc.equal(column, value) if value.is_valid else pc.is_null(column)
        yield value.as_py(), batch.filter(chosen)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    index = batch.schema.get_field_index(name)
    return None if index < 0 else batch.column(index)


def _bytes(column: pa.Array | None, count: int) -> list[bytes | None]:
    return [None] * count if column is None else column.cast(pa.binary()).to_pylist()


def _own_headers(rows: pa.RecordBatch) -> list[Headers]:
    listed = rows.column("headers").to_pylist()
    return [[(header["key"], header["value"]) for header in headers or ()] for headers in listed]
