"""Rows to topics: `write_rows`, which is a task's work, by itself, and then Spark around it."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from headrace.client.consumer.reader import ReadOptions, read_range
from headrace.client.operations.admin import Admin, NewTopic
from headrace.client.operations.group_admin import GroupAdmin
from headrace.client.producer.partitioner import partition_for_key
from headrace.records.format2.columns import BinaryColumn
from headrace.spark.option_values import OptionError
from headrace.spark.sink.sink import write_rows
from headrace.spark.sink.sink_errors import SinkGroupError
from headrace.spark.sink.sink_marks import Attempt, Mark
from headrace.spark.sink.sink_options import SinkOptions, parse_sink_options
from headrace.types import TopicPartition
from tests import rotation
from tests.eventually import eventually
from tests.spark.conftest import ROWS, TOPIC, Read, fill_readings, key_of, value_of

MARK = Mark("a-write", 7, 3)
HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
TYPES = {"binary": BinaryType(), "string": StringType(), "int": IntegerType(), "bigint": LongType(), "headers": HEADERS}


@pytest.fixture
def topic(broker: str, request: pytest.FixtureRequest) -> str:
    """An empty topic of this test's own with two partitions."""
    return new_topic(broker, f"sink-{abs(hash(request.node.name))}")


def new_topic(broker: str, name: str) -> str:
    with Admin(broker) as admin:
        admin.create_topics([NewTopic(name, 2)])
    return name


def contents(broker: str, topic: str) -> list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
    """Every record: partition, key, value, headers."""
    found = []
    with Admin(broker) as admin:
        ends = admin.watermarks([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        for partition, (start, end) in ends.items():
            for columns in read_range(admin.cluster, partition, start, end, ReadOptions(headers=True)):
                assert columns.headers is not None
                lists = memoryview(columns.headers.list_offsets).cast("B").cast("i")
                for row in range(columns.count):
                    headers = [
                        ((columns.headers.keys.value(at) or b"").decode(), columns.headers.values.value(at))
                        for at in range(lists[row], lists[row + 1])
                    ]
                    found.append((partition.partition, value(columns.keys, row), value(columns.values, row), headers))
    return found


def value(column: BinaryColumn | None, row: int) -> bytes | None:
    return None if column is None else column.value(row)


def values(broker: str, topic: str) -> Counter[bytes | None]:
    return Counter(row[2] for row in contents(broker, topic))


def options(broker: str, topic: str | None = None, schema: str = "value binary", **more: str) -> SinkOptions:
    given = {"kafka.bootstrap.servers": broker, **({"topic": topic} if topic else {}), **more}
    return parse_sink_options(given, columns_of(schema), overwrite=False)


def columns_of(schema: str) -> StructType:
    """`key binary, value binary` without a Spark session to parse it."""
    pairs = [column.split() for column in schema.split(", ")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in pairs])


def rows(*given: bytes | None, **columns: list[Any]) -> pa.RecordBatch:
    types = {"partition": pa.int32()}
    arrays = {name: pa.array(column, types.get(name)) for name, column in columns.items()}
    return pa.RecordBatch.from_pydict({"value": pa.array(given, pa.binary()), **arrays})


def test_rows_arrive_with_keys_headers_and_nulls(broker: str, topic: str) -> None:
    batch = rows(b"a", None, b"c", key=[b"k", b"l", None], headers=[[{"key": "h", "value": b"1"}], None, []])
    schema = "key binary, value binary, headers headers"
    written = write_rows(options(broker, topic, schema), MARK, iter([batch]))
    assert (written.rows, written.found) == (3, 0)
    found = {row[2]: row for row in contents(broker, topic)}
    assert found[b"a"] == (partition_for_key(b"k", 2), b"k", b"a", [("h", b"1")])
    assert found[None] == (partition_for_key(b"l", 2), b"l", None, [])
    assert found[b"c"][1:] == (None, b"c", [])


def test_text_is_written_as_utf_8(broker: str, topic: str) -> None:
    batch = pa.RecordBatch.from_pydict({"key": ["ключ"], "value": ["täglich"]})
    write_rows(options(broker, topic, "key string, value string"), MARK, iter([batch]))
    assert [row[1:3] for row in contents(broker, topic)] == [("ключ".encode(), "täglich".encode())]


def test_the_column_partition_says_where_a_row_goes_and_order_is_kept(broker: str, topic: str) -> None:
    batch = rows(*(b"%d" % n for n in range(9)), partition=[n % 2 for n in range(8)] + [None])
    write_rows(options(broker, topic, "value binary, partition int"), MARK, iter([batch]))
    found = contents(broker, topic)
    for partition in (0, 1):
        mine = [int(row[2] or b"") for row in found if row[0] == partition and row[2] != b"8"]
        assert mine == list(range(partition, 8, 2))
    assert len(found) == 9


def test_the_column_topic_says_where_a_row_goes_unless_the_option_does(broker: str, topic: str) -> None:
    other = new_topic(broker, f"{topic}-other")
    batch = rows(b"1", b"2", b"3", topic=[topic, other, topic])
    write_rows(options(broker, schema="value binary, topic string"), MARK, iter([batch]))
    assert (values(broker, topic), values(broker, other)) == (Counter([b"1", b"3"]), Counter([b"2"]))
    write_rows(options(broker, other, "value binary, topic string"), MARK._replace(batch=8), iter([batch]))
    assert values(broker, other) == Counter([b"2", b"1", b"2", b"3"])
    with pytest.raises(ValueError, match="a row has a null topic"):
        write_rows(options(broker, schema="value binary, topic string"), MARK, iter([rows(b"1", topic=[None])]))


def test_a_task_that_runs_again_writes_only_what_is_missing(broker: str, topic: str) -> None:
    everything = [b"%d" % (n // 2) for n in range(40)]  # each value twice
    chosen = options(broker, topic)
    assert write_rows(chosen, MARK, iter([rows(*everything[:13])])).rows == 13
    again = write_rows(chosen, MARK, iter([rows(*everything[20:]), rows(*everything[:20])]))  # in another order
    assert (again.rows, again.found) == (27, 13)
    assert values(broker, topic) == Counter(everything)
    assert write_rows(chosen, MARK, iter([rows(*everything)])).rows == 0
    assert values(broker, topic) == Counter(everything)


def test_what_others_wrote_meanwhile_is_not_taken_for_ones_own(broker: str, topic: str) -> None:
    chosen = options(broker, topic)
    write_rows(chosen, MARK, iter([rows(b"a")]))
    for other in (MARK._replace(write="b"), MARK._replace(batch=8), MARK._replace(task=4)):
        assert write_rows(chosen, other, iter([rows(b"a")])).rows == 1
    assert write_rows(chosen, MARK._replace(batch=8), iter([rows(b"a", b"b")])).rows == 1
    assert values(broker, topic) == Counter({b"a": 4, b"b": 1})


def test_headers_and_keys_tell_rows_apart(broker: str, topic: str) -> None:
    schema = "key binary, value binary, headers headers"
    chosen = options(broker, topic, schema)
    one = rows(b"v", b"v", key=[b"k", None], headers=[[{"key": "h", "value": b"1"}], None])
    two = rows(b"v", b"v", b"v", key=[b"k", None, b"k"], headers=[[{"key": "h", "value": b"2"}], None, None])
    assert write_rows(chosen, MARK, iter([one])).rows == 2
    assert write_rows(chosen, MARK, iter([two])).rows == 2


def test_without_idempotence_nothing_is_left_out(broker: str, topic: str) -> None:
    chosen = options(broker, topic, idempotent="false")
    for _ in range(2):
        write_rows(chosen, MARK, iter([rows(b"a")]))
    assert values(broker, topic) == Counter({b"a": 2})


def test_records_are_the_same_as_without_idempotence(broker: str, topic: str) -> None:
    write_rows(options(broker, topic), MARK, iter([rows(b"a")]))
    assert [row[1:] for row in contents(broker, topic)] == [(None, b"a", [])]


def test_a_task_that_failed_at_any_point_leaves_every_row_once(broker: str, topic: str) -> None:
    """Rows leave while the task runs, and some are on their way when it fails."""
    everything = [b"%d" % (n // 3) for n in range(3000)]
    chosen = options(broker, topic, **{"kafka.batch.size": "512", "kafka.linger.ms": "0"})

    def failing_after(count: int) -> Iterator[pa.RecordBatch]:
        for start in range(0, count, 100):
            yield rows(*everything[start : start + 100])
        if count == 2500:
            eventually(lambda: contents(broker, topic), "some rows have left")
        raise RuntimeError("the task fails")

    for count in (0, 1000, 300, 2500):
        with pytest.raises(RuntimeError, match="the task fails"):
            write_rows(chosen, MARK, failing_after(count))
    done = write_rows(chosen, MARK, iter([rows(*everything)]))
    assert done.rows + done.found == len(everything) and done.found
    assert values(broker, topic) == Counter(everything)


def test_the_producer_ids_of_all_runs_are_noted(broker: str, topic: str) -> None:
    mark = MARK._replace(write=topic)
    other = new_topic(broker, f"{topic}-other")
    chosen = options(broker, schema="value binary, topic string")
    for _ in range(3):
        write_rows(
            chosen, mark, iter([rows(b"1", topic=[topic]), rows(b"2", topic=[other]), rows(b"3", topic=[topic])])
        )
    write_rows(chosen, mark._replace(task=4), iter([rows(b"4", topic=[topic])]))
    with Admin(broker) as admin:
        noted = GroupAdmin(admin.cluster).committed(mark.group_id)
        (batch, ids), *others = {tuple(place.metadata.split()) for place in noted.values()}
        assert (batch, others) == ("7", [])
        mine = ReadOptions(producer_ids=frozenset(map(int, ids.split(","))))
        found: list[bytes | None] = []
        for partition, (start, end) in admin.watermarks([TopicPartition(topic, n) for n in (0, 1)]).items():
            for columns in read_range(admin.cluster, partition, start, end, mine):
                found += [value(columns.values, row) for row in range(columns.count)]
    assert sorted(found, key=str) == [b"1", b"3"], "and not that of another task"


def test_producer_ids_without_rows_are_dropped_when_they_fill_the_group(broker: str, topic: str) -> None:
    mark = MARK._replace(write=topic)
    chosen = options(broker, topic)
    assert write_rows(chosen, mark, iter([rows(b"a")])).rows == 1
    with Admin(broker) as admin:
        groups = GroupAdmin(admin.cluster)
        noted = groups.committed(mark.group_id)
        (first,) = {place.metadata for place in noted.values()}
        with_rows = first.split()[1]
        idle = [str(1 << 60 | n) for n in range(200)]
        full = f"7 {','.join([*idle[:100], with_rows, *idle[100:]])}"
        assert 3600 < len(full) <= 4096
        groups.commit(mark.group_id, {one: int(place.offset) for one, place in noted.items()}, full)
        for _ in range(2):
            again = write_rows(chosen, mark, iter([rows(b"a", b"b")]))
            assert again.rows + again.found == 2 and again.found
            (after,) = {place.metadata for place in groups.committed(mark.group_id).values()}
            kept = after.split()[1].split(",")
            assert with_rows in kept and idle[-1] in kept and idle[0] not in kept
            assert len(after) < 3700
    assert values(broker, topic) == Counter([b"a", b"b"])


def test_a_task_whose_producer_ids_have_no_room_fails_and_says_what_to_do(broker: str, topic: str) -> None:
    """Nothing is written under an id that is not noted, rather than something twice."""
    mark = MARK._replace(write=topic)
    with Admin(broker) as admin:
        attempt = Attempt(admin.cluster, mark)
        attempt.begin(topic)
        with pytest.raises(SinkGroupError, match=f"group {mark.group_id} has no room .*offset.metadata.max.bytes"):
            for n in range(300):
                attempt.note_producer_id(1 << 60 | n)


@pytest.mark.parametrize("metadata", ["", "7", "7 ", "7 one", "7 1,", "seven 1", f"7 {1 << 70}", "7 1\n"])
def test_a_group_that_somebody_else_wrote_fails_the_task(broker: str, topic: str, metadata: str) -> None:
    mark = MARK._replace(write=topic)
    with Admin(broker) as admin:
        GroupAdmin(admin.cluster).commit(mark.group_id, {TopicPartition(topic, 0): 0}, metadata=metadata)
    with pytest.raises(SinkGroupError) as refused:
        write_rows(options(broker, topic), mark, iter([rows(b"a")]))
    assert all(part in str(refused.value) for part in (mark.group_id, repr(metadata), "headrace group delete"))
    assert not values(broker, topic)


@pytest.mark.parametrize(
    ("schema", "more", "says"),
    [
        ("key binary", {}, "value: the rows have no such column"),
        ("value int", {}, "the column is int, but must be binary or string"),
        ("value binary, partition bigint", {}, "the column is bigint, but must be int"),
        ("value binary, headers string", {}, "must be array<struct<key:string,value:binary>>"),
        ("value binary", {"topic": ""}, "say where the rows go"),
        ("value binary", {"kafka.acks": "2"}, "acks='2'"),
        ("value binary", {"kafka.compression.type": "rar"}, "compression='rar'"),
        ("value binary", {"kafka.acks": "1"}, "the idempotent mode needs all; remove it, or set idempotent=false"),
        ("value binary", {"kafka.enable.idempotence": "false"}, "the idempotent mode needs it"),
        (
            "value binary",
            {"idempotent": "false", "kafka.acks": "1", "kafka.enable.idempotence": "true"},
            "cannot be idempotent",
        ),
        ("value binary", {"kafka.value.serializer": "x"}, "convert them with DataFrame functions"),
        ("value binary", {"kafka.linger.ms": "soon"}, "kafka.linger.ms = 'soon': is a whole number"),
        ("value binary", {"writeId": "a/b"}, "use letters, digits"),
        ("value binary", {"topics": "t"}, "did you mean topic?"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is(schema: str, more: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError) as refused:
        options("b:1", schema=schema, **{"topic": "t", **more})
    assert says in str(refused.value)


def test_a_log_cannot_be_overwritten() -> None:
    with pytest.raises(OptionError, match="only ever appended to"):
        parse_sink_options({}, columns_of("value binary"), overwrite=True)


# -- with Spark around it


def write(frame: DataFrame, broker: str, **more: str) -> None:
    frame.write.format("headrace").option("kafka.bootstrap.servers", broker).options(**more).mode("append").save()


@pytest.mark.spark
@pytest.mark.slow
def test_a_frame_that_was_read_can_be_written(read: Read, readings: str, topic: str) -> None:
    write(read(includeHeaders="true").where("partition = 1"), readings, topic=topic)
    expected = [(1, key_of(n), value_of(1, n), [("n", b"%d" % n), ("odd", None)] if n % 2 else []) for n in range(40)]
    assert contents(readings, topic) == expected


@pytest.mark.spark
@pytest.mark.slow
def test_the_same_write_done_again_under_its_name_adds_nothing(spark: SparkSession, broker: str, topic: str) -> None:
    frame = spark.range(1000).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    for name in ("monday", "monday", "tuesday"):
        write(frame, broker, topic=topic, writeId=name)
    assert values(broker, topic) == Counter({b"%d" % n: 2 for n in range(1000)})


@pytest.mark.spark
@pytest.mark.slow
def test_a_frame_that_cannot_be_written_says_why(spark: SparkSession, broker: str) -> None:
    with pytest.raises(PySparkException, match="but must be binary or string"):
        write(spark.range(1).selectExpr("id AS value"), broker, topic="t")
    with pytest.raises(PySparkException, match="only ever appended to"):
        frame = spark.range(1).selectExpr("CAST(id AS STRING) AS value")
        frame.write.format("headrace").options(**{"kafka.bootstrap.servers": broker}).mode("overwrite").save()


def copy(spark: SparkSession, bootstrap: str, source: str, target: str, checkpoint: Path, **more: str) -> None:
    """Stream what is new from one topic to another."""
    options = {"kafka.bootstrap.servers": bootstrap}
    given = spark.readStream.format("headrace").options(**options, subscribe=source, startingOffsets="earliest").load()
    rows = given.selectExpr("key", "value", "partition")
    query = rows.writeStream.format("headrace").options(**options, topic=target, **more)
    ended = query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert ended.awaitTermination(120)


def forget_last_commit(checkpoint: Path) -> None:
    """As if the driver had been killed when the rows were written and Spark did not know it yet."""
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink()


@pytest.mark.spark
@pytest.mark.slow
def test_a_batch_done_again_after_the_driver_died_leaves_every_row_once(
    spark: SparkSession, readings: str, topic: str, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    copy(spark, readings, TOPIC, topic, checkpoint)
    first = contents(readings, topic)
    assert Counter(row[2] for row in first) == Counter(
        value_of(p, n) for p, count in ROWS.items() for n in range(count)
    )
    forget_last_commit(checkpoint)
    copy(spark, readings, TOPIC, topic, checkpoint)
    assert contents(readings, topic) == first
    forget_last_commit(checkpoint)
    copy(spark, readings, TOPIC, topic, checkpoint, idempotent="false")
    assert len(contents(readings, topic)) == 2 * len(first)


@rotation.on_its_day(1, of=5)
def test_writes_to_apache_kafka_as_well(spark: SparkSession, apache_kafka: str, tmp_path: Path) -> None:
    fill_readings(apache_kafka, "copied")
    new_topic(apache_kafka, "copies")
    checkpoint = tmp_path / "checkpoint"
    copy(spark, apache_kafka, "copied", "copies", checkpoint)
    first = contents(apache_kafka, "copies")
    assert len(first) == 140
    forget_last_commit(checkpoint)
    copy(spark, apache_kafka, "copied", "copies", checkpoint)
    assert contents(apache_kafka, "copies") == first
