"""A topic and its lake table as one, for pandas, polars and DuckDB."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest

from headrace.client.core.cluster import Cluster
from headrace.client.operations.admin import Admin
from headrace.client.producer.producer import Producer
from headrace.config.lake_definition import LakeDefinition
from headrace.errors import InvalidConfig
from headrace.lake import whole_topic
from headrace.lake.core.plan import Slice
from headrace.lake.core.roll import Sizes
from headrace.lake.decoders import make_decoder
from headrace.lake.decoding import RawDecoder
from headrace.lake.definitions import Definitions
from headrace.lake.delta.delta_table import FileStatistics
from headrace.lake.delta.unsupported import UnsupportedTableError
from headrace.lake.rows import WantedRows, fitted, read_rows, rows_about
from headrace.lake.topic_log import TopicLog
from headrace.records.format2.columns import RecordColumns
from headrace.types import OffsetRange, TopicPartition
from tests.lake.lakes import opened, produce, run_once, value_of


def places(table: pa.Table) -> list[tuple[int, int, bytes | None]]:
    return sorted((row["partition"], row["offset"], row["value"]) for row in table.to_pylist())


def expected(numbers: range) -> list[tuple[int, int, bytes | None]]:
    return sorted((n % 2, n // 2, value_of(n)) for n in numbers)


def test_each_record_is_there_once_wherever_it_is(broker: str, topic: str, table: Path) -> None:
    produce(broker, topic, 100)
    run_once(broker, topic, table, sizes=Sizes(group_rows=16))
    produce(broker, topic, 50, first=100)
    with Admin(broker) as admin:  # retention: the table has them
        admin.delete_records({TopicPartition(topic, 0): 30, TopicPartition(topic, 1): 50})
    found = whole_topic.table(broker, topic, table=table)
    assert places(found.to_arrow()) == expected(range(150))
    assert found.to_pandas()["offset"].sum() == 2 * sum(range(75))
    assert polars.DataFrame(found).filter(polars.col("partition") == 1).height == 75
    with whole_topic.batches(broker, topic, table=table, columns=["offset"]) as reader:  # noqa: F841  DuckDB finds it
        counted = duckdb.sql('SELECT count(*), max("offset") FROM reader')
        assert counted is not None
        assert counted.fetchall() == [(150, 74)]


@pytest.mark.parametrize(("low", "high"), [(90, 120), (120, 140), (10, 20), (0, 1000)])
def test_times_bound_both_parts(broker: str, topic: str, table: Path, low: int, high: int) -> None:
    produce(broker, topic, 100)
    run_once(broker, topic, table, sizes=Sizes(group_rows=16))
    produce(broker, topic, 50, first=100)
    since, until = (datetime.fromtimestamp(each, UTC) for each in (low, high))
    found = whole_topic.table(broker, topic, table=table, since=since.replace(tzinfo=None), until=until)
    assert places(found.to_arrow()) == expected(range(low, min(high, 150)))


def test_the_start_of_a_time_is_not_beyond_the_last_stable_offset(broker: str, topic: str, table: Path) -> None:
    produce(broker, topic, 10)
    run_once(broker, topic, table)
    with Producer(broker, transactional_id=f"{topic}-open") as producer, Cluster(broker) as cluster:
        producer.init_transactions()
        producer.begin()
        for number in range(3):
            producer.send(topic, b"open", partition=0, timestamp_ms=100_000 + 1000 * number)
        producer.flush()
        for second in (101, 1000):  # the first record of the time is an open one; there is none
            found = whole_topic.find(cluster, topic, table, since=datetime.fromtimestamp(second, UTC))
            assert found.starts[TopicPartition(topic, 0)] == 5
        producer.commit()
        found = whole_topic.find(cluster, topic, table, since=datetime.fromtimestamp(101, UTC))
        assert found.starts[TopicPartition(topic, 0)] == 6


def test_records_of_other_times_are_not_decoded(
    broker: str, topic: str, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(broker, topic, 10)
    run_once(broker, topic, table)
    produce(broker, topic, 10, first=10)
    decoded: list[int] = []

    class Counting(RawDecoder):
        def decode(self, columns: RecordColumns, partition: TopicPartition) -> pa.RecordBatch:
            decoded.append(columns.count)
            return super().decode(columns, partition)

    monkeypatch.setattr("headrace.lake.whole_topic.reading_decoder", lambda *_: Counting())
    for until, found, read in ((10, 10, []), (11, 11, [5]), (20, 20, [5, 5])):
        decoded.clear()
        rows = whole_topic.table(broker, topic, table=table, until=datetime.fromtimestamp(until, UTC))
        assert (rows.to_arrow().num_rows, decoded) == (found, read)


def test_records_of_other_times_are_read_once(
    broker: str, topic: str, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(broker, topic, 10)
    run_once(broker, topic, table)
    produce(broker, topic, 10, first=20)
    read: list[tuple[int, int, int]] = []

    class Counting(TopicLog):
        def read(self, one: Slice) -> Iterator[RecordColumns]:
            read.append((one.partition.partition, one.start, one.end))
            return super().read(one)

    monkeypatch.setattr("headrace.lake.whole_topic.TopicLog", Counting)

    def found(low: int, high: int) -> pa.Table:
        since, until = (datetime.fromtimestamp(each, UTC) for each in (low, high))
        read.clear()
        return whole_topic.table(broker, topic, table=table, since=since, until=until).to_arrow()

    assert (places(found(0, 10)), read) == (expected(range(10)), [(0, 5, 10), (1, 5, 10)])
    assert (places(found(0, 10)), read) == (expected(range(10)), [])
    produce(broker, topic, 2, first=5)  # late ones: what comes after the known records is read
    late = [(n % 2, 10, value_of(n)) for n in (5, 6)]
    assert (places(found(0, 10)), read) == (sorted(expected(range(10)) + late), [(0, 10, 11), (1, 10, 11)])
    assert (places(found(0, 10)), read) == (sorted(expected(range(10)) + late), [(0, 10, 11), (1, 10, 11)])
    assert (found(25, 27).num_rows, read) == (2, [(0, 8, 11), (1, 7, 11)])
    assert whole_topic.table(broker, topic, table=table).to_arrow().num_rows == 22


def test_row_groups_without_wanted_rows_are_not_read(
    broker: str, topic: str, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(broker, topic, 200)
    run_once(broker, topic, table, sizes=Sizes(group_rows=10))
    read: list[int] = []

    class Counting(pa.parquet.ParquetFile):  # type: ignore[misc]
        def iter_batches(self, *arguments: object, **options: Any) -> object:
            read.extend(options["row_groups"])
            return super().iter_batches(*arguments, **options)

    monkeypatch.setattr("headrace.lake.rows.pq.ParquetFile", Counting)
    wanted = WantedRows(topic, OffsetRange(topic, 1, 40, 45))
    (batch,) = read_rows(opened(table), wanted)
    assert batch.column("offset").to_pylist() == list(range(40, 45))
    assert len(read) == 1
    assert not list(read_rows(opened(table), WantedRows("another")))
    assert len(read) == 1


def test_rows_from_before_a_column_was_added_have_null_there(broker: str, topic: str, table: Path) -> None:
    definition = LakeDefinition(table=str(table), values="json")
    with Cluster(broker) as cluster:
        Definitions(cluster).put(topic, definition)
    turns: list[list[bytes | None]] = [
        [b'{"n": 1, "inner": [{"x": 1}]}', b"{"],
        [b'{"n": 2, "inner": [{"x": 2, "y": "z"}], "new": true}', None],
    ]
    for values in [*turns, turns[1]]:
        with Producer(broker) as producer:
            for value in values:
                producer.send(topic, value, partition=0)
        if values is not turns[1] or len(opened(table).files) < 2:
            run_once(broker, topic, table, make_decoder=lambda known: make_decoder(definition, known))
    found = whole_topic.table(broker, topic)
    rows = sorted(found.to_arrow().to_pylist(), key=lambda row: row["offset"])
    assert [row["n"] for row in rows] == [1, None, 2, None, 2, None]
    assert [row["new"] for row in rows] == [None, None, True, None, True, None]
    assert rows[0]["inner"] == [{"x": 1, "y": None}]
    assert rows[2]["inner"] == rows[4]["inner"] == [{"x": 2, "y": "z"}]
    assert (rows[1]["corrupt_value"], found.rescued_count) == (b"{", 1)
    assert [row["tombstone"] for row in rows] == [False, False, False, True, False, True]


def test_columns_of_slices_are_fitted_by_their_rows() -> None:
    inner = pa.struct([("x", pa.int32())])
    batch = pa.record_batch({"l": pa.array([None, [{"x": 1}], [], [{"x": 2}, None]], pa.list_(inner))})
    wider = pa.schema([("l", pa.list_(pa.struct([("y", pa.string()), ("x", pa.int64())]))), ("other", pa.int8())])
    found = fitted(batch.slice(1), wider).to_pylist()
    assert found == [
        {"l": [{"y": None, "x": 1}], "other": None},
        {"l": [], "other": None},
        {"l": [{"y": None, "x": 2}, None], "other": None},
    ]


def test_what_cannot_be_read_is_told(broker: str, topic: str, table: Path) -> None:
    with pytest.raises(InvalidConfig, match="has no lake table"):
        whole_topic.table(broker, topic)
    with pytest.raises(InvalidConfig, match="there is no table at"):
        whole_topic.table(broker, topic, table=table)
    produce(broker, topic, 2)
    run_once(broker, topic, table)
    with pytest.raises(InvalidConfig, match="expected some of key, value, topic"):
        whole_topic.table(broker, topic, table=table, columns=["valeu"])


def test_a_table_with_deletion_vectors_is_refused(
    broker: str, topic: str, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(broker, topic, 2)
    run_once(broker, topic, table)
    monkeypatch.setattr("headrace.lake.delta.delta_table.LoadTable.has_deletion_vectors", True)
    with pytest.raises(UnsupportedTableError, match="deletion vectors"):
        whole_topic.table(broker, topic, table=table)


def test_rows_of_a_time_are_estimated_from_the_bounds_of_files() -> None:
    def moment(second: int) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)

    def file(first: int, last: int, rows: int | None) -> FileStatistics:
        return FileStatistics("a", None, None, None, (moment(first), moment(last)), rows)

    files = [file(0, 100, 1000), file(100, 100, 7)]
    assert rows_about(files, WantedRows("t")) == 1007
    assert rows_about(files, WantedRows("t", since=moment(90))) == 107
    assert rows_about(files[:1], WantedRows("t", since=moment(20), until=moment(40))) == 200
    assert rows_about([], WantedRows("t")) == 0
    assert rows_about([*files, file(0, 9, None)], WantedRows("t")) is None
    assert rows_about([files[0]._replace(times=None)], WantedRows("t")) is None
