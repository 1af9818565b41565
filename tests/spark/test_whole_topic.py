"""One DataFrame over a topic's lake table and the topic itself."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from headrace.client.core.cluster import Cluster
from headrace.client.operations.admin import Admin, NewTopic
from headrace.client.producer.producer import Producer, ProducerSettings
from headrace.config.lake_definition import LakeDefinition
from headrace.errors import InvalidConfig
from headrace.lake.compaction import compact
from headrace.lake.decoders import make_decoder
from headrace.lake.definitions import Definitions
from headrace.spark.option_values import OptionError
from headrace.spark.source.options import parse_options
from headrace.spark.whole_topic import progress_of, topic
from headrace.types import TopicPartition
from tests.harness import unused
from tests.lake.lakes import opened, produce, run_once, value_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def options(broker: str) -> Mapping[str, str]:
    return {"kafka.bootstrap.servers": broker}


def create(bootstrap: str, partitions: int = 2) -> str:
    name = unused("whole")
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions, configs={"retention.ms": "-1"})])
    return name


def places(frame: DataFrame) -> list[tuple[int, int, bytes | None]]:
    found = [(row["partition"], row["offset"], row["value"]) for row in frame.collect()]
    return sorted((partition, offset, None if value is None else bytes(value)) for partition, offset, value in found)


def expected(count: int) -> list[tuple[int, int, bytes | None]]:
    return sorted((n % 2, n // 2, value_of(n)) for n in range(count))


def test_each_record_is_there_once_wherever_it_is(
    spark: SparkSession,
    broker: str,
    options: Mapping[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, table = create(broker), tmp_path / "table"
    produce(broker, name, 100)
    run_once(broker, name, table)
    produce(broker, name, 50, first=100)
    with Admin(broker) as admin:  # retention: the table has them
        admin.delete_records({TopicPartition(name, 0): 30, TopicPartition(name, 1): 50})
    with Producer(broker, ProducerSettings(transactional_id=name)) as producer:
        producer.init_transactions()
        producer.begin()
        producer.send(name, b"aborted", partition=0)
        producer.abort()
    frame = topic(spark, name, options, table=table)
    assert places(frame) == expected(150)
    with monkeypatch.context() as many:
        many.setattr("headrace.spark.whole_topic.TAIL_RECORDS_MAX", 0)
        assert places(topic(spark, name, options, table=table)) == expected(150)
    with monkeypatch.context() as many:
        many.setattr("headrace.spark.whole_topic.TAIL_BYTES_MAX", 100)
        assert places(topic(spark, name, options, table=table)) == expected(150)
    run_once(broker, name, table)  # the frame stays at its snapshot, and the next one has more from the table
    assert places(frame) == places(topic(spark, name, options, table=table)) == expected(150)
    stream = spark.read.format("headrace").options(**options, subscribe=name)
    rest = stream.option("startingOffsets", progress_of(name, options, table=table).starting_offsets).load()
    assert rest.count() == 0


def test_times_bound_both_parts(
    spark: SparkSession,
    broker: str,
    options: Mapping[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, table = create(broker), tmp_path / "table"
    produce(broker, name, 100)
    run_once(broker, name, table)
    produce(broker, name, 50, first=100)
    begin = datetime(1970, 1, 1, tzinfo=UTC)
    plan = ""
    for low, high in ((90, 120), (120, 140), (10, 20), (0, 1000)):
        since, until = (begin + timedelta(seconds=each) for each in (low, high))
        frame = topic(spark, name, options, table=table, since=since.replace(tzinfo=None), until=until)
        assert places(frame) == sorted((n % 2, n // 2, value_of(n)) for n in range(low, min(high, 150)))
        plan = frame.groupBy().count()._jdf.queryExecution().toString()
    assert "PushedFilters: [IsNotNull(timestamp), GreaterThanOrEqual(timestamp" in plan
    assert "Coalesce 1" in plan and "Exchange" not in plan  # few rows: one task, which need not wait for another
    with monkeypatch.context() as few:
        few.setattr("headrace.spark.whole_topic.ROWS_OF_A_TASK", 149)
        many = topic(spark, name, options, table=table)
        assert "Coalesce" not in many._jdf.queryExecution().toString() and places(many) == expected(150)
    before = topic(spark, name, options, table=table, until=begin)
    assert before.collect() == []
    assert "FileScan" not in before._jdf.queryExecution().toString()  # the bounds in the table's log exclude the file


def test_rows_of_other_topics_are_left_out(
    spark: SparkSession, broker: str, options: Mapping[str, str], tmp_path: Path
) -> None:
    name, other, table = create(broker), create(broker), tmp_path / "table"
    for each in (other, name):
        produce(broker, each, 20)
        run_once(broker, each, table)
    assert places(topic(spark, name, options, table=table)) == expected(20)
    assert compact(opened(table))  # now they are in one file
    assert places(topic(spark, name, options, table=table)) == expected(20)


def test_values_of_json_have_the_same_columns_in_both_parts(
    spark: SparkSession, broker: str, options: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = create(broker, 1)
    definition = LakeDefinition(table=str(tmp_path / "table"), values="json")
    with Cluster(broker) as cluster:
        Definitions(cluster).put(name, definition)
    values = [b'{"n": 1, "s": "a", "inner": {"x": [1.5]}}', b'{"n": 2}', b"no JSON", None]
    for turn in range(2):
        with Producer(broker) as producer:
            for value in values:
                producer.send(name, value, b"k")
        if turn == 0:
            run_once(broker, name, tmp_path / "table", make_decoder=lambda known: make_decoder(definition, known))
    by_driver = topic(spark, name, options).orderBy("offset").collect()
    monkeypatch.setattr("headrace.spark.whole_topic.TAIL_RECORDS_MAX", 0)
    rows = [row.asDict(recursive=True) for row in topic(spark, name, options).orderBy("offset").collect()]
    assert [row.asDict(recursive=True) for row in by_driver] == rows
    for row in rows:
        del row["timestamp"], row["offset"]
    assert rows[:4] == rows[4:]
    assert [row["n"] for row in rows[:4]] == [1, 2, None, None]
    assert rows[0]["inner"] == {"x": [1.5]}
    assert bytes(rows[2]["corrupt_value"]) == b"no JSON"
    totals = topic(spark, name, options).groupBy("s").sum("n").orderBy("s").collect()
    assert [tuple(row) for row in totals] == [(None, 4), ("a", 2)]


def test_what_is_missing_is_told(spark: SparkSession, broker: str, options: Mapping[str, str], tmp_path: Path) -> None:
    name = create(broker)
    with pytest.raises(InvalidConfig, match="has no lake table: define one with headrace lake add"):
        topic(spark, name, options)
    with pytest.raises(InvalidConfig, match="there is no table at"):
        topic(spark, name, options, table=tmp_path / "nothing")
    with pytest.raises(InvalidConfig, match="not on a mounted file system"):
        topic(spark, name, options, table="s3://bucket/table")


class Query:
    """A stream over both parts, run again and again over one checkpoint; the rows that it saw, batch by batch."""

    def __init__(self, frame: Callable[[], DataFrame], checkpoint: Path) -> None:
        self._frame, self._checkpoint = frame, checkpoint
        self.batches: list[list[Row]] = []

    def run(self) -> None:
        def keep(frame: DataFrame, _number: int) -> None:
            self.batches.append(frame.collect())

        writer = self._frame().writeStream.foreachBatch(keep).option("checkpointLocation", str(self._checkpoint))
        assert writer.trigger(availableNow=True).start().awaitTermination(120)

    @property
    def rows(self) -> list[Row]:
        return sorted((row for batch in self.batches for row in batch), key=lambda row: (row.partition, row.offset))


def test_a_stream_begins_with_the_history_and_goes_over_to_the_topic(
    spark: SparkSession, broker: str, options: Mapping[str, str], tmp_path: Path
) -> None:
    name, table = create(broker), tmp_path / "table"
    produce(broker, name, 60)
    run_once(broker, name, table)
    with Admin(broker) as admin:  # retention: the table has them
        admin.delete_records({TopicPartition(name, 0): 20, TopicPartition(name, 1): 30})
    produce(broker, name, 20, first=60)
    reading = {**options, "maxOffsetsPerTrigger": "25"}  # so that the last batches are of the topic alone
    query = Query(lambda: topic(spark, name, reading, table=table, stream=True), tmp_path / "checkpoint")
    query.run()
    assert [len(batch) for batch in query.batches if batch] == [25, 25, 25, 5]
    produce(broker, name, 20, first=80)
    run_once(broker, name, table)  # the table has what the query read from the topic, and what it did not read yet
    compact(opened(table))
    produce(broker, name, 20, first=100)
    query.run()
    found = [(row.partition, row.offset, None if row.value is None else bytes(row.value)) for row in query.rows]
    assert found == expected(120)
    since = datetime(1970, 1, 1, second=50, tzinfo=UTC)
    late = Query(
        lambda: topic(spark, name, options, table=table, stream=True, since=since, until=since + timedelta(seconds=60)),
        tmp_path / "late",
    )
    late.run()
    assert [(row.partition, row.offset) for row in late.rows] == sorted((n % 2, n // 2) for n in range(50, 110))


def test_a_stream_has_the_typed_columns_that_are_asked_for(
    spark: SparkSession, broker: str, options: Mapping[str, str], tmp_path: Path
) -> None:
    name, definition = create(broker, 1), LakeDefinition(table=str(tmp_path / "table"), values="json")
    with Cluster(broker) as cluster:
        Definitions(cluster).put(name, definition)
    values = [b'{"n": 1, "inner": {"x": [1.5]}}', b"no JSON", None]
    for turn in range(2):
        with Producer(broker) as producer:
            for value in values:
                producer.send(name, value, b"k")
        if turn == 0:
            run_once(broker, name, tmp_path / "table", make_decoder=lambda known: make_decoder(definition, known))
    wanted = {**options, "columns": "partition,offset,n,inner,corrupt_value,tombstone"}
    query = Query(lambda: topic(spark, name, wanted, stream=True), tmp_path / "checkpoint")
    query.run()
    rows = [row.asDict(recursive=True) for row in query.rows]
    assert [row.pop("offset") for row in rows] == list(range(6))
    assert rows[:3] == rows[3:]
    assert (rows[0]["n"], rows[0]["inner"], bytes(rows[1]["corrupt_value"])) == (1, {"x": [1.5]}, b"no JSON")
    assert [row["tombstone"] for row in rows[:3]] == [False, False, True]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"subscribe": "a,b"}, "reads one topic with its table"),
        ({"subscribePattern": "a"}, "reads one topic with its table"),
        ({"subscribe": "a", "lake": "", "lakeJob": "x"}, "is for reading a lake table"),
    ],
)
def test_options_that_make_no_sense_with_a_table_are_refused(more: dict[str, str], says: str) -> None:
    for streaming in (True, False):
        with pytest.raises(OptionError, match=says):
            parse_options({"kafka.bootstrap.servers": "a:1", "lake": "true", **more}, streaming=streaming)
