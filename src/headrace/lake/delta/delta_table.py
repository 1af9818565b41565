"""The Delta table that a load job appends to, and the one commit that makes a load count.

A load is exactly once, because its rows and its progress become visible in the same Delta commit:

    commitInfo   operation WRITE, headrace.offsets: {"flights":{"0":[0,191427]}}      information in the history
    add          one per Parquet file; Spark tasks wrote the files before, and no commit referenced them
    txn          appId headrace:JOB                     version = number of loads     fences a second driver
    txn          appId headrace:JOB:version             version = the version of this commit (`restored`)
    txn          appId headrace:JOB:TOPIC:PARTITION     version = next offset to load

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

Source: Delta's protocol, "Transaction Identifiers". Left out: tables that are not on a local (or mounted) path, and
what `unsupported` refuses.
"""

import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema, WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from headrace.lake.delta.restored import JOB_KEY, NOTHING_LOADED, OFFSETS_KEY, Surviving, surviving_progress
from headrace.lake.delta.unsupported import UnsupportedTableError, check_supported
from headrace.types import OffsetRange, TopicPartition

JOB_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
COMPACTED_BYTES: Final = 128 << 20
"""Large enough for few files, small enough to be rewritten while a load waits."""
_STATISTICS_OF: Final = ("partition", "offset", "timestamp")


class LostRaceError(Exception):
    """Somebody else committed after the progress was read. This load added nothing to the table."""


class SchemaChangedError(ValueError):
    """The columns of the rows to load differ from those of the table."""


class WrittenFile(NamedTuple):
    """A Parquet file below the table's directory, which no commit references yet."""

    path: str
    size: int
    rows: int
    statistics: str


class LoadTable:
    """One snapshot of the table. `commit` commits on this snapshot."""

    def __init__(self, table: DeltaTable, directory: Path) -> None:
        self._table = table
        self._surviving: dict[str, Surviving] = {}
        self.directory = directory

    @classmethod
    def open(cls, directory: Path) -> Self | None:
        """The newest snapshot; None if there is no table. Raises UnsupportedTableError."""
        if not DeltaTable.is_deltatable(_uri(directory)):
            return None
        table = DeltaTable(_uri(directory))
        check_supported(table, directory)
        return cls(table, directory)

    @classmethod
    def create(cls, directory: Path, schema_json: str) -> Self:
        """Create an empty table from a Spark schema (Delta uses the same). Raises LostRaceError if a table exists.

        Raises UnsupportedTableError if the directory has other files: they would become orphans of the table.
        """
        directory.mkdir(parents=True, exist_ok=True)
        found = sorted(one.name for one in directory.iterdir() if not one.name.startswith(("_", ".")))
        if found and not DeltaTable.is_deltatable(_uri(directory)):
            raise UnsupportedTableError(
                f"{directory} is no Delta table, but has files ({found[0]}): choose a new or an empty directory"
            )
        try:
            table = DeltaTable.create(_uri(directory), Schema.from_json(schema_json), mode="error")
        except DeltaError as failed:
            if DeltaTable.is_deltatable(_uri(directory)):
                raise LostRaceError(f"another process created the table {directory}") from failed
            raise
        return cls(table, directory)

    @property
    def version(self) -> int:
        return self._table.version()

    @property
    def files(self) -> list[Path]:
        """The Parquet files of this snapshot, which any Parquet reader can read."""
        return [self.directory / path for path in self._actions("path")]

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
                f"the table {self.directory} has other columns than this load ({', '.join(differing)} differ); "
                "load into a new table, or with the same --value-json as before; --add-columns adds new columns"
            )

    def add_columns(self, schema_json: str) -> bool:
        """Add the columns of this schema that the table does not have; False if there are none, or others differ.

        The snapshot is an older one then. Raises LostRaceError if somebody else changed the columns meanwhile.
        """
        ours, theirs = (_columns(text) for text in (schema_json, self._table.schema().to_json()))
        known = {name for name, *_ in theirs}
        missing = [field for field in Schema.from_json(schema_json).fields if field.name not in known]
        if missing and theirs <= ours:
            try:
                self._table.alter.add_columns(missing)
            except CommitFailedError as refused:
                raise LostRaceError(f"somebody else changed the columns of {self.directory} first") from refused
            return True
        return False

    @property
    def small_files(self) -> int:
        """The number of files that are below the size that `compact` makes."""
        return sum(size < COMPACTED_BYTES for size in self._actions("size_bytes"))

    def compact(self) -> None:
        """Rewrite small files as larger ones, with the same rows. Raises LostRaceError after another commit."""
        properties = WriterProperties(compression="ZSTD")
        try:
            self._table.optimize.compact(
                target_size=COMPACTED_BYTES, max_concurrent_tasks=1, writer_properties=properties
            )
        except CommitFailedError as refused:
            raise LostRaceError(f"somebody else changed {self.directory} while its files were compacted") from refused

    def has_columns_of(self, other: Self) -> bool:
        return _columns(self._table.schema().to_json()) == _columns(other._table.schema().to_json())

    def commit(self, job: str, ranges: Sequence[OffsetRange], files: Iterable[WrittenFile]) -> int:
        """Commit files and progress together; returns the new version. Raises LostRaceError after another commit."""
        now_ms = time.time_ns() // 1_000_000
        adds: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.size, {}, now_ms, True, file.statistics) for file in files
        ]
        progress = [Transaction(_partition_id(job, one), offset) for one, offset in self._progress_after(job, ranges)]
        own = [Transaction(_job_id(job), self.loads(job) + 1), Transaction(_version_id(job), self.version + 1)]
        properties = CommitProperties(
            custom_metadata={JOB_KEY: job, OFFSETS_KEY: json.dumps(offsets_by_topic(ranges))},
            max_commit_retries=0,
            app_transactions=[*own, *progress],
        )
        try:
            self._table.create_write_transaction(
                adds, mode="append", schema=self._table.schema(), commit_properties=properties
            )
        except CommitFailedError as refused:
            raise LostRaceError(f"somebody else committed to {self.directory} first") from refused
        self._table.update_incremental()
        self._surviving.clear()
        return self.version

    def _progress_after(self, job: str, ranges: Iterable[OffsetRange]) -> Iterator[tuple[TopicPartition, int]]:
        """The next offsets after a load of `ranges`, of every partition whose transaction is to change."""
        ends = {TopicPartition(one.topic, one.partition): one.end for one in ranges}
        yield from ends.items()
        for partition in sorted(self._progress(job).undone - ends.keys()):
            offset = self.next_offset(job, partition)
            yield partition, NOTHING_LOADED if offset is None else offset

    def _progress(self, job: str) -> Surviving:
        """The progress of the rows in this snapshot."""
        if job not in self._surviving:
            self._surviving[job] = surviving_progress(self._table, job, _version_id(job))
        return self._surviving[job]

    def _actions(self, column: str) -> list[Any]:
        actions = self._table.get_add_actions(flatten=True)
        return list(actions.column(column).to_pylist()) if actions.num_rows else []


def _uri(directory: Path) -> str:
    """The directory as a URI for deltalake. Raises ValueError for a percent sign, which deltalake would decode."""
    if "%" in str(directory.absolute()):
        raise ValueError(f"a Delta table cannot be stored at {directory}: choose a path without a percent sign")
    return directory.absolute().as_uri()


def offsets_by_topic(ranges: Iterable[OffsetRange]) -> dict[str, dict[str, list[int]]]:
    """The form of offsets in the table's history: {"topic": {"partition": [start, end]}}."""
    found: dict[str, dict[str, list[int]]] = {}
    for one in ranges:
        found.setdefault(one.topic, {})[str(one.partition)] = [one.start, one.end]
    return found


def collect_files(table_directory: Path, load_directory: Path) -> list[WrittenFile]:
    """The Parquet files that Spark's tasks wrote to `load_directory`. Syncs them before a commit references them."""
    for checksum in load_directory.glob(".*.crc"):  # Hadoop writes these; Delta tables do not need them
        checksum.unlink()
    files = [_describe(table_directory, path) for path in sorted(load_directory.glob("*.parquet"))]
    _sync(load_directory)
    _sync(table_directory)
    return files


def _describe(table_directory: Path, path: Path) -> WrittenFile:
    _sync(path)
    footer = pq.read_metadata(path)
    statistics = json.dumps({"numRecords": footer.num_rows, **_column_statistics(footer)})
    relative = path.relative_to(table_directory).as_posix()
    return WrittenFile(relative, path.stat().st_size, footer.num_rows, statistics)


def _column_statistics(footer: pq.FileMetaData) -> dict[str, dict[str, int | str]]:
    """Delta's minValues, maxValues and nullCount, for the columns that help readers to skip files."""
    lows: dict[str, int | str] = {}
    highs: dict[str, int | str] = {}
    nulls: dict[str, int | str] = {}
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    for position in range(footer.num_columns):
        chunks = [group.column(position) for group in groups]
        name = footer.schema.column(position).path
        found = [chunk.statistics for chunk in chunks if chunk.is_stats_set and chunk.statistics.has_min_max]
        if name in _STATISTICS_OF and chunks and len(found) == len(chunks):
            lows[name] = _bound(min(one.min for one in found), up=False)
            highs[name] = _bound(max(one.max for one in found), up=True)
            nulls[name] = sum(one.null_count or 0 for one in found)
    return {"minValues": lows, "maxValues": highs, "nullCount": nulls}


def _bound(value: int | datetime, *, up: bool) -> int | str:
    """Round a time outwards, because Delta stores milliseconds and would skip rows at the bounds."""
    if not isinstance(value, datetime):
        return value
    moment = value if value.tzinfo else value.replace(tzinfo=UTC)
    if up and moment.microsecond % 1000:
        moment += timedelta(milliseconds=1)
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _job_id(job: str) -> str:
    return f"headrace:{job}"


def _version_id(job: str) -> str:
    return f"headrace:{job}:version"


def _partition_id(job: str, partition: TopicPartition) -> str:
    return f"headrace:{job}:{partition.topic}:{partition.partition}"


def _columns(schema_json: str) -> set[tuple[str, str, bool]]:
    fields: list[Mapping[str, object]] = json.loads(schema_json)["fields"]
    return {(str(one["name"]), json.dumps(one["type"], sort_keys=True), one["nullable"] is True) for one in fields}
