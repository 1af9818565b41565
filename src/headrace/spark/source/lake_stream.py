"""The readers over a topic and its lake table: a stream begins with the table's first row, and goes over to the live
topic where the table ends. A batch does the same once.

    offsets   0 ........................ table's end ......... log's end
    read by   a task that reads Parquet  | a task that fetches and decodes

Offsets, admission and checkpoint are those of any stream, so nothing is missing or doubled where one goes over to the
other: each large batch asks the newest snapshot where its table ends, and offsets that the table has are read from it;
small batches of what the topic has are read from there. It does no harm if the table grows or is compacted while the
query runs. Rows have the table's columns; records of the
topic get them by the decoder of lake tables. `columns` are those of the table.

Left out: a table that was restored to a version before offsets that a batch had planned (the query fails, and goes on
when it is started again).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from deltalake import Schema
from pyspark.sql.datasource import InputPartition

from headrace.errors import InvalidConfig
from headrace.lake.decoders import reading_decoder
from headrace.lake.decoding import HEADERS
from headrace.lake.delta.delta_table import LoadTable
from headrace.lake.delta.location import Location
from headrace.lake.rows import WantedRows, check_readable, first_offset, fitted, read_rows
from headrace.lake.whole_topic import find_table
from headrace.spark.option_values import OptionError
from headrace.spark.source.cluster_access import ClusterBounds, connect, isolation_level
from headrace.spark.source.offsets import DataLossError, JsonOffsets, offsets_of_json, resolve_ranges, split_ranges
from headrace.spark.source.options import LAKE_OF_TOPIC, SourceOptions, Subscribe
from headrace.spark.source.source import BATCH_ROWS, BatchReader, RangePartition, read_columns
from headrace.spark.source.source import NOTHING as NO_RANGE
from headrace.spark.source.stream import Offsets, StreamReader
from headrace.spark.worker import settle
from headrace.types import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TASK_RECORDS: Final = 2_000_000
"""A partition's history is divided into tasks of so many records, unless the options say otherwise."""


LIVE_RECORDS: Final = 100_000
"""Up to so many records a batch does not look at the table, if the topic has them."""


class LakeTable(NamedTuple):
    """A table, and the name of its progress."""

    uri: str
    job: str
    registry: str | None = None
    """Where the schemas of its values are."""
    schema_json: str = ""
    """Its columns when the query was planned; records of the topic get these."""
    partition_by: str | None = None

    def open(self) -> LoadTable:
        """The newest snapshot."""
        table = LoadTable.open(Location.of(self.uri))
        if table is None:
            raise InvalidConfig(f"there is no table at {self.uri} yet: headrace lake run, or headrace load, makes it")
        check_readable(table)
        return table


NOWHERE: Final = LakeTable("", "")


def find_place(options: SourceOptions) -> LakeTable:
    """The table of the options."""
    with connect(options) as cluster:
        named = None if options.lake == LAKE_OF_TOPIC else options.lake
        found = find_table(cluster, _topic(options), named, options.lake_job)
    place = LakeTable(str(found.location.directory or found.location.uri), found.job, found.registry)
    table = place.open()
    return place._replace(schema_json=table.schema_json, partition_by=table.partition_by)


def lake_schema(options: SourceOptions) -> "StructType":
    """The columns of the table, or those of the options. Each may be null, as in any source."""
    from pyspark.sql.types import StructField, StructType

    found = StructType.fromJson(json.loads(find_place(options).schema_json))
    known = {field.name: StructField(field.name, field.dataType) for field in found.fields}
    names = list(known) if options.lake_columns is None else options.lake_columns
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise OptionError("columns", ",".join(names), f"name some of {','.join(known)}")
    return StructType([known[name] for name in dict.fromkeys(names)])


class LakePartition(InputPartition):
    """The input of a task that reads the table."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(tuple(wanted))


class _Rows:
    """What a task does: rows of a range, from the table or from the topic."""

    def __init__(self, options: SourceOptions, place: LakeTable, schema_json: str) -> None:
        self._options, self._place, self._schema_json = options, place, schema_json

    def planned(self, ranges: Iterable[OffsetRange]) -> Sequence[InputPartition]:
        """The tasks of ranges. The newest snapshot says where its table ends."""
        table = self._place.open()
        rows_max = self._options.max_records_per_partition or TASK_RECORDS
        found: list[InputPartition] = []
        for wanted in ranges:
            edge = table.next_offset(self._place.job, TopicPartition(wanted.topic, wanted.partition)) or 0
            if wanted.start < edge:
                history = wanted._replace(end=min(edge, wanted.end))
                found += [LakePartition(part) for part in split_ranges([history], None, rows_max)]
            if edge < wanted.end:
                found.append(RangePartition(wanted._replace(start=max(edge, wanted.start))))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        settle()
        schema = _arrow_schema(self._schema_json)
        if isinstance(partition, RangePartition):
            wanted = partition.range
            return self._live(wanted, schema) if wanted.size else iter(())
        table, wanted = self._place.open(), OffsetRange(*partition.value)
        end = table.next_offset(self._place.job, TopicPartition(wanted.topic, wanted.partition)) or 0
        if end < wanted.end:
            raise DataLossError(
                f"the table {self._place.uri} had offsets up to {wanted.end} of {wanted.topic}-{wanted.partition}, and "
                f"ends at {end} now, so it was restored to an older version: start the query again"
            )
        return read_rows(table, WantedRows(wanted.topic, wanted), schema, BATCH_ROWS)

    def _live(self, wanted: OffsetRange, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Records of the topic as rows of the table."""
        known = pa.schema(Schema.from_json(self._place.schema_json).to_arrow())
        names = self._options.columns
        names = (*names, HEADERS) if HEADERS in known.names and HEADERS not in names else names
        with connect(self._options) as cluster:
            decoder = reading_decoder(known, self._place.registry, self._place.partition_by)
            for columns in read_columns(cluster, replace(self._options, columns=names), wanted):
                yield fitted(decoder.decode(columns, TopicPartition(wanted.topic, wanted.partition)), schema)


class LakeStreamReader(StreamReader):
    """Reads the table up to its end, and the topic from there, in batches that go on."""

    def __init__(self, options: SourceOptions, place: LakeTable, schema_json: str) -> None:
        super().__init__(options)
        self._place, self._schema_json = place, schema_json
        self._rows = _Rows(options, place, schema_json)
        self._is_live = False

    def __reduce__(self) -> tuple[type["LakeStreamReader"], tuple[SourceOptions, LakeTable, str]]:  # type: ignore[override]
        return LakeStreamReader, (self._options, self._place, self._schema_json)

    def _log_bounds(self) -> ClusterBounds:
        level = isolation_level(self._options.client_settings)
        return (
            ClusterBounds(self._cluster(), level) if self._is_live else WholeBounds(self._cluster(), level, self._place)
        )

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
        self._is_live = True
        try:
            if self._is_small_and_in_log(offsets_of_json(start), offsets_of_json(end)):
                return super().partitions(start, end)
        finally:
            self._is_live = False
        ranges = [each.range for each in super().partitions(start, end) if isinstance(each, RangePartition)]
        return self._rows.planned(ranges) if ranges else []

    def _is_small_and_in_log(self, starts: Offsets, ends: Offsets) -> bool:
        """Whether a batch is of the topic's newest records: then the table need not be asked."""
        if starts.keys() != ends.keys() or sum(ends[each] - starts[each] for each in ends) > LIVE_RECORDS:
            return False
        earliest = self._log_bounds().earliest(self._partitions())
        return all(earliest.get(each, 1 << 62) <= at for each, at in starts.items())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows.read(partition)


class LakeBatchReader(BatchReader):
    """Reads the table up to its end, and the topic from there, once."""

    def __init__(self, options: SourceOptions, place: LakeTable, schema_json: str) -> None:
        super().__init__(options)
        self._place = place
        self._rows = _Rows(options, place, schema_json)

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with connect(options) as cluster:
            bounds = WholeBounds(cluster, isolation_level(options.client_settings), self._place)
            ranges = resolve_ranges(options, bounds)
        parts = split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
        return self._rows.planned(parts) or [RangePartition(NO_RANGE)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows.read(partition)


@dataclass(frozen=True, slots=True)
class WholeBounds(ClusterBounds):
    """The bounds of a topic together with its table: the earliest offset, and that of a time, may be in the table."""

    place: LakeTable = NOWHERE

    def earliest(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        found = ClusterBounds.earliest(self, partitions)
        table = self.place.open()
        first = {each: first_offset(table, _all_of(each)) for each in partitions if self._has(table, each)}
        return {each: min(offset, first[each] or 0) if each in first else offset for each, offset in found.items()}

    def at_time(self, timestamps_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        found = ClusterBounds.at_time(self, timestamps_ms)
        table = self.place.open()
        return {each: self._at_time(table, each, timestamps_ms[each], offset) for each, offset in found.items()}

    def _at_time(self, table: LoadTable, partition: TopicPartition, time_ms: int, in_log: int | None) -> int | None:
        """The first offset of a file with rows of the time, which may be a little early; else that of the log."""
        if not self._has(table, partition):
            return in_log
        since = datetime.fromtimestamp(time_ms / 1000, UTC)
        in_table = first_offset(table, _all_of(partition)._replace(since=since))
        return min((each for each in (in_table, in_log) if each is not None), default=None)

    def _has(self, table: LoadTable, partition: TopicPartition) -> bool:
        return table.next_offset(self.place.job, partition) is not None


def _all_of(partition: TopicPartition) -> WantedRows:
    return WantedRows(partition.topic, OffsetRange(*partition, 0, 1 << 62))


def _topic(options: SourceOptions) -> str:
    assert isinstance(options.selection, Subscribe)
    return options.selection.topics[0]


def _arrow_schema(schema_json: str) -> pa.Schema:
    """The Arrow schema that Spark makes of its own."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    return to_arrow_schema(StructType.fromJson(json.loads(schema_json)), timezone="UTC")
