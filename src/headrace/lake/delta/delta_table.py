"""The Delta table that a load job appends to, and the one commit that makes a load count.

A load is exactly once, because its rows and its progress become visible in the same Delta commit:

    commitInfo   operation WRITE, headrace.offsets: {"flights":{"0":[0,191427]}}      information in the history
    add          one per Parquet file; Spark tasks wrote the files before, and no commit referenced them
    txn          appId headrace:JOB                     version = number of loads     fences a second driver
    txn          appId headrace:JOB:version             version = the version of this commit (`restored`)
    txn          appId headrace:JOB:TOPIC:PARTITION     version = next offset to load
    txn          appId ...:PARTITION:lost               version = number of offsets that were lost before a load
    txn          appId headrace:JOB:TOPIC:id            version = 63 bits of the topic's id, from the lake

The next offset of a partition is the version of a transaction, not a line of the history, because snapshots and
checkpoints keep transactions, while old history is cleaned up.

Exactly-once loads require these invariants:
  - A load reads its progress from the snapshot that it commits on.
  - A commit is the next version of this snapshot, or it fails (LostRaceError). The driver then reads the progress
    again. If it is the same (somebody else committed, such as OPTIMIZE), the driver commits its files on the newer
    snapshot, otherwise it starts over. Deltalake would commit on a newer snapshot by itself: it is told not to.
  - Progress is that of the rows in the table, also after a RESTORE (`restored`).
  - A retry never reuses a file name, so no commit references the files of a killed attempt.
    `DeltaTable.vacuum(full=True)` removes these files.
The Delta log does NOT refuse a transaction version that was committed before: a commit on a newer snapshot than that
of the progress duplicates the rows. A test shows the duplicates.

Source: Delta's protocol, "Transaction Identifiers". Left out: what `unsupported` refuses.
"""

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from itertools import repeat
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from headrace.lake.delta.file_statistics import column_statistics
from headrace.lake.delta.fit import Fit, fit
from headrace.lake.delta.location import Location, sync
from headrace.lake.delta.restored import JOB_KEY, NOTHING_LOADED, OFFSETS_KEY, Surviving, surviving_progress
from headrace.lake.delta.unsupported import PARTITION_BY, UnsupportedTableError, check_supported
from headrace.types import OffsetRange, TopicPartition

NO_VALUES: Final[Mapping[str, str | None]] = MappingProxyType({})
JOB_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
HOLES_KEY: Final = "headrace.holes"
"""The offsets that were deleted before a commit could have them, in the form of `headrace.offsets`."""
COMPACTED_BYTES: Final = 128 << 20
"""Large enough for few files, small enough to be rewritten while a load waits."""


class LostRaceError(Exception):
    """Somebody else committed after the progress was read. This load added nothing to the table."""


class SchemaChangedError(ValueError):
    """The columns of the rows to load differ from those of the table."""


class TableUnreachableError(OSError):
    """The directory or the object store of a table refuses, or is away."""


class WrittenFile(NamedTuple):
    """A Parquet file below the table's directory, which no commit references yet."""

    path: str
    size: int
    rows: int
    statistics: str
    values: Mapping[str, str | None] = NO_VALUES
    """The values of its partition, by the column."""


class LiveFile(NamedTuple):
    """A file of a snapshot, by its path below the table."""

    path: str
    size: int
    values: Mapping[str, str | None] = NO_VALUES


class FileStatistics(NamedTuple):
    """A file of a snapshot, and the least and the greatest of what rows are searched by; None where nobody told.

    `topics` is None also if some row has none: equal bounds say that all rows are of one topic.
    """

    path: str
    topics: tuple[str, str] | None
    partitions: tuple[int, int] | None
    offsets: tuple[int, int] | None
    times: tuple[datetime, datetime] | None
    rows: int | None = None


class LoadTable:
    """One snapshot of the table. `commit` commits on this snapshot."""

    def __init__(self, table: DeltaTable, location: Location) -> None:
        self._table = table
        self._surviving: dict[str, Surviving] = {}
        self._bounds: tuple[int, Sequence[FileStatistics]] | None = None
        self.location = location

    @classmethod
    def open(cls, place: Location | Path) -> Self | None:
        """The newest snapshot; None if there is no table. Raises UnsupportedTableError and TableUnreachableError."""
        location = Location.of(place)
        try:
            if not _is_there(location):
                return None
            table = DeltaTable(location.uri, storage_options=location.options)
        except (DeltaError, OSError) as failed:
            raise TableUnreachableError(f"the table {location} cannot be read: {_in_one_line(failed)}") from failed
        check_supported(table, location)
        return cls(table, location)

    @classmethod
    def create(cls, place: Location | Path, schema_json: str, partitions: tuple[str, str] | None = None) -> Self:
        """Create an empty table from a Spark schema (Delta uses the same). Raises LostRaceError if a table exists.

        `partitions` are the column that divides it, and the text that says how its values are made.
        Raises UnsupportedTableError if the directory has other files: they would become orphans of the table.
        """
        location = Location.of(place)
        found = location.entries()
        if found and not _is_there(location):
            raise UnsupportedTableError(
                f"{location} is no Delta table, but has files ({found[0]}): choose a new or an empty directory"
            )
        schema = Schema.from_json(schema_json)
        try:
            table = DeltaTable.create(
                location.uri,
                schema,
                mode="error",
                storage_options=location.options,
                partition_by=[partitions[0]] if partitions else None,
                configuration={PARTITION_BY: partitions[1]} if partitions else None,
                raise_if_key_not_exists=False,
            )
        except DeltaError as failed:
            if _is_there(location):
                raise LostRaceError(f"another process created the table {location}") from failed
            raise
        return cls(table, location)

    def check_supported(self) -> None:
        """Raises UnsupportedTableError if somebody made the table one that a load cannot append to."""
        check_supported(self._table, self.location)

    @property
    def schema_json(self) -> str:
        """The columns as Spark's schema."""
        return str(self._table.schema().to_json())

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns as they are written to files."""
        return pa.schema(self._table.schema().to_arrow())

    @property
    def partition_column(self) -> str | None:
        """The column that divides the table."""
        return next(iter(self._table.metadata().partition_columns), None)

    @property
    def partition_by(self) -> str | None:
        """How the values of that column are made, as it was given when the table was created."""
        return self._table.metadata().configuration.get(PARTITION_BY)

    @property
    def version(self) -> int:
        return self._table.version()

    @property
    def files(self) -> list[Path]:
        """The Parquet files of this snapshot of a local table, which any Parquet reader can read."""
        if self.location.directory is None:
            raise ValueError(f"{self.location} is not on a local file system")
        return [self.location.directory / path for path in self._actions("path")]

    @property
    def file_count(self) -> int:
        """The number of Parquet files of this snapshot."""
        return len(self._actions("path"))

    @property
    def rows(self) -> int:
        """The number of rows in this snapshot, from the statistics of its files."""
        return sum(self._actions("num_records"))

    def loads(self, job: str) -> int:
        """The number of loads that this job has committed."""
        return self._table.transaction_version(_job_id(job)) or 0

    def next_offset(self, job: str, partition: TopicPartition) -> int | None:
        """The next offset to load from a partition; None if the job has loaded nothing from it."""
        found = self._progress(job).table.transaction_version(_partition_id(job, partition))
        return None if found == NOTHING_LOADED else found

    def has_same_progress(self, other: Self, job: str, ranges: Iterable[OffsetRange]) -> bool:
        """Whether what was loaded from `other`, an older snapshot, can be committed on this one."""
        partitions = [TopicPartition(one.topic, one.partition) for one in ranges]
        return self.loads(job) == other.loads(job) and all(
            self.next_offset(job, one) == other.next_offset(job, one) for one in partitions
        )

    def check_schema(self, schema_json: str) -> None:
        """Raises SchemaChangedError if the table has other columns than this schema."""
        ours, theirs = (_columns(text) for text in (schema_json, self._table.schema().to_json()))
        if ours != theirs:
            differing = sorted({name for name, *_ in ours ^ theirs})
            raise SchemaChangedError(
                f"the table {self.location} has other columns than this load ({', '.join(differing)} differ); "
                "load into a new table, or with the same --value-json as before; --add-columns adds new columns"
            )

    def fit(self, schema_json: str) -> Fit:
        """Whether files with these columns, or some of them, can be committed to this snapshot."""
        return fit(json.loads(self.schema_json), json.loads(schema_json))

    def add_columns(self, schema_json: str) -> bool:
        """Add the columns of this schema that the table does not have; False if there are none, or others differ.

        The snapshot is an older one then. Raises LostRaceError if somebody else changed the columns meanwhile.
        """
        ours, theirs = (_columns(text) for text in (schema_json, self._table.schema().to_json()))
        return theirs <= ours and self.grow(schema_json)

    def grow(self, schema_json: str) -> bool:
        """As `add_columns`, also if the table has columns that this schema does not have. See `fit`."""
        known = {field.name: field for field in self._table.schema().fields}
        missing = [field for field in Schema.from_json(schema_json).fields if known.get(field.name) != field]
        if not missing:
            return False
        try:
            self._table.alter.add_columns(missing)
        except CommitFailedError as refused:
            raise LostRaceError(f"somebody else changed the columns of {self.location} first") from refused
        return True

    @property
    def small_files(self) -> int:
        """The number of files that are below the size that `compact` makes."""
        return sum(size < COMPACTED_BYTES for size in self._actions("size_bytes"))

    @property
    def live_files(self) -> list[LiveFile]:
        """The files of this snapshot, oldest first."""
        actions = self._table.get_add_actions(flatten=True)
        if not actions.num_rows:
            return []
        names = ("modification_time", "path", "size_bytes")
        times, paths, sizes = (actions.column(name).to_pylist() for name in names)
        column = self.partition_column
        values: Iterator[Any] = repeat(None)
        if column is not None:
            values = iter(actions.column(f"partition.{column}").to_pylist())
        found = [
            (time, LiveFile(path, size, {} if column is None else {column: partition_text(value)}))
            for time, path, size, value in zip(times, paths, sizes, values, strict=False)
        ]
        return [one for _, one in sorted(found, key=lambda each: (each[0], each[1].path))]

    @property
    def file_bounds(self) -> Sequence[FileStatistics]:
        """The files of this snapshot, with the bounds that the log has of them."""
        if self._bounds is None or self._bounds[0] != self.version:
            self._bounds = self.version, self._read_bounds()
        return self._bounds[1]

    def _read_bounds(self) -> list[FileStatistics]:
        actions = self._table.get_add_actions(flatten=True)
        if not actions.num_rows:
            return []
        names = set(actions.schema.names)

        def bounds(name: str) -> Iterator[tuple[Any, Any] | None]:
            if not {f"min.{name}", f"max.{name}"} <= names:
                return repeat(None, actions.num_rows)
            lows, highs = (actions.column(f"{side}.{name}").to_pylist() for side in ("min", "max"))
            return (None if None in pair else pair for pair in zip(lows, highs, strict=True))

        columns = (bounds(name) for name in ("topic", "partition", "offset", "timestamp"))
        rows = actions.column("num_records").to_pylist() if "num_records" in names else repeat(None, actions.num_rows)
        found = [FileStatistics(*one) for one in zip(actions.column("path").to_pylist(), *columns, rows, strict=True)]
        nulls = actions.column("null_count.topic").to_pylist() if "null_count.topic" in names else repeat(None)
        return [one if count == 0 else one._replace(topics=None) for one, count in zip(found, nulls, strict=False)]

    @property
    def has_deletion_vectors(self) -> bool:
        """Whether files may have rows that are deleted."""
        return "deletionVectors" in (self._table.protocol().reader_features or ())

    def replace(self, old: Iterable[LiveFile], new: Iterable[WrittenFile]) -> None:
        """Put files with the same rows in the place of others. Raises LostRaceError after another commit."""
        now_ms = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(one.path, False, now_ms, one.size, dict(one.values)) for one in old
        ]
        actions += [AddAction(one.path, one.size, dict(one.values), now_ms, False, one.statistics) for one in new]
        properties = CommitProperties(max_commit_retries=0)
        try:
            self._table.create_write_transaction(
                *(actions, "append", self._table.schema(), self._partition_columns),
                commit_properties=properties,
            )
        except CommitFailedError as refused:
            raise LostRaceError(f"somebody else changed {self.location} while its files were compacted") from refused

    @property
    def size(self) -> int:
        """The bytes of the files of this snapshot."""
        return sum(self._actions("size_bytes"))

    def replace_all(self, new: Iterable[WrittenFile], schema_json: str) -> None:
        """Put files with the same rows in the place of all, and give the columns other types. Raises LostRaceError
        after another commit."""
        now_ms = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [
            AddAction(one.path, one.size, dict(one.values), now_ms, True, one.statistics) for one in new
        ]
        try:
            self._table.create_write_transaction(
                *(actions, "overwrite", Schema.from_json(schema_json), self._partition_columns),
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except CommitFailedError as refused:
            raise LostRaceError(f"somebody else changed {self.location} while its columns were widened") from refused

    def vacuum(self, hours: int) -> int:
        """Delete files that no version of the last `hours` needs, and those of killed loads; returns how many."""
        doomed = self._table.vacuum(retention_hours=hours, enforce_retention_duration=False, dry_run=False, full=True)
        return len(doomed)

    def has_columns_of(self, other: Self) -> bool:
        return _columns(self._table.schema().to_json()) == _columns(other._table.schema().to_json())

    def lost(self, job: str, partition: TopicPartition) -> int:
        """The number of offsets of a partition that were deleted before the table had them."""
        return self._progress(job).table.transaction_version(_lost_id(job, partition)) or 0

    def topic_id(self, job: str, topic: str) -> int | None:
        """The number that the topic of this name had when its rows were committed; None if nobody said."""
        return self._table.transaction_version(_topic_id(job, topic))

    def commit(
        self,
        job: str,
        ranges: Sequence[OffsetRange],
        files: Iterable[WrittenFile],
        holes: Sequence[OffsetRange] = (),
        topic: tuple[str, int] | None = None,
    ) -> int:
        """Commit files and progress together; returns the new version. Raises LostRaceError after another commit.

        `holes` are offsets that the log has no more, and that the table never had. `topic` is a topic's name and id.
        """
        now_ms = time.time_ns() // 1_000_000
        adds: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.size, dict(file.values), now_ms, True, file.statistics) for file in files
        ]
        progress = [Transaction(_partition_id(job, one), offset) for one, offset in self._progress_after(job, ranges)]
        own = [Transaction(_job_id(job), self.loads(job) + 1), Transaction(_version_id(job), self.version + 1)]
        metadata = {JOB_KEY: job, OFFSETS_KEY: json.dumps(offsets_by_topic(ranges))}
        if holes:
            metadata[HOLES_KEY] = json.dumps(offsets_by_topic(holes))
        properties = CommitProperties(
            custom_metadata=metadata,
            max_commit_retries=0,
            app_transactions=[*own, *progress, *self._lost_after(job, holes), *self._new_topic(job, topic)],
        )
        try:
            self._table.create_write_transaction(
                *(adds, "append", self._table.schema(), self._partition_columns),
                commit_properties=properties,
            )
        except CommitFailedError as refused:
            raise LostRaceError(f"somebody else committed to {self.location} first") from refused
        self._table.update_incremental()
        self._surviving.clear()
        return self.version

    @property
    def _partition_columns(self) -> list[str]:
        return list(self._table.metadata().partition_columns)

    def _progress_after(self, job: str, ranges: Iterable[OffsetRange]) -> Iterator[tuple[TopicPartition, int]]:
        """The next offsets after a load of `ranges`, of every partition whose transaction is to change."""
        ends = {TopicPartition(one.topic, one.partition): one.end for one in ranges}
        yield from ends.items()
        for partition in sorted(self._progress(job).undone - ends.keys()):
            offset = self.next_offset(job, partition)
            yield partition, NOTHING_LOADED if offset is None else offset

    def _lost_after(self, job: str, holes: Iterable[OffsetRange]) -> Iterator[Transaction]:
        for one in holes:
            partition = TopicPartition(one.topic, one.partition)
            yield Transaction(_lost_id(job, partition), self.lost(job, partition) + one.size)

    def _new_topic(self, job: str, topic: tuple[str, int] | None) -> Iterator[Transaction]:
        if topic is not None and self.topic_id(job, topic[0]) != topic[1]:
            yield Transaction(_topic_id(job, topic[0]), topic[1])

    def _progress(self, job: str) -> Surviving:
        """The progress of the rows in this snapshot."""
        if job not in self._surviving:
            self._surviving[job] = surviving_progress(self._table, job, _version_id(job), self.location.options)
        return self._surviving[job]

    def _actions(self, column: str) -> list[Any]:
        actions = self._table.get_add_actions(flatten=True)
        return list(actions.column(column).to_pylist()) if actions.num_rows else []


def _in_one_line(failed: Exception) -> str:
    """The causes of an error, which delta-rs prints one below the other, in the colours of a terminal."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", str(failed)).replace("↳", "").splitlines()
    return ": ".join(line.strip() for line in lines if line.strip())


def _is_there(location: Location) -> bool:
    return bool(DeltaTable.is_deltatable(location.uri, storage_options=location.options))


def offsets_by_topic(ranges: Iterable[OffsetRange]) -> dict[str, dict[str, list[int]]]:
    """The form of offsets in the table's history: {"topic": {"partition": [start, end]}}."""
    found: dict[str, dict[str, list[int]]] = {}
    for one in ranges:
        found.setdefault(one.topic, {})[str(one.partition)] = [one.start, one.end]
    return found


def collect_files(
    table_directory: Path, load_directory: Path, partition_column: str | None = None
) -> list[WrittenFile]:
    """The Parquet files that Spark's tasks wrote to `load_directory`. Syncs them before a commit references them."""
    for checksum in load_directory.rglob(".*.crc"):  # Hadoop writes these; Delta tables do not need them
        checksum.unlink()
    paths = sorted(load_directory.rglob("*.parquet"))
    files = [_describe(table_directory, path, partition_column) for path in paths]
    for folder in {load_directory, *(path.parent for path in paths)}:
        sync(folder)
    sync(table_directory)
    return files


def _describe(table_directory: Path, path: Path, partition_column: str | None) -> WrittenFile:
    """A file. All its rows have the same value in the partition's column."""
    sync(path)
    relative = path.relative_to(table_directory).as_posix()
    values: Mapping[str, str | None] = NO_VALUES
    if partition_column is not None:
        with pq.ParquetFile(path) as file:
            first = next(file.iter_batches(batch_size=1, columns=[partition_column]))
        values = {partition_column: partition_text(first.column(0)[0].as_py())}
    return described_file(relative, path.stat().st_size, pq.read_metadata(path), values)


def described_file(
    path: str, size: int, footer: pq.FileMetaData, values: Mapping[str, str | None] = NO_VALUES
) -> WrittenFile:
    """A file with Delta's statistics of it. `path` is relative to the table; `values` are those of its partition."""
    statistics = column_statistics(footer)
    for bounds in statistics.values():
        for column in values:
            bounds.pop(column, None)
    text = json.dumps({"numRecords": footer.num_rows, **statistics})
    return WrittenFile(path, size, footer.num_rows, text, values)


def partition_text(value: Any) -> str | None:
    """A partition's value as Delta's log has it."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case date():
            return value.isoformat()
        case _:
            return str(value) or None  # Delta takes an empty text for null


def _job_id(job: str) -> str:
    return f"headrace:{job}"


def _version_id(job: str) -> str:
    return f"headrace:{job}:version"


def _partition_id(job: str, partition: TopicPartition) -> str:
    return f"headrace:{job}:{partition.topic}:{partition.partition}"


def _topic_id(job: str, topic: str) -> str:
    return f"headrace:{job}:{topic}:id"


def _lost_id(job: str, partition: TopicPartition) -> str:
    return f"{_partition_id(job, partition)}:lost"


def _columns(schema_json: str) -> set[tuple[str, str, bool]]:
    fields: list[Mapping[str, object]] = json.loads(schema_json)["fields"]
    return {(str(one["name"]), json.dumps(one["type"], sort_keys=True), one["nullable"] is True) for one in fields}
