"""One DataFrame over all records of a topic: its lake table up to where the table ends, and the topic from there on.

    table   Parquet files of one snapshot ──Spark's vectorised readers──┐
                                                                        ├─ union ─▶ each offset once
    topic   from the snapshot's next offsets ──the format "headrace"────┘

The files and the next offsets are of one version of the table, so a writer that commits meanwhile changes nothing. What
retention has deleted from the topic is still in the table. Columns are those of the table; of JSON values the records
of the topic get the same typed columns.

The newest records are read when the frame is made, in the driver, if they are few (`TAIL_RECORDS_MAX`): usually these
are some seconds of the topic. More are read by tasks of the source, when the frame is used.

`since` and `until` are applied to both: files are left out by their bounds in the table's log, and row groups by their
statistics. The topic is read from the offset of `since`, and what is later than `until` is not decoded. A filter on
`timestamp` reaches the files only, because Spark's Python sources accept none.

What has few rows (`ROWS_OF_A_TASK`) is one task: a second one, and the exchange between the two, take longer than the
rows do.

A stream is one source over both (`source.lake_stream`), so that its batches come in the order of offsets, and its
checkpoint has the topic's offsets wherever they were read. Left out in batches: tables that are not on a mounted file
system, which Spark reads with Hadoop's connectors or Delta's jar.
"""

import json
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from headrace.client.consumer.fetching import READ_COMMITTED
from headrace.client.core.cluster import Cluster
from headrace.client.security.command_options import DEFAULT_BOOTSTRAP
from headrace.errors import InvalidConfig
from headrace.lake.delta.delta_table import FileStatistics, LoadTable
from headrace.lake.rows import WantedRows, rows_about, wanted_files
from headrace.lake.whole_topic import (
    JOB,
    FoundTable,
    TooMuchError,
    WholeTopic,
    find,
    find_after,
    find_table,
    newest_of,
    read_tail,
    with_zone,
)
from headrace.spark.option_values import OptionError
from headrace.spark.source.cluster_access import client_settings, isolation_level
from headrace.spark.source.options import LAKE_OF_TOPIC
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

BOOTSTRAP = "kafka.bootstrap.servers"
ISOLATION = "kafka.isolation.level"
TAIL_RECORDS_MAX = 200_000
TAIL_BYTES_MAX = 64 << 20
"""Newest records of a batch up to so many are read in the driver: to start Spark's Python source takes longer."""
ROWS_OF_A_TASK = 100_000


class TableProgress(NamedTuple):
    """Where a table ends in a topic."""

    next_offsets: Mapping[TopicPartition, int]

    @property
    def starting_offsets(self) -> str:
        """The option `startingOffsets` of a batch or a stream that goes on where the table ends."""
        by_topic: dict[str, dict[str, int]] = {}
        for partition, offset in sorted(self.next_offsets.items()):
            by_topic.setdefault(partition.topic, {})[str(partition.partition)] = offset
        return json.dumps(by_topic)


def topic(
    spark: "SparkSession",
    name: str,
    options: Mapping[str, str] | None = None,
    *,
    table: str | Path | None = None,
    job: str = JOB,
    since: datetime | None = None,
    until: datetime | None = None,
    stream: bool = False,
) -> "DataFrame":
    """All records of a topic, from its lake table and from the topic itself, each once.

    `options` are those of the source: `kafka.bootstrap.servers` (127.0.0.1:9092 if there are none) and other `kafka.*`.
    Without `table` it is the one of `headrace lake add`. `job` is the name of the table's progress. `since` (inclusive)
    and `until` (exclusive) bound the timestamps; a time without a zone is UTC's. With `stream` a new query begins with
    the table's first row and goes over to the live topic; options of streams, such as `maxOffsetsPerTrigger`, hold for
    both. Raises OptionError, InvalidConfig, and KafkaError.
    """
    options = {ISOLATION: "read_committed", **({BOOTSTRAP: DEFAULT_BOOTSTRAP} if options is None else options)}
    since, until = with_zone(since), with_zone(until)
    if stream:
        return _where(_stream(spark, name, options, table, job, since), _times(WantedRows(name, None, since, until)))
    wanted = WantedRows(name, None, since, until)
    kafka = _kafka(options)
    with (
        Cluster(_bootstrap(options), client_settings(kafka)) as cluster,
        ThreadPoolExecutor(1, "headrace-tail") as other,
    ):
        try:
            place = find_table(cluster, name, table, job)
            if place.location.directory is None:
                raise InvalidConfig(
                    f"the table {place.location} is not on a mounted file system: read it with Spark's Delta format"
                )
            snapshot = newest_of(place)
            is_committed = isolation_level(kafka) == READ_COMMITTED
            reading = other.submit(_read_newest, cluster, place, snapshot, wanted, is_committed)
            files = wanted_files(snapshot, wanted)
            frame = _history(spark, snapshot, files, wanted)  # Java's part, while the other thread waits for brokers
            found, newest = reading.result()
        except BaseException:
            cluster.interrupt()
            raise
    if newest is None:
        return frame.unionByName(_where(_tail(spark, name, options, table, found), _times(wanted)))
    if newest.num_rows:
        frame = frame.unionByName(spark.createDataFrame(newest, _nullable(_schema(snapshot.schema_json))))
    rows = rows_about(files, wanted)
    return frame if rows is None or rows + newest.num_rows > ROWS_OF_A_TASK else frame.coalesce(1)


def progress_of(
    name: str, options: Mapping[str, str], *, table: str | Path | None = None, job: str = JOB
) -> TableProgress:
    """Where the lake table of a topic ends: a stream with these starting offsets goes on from there."""
    with Cluster(_bootstrap(options), client_settings(_kafka(options))) as cluster:
        return TableProgress(find(cluster, name, table, job).starts)


def _read_newest(
    cluster: Cluster, place: FoundTable, snapshot: LoadTable, wanted: WantedRows, is_committed: bool
) -> tuple[WholeTopic, pa.Table | None]:
    """Where the topic goes on, and the newest records as the table's rows, if they are few enough to be read here; else
    None. The cluster is closed then."""
    with cluster:
        found = find_after(cluster, wanted.topic, place, snapshot, wanted.since)
        schema = snapshot.arrow_schema
        batches: list[pa.RecordBatch] = []
        size = 0
        try:
            for batch in read_tail(
                cluster, found, wanted, schema, read_committed=is_committed, records_max=TAIL_RECORDS_MAX
            ):
                batches.append(batch)
                size += batch.nbytes
                if size > TAIL_BYTES_MAX:
                    return found, None
        except TooMuchError:
            return found, None
    return found, pa.Table.from_batches(batches, schema)


def _bootstrap(options: Mapping[str, str]) -> str:
    bootstrap = options.get(BOOTSTRAP)
    if not bootstrap:
        raise OptionError(BOOTSTRAP, "", "it is missing: name the brokers")
    return bootstrap


def _kafka(options: Mapping[str, str]) -> dict[str, str]:
    return {key[6:]: value for key, value in options.items() if key.startswith("kafka.") and key != BOOTSTRAP}


def _stream(
    spark: "SparkSession",
    name: str,
    options: Mapping[str, str],
    table: str | Path | None,
    job: str,
    since: datetime | None,
) -> "DataFrame":
    reading = _reading(name, options, table, job)
    if since is None:
        reading.setdefault("startingOffsets", "earliest")
    else:
        reading["startingTimestamp"] = str(math.floor(since.timestamp() * 1000))
        reading["startingOffsetsByTimestampStrategy"] = "latest"
    return spark.readStream.format("headrace").options(**reading).load()


def _history(
    spark: "SparkSession", snapshot: LoadTable, files: Sequence[FileStatistics], wanted: WantedRows
) -> "DataFrame":
    """The wanted rows of these files of the snapshot."""
    schema, name, conditions = _schema(snapshot.schema_json), wanted.topic, _times(wanted)
    if not files:
        return spark.createDataFrame([], schema)
    if any(one.topics != (name, name) for one in files):
        conditions = [f"`topic` = '{name}'", *conditions]  # the broker knows it, so it has no quote
    directory = snapshot.location.directory
    assert directory is not None
    paths = [str(directory / one.path) for one in files]
    frame = spark.read.schema(schema).format("parquet").load(paths[0] if len(paths) == 1 else paths)
    return _where(frame, conditions)


def _times(wanted: WantedRows) -> list[str]:
    """Conditions of SQL: Spark takes a text in one call of Java, where an expression takes ten."""
    bounds = ((">=", wanted.since), ("<", wanted.until))
    return [f"`timestamp` {sign} timestamp_micros({_micros(time)})" for sign, time in bounds if time is not None]


def _where(frame: "DataFrame", conditions: Sequence[str]) -> "DataFrame":
    return frame.where(" AND ".join(conditions)) if conditions else frame


def _micros(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _tail(
    spark: "SparkSession", name: str, options: Mapping[str, str], table: str | Path | None, found: WholeTopic
) -> "DataFrame":
    """The records of the topic behind the table, as its rows."""
    reading = {
        **_reading(name, options, table, found.job),
        "startingOffsets": TableProgress(found.starts).starting_offsets,
    }
    return spark.read.format("headrace").options(**reading).load()


def _reading(name: str, options: Mapping[str, str], table: str | Path | None, job: str) -> dict[str, str]:
    return {**options, "subscribe": name, "lake": LAKE_OF_TOPIC if table is None else str(table), "lakeJob": job}


def _nullable(schema: "StructType") -> "StructType":
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(field.name, field.dataType) for field in schema.fields])


@lru_cache(16)
def _schema(schema_json: str) -> "StructType":
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(schema_json))
