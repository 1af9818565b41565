"""Segment files read by Spark without a broker, those of headrace and those of Apache Kafka."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.client.operations.admin import Admin, NewTopic
from headrace.client.producer.producer import Producer, ProducerSettings
from tests import rotation
from tests.spark.conftest import assert_equal_frames, headers_of, key_of, value_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Load = Callable[..., DataFrame]
"""Type of the fixture `load`."""

ROWS = 60
SEGMENTS = {"segment.bytes": "2000", "segment.index.bytes": "4096", "index.interval.bytes": "0", "retention.ms": "-1"}


def fill(bootstrap: str, topic: str, **configs: str) -> None:
    """A topic of two partitions with several segments each, in each codec."""
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 2, configs={**SEGMENTS, **configs})])
    for first, codec in zip(range(0, ROWS, 12), ("none", "gzip", "snappy", "lz4", "zstd"), strict=True):
        with Producer(bootstrap, ProducerSettings(compression=codec, batch_bytes=700)) as producer:
            for n in range(first, first + 12):
                for partition in (0, 1):
                    value, stamp = value_of(partition, n), 1000 * n
                    padded = None if value is None else value + bytes(n) * 3
                    producer.send(topic, padded, key_of(n), partition, timestamp_ms=stamp, headers=headers_of(n))


@pytest.fixture(scope="module")
def files(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a running broker that has the topic `closed`."""
    fill(broker, "closed")
    return data_directory(tmp_path_factory, "spark-broker0/data")


def data_directory(tmp_path_factory: pytest.TempPathFactory, name: str) -> Path:
    """Where a broker that is a fixture keeps its files."""
    return tmp_path_factory.getbasetemp() / name


@pytest.fixture
def load(spark: SparkSession) -> Load:
    """`load(path, option=value, ...)` is a DataFrame of the files there."""

    def frame_of(path: Path, **options: str) -> DataFrame:
        return spark.read.format("headrace").options(**options).load(str(path))

    return frame_of


def from_broker(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
    return spark.read.format("headrace").options(**options).load()


def spans(frame: DataFrame) -> dict[int, tuple[int, int, int]]:
    """First offset, last offset and number of rows of each partition."""
    rows = frame.groupBy("partition").agg({"offset": "min", "partition": "count"}).collect()
    last = {row[0]: row[1] for row in frame.groupBy("partition").agg({"offset": "max"}).collect()}
    return {row["partition"]: (row["min(offset)"], last[row["partition"]], row["count(partition)"]) for row in rows}


def test_all_segments_hold_what_the_broker_gives(spark: SparkSession, load: Load, broker: str, files: Path) -> None:
    frame = load(files, subscribe="closed", segments="all", includeHeaders="true")
    assert frame.rdd.getNumPartitions() >= 4  # one for each segment
    assert_equal_frames(frame, from_broker(spark, broker, "closed"))


def test_closed_segments_are_the_beginning_of_it(load: Load, files: Path) -> None:
    frame = load(files / "closed-1")
    [(partition, (first, last, count))] = spans(frame).items()
    assert (partition, first) == (1, 0)
    assert count == last + 1 and 0 < count < ROWS


def test_the_options_of_a_read_hold_for_files_too(load: Load, files: Path) -> None:
    at = '{"closed":{"0":5,"1":-2}}'
    frame = load(files, subscribe="closed", segments="all", startingOffsets=at, endingTimestamp="40000")
    assert spans(frame) == {0: (5, 39, 35), 1: (0, 39, 40)}
    frame = load(files, assign='{"closed":[1]}', segments="all", startingTimestamp="11500", columns="partition,offset")
    assert spans(frame) == {1: (12, ROWS - 1, ROWS - 12)}
    frame = load(files, subscribe="closed", segments="all", maxRecordsPerPartition="7")
    assert max(map(len, frame.rdd.glom().collect())) <= 7
    assert spans(frame) == {0: (0, ROWS - 1, ROWS), 1: (0, ROWS - 1, ROWS)}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"subscribe": "nothing-like-it"}, "nothing-like-it.*is not among the files"),
        ({"kafka.bootstrap.servers": "b:1"}, "reads files without a broker"),
        ({"kafka.isolation.level": "read_committed"}, "files are read_uncommitted"),
        ({"path": "/nowhere/at/all"}, "no such directory"),
        ({"segments": "some"}, "is closed or all"),
    ],
)
def test_what_cannot_be_read_says_why(spark: SparkSession, files: Path, options: dict[str, str], says: str) -> None:
    with pytest.raises(PySparkException, match=says):
        spark.read.format("headrace").options(**{"path": str(files), **options}).load().collect()


def test_newest_segments_alone_are_not_silently_nothing(load: Load, broker: str, files: Path) -> None:
    with Admin(broker) as admin:
        admin.create_topics([NewTopic("one-segment", 1)])
    directory = files / "one-segment-0"
    with pytest.raises(PySparkException, match="set segments=all"):
        load(directory).collect()
    assert load(directory, segments="all").count() == 0


@rotation.on_its_day(4, of=5)
def test_reads_the_files_of_apache_kafka_as_well(
    spark: SparkSession, load: Load, apache_kafka: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # Apache Kafka refuses segments below 1 MiB, so these roll by time: each record is a second later than the last.
    fill(apache_kafka, "closed", **{"segment.bytes": "1048576", "segment.ms": "15000"})
    files = data_directory(tmp_path_factory, "apache-kafka0/log")
    frame = load(files, subscribe="closed", segments="all", includeHeaders="true")
    assert_equal_frames(frame, from_broker(spark, apache_kafka, "closed"))
    closed = spans(load(files, subscribe="closed"))
    assert {partition: first for partition, (first, _, _) in closed.items()} == {0: 0, 1: 0}
    assert all(last + 1 == count < ROWS for _, last, count in closed.values())
