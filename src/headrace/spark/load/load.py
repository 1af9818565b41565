"""The load job: loads the records of a topic that a Delta table does not have, exactly once.

    1  open the table            one handle: the progress read from it is what the commit builds on
    2  plan offset ranges        from the table's progress to the end of the log
    3  Spark tasks write Parquet into a directory of this attempt alone; nothing refers to it
    4  commit                    files and progress in one Delta commit, on the handle of step 1

A driver killed at any point leaves a correct table. Before step 4 the table has none of the rows, and the next run
plans them again. After step 4 it has both rows and progress. Task attempts that Spark repeats use other file names, and
only successful attempts are collected. If another driver of the job commits in between, step 4 fails and the job starts
over. If nothing is new, the job commits nothing and does not start Spark.

Rows keep their origin: every table has topic, partition, offset and timestamp. With `value_json` the value is parsed
into columns of its own; a value that is not such JSON is kept in `corrupt_value` (`json_values`), or with
`dead_letters` the whole row is in another table (`dead_letters`).

A killed run leaves a directory load-* that no commit refers to. A week later such files can be removed with
`DeltaTable(path).vacuum(full=True, dry_run=False)`.
"""

import json
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import pyarrow.parquet as pq

from headrace.lake.delta.delta_table import (
    LoadTable,
    LostRaceError,
    SchemaChangedError,
    WrittenFile,
    collect_files,
    offsets_by_topic,
)
from headrace.lake.delta.fit import Fit
from headrace.lake.partitioning import Partitioning
from headrace.lake.widening import widen
from headrace.spark.load.dead_letters import DEAD_FOLDER, DeadLetterSnapshot
from headrace.spark.load.json_values import CORRUPT_COLUMN, HEADERS, with_typed_columns
from headrace.spark.load.partitions import FOLDER, folder, with_partitions
from headrace.spark.source.cluster_access import ClusterBounds, connect, isolation_level
from headrace.spark.source.offsets import resolve_ranges
from headrace.spark.source.options import parse_options
from headrace.types import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ATTEMPTS_MAX: Final = 5
COMMITS_MAX: Final = 100
"""How often others may commit first, without an effect on the progress, before the job starts over."""
TASK_RECORDS_MIN: Final = 20_000
"""A task with fewer records takes those of another partition as well, because each task writes a file."""
SHORT_LIVED_RECORDS: Final = 1_000_000
"""Up to this many records the session is started for a job of seconds."""


@dataclass(frozen=True, slots=True)
class LoadJob:
    """The source and the target of a load.

    `read_options` are the source's options: brokers, topics, and with startingOffsets=earliest (the default) or a
    time where partitions begin that this job has not loaded yet. `value_json` is a Spark schema, as in
    `origin STRING, delay DOUBLE`. Records of aborted and open transactions are left out, unless the options say
    `kafka.isolation.level` is read_uncommitted.
    """

    table: Path
    read_options: Mapping[str, str]
    name: str = "load"
    value_json: str | None = None
    master: str | None = None
    """None: that of spark-submit, or local[*]."""
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    adds_columns: bool = False
    """Whether columns of the load that the table does not have are added to it; older rows have null there."""
    partition_by: str | None = None
    """The partitions of a new table (`headrace.lake.partitioning`). One that is there keeps its own."""
    dead_letters: Path | None = None
    """Another table, for the rows whose value is not whole in the columns: they are there and not in `table`."""
    is_repeated: bool = False
    """Whether the session will load again and again, so that a slower start is worth it."""

    @property
    def source_options(self) -> Mapping[str, str]:
        """The options of the source, with the defaults of loads."""
        return {"kafka.isolation.level": "read_committed", **self.read_options}


class LoadResult(NamedTuple):
    """The result of a run. `table_version` is None if nothing was committed."""

    table_version: int | None
    rows: int
    files: int
    ranges: tuple[OffsetRange, ...]
    size: int = 0
    """The bytes of the files."""
    rescued: int = 0
    """The rows whose value is not whole in the columns."""
    dead: int = 0
    """The rows in the table of dead letters."""

    def as_json(self) -> dict[str, object]:
        return {
            "committed": self.table_version is not None,
            "table_version": self.table_version,
            "rows": self.rows,
            "files": self.files,
            "bytes": self.size,
            "rescued": self.rescued,
            "dead_letters": self.dead,
            "offsets": offsets_by_topic(self.ranges),
        }


NOTHING_NEW: Final = LoadResult(None, 0, 0, ())


class LoadStep(Enum):
    """The progress of an attempt; a kill at each step leaves a different state."""

    PLANNED = auto()
    """Spark tasks begin to write next."""
    WRITTEN = auto()
    """All files are written, none is in the table."""
    COMMITTED = auto()
    """Rows and progress are in the table, and nobody was told."""


OnStep: TypeAlias = "Callable[[LoadStep, Path, SparkSession], None]"
"""Called with the directory of the attempt's files and the session that writes them."""


def run_load(job: LoadJob, on_step: "OnStep | None" = None, spark: "SparkSession | None" = None) -> LoadResult:
    """Run the job once, in a session of its own or in `spark`: a notebook's, or one of Spark Connect whose server has
    the table's directory.

    Raises LostRaceError if other drivers of the job won `ATTEMPTS_MAX` times in a row.
    """
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            return _attempt(job, on_step or _ignore, spark)
        except LostRaceError:
            if attempt == ATTEMPTS_MAX:
                raise
    raise AssertionError("unreachable")


def _ignore(step: LoadStep, directory: Path, spark: "SparkSession") -> None:
    """The default observer, which does nothing."""


def _attempt(job: LoadJob, on_step: "OnStep", given: "SparkSession | None") -> LoadResult:
    table = LoadTable.open(job.table)
    partitioning = _partitioning(job, table)
    ranges = plan_ranges(job, table)
    if not ranges:
        return NOTHING_NEW
    spark = given or _session(job, ranges)
    rows = shape(_in_few_tasks(read_ranges(spark, job, ranges), job, ranges), job.value_json)
    if partitioning is not None:
        rows = with_partitions(rows, partitioning)
    if table is None:
        partitions = None if partitioning is None else (partitioning.column, partitioning.text)
        table = LoadTable.create(job.table, rows.schema.json(), partitions)
    if job.adds_columns and table.add_columns(rows.schema.json()):
        return _attempt(job, on_step, given)  # on the newer snapshot, with its progress
    if job.adds_columns and table.fit(rows.schema.json()) is Fit.WIDENS:
        widen(table, rows.schema.json())
        return _attempt(job, on_step, given)
    table.check_schema(rows.schema.json())
    letters = None if job.dead_letters is None else DeadLetterSnapshot.open(job.dead_letters, rows.schema.json())
    directory = job.table / f"load-{table.loads(job.name) + 1}-{uuid.uuid4().hex[:12]}"
    on_step(LoadStep.PLANNED, directory, spark)
    _write(rows, directory, table.partition_column, None if letters is None else letters.new_in(job.name, ranges))
    try:
        dead = 0 if letters is None else letters.commit(job.name, ranges, directory)
        files = collect_files(job.table, directory, table.partition_column)
        on_step(LoadStep.WRITTEN, directory, spark)
        version = _commit(job, table, ranges, files)
    except LostRaceError:
        shutil.rmtree(directory)  # safe: only the refused commit would have referred to it
        raise
    on_step(LoadStep.COMMITTED, directory, spark)
    rescued = sum(_rescued(job.table / file.path) for file in files) if job.value_json is not None else 0
    size, count = sum(file.size for file in files), sum(file.rows for file in files)
    return LoadResult(version, count, len(files), tuple(ranges), size, rescued, dead)


def _partitioning(job: LoadJob, table: LoadTable | None) -> Partitioning | None:
    """How the table is divided. Raises SchemaChangedError if the job wants it otherwise."""
    text = job.partition_by if table is None else table.partition_by
    if job.partition_by not in (None, text):
        raise SchemaChangedError(
            f"the table {job.table} is not divided by {job.partition_by}, but by {text or 'nothing'}"
        )
    return None if text is None else Partitioning.of(text)


def _write(rows: "DataFrame", directory: Path, partition_column: str | None, is_dead: "Column | None") -> None:
    """Write the rows; with `is_dead` those of dead letters into a folder of their own."""
    folders = []
    if is_dead is not None:
        rows = rows.withColumn(DEAD_FOLDER, is_dead).where(f"{DEAD_FOLDER} IS NOT NULL")
        folders.append(DEAD_FOLDER)
    if partition_column is not None:
        rows = rows.withColumn(FOLDER, folder(partition_column))
        folders.append(FOLDER)
    # No _SUCCESS file: the Delta commit makes a load visible.
    writer = rows.write.options(**{"compression": "zstd", "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"})
    (writer.partitionBy(*folders) if folders else writer).parquet(str(directory))


def _rescued(path: Path) -> int:
    """The rows of a file whose value is not whole in the columns, by its statistics."""
    footer = pq.read_metadata(path)
    chunks = (
        group.column(at)
        for group in map(footer.row_group, range(footer.num_row_groups))
        for at in range(group.num_columns)
    )
    found = [one.statistics for one in chunks if one.path_in_schema == CORRUPT_COLUMN]
    return sum(each.num_values for each in found if each is not None)


def _commit(job: LoadJob, table: LoadTable, ranges: Sequence[OffsetRange], files: Sequence[WrittenFile]) -> int:
    """Commit on `table`, or on a newer snapshot where that changes nothing for this job. Raises LostRaceError."""
    for _ in range(COMMITS_MAX):
        try:
            return table.commit(job.name, ranges, files)
        except LostRaceError:
            newer = LoadTable.open(job.table)
            if newer is None or not newer.has_same_progress(table, job.name, ranges) or not newer.has_columns_of(table):
                raise
            table = newer
    raise LostRaceError(f"{COMMITS_MAX} other commits to {job.table} came first")


def plan_ranges(job: LoadJob, table: LoadTable | None) -> list[OffsetRange]:
    """The offsets that the topic has and this snapshot of `table` does not have.

    Raises DataLossError if records were deleted before they were loaded, unless failOnDataLoss is false.
    """
    options = parse_options(job.source_options)
    with connect(options, waits_for_brokers=False) as cluster:  # a command with a wrong address ends at once
        log = ClusterBounds(cluster, isolation_level(options.client_settings))
        known = {
            partition: offset
            for partition in log.partitions_of(options.selection)
            if table and (offset := table.next_offset(job.name, partition)) is not None
        }
        return resolve_ranges(options, log, resume_at=known)


def read_ranges(spark: "SparkSession", job: LoadJob, ranges: Sequence[OffsetRange]) -> "DataFrame":
    """Reads exactly these offsets through headrace's source, even if the topic changes meanwhile."""
    settings = {key: value for key, value in job.source_options.items() if _goes_to_the_reader(key)}
    offsets = offsets_by_topic(ranges)
    return (
        spark.read.format("headrace")
        .options(**settings)
        .option("assign", json.dumps({topic: list(map(int, partitions)) for topic, partitions in offsets.items()}))
        .option("startingOffsets", _one_side(offsets, 0))
        .option("endingOffsets", _one_side(offsets, 1))
        .load()
    )


def _in_few_tasks(rows: "DataFrame", job: LoadJob, ranges: Sequence[OffsetRange]) -> "DataFrame":
    """As many tasks as partitions, or fewer if little is loaded: each task writes a file."""
    if any(name.lower() == "minpartitions" for name in job.read_options):
        return rows
    tasks = -(-sum(one.size for one in ranges) // TASK_RECORDS_MIN)
    return rows.coalesce(tasks) if tasks < len(ranges) else rows


def shape(rows: "DataFrame", value_json: str | None) -> "DataFrame":
    """The table's columns: the source's own, or with a schema for JSON values their origin and one for each field."""
    if HEADERS in rows.columns:
        rows = rows.withColumn(HEADERS, _readable(rows[HEADERS]))
    return rows if value_json is None else with_typed_columns(rows, value_json)


def _readable(headers: "Column") -> "Column":
    """Headers with names that every reader of Parquet accepts: bytes that are not UTF-8 become U+FFFD."""
    from pyspark.sql import functions as F

    return F.transform(
        headers, lambda one: F.struct(F.make_valid_utf8(one["key"]).alias("key"), one["value"].alias("value"))
    )


def _session(job: LoadJob, ranges: Sequence[OffsetRange]) -> "SparkSession":
    from headrace.spark.session import session

    records = sum(one.size for one in ranges)
    short_lived = records <= SHORT_LIVED_RECORDS and not job.is_repeated
    return session(f"headrace load {job.name}", master=job.master, settings=job.spark_settings, short_lived=short_lived)


def _goes_to_the_reader(option: str) -> bool:
    """Whether an option still applies after the offsets are planned."""
    name = option.lower()
    return not name.startswith(("assign", "subscribe", "starting", "ending"))


def _one_side(offsets: Mapping[str, Mapping[str, Sequence[int]]], side: int) -> str:
    """{"t":{"0":5}}: the starts (side 0) or ends (side 1) as the source's options take them."""
    return json.dumps({topic: {p: edges[side] for p, edges in by.items()} for topic, by in offsets.items()})
