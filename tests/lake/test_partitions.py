"""Lake tables that are divided by time, by key, or by a field."""

import zlib
from pathlib import Path

import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from headrace.client.core.cluster import Cluster
from headrace.client.producer.producer import Producer
from headrace.config.lake_definition import LakeDefinition, decode_definition
from headrace.lake import whole_topic
from headrace.lake.compaction import compact
from headrace.lake.core.roll import Sizes
from headrace.lake.decoders import make_decoder
from headrace.lake.definitions import Definitions
from headrace.lake.delta.delta_table import SchemaChangedError
from headrace.lake.delta.location import Location
from headrace.lake.partitioned_files import PartitionedFiles
from headrace.lake.partitioning import Partitioning
from tests.lake.lakes import opened, rows_of, run_once
from tests.lake.test_lake_command import Lake

HOUR_MS = 3_600_000
FIRST_MS = 1_764_288_000_123  # 2025-11-28, soon after midnight in UTC


def written(broker: str, topic: str, count: int, first: int = 0) -> None:
    """Records that are an hour apart, in turn to each partition of the topic."""
    with Producer(broker) as producer:
        for n in range(first, first + count):
            key = None if n % 4 == 0 else b"k%d" % n
            value = b'{"n": %d, "city": "c%d/%%"}' % (n, n % 3)
            producer.send(topic, value, key, n % 2, timestamp_ms=FIRST_MS + n * HOUR_MS)


def run(broker: str, topic: str, definition: LakeDefinition, **options: object) -> None:
    path = Path(definition.table)
    options |= {"partition_by": definition.partition_by}
    run_once(broker, topic, path, make_decoder=lambda known: make_decoder(definition, known), **options)


def partitions_of(table: Path, column: str) -> dict[object, int]:
    """The rows of each partition, as Delta's log and each file have them, which must agree."""
    found: dict[object, int] = {}
    for one in opened(table).live_files:
        with Location.of(table).open(one.path) as source:
            values = pa.parquet.read_table(source, columns=[column])[column]
        assert {None if each is None else str(each) for each in values.unique().to_pylist()} == {one.values[column]}
        found[one.values[column]] = found.get(one.values[column], 0) + len(values)
    return found


def test_a_table_is_divided_by_day_and_readers_skip_days(broker: str, topic: str, table: Path) -> None:
    definition = LakeDefinition(table=str(table), partition_by="day")
    written(broker, topic, 60)
    run(broker, topic, definition)
    days = {"2025-11-28": 24, "2025-11-29": 24, "2025-11-30": 12}
    assert partitions_of(table, "record_day") == days
    assert {one.path.split("/")[0] for one in opened(table).live_files} == {f"record_day={day}" for day in days}
    delta = DeltaTable(table)
    count = "SELECT record_day, count(*) AS n FROM t GROUP BY record_day ORDER BY 1"
    found = pa.table(QueryBuilder().register("t", delta).execute(count))
    assert dict(zip(*(column.to_pylist() for column in found.columns), strict=True)) == days
    assert polars.scan_delta(str(table)).filter(polars.col("record_day") == "2025-11-30").collect().height == 12


def test_small_files_are_compacted_within_their_partitions(broker: str, topic: str, table: Path) -> None:
    definition = LakeDefinition(table=str(table), partition_by="day")
    for first in (0, 20, 40):
        written(broker, topic, 20, first)
        run(broker, topic, definition)
    before = rows_of(table)
    files = len(opened(table).files)
    assert compact(opened(table))
    assert (files, len(opened(table).files)) == (5, 3)
    assert partitions_of(table, "record_day") == {"2025-11-28": 24, "2025-11-29": 24, "2025-11-30": 12}
    assert rows_of(table) == before


def test_a_table_is_divided_by_key(broker: str, topic: str, table: Path) -> None:
    definition = LakeDefinition(table=str(table), partition_by="bucket:4")
    written(broker, topic, 60)
    run(broker, topic, definition)
    for row in rows_of(table, "key", "key_bucket"):
        key = row["key"]
        assert row["key_bucket"] == (None if key is None else zlib.crc32(bytes(key)) % 4)  # type: ignore[call-overload]
    assert set(partitions_of(table, "key_bucket")) == {None, "0", "1", "2", "3"}


def test_a_table_is_divided_by_a_field_of_a_schema(broker: str, topic: str, table: Path) -> None:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("n", "long"), ("city", "string"))
    ]
    schema = {"type": "struct", "fields": fields}
    definition = LakeDefinition(table=str(table), values="json", schema=schema, partition_by="field:city")
    written(broker, topic, 30)
    with Producer(broker) as producer:
        producer.send(topic, b"no JSON", partition=0)
    run(broker, topic, definition)
    assert partitions_of(table, "city") == {"c0/%": 10, "c1/%": 10, "c2/%": 10, None: 1}
    assert polars.read_delta(str(table)).filter(polars.col("city") == "c1/%")["n"].sum() == sum(range(1, 30, 3))
    inferred = LakeDefinition(table=str(table) + "2", values="json", partition_by="field:city")
    with pytest.raises(SchemaChangedError, match="need a schema file that has it"):
        make_decoder(inferred, None)


def test_the_rows_of_the_topic_have_the_column_of_the_partitions_too(broker: str, topic: str, table: Path) -> None:
    definition = LakeDefinition(table=str(table), values="json", partition_by="hour")
    with Cluster(broker) as cluster:
        Definitions(cluster).put(topic, definition)
    written(broker, topic, 6)
    run(broker, topic, definition)
    written(broker, topic, 6, 6)
    rows = sorted(whole_topic.table(broker, topic).to_arrow().to_pylist(), key=lambda row: row["n"])
    assert [row["record_hour"] for row in rows] == [f"2025-11-28T{hour:02}" for hour in range(12)]


def test_a_time_of_no_calendar_is_in_a_partition_of_its_own() -> None:
    times = pa.array([FIRST_MS * 1000, (1 << 62), -(1 << 62), None], pa.timestamp("us", "UTC"))
    found = Partitioning.of("month").values(pa.record_batch({"timestamp": times}))
    assert found.to_pylist() == ["2025-11", None, None, None]


def test_a_table_keeps_its_partitions(broker: str, topic: str, table: Path) -> None:
    written(broker, topic, 2)
    run(broker, topic, LakeDefinition(table=str(table), partition_by="day"))
    for other in (None, "hour"):
        with pytest.raises(SchemaChangedError, match="has partitions by day, not"):
            run(broker, topic, LakeDefinition(table=str(table), partition_by=other))


def test_the_command_defines_partitions(
    broker: str, topic: str, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = Lake(broker, capsys)
    assert "expected month, day, hour" in lake("add", topic, "--table", str(table), "--partition-by", "year", expect=2)
    assert lake("add", topic, "--table", str(table), "--partition-by", "day")["partition_by"] == "day"
    written(broker, topic, 30)
    assert lake("run", topic, "--once")["files"] == 2
    lake("remove", topic)
    assert "has other partitions (day)" in lake("add", topic, "--table", str(table), expect=2)


@pytest.mark.slow
def test_memory_and_open_files_are_bounded_however_many_partitions(tmp_path: Path) -> None:
    files = PartitionedFiles(Location.of(tmp_path), Sizes(group_bytes=10_000), "p")
    for turn in range(3):
        numbers = pa.array(range(300), pa.int32())
        files.add(pa.record_batch({"p": numbers, "v": pa.array([b"x" * 100] * 300), "turn": pa.array([turn] * 300)}))
        held = list(files._files.values())
        assert sum(each.buffered for each in held) <= 10_000
        assert sum(each.has_open_file for each in held) <= 64
    found = files.finish()
    assert sum(one.rows for one in found) == 900
    assert {one.values["p"] for one in found} == {str(number) for number in range(300)}
    files.discard()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("text", ["year", "bucket:0", "bucket:1025", "field:", "field:a b", "day "])
def test_a_definition_names_partitions_that_there_are(text: str) -> None:
    with pytest.raises(ValueError, match="expected month, day, hour"):
        Partitioning.of(text)
    with pytest.raises(ValueError, match="partition_by is month, day, hour"):
        decode_definition(LakeDefinition("/t", partition_by=text).encoded())
