"""One Spark session, one broker and one topic for all tests here.

The topic `readings` has two partitions. Record n of partition p has timestamp 1000 * n ms and
    key      b"k<n>", null for every third
    value    b"p<p>-<n>", null for every fifth
    headers  ("n", b"<n>") and ("odd", null) for odd n, none for even n
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness import HeadraceServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Read = Callable[..., "DataFrame"]
"""Type of the fixture `read`."""

ROWS = {0: 100, 1: 40}
TOPIC = "readings"


def key_of(n: int) -> bytes | None:
    return None if n % 3 == 0 else b"k%d" % n


def value_of(partition: int, n: int) -> bytes | None:
    return None if n % 5 == 0 else b"p%d-%d" % (partition, n)


def assert_equal_frames(frame: "DataFrame", expected: "DataFrame") -> None:
    """Both have the same rows, in any order."""
    from pyspark.testing import assertDataFrameEqual  # imports pandas, which `make quick` does not need

    assertDataFrameEqual(frame, expected)


def headers_of(n: int) -> list[tuple[str, bytes | None]]:
    return [("n", b"%d" % n), ("odd", None)] if n % 2 else []


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """A local session as the package makes it; `read.format("headrace")` is found without registration."""
    from headrace.spark.session import session

    with_two_tasks = session("headrace tests", master="local[2]", short_lived=True)
    yield with_two_tasks
    with_two_tasks.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a headrace broker of this session's own."""
    server = HeadraceServer(tmp_path_factory.mktemp("spark-broker") / "data")
    try:
        yield server.start().bootstrap
    finally:
        server.stop()


def fill_readings(bootstrap: str, topic: str = TOPIC, rows: dict[int, int] = ROWS) -> None:
    """Make the topic and write its records."""
    from headrace.client.operations.admin import Admin, NewTopic
    from headrace.client.producer.producer import Producer

    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(topic, len(rows), configs={"retention.ms": "-1"})])
    with Producer(bootstrap) as producer:
        for partition, count in rows.items():
            for n in range(count):
                producer.send(
                    topic,
                    value_of(partition, n),
                    key_of(n),
                    partition,
                    timestamp_ms=1000 * n,
                    headers=headers_of(n),
                )


@pytest.fixture(scope="session")
def readings(broker: str) -> str:
    """The address of the broker that holds the topic `readings`."""
    fill_readings(broker)
    return broker


@pytest.fixture
def read(spark: "SparkSession", readings: str) -> Read:
    """`read(option=value, ...)` is a DataFrame of the topic `readings`."""

    def reader(bootstrap: str = readings, **options: str) -> "DataFrame":
        chosen = {} if {"assign", "subscribePattern", "subscribe"} & options.keys() else {"subscribe": TOPIC}
        source = spark.read.format("headrace").option("kafka.bootstrap.servers", bootstrap)
        return source.options(**chosen, **options).load()

    return reader


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Where a test's Delta table will be."""
    return tmp_path / "table"
