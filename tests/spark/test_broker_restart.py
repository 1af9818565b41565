"""A broker that is killed and comes back later: jobs of Spark wait for it, whatever they are about to do."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.client.producer.producer import Producer
from headrace.spark.source.options import parse_options
from headrace.spark.source.source import BatchReader
from tests import rotation
from tests.eventually import eventually_equal
from tests.harness import HeadraceServer
from tests.spark.conftest import fill_readings

pytestmark = [pytest.mark.spark, pytest.mark.slow]
DOWN_SECONDS = 3.0
"""Longer than the pauses between the attempts of a task, and than what Spark needs to start one."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    """A broker of this module's own, with 30 and 10 records."""
    started = HeadraceServer(tmp_path_factory.mktemp("restarted") / "data").start()
    fill_readings(started.bootstrap, "t", {0: 30, 1: 10})
    yield started
    started.stop()


@contextmanager
def outage(server: HeadraceServer) -> Iterator[None]:
    """Kills the broker, and starts it again after a while; returns once it is there."""
    server.kill()
    restart = threading.Timer(DOWN_SECONDS, server.restart)
    restart.start()
    try:
        yield
    finally:
        restart.join()


def read(spark: SparkSession, server: HeadraceServer) -> DataFrame:
    options = {"kafka.bootstrap.servers": server.bootstrap, "subscribe": "t"}
    return spark.read.format("headrace").options(**options).load()


def test_a_batch_waits_for_the_broker_while_it_is_planned(spark: SparkSession, server: HeadraceServer) -> None:
    frame = read(spark, server)
    with outage(server):
        assert frame.count() == 40


def test_tasks_wait_for_the_broker(server: HeadraceServer) -> None:
    """A task has connections of its own, so it has never reached a broker before."""
    reader = BatchReader(parse_options({"kafka.bootstrap.servers": server.bootstrap, "subscribe": "t"}))
    tasks = reader.partitions()
    with outage(server):
        assert sum(batch.num_rows for task in tasks for batch in reader.read(task)) == 40


@pytest.mark.parametrize("mode", rotation.in_turn({"idempotent": "true"}, {"transactional": "true"}))
def test_a_write_waits_for_the_broker(spark: SparkSession, server: HeadraceServer, mode: dict[str, str]) -> None:
    topic = f"copies-{next(iter(mode))}"
    fill_readings(server.bootstrap, topic, {0: 0})
    options = {"kafka.bootstrap.servers": server.bootstrap, "topic": topic, **mode}
    rows = spark.range(25).selectExpr("CAST(id AS STRING) AS value")
    with outage(server):
        rows.write.format("headrace").options(**options).mode("append").save()
    written = spark.read.format("headrace").option("kafka.bootstrap.servers", server.bootstrap)
    committed = written.options(subscribe=topic, **{"kafka.isolation.level": "read_committed"}).load()
    assert Counter(row.value for row in committed.collect()) == Counter(b"%d" % number for number in range(25))


def test_a_stream_goes_on_after_outages(spark: SparkSession, server: HeadraceServer, tmp_path: Path) -> None:
    fill_readings(server.bootstrap, "streamed", {0: 5})
    seen: list[int] = []
    options = {"kafka.bootstrap.servers": server.bootstrap, "subscribe": "streamed", "startingOffsets": "earliest"}
    stream = spark.readStream.format("headrace").options(**options).load()

    def keep(frame: DataFrame, _batch: int) -> None:
        seen.extend(row.offset for row in frame.collect())

    query = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        eventually_equal(lambda: sorted(seen), list(range(5)))
        for already in (5, 6):
            with outage(server):
                pass
            with Producer(server.bootstrap) as producer:
                producer.send("streamed", b"more")
            eventually_equal(lambda: sorted(seen), list(range(already + 1)))
        assert query.exception() is None
    finally:
        query.stop()
