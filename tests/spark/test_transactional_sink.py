"""The transactional sink in Spark: batches, streams, tasks that run twice, drivers that are killed."""

import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import psutil
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.client.core.cluster import Cluster
from headrace.client.operations.transaction_admin import TransactionAdmin, TransactionFilter
from headrace.client.producer.producer import Producer
from headrace.spark.sink.sink_marks import Mark
from headrace.spark.sink.sink_transactions import commit_batch, write_transaction
from tests import rotation
from tests.eventually import eventually, eventually_equal
from tests.spark.killed_sink import ROWS_PER_BATCH, Point, start
from tests.spark.test_sink import contents, forget_last_commit, new_topic, rows, write
from tests.spark.test_sink_transactions import committed, transactional

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def topic(broker: str) -> str:
    """An empty topic of two partitions."""
    return new_topic(broker, f"target-{uuid.uuid4()}")


def filled(broker: str, batches: int) -> tuple[str, Counter[bytes]]:
    """A topic of two partitions with so many batches, and its values."""
    source = new_topic(broker, f"source-{uuid.uuid4()}")
    values = [b"%d" % number for number in range(batches * ROWS_PER_BATCH)]
    with Producer(broker) as producer:
        for number, value in enumerate(values):
            producer.send(source, value, partition=number % 2)
    return source, Counter(values)


def committed_for_confluent_kafka(broker: str, topic: str, count: int) -> Counter[bytes]:
    """The values that librdkafka's read_committed consumer sees, up to the end of both partitions."""
    settings = {"bootstrap.servers": broker, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = confluent_kafka.Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(topic, each, confluent_kafka.OFFSET_BEGINNING) for each in (0, 1)])
    found: Counter[bytes] = Counter()
    ended: set[int | None] = set()
    try:
        while len(ended) < 2:
            for message in consumer.consume(1000, 5.0):
                error = message.error()
                if error is None:
                    found[message.value() or b""] += 1
                else:
                    assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                    ended.add(message.partition())
    finally:
        consumer.close()
    assert found.total() == count
    return found


def states(broker: str, write: str) -> Counter[str]:
    """How many transactions of the write are in each state."""
    with Cluster(broker) as cluster:
        listed = TransactionAdmin(cluster).list_transactions(TransactionFilter(pattern=f"headrace-sink-{write}-.*"))
    return Counter(each.state.removeprefix("Prepare").removeprefix("Complete") for each in listed)


Drive = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def drive(broker: str, topic: str, tmp_path: Path) -> Iterator[Drive]:
    """`drive(point, source)` starts a driver in a process of its own, with tmp_path/checkpoint and a log beside it."""
    drivers = []

    def started(point: Point, source: str) -> "subprocess.Popen[bytes]":
        scratch = str(tmp_path)  # what a killed JVM leaves behind goes with the test
        environment = {**os.environ, "TMPDIR": scratch, "SPARK_LOCAL_DIRS": scratch, "PYTHONPATH": str(ROOT)}
        arguments = [point, broker, source, topic, str(tmp_path / "checkpoint")]
        with (tmp_path / "driver.log").open("ab") as log:
            command = [sys.executable, "-m", "tests.spark.killed_sink", *arguments]
            drivers.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        return drivers[-1]

    yield started
    for driver in drivers:
        if driver.poll() is None:
            kill(driver)


def kill(driver: "subprocess.Popen[bytes]") -> None:
    """Kill the JVM and its starter, not the Python workers: they end when they notice."""
    for process in [*psutil.Process(driver.pid).children(recursive=True), psutil.Process(driver.pid)]:
        try:
            if process.pid == driver.pid or process.name().startswith("java"):
                process.kill()
        except psutil.NoSuchProcess:
            continue
    driver.wait(60)


def finish(spark: SparkSession, broker: str, source: str, target: str, checkpoint: Path, **reading: str) -> None:
    query = start(spark, broker, source, target, checkpoint, reading=reading)
    assert query.awaitTermination(400), f"the query is still at {query.status}, {query.lastProgress}"


def test_a_batch_write_is_committed_once_under_its_name(spark: SparkSession, broker: str, topic: str) -> None:
    frame = spark.range(1000).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value").repartition(2)
    name = uuid.uuid4().hex
    for number in (1, 1, 2):
        write(frame, broker, topic=topic, writeId=f"{name}-{number}", transactional="true")
    write(frame, broker, topic=topic, transactional="true")
    eventually_equal(lambda: committed(broker, topic), Counter({b"%d" % n: 3 for n in range(1000)}))
    assert all(headers == [] for *_, headers in contents(broker, topic))


def test_a_failed_batch_write_is_aborted(spark: SparkSession, broker: str, topic: str) -> None:
    def fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if 900 in batch.column("id").to_pylist():
                raise RuntimeError("the last task fails")

    ids = spark.range(1000).repartitionByRange(2, "id").mapInArrow(fails, "id bigint")
    frame = ids.selectExpr("CAST(id AS STRING) AS value")
    with pytest.raises(PySparkException, match="the last task fails"):
        write(frame, broker, topic=topic, transactional="true", **{"kafka.linger.ms": "0"})
    write(spark.range(1).selectExpr("'after' AS value"), broker, topic=topic, transactional="true")
    eventually_equal(lambda: committed(broker, topic), Counter([b"after"]))


def test_a_zombie_task_is_fenced(spark: SparkSession, broker: str, topic: str) -> None:
    """Another driver does the same write, from beginning to end, while the task of this one is in the middle."""
    write_id = uuid.uuid4().hex
    values = [b"%010000d" % number for number in range(100)]  # large, so that no buffer holds many

    def another_driver_is_faster(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 5:
                eventually(lambda: "Ongoing" in states(broker, write_id), "the zombie's transaction")
                chosen = transactional(broker, topic)
                commit_batch(
                    chosen, [write_transaction(chosen, Mark(write_id, 0, 0), "another", iter([rows(*values)]))]
                )
            yield batch

    frame = spark.range(100).coalesce(1).selectExpr("lpad(CAST(id AS STRING), 10000, '0') AS value")
    batch_size = "spark.sql.execution.arrow.maxRecordsPerBatch"
    usual = spark.conf.get(batch_size)
    spark.conf.set(batch_size, "10")
    try:
        with pytest.raises(PySparkException, match="INVALID_PRODUCER_EPOCH|PRODUCER_FENCED"):
            zombie = frame.mapInArrow(another_driver_is_faster, "value string")
            write(zombie, broker, topic=topic, writeId=write_id, transactional="true")
    finally:
        spark.conf.set(batch_size, usual or "")
    eventually_equal(lambda: committed(broker, topic), Counter(values))


def test_a_batch_that_spark_believes_unfinished_adds_nothing(
    spark: SparkSession, broker: str, topic: str, tmp_path: Path
) -> None:
    source, expected = filled(broker, 2)
    checkpoint = tmp_path / "checkpoint"
    for _ in range(2):
        finish(spark, broker, source, topic, checkpoint)
        eventually_equal(lambda: committed(broker, topic), expected)
        forget_last_commit(checkpoint)
    assert all(headers == [] for *_, headers in contents(broker, topic))


@pytest.mark.parametrize(
    ("point", "left", "reading"),
    [
        pytest.param(point, left, reading, marks=rotation.unless_today(number, 3), id=point)
        for number, (point, left, reading) in enumerate(
            [
                (Point.BEFORE_DECISION, {"Ongoing": 2}, {"minPartitions": "1"}),
                (Point.BETWEEN, {"Ongoing": 1, "Commit": 1}, {"minPartitions": "5"}),
            ]
        )
    ],
)
def test_a_killed_driver_leaves_every_row_once(
    spark: SparkSession,
    broker: str,
    topic: str,
    tmp_path: Path,
    drive: Drive,
    point: Point,
    left: dict[str, int],
    reading: dict[str, str],
) -> None:
    """Also if the batch is planned with other tasks when it is done again."""
    source, expected = filled(broker, 3)
    checkpoint = tmp_path / "checkpoint"
    driver = drive(point, source)
    assert driver.wait(400) == -9, (tmp_path / "driver.log").read_text()[-3000:]
    assert (checkpoint / "commits" / "0").exists()
    assert not (checkpoint / "commits" / "1").exists()
    query_id = json.loads((checkpoint / "metadata").read_text())["id"]
    eventually_equal(lambda: states(broker, query_id), Counter(left))
    finish(spark, broker, source, topic, checkpoint, **reading)
    eventually_equal(lambda: committed(broker, topic), expected)
    assert committed_for_confluent_kafka(broker, topic, expected.total()) == expected


@pytest.mark.parametrize(
    "kills", [pytest.param(2, marks=rotation.unless_today(2, 3)), pytest.param(10, marks=pytest.mark.soak)]
)
def test_a_driver_killed_again_and_again_leaves_every_row_once(
    spark: SparkSession, broker: str, topic: str, tmp_path: Path, drive: Drive, kills: int
) -> None:
    source, expected = filled(broker, 40 * kills)
    checkpoint = tmp_path / "checkpoint"
    chance, done, log = random.Random(kills), 0, tmp_path / "driver.log"
    for _ in range(kills):
        driver = drive(Point.NEVER, source)
        eventually(is_working(driver, checkpoint, done), "a batch", within_s=400, state=log.read_text)
        time.sleep(chance.uniform(0, 1.5))
        kill(driver)
        done = commits(checkpoint)
    assert done < 40 * kills, "the driver was to be killed in the middle"
    finish(spark, broker, source, topic, checkpoint, maxOffsetsPerTrigger=str(expected.total()))
    eventually_equal(lambda: committed(broker, topic), expected)
    assert committed_for_confluent_kafka(broker, topic, expected.total()) == expected


def is_working(driver: "subprocess.Popen[bytes]", checkpoint: Path, done: int) -> Callable[[], bool]:
    """Whether the driver has committed another batch than the first `done`."""

    def answer() -> bool:
        assert driver.poll() is None, "the driver has ended"
        return commits(checkpoint) > done

    return answer


def commits(checkpoint: Path) -> int:
    """The number of batches that Spark knows as committed."""
    return len(list((checkpoint / "commits").glob("[0-9]*")))


@rotation.on_its_day(3, of=5)
def test_streams_to_apache_kafka_as_well(spark: SparkSession, apache_kafka: str, tmp_path: Path) -> None:
    source, expected = filled(apache_kafka, 2)
    target = new_topic(apache_kafka, f"target-{uuid.uuid4()}")
    checkpoint = tmp_path / "checkpoint"
    for _ in range(2):
        finish(spark, apache_kafka, source, target, checkpoint)
        eventually_equal(lambda: committed(apache_kafka, target), expected)
        assert committed_for_confluent_kafka(apache_kafka, target, expected.total()) == expected
        forget_last_commit(checkpoint)
