"""The rows of one task: Arrow batches in, by topic and partition to a producer.

No Python object per record, unless rows have headers of their own, or the task runs again in the idempotent mode and
leaves out what it finds written (`sink_marks`).
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.core.cluster import Cluster
from headrace.client.producer.delivery import ColumnsDelivery
from headrace.client.producer.producer import Producer
from headrace.spark.sink.sink_marks import Attempt, Headers, Mark, digest, left_over
from headrace.spark.sink.sink_options import SinkOptions


@dataclass(slots=True)
class TaskRows:
    """Sends the rows of one task. `rows` were sent; an earlier run had written `found`."""

    options: SinkOptions
    mark: Mark
    cluster: Cluster
    producer: Producer
    earlier: dict[str, Counter[bytes]] = field(default_factory=dict)
    deliveries: list[ColumnsDelivery] = field(default_factory=list)
    rows: int = 0
    found: int = 0
    attempt: Attempt = field(init=False)

    def __post_init__(self) -> None:
        self.attempt = Attempt(self.cluster, self.mark)
        if self.options.is_idempotent:
            self.producer.watch_producer_id(self.attempt.note_producer_id)

    def add(self, batch: pa.RecordBatch) -> None:
        """Give the rows to the producer; waits while its buffer is full."""
        for topic, rows in self._by_topic(batch):
            missing = self._missing(topic, rows)
            self.found += rows.num_rows - missing.num_rows
            self.rows += missing.num_rows
            for partition, part in _groups(missing, "partition"):
                assert partition is None or isinstance(partition, int)
                self._send(topic, partition, part)
        self._settle(wait=False)

    def finish(self) -> None:
        """Wait until all rows are acknowledged. Raises KafkaError if one failed."""
        self.producer.flush()
        self._settle(wait=True)

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

    def _headers(self, rows: pa.RecordBatch) -> list[Headers] | None:
        return _own_headers(rows) if self.options.with_headers else None

    def _missing(self, topic: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that earlier runs of the task did not write."""
        if not self.options.is_idempotent:
            return rows
        if topic not in self.earlier:
            self.earlier[topic] = self.attempt.begin(topic)
        if not self.earlier[topic].total():
            return rows
        keys = _column(rows, "key")
        own = _own_headers(rows) if self.options.with_headers else [()] * rows.num_rows
        pairs = zip(_bytes(keys, rows.num_rows), _bytes(rows.column("value"), rows.num_rows), own, strict=True)
        digests = [digest(topic, key, value, headers) for key, value, headers in pairs]
        missing, self.earlier[topic] = left_over(digests, self.earlier[topic])
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
