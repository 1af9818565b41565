"""Runs pipelines in this process: a session with the state store that they need, and their queries.

Each query has a checkpoint of its own, DIRECTORY/NAME. Start it again with the same directory, and it continues.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from headrace.pipelines import news_feed, operations, relevance, security
from headrace.pipelines.events import PER_BATCH
from headrace.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

STATE_STORE: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}
"""What stateful processors in Python need."""


class Pipeline(Protocol):
    """A module's function `pipeline`."""

    def __call__(self, spark: "SparkSession", bootstrap: str, *, per_batch: int = ...) -> "DataStreamWriter": ...


PIPELINES: Final[Mapping[str, Pipeline]] = {
    "operations": operations.pipeline,
    "security": security.pipeline,
    "relevance": relevance.pipeline,
    "news_feed": news_feed.pipeline,
}


def start(
    spark: "SparkSession",
    names: Iterable[str],
    bootstrap: str,
    directory: Path,
    *,
    per_batch: int = PER_BATCH,
    is_endless: bool = True,
) -> "list[StreamingQuery]":
    """Start these pipelines. Not `is_endless`: each ends when it has all that its topics have now."""
    trigger: dict[str, str | bool] = {"processingTime": "0 seconds"} if is_endless else {"availableNow": True}
    return [
        PIPELINES[name](spark, bootstrap, per_batch=per_batch)
        .option("checkpointLocation", str(directory / name))
        .trigger(**trigger)  # type: ignore[arg-type]
        .start()
        for name in names
    ]


def run(names: Iterable[str], bootstrap: str, directory: Path, *, per_batch: int = PER_BATCH) -> None:
    """Run these pipelines until one fails or the process is ended."""
    spark = session("headrace pipelines", settings=STATE_STORE)
    start(spark, names, bootstrap, directory, per_batch=per_batch)
    spark.streams.awaitAnyTermination()


def finish(spark: "SparkSession", names: Iterable[str], bootstrap: str, directory: Path, *, per_batch: int) -> None:
    """Let these pipelines read to the end of their topics. Raises StreamingQueryException."""
    for query in start(spark, names, bootstrap, directory, per_batch=per_batch, is_endless=False):
        query.awaitTermination()
