"""All records of a topic, of its lake table and of the topic itself, each once: for pandas, polars, DuckDB and others.

    table   the rows of one snapshot ──────────────────────┐
                                                           ├─▶ Arrow batches with the table's columns
    topic   from the snapshot's next offsets to its end ───┘

The rows and the next offsets are of one version of the table, so a writer that commits meanwhile changes nothing. What
retention has deleted from the topic is still in the table. `since` and `until` are applied to both: files and row
groups are skipped by their bounds, and the topic is read from the offset of `since`.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from math import ceil, floor
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.consumer.fetching import READ_COMMITTED
from headrace.client.core.cluster import Cluster
from headrace.client.core.settings import ClientSettings
from headrace.client.operations.admin import EARLIEST, LATEST, Admin
from headrace.client.tables.record_table import RecordTable
from headrace.errors import InvalidConfig
from headrace.lake.core.plan import Slice
from headrace.lake.decoders import reading_decoder
from headrace.lake.decoding import HEADERS
from headrace.lake.definitions import Definitions
from headrace.lake.delta.delta_table import LoadTable
from headrace.lake.delta.location import Location
from headrace.lake.delta.snapshots import newest_snapshot
from headrace.lake.json_fields import CORRUPT_COLUMN
from headrace.lake.rows import WantedRows, check_readable, fitted, read_rows
from headrace.lake.tail_times import TailTimes, Times, Window
from headrace.lake.topic_log import TopicLog
from headrace.records.format2.columns import RecordColumns
from headrace.types import TopicPartition

JOB = "load"


class WholeTopic(NamedTuple):
    """A snapshot of the table, and where the topic goes on."""

    topic: str
    snapshot: LoadTable
    job: str
    starts: Mapping[TopicPartition, int]
    registry: str | None = None
    """Where the schemas of the values are."""


class TooMuchError(Exception):
    """There is more than the caller wants to read at once."""


class FoundTable(NamedTuple):
    """Where a topic's table is, and the name of its progress."""

    location: Location
    job: str
    registry: str | None = None


def find(
    cluster: Cluster, topic: str, table: str | Path | None = None, job: str = JOB, since: datetime | None = None
) -> WholeTopic:
    """The newest snapshot of a topic's table: the given one, or that of `headrace lake add`.

    Raises InvalidConfig, UnsupportedTableError and KafkaError.
    """
    place = find_table(cluster, topic, table, job)
    return find_after(cluster, topic, place, newest_of(place), since)


def newest_of(place: FoundTable) -> LoadTable:
    """The newest snapshot of a table. Raises InvalidConfig and UnsupportedTableError."""
    snapshot = newest_snapshot(place.location)
    if snapshot is None:
        raise InvalidConfig(f"there is no table at {place.location} yet: headrace lake run, or headrace load, makes it")
    check_readable(snapshot)
    return snapshot


def find_after(
    cluster: Cluster, topic: str, place: FoundTable, snapshot: LoadTable, since: datetime | None = None
) -> WholeTopic:
    """Where the topic goes on after a snapshot. Raises UnsupportedTableError and KafkaError."""
    admin, job = Admin(cluster), place.job
    partitions = admin.partitions_of(topic)
    known = {each: snapshot.next_offset(job, each) for each in partitions}
    new = [each for each, offset in known.items() if offset is None]
    begins = admin.list_offsets(dict.fromkeys(new, EARLIEST)) if new else {}
    starts = {each: int(begins[each].offset) if offset is None else offset for each, offset in known.items()}
    if since is not None:
        starts = _not_before(admin, starts, since)
    return WholeTopic(topic, snapshot, job, starts, place.registry)


def find_table(cluster: Cluster, topic: str, table: str | Path | None, job: str) -> FoundTable:
    """The table of a topic: the given one, or that of its definition. Raises InvalidConfig if there is none."""
    if table is not None:
        return FoundTable(Location.of(table), job)
    definition = Definitions(cluster).of(topic)
    if definition is None:
        raise InvalidConfig(f"topic {topic} has no lake table: define one with headrace lake add, or name a table")
    return FoundTable(Location.of(definition.table), definition.job, definition.registry)


def batches(
    bootstrap: str | Sequence[str] | Mapping[str, object],
    topic: str,
    *,
    table: str | Path | None = None,
    job: str = JOB,
    columns: Sequence[str] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    settings: ClientSettings | None = None,
    **options: Any,
) -> pa.RecordBatchReader:
    """All records of a topic in batches, which are read as they are asked for: more than fits into memory.

    `table` and `job` name a table other than that of `headrace lake add`. `columns` are those of the table (None: all).
    `since` (inclusive) and `until` (exclusive) bound the timestamps; a time without a zone is UTC's. `options` are
    those of every client. Raises InvalidConfig, UnsupportedTableError and KafkaError.
    """
    since, until = with_zone(since), with_zone(until)
    admin = Admin(bootstrap, settings, **options)
    try:
        whole = find(admin.cluster, topic, table, job, since)
        schema = _schema(whole.snapshot, columns)
    except BaseException:
        admin.close()
        raise
    rows = _rows(admin, whole, WantedRows(topic, None, since, until), schema)
    return pa.RecordBatchReader.from_batches(schema, rows)


def table(
    bootstrap: str | Sequence[str] | Mapping[str, object],
    topic: str,
    *,
    table: str | Path | None = None,
    columns: Sequence[str] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    **options: Any,
) -> RecordTable:
    """All records of a topic, of its lake table and of the topic, which must fit into memory. See `batches`.

    The result has `to_arrow`, `to_pandas`, `to_polars` and `to_duckdb`.
    """
    read = batches(bootstrap, topic, table=table, columns=columns, since=since, until=until, **options)
    found = read.read_all()
    rescued = found[CORRUPT_COLUMN] if CORRUPT_COLUMN in found.schema.names else None
    return RecordTable(found, 0 if rescued is None else len(rescued) - rescued.null_count)


def with_zone(time: datetime | None) -> datetime | None:
    """A time without a zone is UTC's."""
    return time if time is None or time.tzinfo is not None else time.replace(tzinfo=UTC)


def _rows(admin: Admin, whole: WholeTopic, wanted: WantedRows, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with closing(admin):
        yield from read_rows(whole.snapshot, wanted, schema)
        yield from read_tail(admin.cluster, whole, wanted, schema)


def read_tail(
    cluster: Cluster,
    whole: WholeTopic,
    wanted: WantedRows,
    schema: pa.Schema,
    *,
    read_committed: bool = True,
    records_max: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of the topic behind the table, as its rows. Raises TooMuchError before it reads more than
    `records_max`."""
    known = whole.snapshot.arrow_schema
    log = TopicLog(cluster, whole.topic, headers=HEADERS in known.names, read_committed=read_committed)
    decoder = reading_decoder(known, whole.registry, whole.snapshot.partition_by)
    bounds = log.bounds(list(whole.starts))
    window = _window(wanted)
    keys = {} if window is None else _stable_names(cluster, whole.topic, read_committed)
    starts = {
        each: at if window is None or each not in keys else _times.first_wanted(keys[each], at, window)
        for each, at in sorted(whole.starts.items())
    }
    slices = [Slice(each, at, at, bounds[each].end) for each, at in starts.items() if at < bounds[each].end]
    if records_max is not None and sum(one.size for one in slices) > records_max:
        raise TooMuchError
    for one in slices:
        for records in _wanted_chunks(log, one, window, keys.get(one.partition)):
            batch = _within(decoder.decode(records, one.partition), wanted)
            if batch.num_rows:
                yield fitted(batch, schema)


_times = TailTimes()


def _window(wanted: WantedRows) -> Window | None:
    """The wanted times in ms, which may have more than is wanted; None if all are."""
    if wanted.since is None and wanted.until is None:
        return None
    since, until = wanted.since, wanted.until
    return Window(
        None if since is None else floor(since.timestamp() * 1000),
        None if until is None else ceil(until.timestamp() * 1000),
    )


def _stable_names(cluster: Cluster, topic: str, read_committed: bool) -> dict[TopicPartition, Hashable]:
    """What a partition is called as long as its records stay the same to this reader; none if it has no such name."""
    found = cluster.topic(topic)
    if not any(found.topic_id):
        return {}
    return {
        TopicPartition(topic, one.partition): (found.topic_id, one.partition, one.leader_epoch, read_committed)
        for one in found.partitions
        if one.leader_epoch >= 0
    }


def _wanted_chunks(log: TopicLog, one: Slice, window: Window | None, key: Hashable) -> Iterator[RecordColumns]:
    """The chunks with records of the wanted times: the values of others need not be decoded."""
    at = one.start
    for records in log.read(one):
        if not records.count:
            continue
        if window is None:
            yield records
            continue
        times, end = _times_of(records), min(records.next_offset, one.end)
        if key is not None:
            _times.learn(key, at, end, times)
        at = end
        if window.may_have(times):
            yield records
    if key is not None:
        _times.learn(key, at, one.end, None)


def _times_of(records: RecordColumns) -> Times:
    times = pa.Array.from_buffers(pa.int64(), records.count, [None, pa.py_buffer(records.timestamps_ms)])
    first, last = pc.min_max(times).values()
    return Times(first.as_py(), last.as_py())


def _within(batch: pa.RecordBatch, wanted: WantedRows) -> pa.RecordBatch:
    """The rows of the wanted times."""
    for time, keeps in ((wanted.since, pc.greater_equal), (wanted.until, pc.less)):
        if time is not None:
            times = batch.column("timestamp")
            batch = batch.filter(keeps(times, pa.scalar(time, times.type)))
    return batch


def _schema(snapshot: LoadTable, columns: Sequence[str] | None) -> pa.Schema:
    known = snapshot.arrow_schema
    if columns is None:
        return known
    unknown = [name for name in columns if name not in known.names]
    if unknown or not columns:
        raise InvalidConfig(f"columns={list(columns)}: expected some of {', '.join(known.names)}")
    return pa.schema([known.field(name) for name in columns])


def _not_before(admin: Admin, starts: Mapping[TopicPartition, int], since: datetime) -> dict[TopicPartition, int]:
    """The later of each start and the first record of the time. Records without order in time stay included: the first
    one at or after `since` has no other such record before it. None is beyond the last stable offset, where a reader of
    committed records would find nothing."""
    found = admin.list_offsets(dict.fromkeys(starts, int(since.timestamp() * 1000)), isolation_level=READ_COMMITTED)
    late = [each for each, one in found.items() if one.offset < 0]
    ends = admin.list_offsets(dict.fromkeys(late, LATEST), isolation_level=READ_COMMITTED) if late else {}
    return {each: max(start, int(ends.get(each, found[each]).offset)) for each, start in starts.items()}
