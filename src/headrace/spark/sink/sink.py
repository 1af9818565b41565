"""The writers behind `frame.write.format("headrace")` and `frame.writeStream.format("headrace")`.

    task   Arrow batches ─▶ by topic, by partition ─▶ Producer.send_columns ─▶ acknowledged by all

A writer is made beside the driver, pickled, and its `write` called in each task; a task that returns has everything
acknowledged. `sink_marks` says what happens to rows of a task that runs again, and `sink_transactions` what does with
`transactional=true`, where the driver's `commit` makes the rows of all tasks visible. Rows with a key go to the
partition that Java's producer would choose, others where the column `partition` says, or to one partition after the
other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from headrace.client.core.cluster import Cluster
from headrace.client.producer.producer import Producer
from headrace.spark.sink.sink_marks import Mark
from headrace.spark.sink.sink_options import SinkOptions
from headrace.spark.sink.sink_rows import TaskRows
from headrace.spark.sink.sink_transactions import TaskTransaction, abort_batch, commit_batch, write_transaction
from headrace.spark.source.cluster_access import client_settings
from headrace.spark.worker import settle


@dataclass
class WrittenTask(WriterCommitMessage):
    """The result of a task; an earlier run had written `found` of its rows."""

    rows: int = 0
    found: int = 0


@dataclass
class PreparedTask(WriterCommitMessage):
    """The result of a task with a transaction, which the driver ends."""

    transaction: TaskTransaction


Messages = Sequence[WriterCommitMessage | None]


class BatchWriter(DataSourceArrowWriter):
    """Appends the rows of a batch query."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._run = uuid4().hex
        self._write_id = options.write_id or self._run

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._options, Mark(self._write_id, 0, _context().partitionId()), self._run, iterator)

    def commit(self, messages: Messages) -> None:
        commit_batch(self._options, _transactions(messages))

    def abort(self, messages: Messages) -> None:
        if self._options.is_transactional:
            abort_batch(self._options, _transactions(messages), self._write_id)


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends the rows of each micro-batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _context()
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        run = context.getLocalProperty("spark.jobGroup.id")  # the query's run id: another one after each restart
        assert query is not None and batch is not None
        return _write(self._options, Mark(query, int(batch), context.partitionId()), run or "", iterator)

    def commit(self, messages: Messages, batchId: int) -> None:
        commit_batch(self._options, _transactions(messages))

    def abort(self, messages: Messages, batchId: int) -> None:
        abort_batch(self._options, _transactions(messages))


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context


def _transactions(messages: Messages) -> list[TaskTransaction]:
    """The transactions of the tasks that succeeded; none unless the mode is transactional."""
    return [message.transaction for message in messages if isinstance(message, PreparedTask)]


def _write(options: SinkOptions, mark: Mark, run: str, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    if options.is_transactional:
        return PreparedTask(write_transaction(options, mark, run, batches))
    return write_rows(options, mark, batches)


def write_rows(options: SinkOptions, mark: Mark, batches: Iterator[pa.RecordBatch]) -> WrittenTask:
    """Write the rows of one task, and wait until all are acknowledged. Raises KafkaError if a row failed."""
    settle()
    settings = client_settings(options.client_settings)
    with (
        Cluster(options.bootstrap_servers, settings) as cluster,
        Producer(options.bootstrap_servers, options.producer, settings) as producer,
    ):
        task = TaskRows(options, mark, cluster, producer)
        for batch in batches:
            task.add(batch)
        task.finish()
        return WrittenTask(task.rows, task.found)
