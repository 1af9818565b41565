"""A streaming query with the transactional sink, whose driver is killed at a chosen moment of its second batch.

    python -m tests.spark.killed_sink POINT BOOTSTRAP SOURCE TARGET CHECKPOINT

    before-decision   every task has prepared its transaction
    between           the decision is stored, and one transaction of two has been committed
    never             no kill: the parent kills it when it likes

The first attempt of each task fails in the first batch, after it has written rows. Killed means SIGKILL to the JVM and
to the Python process that started it.
"""

import os
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage

from headrace.client.producer.prepared import end_all_prepared
from headrace.spark.session import session
from headrace.spark.sink import sink_transactions
from headrace.spark.sink.sink import Messages, StreamWriter
from headrace.spark.sink.sink_options import parse_sink_options
from pyspark_headrace import DefaultSource

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

KILLED_BATCH = 1
ROWS_PER_BATCH = 100
TARGET_OPTIONS = {"transactional": "true", "kafka.batch.size": "256"}  # rows leave before the task ends


class Point(StrEnum):
    """The moments."""

    BEFORE_DECISION = "before-decision"
    BETWEEN = "between"
    NEVER = "never"


def kill_driver() -> None:
    """From one of its Python workers: kill the JVM, the Python process that started it, and this worker."""
    jvm = next(each for each in psutil.Process().parents() if each.name().startswith("java"))
    starter = jvm.parent()
    jvm.kill()
    if starter is not None and "killed_sink" in " ".join(starter.cmdline()):
        starter.kill()
    os.kill(os.getpid(), signal.SIGKILL)


class KilledWriter(StreamWriter):
    """A writer whose driver is killed when it commits the second batch."""

    def __init__(self, point: Point, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._point = point

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return super().write(fails_once(iterator))

    def commit(self, messages: Messages, batchId: int) -> None:
        if batchId == KILLED_BATCH and self._point is Point.BEFORE_DECISION:
            kill_driver()
        if batchId == KILLED_BATCH and self._point is Point.BETWEEN:
            dying = ends_some_and_dies(1)
            setattr(sink_transactions, "end_all_prepared", dying)  # noqa: B010 (mypy sees no such name there)
        super().commit(messages, batchId)


def fails_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows, but the first attempt of each task fails in the first batch, after some of them."""
    context = TaskContext.get()
    assert context is not None
    is_first = context.getLocalProperty("streaming.sql.batchId") == "0" and context.attemptNumber() == 0
    for batch in batches:
        yield batch.slice(0, 5)
        if is_first:
            raise RuntimeError("the first attempt fails")
        yield batch.slice(5)


def ends_some_and_dies(count: int) -> Callable[..., dict[object, object]]:
    """`end_all_prepared`, but the driver is killed after `count` transactions."""

    def end(cluster: Any, prepared: Collection[Any], *, is_commit: bool) -> dict[object, object]:
        assert not end_all_prepared(cluster, list(prepared)[:count], is_commit=is_commit)
        kill_driver()
        raise AssertionError("killed")

    return end


class KilledSource(DefaultSource):
    """The data source with that writer."""

    point = Point.NEVER

    @classmethod
    def name(cls) -> str:
        return "killed"

    def streamWriter(self, schema: "StructType", overwrite: bool) -> Any:
        return KilledWriter(self.point, parse_sink_options(self.options, schema, overwrite=False))


def start(
    spark: SparkSession,
    bootstrap: str,
    source: str,
    target: str,
    checkpoint: Path,
    *,
    sink: str = "headrace",
    reading: Mapping[str, str] | None = None,
) -> "StreamingQuery":
    """Copy what is new from one topic to another, in batches of 100 rows."""
    where = {"kafka.bootstrap.servers": bootstrap}
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(ROWS_PER_BATCH), **(reading or {})}
    rows = spark.readStream.format("headrace").options(**where, **limits, subscribe=source).load()
    chosen = rows.select("key", "value", "partition")
    writer = chosen.writeStream.format(sink).options(**where, topic=target, **TARGET_OPTIONS)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


def main(point: str, bootstrap: str, source: str, target: str, checkpoint: str) -> None:
    spark = session("killed sink", master="local[2,3]", short_lived=True)
    KilledSource.point = Point(point)
    spark.dataSource.register(KilledSource)
    query = start(spark, bootstrap, source, target, Path(checkpoint), sink="killed")
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
