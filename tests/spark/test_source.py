"""`spark.read.format("headrace")` against a real broker."""

from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.client.consumer.arrow import arrow_schema
from headrace.spark.source.options import COLUMNS
from headrace.spark.source.schema import schema_ddl
from tests import rotation
from tests.spark.conftest import ROWS, TOPIC, Read, assert_equal_frames, fill_readings, headers_of, key_of, value_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def offsets(frame: DataFrame) -> dict[int, list[int]]:
    """The offsets of each partition, in order."""
    found: dict[int, list[int]] = {}
    for partition, offset in sorted(tuple(row) for row in frame.select("partition", "offset").collect()):
        found.setdefault(partition, []).append(offset)
    return found


def span(start: int, end: int) -> list[int]:
    return list(range(start, end))


def test_the_schema_is_that_of_sparks_kafka_connector(read: Read) -> None:
    documented = (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
    )
    assert read().schema == StructType.fromDDL(documented)
    with_headers = StructType.fromDDL(f"{documented}, headers array<struct<key: string, value: binary>>")
    assert read(includeHeaders="true").schema == with_headers


def test_our_arrow_schema_is_what_spark_makes_of_the_same_columns(spark: SparkSession) -> None:
    columns = (*COLUMNS, "headers")
    sparks_type = StructType.fromDDL(schema_ddl(columns))
    assert isinstance(sparks_type, StructType)
    sparks = to_arrow_schema(sparks_type, timezone="UTC")
    assert arrow_schema(columns).equals(sparks)


def test_every_record_comes_back_as_it_was_written(spark: SparkSession, read: Read) -> None:
    expected = [
        (key_of(n), value_of(p, n), TOPIC, p, n, datetime.fromtimestamp(n, UTC).replace(tzinfo=None), 0)
        for p, count in ROWS.items()
        for n in range(count)
    ]
    assert_equal_frames(read(), spark.createDataFrame(expected, schema_ddl(COLUMNS)))


def test_headers_come_back_with_their_null_values(read: Read) -> None:
    rows = read(includeHeaders="true").where("partition = 1").collect()
    assert len(rows) == ROWS[1]
    for row in rows:
        got = [(header.key, None if header.value is None else bytes(header.value)) for header in row.headers or ()]
        assert got == headers_of(row.offset)


def test_a_record_without_headers_has_null_headers(read: Read) -> None:
    assert read(includeHeaders="true").where("headers IS NULL AND offset % 2 = 0").count() == sum(ROWS.values()) // 2


def test_only_the_columns_asked_for_are_read(read: Read) -> None:
    frame = read(columns="offset,value")
    assert frame.columns == ["offset", "value"]
    assert {(row.offset, row.value and bytes(row.value)) for row in frame.collect()} == {
        (n, value_of(p, n)) for p, count in ROWS.items() for n in range(count)
    }


@pytest.mark.parametrize("column", [*COLUMNS, "headers"])
def test_each_column_can_be_read_alone(read: Read, column: str) -> None:
    assert read(columns=column).count() == sum(ROWS.values())


def test_assign_reads_these_partitions_only(read: Read) -> None:
    assert offsets(read(assign=f'{{"{TOPIC}":[1]}}')) == {1: span(0, 40)}


def test_subscribe_pattern_reads_topics_whose_whole_name_matches(read: Read, broker: str) -> None:
    fill_readings(broker, "readings-too", {0: 3})
    topics = read(subscribePattern="readings.*").select("topic").distinct().collect()
    assert {row.topic for row in topics} == {"readings", "readings-too"}
    assert offsets(read(subscribePattern="readings.too")) == {0: [0, 1, 2]}


def test_reads_from_offset_to_offset(read: Read) -> None:
    frame = read(startingOffsets=f'{{"{TOPIC}":{{"0":10,"1":-2}}}}', endingOffsets=f'{{"{TOPIC}":{{"0":20,"1":-1}}}}')
    assert offsets(frame) == {0: span(10, 20), 1: span(0, 40)}


def test_reads_from_time_to_time(read: Read) -> None:
    frame = read(startingTimestamp="29500", endingTimestamp="35000")
    assert offsets(frame) == {0: span(30, 35), 1: span(30, 35)}


def test_a_time_after_the_last_record_of_a_partition(read: Read) -> None:
    with pytest.raises(PySparkException, match="readings-1 has no record at or after that time"):
        read(startingTimestamp="60000").collect()
    frame = read(startingTimestamp="60000", startingOffsetsByTimestampStrategy="latest")
    assert offsets(frame) == {0: span(60, 100)}


def test_min_partitions_splits_the_work_without_changing_the_rows(read: Read) -> None:
    assert read().rdd.getNumPartitions() == 2
    frame = read(minPartitions="7")
    assert 6 <= frame.rdd.getNumPartitions() <= 8
    assert offsets(frame) == {0: span(0, 100), 1: span(0, 40)}


def test_max_records_per_partition_bounds_each_task(read: Read) -> None:
    frame = read(maxRecordsPerPartition="30")
    assert frame.rdd.glom().map(len).collect() == [25, 25, 25, 25, 20, 20]


def test_offsets_that_the_log_does_not_hold_fail_unless_told_otherwise(read: Read) -> None:
    asked = {"endingOffsets": f'{{"{TOPIC}":{{"0":500,"1":20}}}}'}
    with pytest.raises(PySparkException, match="it has those from 0 to 100"):
        read(**asked).collect()
    assert offsets(read(**asked, failOnDataLoss="false")) == {0: span(0, 100), 1: span(0, 20)}


def test_a_wrong_option_fails_before_anything_is_read(read: Read) -> None:
    with pytest.raises(PySparkException, match="did you mean startingOffsets"):
        read(startingOffset="earliest")


def test_an_unknown_topic_is_named(read: Read) -> None:
    with pytest.raises(PySparkException, match="nowhere-to-be-found"):
        read(subscribe="nowhere-to-be-found").collect()


def test_nothing_to_read_is_an_empty_frame(read: Read) -> None:
    frame = read(startingOffsets=f'{{"{TOPIC}":{{"0":7,"1":7}}}}', endingOffsets=f'{{"{TOPIC}":{{"0":7,"1":7}}}}')
    assert frame.count() == 0


def test_works_with_filter_push_down_switched_on(spark: SparkSession, read: Read) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert read().where("partition = 1 AND offset < 5").count() == 5
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@rotation.on_its_day(0, of=5)
def test_reads_apache_kafka_as_well(read: Read, apache_kafka: str) -> None:
    fill_readings(apache_kafka)
    assert offsets(read(apache_kafka, startingTimestamp="29500")) == {0: span(30, 100), 1: span(30, 40)}
