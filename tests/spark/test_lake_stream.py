"""The readers over a topic and its lake table, without a session: which tasks there are, and what they read."""

import pickle
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from headrace.client.operations.admin import Admin, NewTopic
from headrace.lake.core.roll import Sizes
from headrace.lake.delta.delta_table import LoadTable
from headrace.spark.option_values import OptionError
from headrace.spark.source import lake_stream
from headrace.spark.source.lake_stream import LakeBatchReader, LakePartition, LakeStreamReader, find_place, lake_schema
from headrace.spark.source.offsets import DataLossError
from headrace.spark.source.options import parse_options
from headrace.types import TopicPartition
from tests.harness import unused
from tests.lake.lakes import opened, produce, run_once, value_of

pytestmark = pytest.mark.spark


@pytest.fixture
def topic(broker: str) -> str:
    name = unused("lake-stream")
    with Admin(broker) as admin:
        admin.create_topics([NewTopic(name, 2)])
    return name


def reader(broker: str, topic: str, table: Path, **more: str) -> LakeStreamReader:
    given = {"kafka.bootstrap.servers": broker, "subscribe": topic, "lake": str(table), "startingOffsets": "earliest"}
    options = parse_options({**given, **more}, streaming=True)
    made = LakeStreamReader(options, find_place(options), lake_schema(options).json())
    copy: LakeStreamReader = pickle.loads(pickle.dumps(made))  # noqa: S301  as Spark does
    return copy


def rows(reading: LakeStreamReader | LakeBatchReader, parts: Iterable[InputPartition]) -> list[tuple[int, int, bytes]]:
    found = [row for part in parts for batch in reading.read(part) for row in batch.to_pylist()]
    return sorted((row["partition"], row["offset"], row["value"]) for row in found)


def expected(*numbers: range) -> list[tuple[int, int, bytes | None]]:
    return sorted((n % 2, n // 2, value_of(n)) for each in numbers for n in each)


def test_history_is_read_from_the_table_and_the_rest_from_the_topic(
    broker: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "table"
    produce(broker, topic, 60)
    run_once(broker, topic, table, sizes=Sizes(group_rows=8))
    produce(broker, topic, 20, first=60)
    with Admin(broker) as admin:
        admin.delete_records({TopicPartition(topic, 0): 20})
    live = reader(broker, topic, table, maxRecordsPerPartition="13")
    start = live.initialOffset()
    assert start == {topic: {"0": 0, "1": 0}}
    end = live.latestOffset(start, ReadAllAvailable())
    assert end == {topic: {"0": 40, "1": 40}}
    parts = live.partitions(start, end)
    assert [isinstance(each, LakePartition) for each in parts].count(True) == 6
    assert rows(live, parts) == expected(range(80))
    # a small batch of what the topic has does not look at the table
    monkeypatch.setattr(LoadTable, "open", None)
    parts = live.partitions({topic: {"0": 25, "1": 0}}, end)
    assert not any(isinstance(each, LakePartition) for each in parts)
    assert len(rows(live, parts)) == 55
    live.stop()


def test_limits_share_history_and_times_begin_in_it(broker: str, topic: str, tmp_path: Path) -> None:
    table = tmp_path / "table"
    for first in (0, 40):
        produce(broker, topic, 40, first=first)
        run_once(broker, topic, table)
    produce(broker, topic, 10, first=80)
    live = reader(broker, topic, table, maxOffsetsPerTrigger="30")
    end = live.latestOffset(live.initialOffset(), ReadMaxRows(30))
    assert sum(end[topic].values()) == 30
    late = reader(broker, topic, table, startingTimestamp="50000")
    assert late.initialOffset() == {topic: {"0": 20, "1": 20}}, "the first file that has such times"
    later = reader(broker, topic, table, startingTimestamp="85000")
    assert later.initialOffset() == {topic: {"0": 43, "1": 42}}


def test_a_batch_has_both_parts_too(broker: str, topic: str, tmp_path: Path) -> None:
    table = tmp_path / "table"
    produce(broker, topic, 20)
    run_once(broker, topic, table)
    produce(broker, topic, 10, first=20)
    given = {"kafka.bootstrap.servers": broker, "subscribe": topic, "lake": str(table)}
    options = parse_options(given)
    batch = LakeBatchReader(options, find_place(options), lake_schema(options).json())
    assert rows(batch, batch.partitions()) == expected(range(30))
    nothing = parse_options({**given, "endingOffsets": f'{{"{topic}":{{"0":0,"1":0}}}}'})
    empty = LakeBatchReader(nothing, find_place(nothing), lake_schema(nothing).json())
    assert rows(empty, empty.partitions()) == []


def test_a_table_that_was_restored_under_a_batch_fails_it(
    broker: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "table"
    produce(broker, topic, 20)
    run_once(broker, topic, table)
    monkeypatch.setattr(lake_stream, "LIVE_RECORDS", 0)
    live = reader(broker, topic, table)
    start = live.initialOffset()
    parts = live.partitions(start, live.latestOffset(start, ReadAllAvailable()))
    opened(table)._table.restore(0)
    with pytest.raises(DataLossError, match="was restored to an older version"):
        rows(live, parts)
    live.stop()


def test_columns_are_those_of_the_table(broker: str, topic: str, tmp_path: Path) -> None:
    table = tmp_path / "table"
    produce(broker, topic, 2)
    run_once(broker, topic, table)
    given = {"kafka.bootstrap.servers": broker, "subscribe": topic, "lake": str(table)}
    assert lake_schema(parse_options({**given, "columns": "offset,value"})).names == ["offset", "value"]
    with pytest.raises(OptionError, match="name some of key,value,topic"):
        lake_schema(parse_options({**given, "columns": "valeu"}))
