"""Runs pipelines in this process: a session with the state store that they need, their queries, and the hourly reports.

Each pipeline keeps what it has in a directory of its own, DIRECTORY/NAME: a stream its checkpoint, `reporting` its
tables. Run it again with the same directory, and it continues.
"""

import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from deltalake.exceptions import CommitFailedError
from pyspark.errors import StreamingQueryException

from headrace.errors import KafkaError
from headrace.lake.delta.delta_table import LostRaceError
from headrace.pipelines import news_feed, operations, relevance, reporting, security
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
MASTER: Final = "local[*,4]"
"""A task that dies is tried again, up to 4 times, as on a cluster. (In `local[*]` one dead task ends its query.)"""
BEGIN_S: Final = 10.0
RESTARTS_MAX: Final = 10
"""Without a batch in between."""
HOUR_S: Final = 3600.0


class PipelineModule(Protocol):
    """A module's function `pipeline`."""

    def __call__(self, spark: "SparkSession", bootstrap: str, *, per_batch: int = ...) -> "DataStreamWriter": ...


STREAMS: Final[Mapping[str, PipelineModule]] = {
    "operations": operations.pipeline,
    "security": security.pipeline,
    "relevance": relevance.pipeline,
    "news_feed": news_feed.pipeline,
}
REPORTING: Final = "reporting"
PIPELINES: Final = (*STREAMS, REPORTING)
TOPICS: Final[Mapping[str, Collection[str]]] = {
    "operations": operations.TOPICS,
    "security": security.TOPICS,
    "relevance": relevance.TOPICS,
    "news_feed": news_feed.TOPICS,
    REPORTING: tuple(reporting.TABLES),
}
"""What each reads."""


@dataclass(frozen=True, slots=True)
class PipelineEnvironment:
    """Where pipelines read and write: brokers and a directory."""

    bootstrap: str
    directory: Path
    per_batch: int = PER_BATCH
    """Records of a batch of a stream at most."""

    def of(self, name: str) -> Path:
        """What this pipeline keeps."""
        return self.directory / name


def start(spark: "SparkSession", name: str, place: PipelineEnvironment, *, is_endless: bool = True) -> "StreamingQuery":
    """Start a stream from its checkpoint. Not `is_endless`: it ends when it has all that its topics have now."""
    trigger: dict[str, str | bool] = {"processingTime": "0 seconds"} if is_endless else {"availableNow": True}
    writer = STREAMS[name](spark, place.bootstrap, per_batch=place.per_batch)
    return writer.option("checkpointLocation", str(place.of(name))).trigger(**trigger).start()  # type: ignore[arg-type]


def run(
    names: Collection[str],
    place: PipelineEnvironment,
    *,
    every_s: float = HOUR_S,
    since: datetime | None = None,
    master: str = MASTER,
) -> None:
    """Run these pipelines until the process is ended, or one fails for good. The reports are made each `every_s`."""
    spark = session("headrace pipelines", master=master, settings=STATE_STORE)
    queries = {name: _begin(spark, name, place) for name in names if name in STREAMS}
    restarts: Counter[str] = Counter()
    due = time.monotonic() if REPORTING in names else float("inf")
    while True:
        if time.monotonic() >= due:
            _report(spark, place, since)
            due = time.monotonic() + every_s
        try:
            spark.streams.awaitAnyTermination(1)
        except StreamingQueryException:
            spark.streams.resetTerminated()
            for name in [name for name, query in queries.items() if not query.isActive]:
                restarts[name] = 1 if queries[name].lastProgress is not None else restarts[name] + 1
                failed = queries[name].exception()
                if failed is not None and (not may_pass(failed) or restarts[name] > RESTARTS_MAX):
                    raise failed from None
                print(f"{name} starts again: {reason(failed)}", file=sys.stderr, flush=True)
                queries[name] = _begin(spark, name, place)


def _begin(spark: "SparkSession", name: str, place: PipelineEnvironment) -> "StreamingQuery":
    """Start a stream, and give it time for its first batch.

    Spark waits 10 s for each of a query's Python processes, and those of many queries at once may take longer.
    """
    query = _started(spark, name, place)
    deadline = time.monotonic() + BEGIN_S
    while query.isActive and query.lastProgress is None and time.monotonic() < deadline:
        time.sleep(0.1)
    return query


def _started(spark: "SparkSession", name: str, place: PipelineEnvironment) -> "StreamingQuery":
    """Start a stream, again if a process that plans it dies: that is an error of the call, not of the query."""
    for _ in range(RESTARTS_MAX):
        try:
            return start(spark, name, place)
        except Exception as failed:
            if not may_pass(failed):
                raise
            print(f"{name} is planned again: {reason(failed)}", file=sys.stderr, flush=True)
    return start(spark, name, place)


def _report(spark: "SparkSession", place: PipelineEnvironment, since: datetime | None) -> None:
    """Load and report. What fails because of brokers, another writer or a dead process is done the next time."""
    try:
        reporting.run_hour(spark, place.bootstrap, place.of(REPORTING), since=since)
    except Exception as trouble:
        if not isinstance(trouble, KafkaError | LostRaceError | CommitFailedError) and not may_pass(trouble):
            raise
        print(f"{REPORTING} waits for the next time: {reason(trouble)}", file=sys.stderr, flush=True)


def finish(spark: "SparkSession", names: Collection[str], place: PipelineEnvironment) -> None:
    """Let these pipelines read to the end of their topics, one after the other. Raises what ends one for good."""
    for name in names:
        if name == REPORTING:
            reporting.run_hour(spark, place.bootstrap, place.of(REPORTING))
        else:
            _finish(spark, name, place)


def _finish(spark: "SparkSession", name: str, place: PipelineEnvironment) -> None:
    for restarts_left in reversed(range(RESTARTS_MAX)):
        try:
            start(spark, name, place, is_endless=False).awaitTermination()
            return
        except StreamingQueryException as failed:
            if not may_pass(failed) or not restarts_left:
                raise


def may_pass(failed: Exception) -> bool:
    """Whether a process of Spark's died or did not come in time, so that what failed may go on where it was.

    Only the text tells: depending on the process, it is an error of a query, of the analysis, or of Java.
    """
    return "Python worker" in str(failed)


def reason(failed: Exception | None) -> str:
    """The first line."""
    return str(failed).partition("\n")[0]
