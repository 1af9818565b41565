"""One DataFrame over all records of a topic: its lake table up to where the table ends, and the topic from there on.

    table   Parquet files of one snapshot ──Spark's vectorised readers──┐
                                                                        ├─ union ─▶ each offset once
    topic   from the snapshot's next offsets ──the format "headrace"────┘

The files and the next offsets are of one version of the table, so a writer that commits meanwhile changes nothing. What
retention has deleted from the topic is still in the table. Columns are those of the table; of JSON values the records
of the topic get the same typed columns.

`since` and `until` are applied to both: Parquet skips row groups by their statistics, and the topic is read from the
offset of `since`. A filter on `timestamp` reaches the files only, because Spark's Python sources accept none.
Left out: tables that are not on a mounted file system, which Spark reads with Hadoop's connectors or Delta's jar;
streams, which begin at the table's progress with the option `startingOffsets` (`Progress.starting_offsets`).
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headrace.client.core.cluster import Cluster
from headrace.client.operations.admin import EARLIEST, Admin
from headrace.errors import InvalidConfig
from headrace.lake.definitions import Definitions
from headrace.lake.delta.delta_table import LoadTable
from headrace.lake.delta.location import Location
from headrace.lake.json_fields import CORRUPT_COLUMN, field_of, is_own
from headrace.spark.load.load import shape
from headrace.spark.option_values import OptionError
from headrace.spark.source.cluster_access import client_settings
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

JOB = "load"


class Progress(NamedTuple):
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
    options: Mapping[str, str],
    *,
    table: str | Path | None = None,
    job: str = JOB,
    since: datetime | None = None,
    until: datetime | None = None,
) -> "DataFrame":
    """All records of a topic, from its lake table and from the topic itself, each once.

    `options` are those of the source: `kafka.bootstrap.servers` and other `kafka.*`. Without `table` it is the one of
    `headrace lake add`. `job` is the name of the table's progress. `since` (inclusive) and `until` (exclusive) bound
    the timestamps; a time without a zone is UTC's. Raises OptionError, InvalidConfig, and KafkaError.
    """
    since, until = _with_zone(since), _with_zone(until)
    found = _find(name, options, table, job, since)
    frame = _history(spark, found).unionByName(_tail(spark, name, options, found))
    from pyspark.sql import functions as F

    if since is not None:
        frame = frame.where(F.col("timestamp") >= F.lit(since))
    return frame if until is None else frame.where(F.col("timestamp") < F.lit(until))


def progress_of(name: str, options: Mapping[str, str], *, table: str | Path | None = None, job: str = JOB) -> Progress:
    """Where the lake table of a topic ends: a stream with these starting offsets goes on from there."""
    return Progress(_find(name, options, table, job, None).starts)


class _Found(NamedTuple):
    topic: str
    snapshot: LoadTable
    starts: Mapping[TopicPartition, int]
    """Where the topic is read from."""


def _find(name: str, options: Mapping[str, str], table: str | Path | None, job: str, since: datetime | None) -> _Found:
    bootstrap = options.get("kafka.bootstrap.servers")
    if not bootstrap:
        raise OptionError("kafka.bootstrap.servers", "", "it is missing: name the brokers")
    given = {key[6:]: value for key, value in options.items() if key.startswith("kafka.")}
    given.pop("bootstrap.servers")
    with Cluster(bootstrap, client_settings(given)) as cluster:
        if table is None:
            definition = Definitions(cluster).of(name)
            if definition is None:
                raise InvalidConfig(
                    f"topic {name} has no lake table: define one with headrace lake add, or name a table"
                )
            table, job = definition.table, definition.job
        location = Location.of(table)
        if location.directory is None:
            raise InvalidConfig(
                f"the table {location} is not on a mounted file system: read it with Spark's Delta format"
            )
        snapshot = LoadTable.open(location)
        if snapshot is None:
            raise InvalidConfig(f"there is no table at {location} yet: headrace lake run, or headrace load, makes it")
        admin = Admin(cluster)
        partitions = admin.partitions_of(name)
        known = {each: snapshot.next_offset(job, each) for each in partitions}
        new = [each for each, offset in known.items() if offset is None]
        begins = admin.list_offsets(dict.fromkeys(new, EARLIEST)) if new else {}
        starts = {each: int(begins[each].offset) if offset is None else offset for each, offset in known.items()}
        if since is not None:
            starts = _not_before(admin, starts, since)
    return _Found(name, snapshot, starts)


def _not_before(admin: Admin, starts: Mapping[TopicPartition, int], since: datetime) -> dict[TopicPartition, int]:
    """The later of each start and the first record of the time. Records without order in time stay included: the first
    one at or after `since` has no other such record before it."""
    found = admin.list_offsets(dict.fromkeys(starts, int(since.timestamp() * 1000)))
    ends = {each: int(end) for each, (_, end) in admin.watermarks(starts).items()}
    return {
        each: max(start, int(found[each].offset) if found[each].offset >= 0 else ends[each])
        for each, start in starts.items()
    }


def _with_zone(time: datetime | None) -> datetime | None:
    return time if time is None or time.tzinfo is not None else time.replace(tzinfo=UTC)


def _history(spark: "SparkSession", found: _Found) -> "DataFrame":
    """The rows of the snapshot."""
    from pyspark.sql import functions as F

    schema = _schema(found.snapshot)
    files = [str(each) for each in found.snapshot.files]
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*files).where(F.col("topic") == found.topic)


def _tail(spark: "SparkSession", name: str, options: Mapping[str, str], found: _Found) -> "DataFrame":
    """The records of the topic behind the table, in the table's columns."""
    schema = _schema(found.snapshot)
    has_headers = "headers" in schema.names
    reading = {**options, "subscribe": name, "startingOffsets": Progress(found.starts).starting_offsets}
    reading["includeHeaders"] = str(has_headers).lower()
    rows = spark.read.format("headrace").options(**reading).load()
    return shape(rows, _value_json(schema)).select(*schema.names)


def _schema(snapshot: LoadTable) -> "StructType":
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(snapshot.schema_json))


def _value_json(schema: "StructType") -> str | None:
    """The columns of JSON values as `with_typed_columns` takes them; None for a table of raw values. Raises
    OptionError for a column that has not the name of its field."""
    if CORRUPT_COLUMN not in schema.names:
        return None
    fields = [field for field in schema.fields if not is_own(field.name)]
    for field in fields:
        if field_of(field.name) != field.name:
            raise OptionError(
                "table",
                field.name,
                f"the column has values of the field {field_of(field.name)!r}, which is not supported",
            )
    return ", ".join(f"`{field.name.replace('`', '``')}` {field.dataType.simpleString()}" for field in fields)
