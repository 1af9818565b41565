"""What changes for a job that comes from Spark's own Kafka connector, which runs here beside it.

Each row of the table "Coming from Spark's connector" in docs/spark.md has a test, here or elsewhere: `row` names it.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.client.core.cluster import Cluster
from headrace.client.operations.admin import Admin, NewTopic
from headrace.client.operations.group_admin import GroupAdmin
from headrace.client.producer.producer import Producer
from headrace.spark.progress import offsets_behind_latest
from tests.spark.conftest import TOPIC, assert_equal_frames
from tests.spark.connector import connector_jars

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
ROWS: dict[str, Path] = {}
ELSEWHERE = {
    "restarted brokers": "tests/spark/test_broker_restart.py::test_a_stream_goes_on_after_outages",
    "a topic created again": "tests/spark/test_stream.py::"
    "test_a_topic_made_anew_is_noticed_by_a_running_query_even_where_the_offsets_fit",
    "transactions": "tests/spark/test_sink_transactions.py::test_rows_are_seen_once_the_driver_has_committed",
    "secrets": "tests/spark/test_secrets.py::test_a_password_in_the_options_is_nowhere_to_be_read",
    "misspelt security options": "tests/spark/test_options.py::test_an_error_names_the_option_its_value_and_what_to_do",
    "files": "tests/spark/test_file_source.py::test_all_segments_hold_what_the_broker_gives",
    "Apache Kafka": "tests/spark/test_source.py::test_reads_apache_kafka_as_well",
}
BOTH = ("kafka", "headrace")
Test = Callable[..., None]


def row(name: str) -> Callable[[Test], Test]:
    """The test is that of a row of the table."""

    def marked(test: Test) -> Test:
        ROWS[name] = Path(__file__)
        return test

    return marked


@pytest.fixture(scope="module")
def both(spark: SparkSession) -> SparkSession:
    """The shared session, with the connector's jars."""
    jars = connector_jars()
    if not jars:
        pytest.skip("needs Java and Maven")
    for jar in jars.split(","):
        spark.sql(f"ADD JAR '{jar}'")
    return spark


@pytest.fixture
def topic(readings: str, request: pytest.FixtureRequest) -> str:
    """An empty topic of the test's own, with two partitions."""
    name = re.sub(r"\W", "-", request.node.name)[:60]
    with Admin(readings) as admin:
        admin.create_topics([NewTopic(name, 2)])
    return name


def produce(bootstrap: str, topic: str, count: int) -> None:
    with Producer(bootstrap) as producer:
        for n in range(count):
            producer.send(topic, b"%d" % n, partition=n % 2)


def load(spark: SparkSession, form: str, bootstrap: str, **options: str) -> DataFrame:
    return spark.read.format(form).options(**{"kafka.bootstrap.servers": bootstrap, **options}).load()


def values(frame: DataFrame) -> list[int]:
    return sorted(int(each.value) for each in frame.select("value").collect())


def stream_once(spark: SparkSession, form: str, where: Path, options: dict[str, str]) -> tuple[list[int], Any]:
    """Reads what is new, by this format, from the checkpoint; the values, and the progress of the source."""
    seen: list[int] = []
    rows = spark.readStream.format(form).options(**options).load()
    writer = rows.writeStream.foreachBatch(lambda frame, _: seen.extend(values(frame)))
    query = writer.option("checkpointLocation", str(where)).trigger(availableNow=True).start()
    query.awaitTermination()
    progress = [each.sources[0] for each in query.recentProgress if each.numInputRows]
    return sorted(seen), progress[-1] if progress else None


def test_each_row_of_the_table_has_a_test_and_each_test_a_row() -> None:
    text = (ROOT / "docs" / "spark.md").read_text()
    section = text.partition("## Coming from Spark's connector")[2].partition("\n## ")[0]
    named = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")][1:]
    assert sorted(named) == sorted([*ROWS, *ELSEWHERE])
    for place in ELSEWHERE.values():
        file, _, test = place.partition("::")
        assert f"def {test}(" in (ROOT / file).read_text(), place


@row("rows and schema")
def test_rows_and_schema_are_the_connectors(both: SparkSession, readings: str) -> None:
    theirs, ours = (load(both, form, readings, subscribe=TOPIC, includeHeaders="true") for form in BOTH)
    assert ours.schema.simpleString() == theirs.schema.simpleString()
    columns = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
    assert_equal_frames(ours.select(*columns), theirs.select(*columns))


@row("checkpoints")
def test_a_checkpoint_moves_to_us_and_back_without_a_lost_or_a_repeated_record(
    both: SparkSession, readings: str, topic: str, tmp_path: Path
) -> None:
    options = {"kafka.bootstrap.servers": readings, "subscribe": topic, "startingOffsets": "earliest"}
    seen = []
    for form in ("kafka", "headrace", "kafka", "headrace"):
        produce(readings, topic, 7)
        seen.append(stream_once(both, form, tmp_path / "checkpoint", options)[0])
    assert seen == [list(range(7))] * 4


@row("unknown options")
def test_an_unknown_option_is_an_error_that_the_connector_ignores(both: SparkSession, readings: str) -> None:
    assert load(both, "kafka", readings, subscribe=TOPIC, startingOffset="latest").count() == 140
    with pytest.raises(PySparkException, match="did you mean startingOffsets"):
        load(both, "headrace", readings, subscribe=TOPIC, startingOffset="latest").count()


@row("`columns`")
def test_only_we_read_some_columns(both: SparkSession, readings: str) -> None:
    theirs, ours = (load(both, form, readings, subscribe=TOPIC, columns="offset,value") for form in BOTH)
    assert ours.columns == ["offset", "value"] and len(theirs.columns) == 7


@row("`kafka.group.id`")
def test_the_progress_of_a_stream_is_that_of_a_group_only_here(
    both: SparkSession, readings: str, topic: str, tmp_path: Path
) -> None:
    produce(readings, topic, 10)
    options = {"kafka.bootstrap.servers": readings, "subscribe": topic, "startingOffsets": "earliest"}
    for form in BOTH:
        group = {"kafka.group.id": f"{topic}-{form}"}
        assert stream_once(both, form, tmp_path / form, {**options, **group})[0] == list(range(10))
    both.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    with Cluster(readings) as cluster:
        committed = {form: GroupAdmin(cluster).offsets(f"{topic}-{form}") for form in BOTH}
    assert committed["kafka"] == {} and sum(committed["headrace"].values()) == 10


@row("metrics of a source")
def test_the_lag_is_a_functions_result_instead_of_a_metric(
    both: SparkSession, readings: str, topic: str, tmp_path: Path
) -> None:
    produce(readings, topic, 10)
    options = {"kafka.bootstrap.servers": readings, "subscribe": topic, "startingOffsets": "earliest"}
    theirs, ours = (stream_once(both, form, tmp_path / form, options)[1] for form in BOTH)
    assert theirs.metrics["maxOffsetsBehindLatest"] == "0" and not ours.metrics
    found = offsets_behind_latest(ours)
    assert found is not None and found.max == 0


@row("a write done again")
def test_a_write_done_again_under_its_name_adds_nothing_where_the_connector_doubles(
    both: SparkSession, readings: str, topic: str
) -> None:
    frame = both.range(6).selectExpr("CAST(id AS STRING) AS value", "CAST(id % 2 AS INT) AS partition")
    options = {"kafka.bootstrap.servers": readings, "topic": topic}
    expected = []
    for form, more in (("headrace", {"writeId": "once"}), ("kafka", {})):
        expected += list(range(6)) * (1 if form == "headrace" else 2)
        for _ in range(2):
            frame.write.format(form).options(**options, **more).mode("append").save()
        assert values(load(both, "headrace", readings, subscribe=topic)) == sorted(expected)


@row("real-time mode")
def test_real_time_mode_refuses_the_format(both: SparkSession, readings: str, tmp_path: Path) -> None:
    rows = both.readStream.format("headrace").options(**{"kafka.bootstrap.servers": readings, "subscribe": TOPIC})
    writer = rows.load().writeStream.format("noop").outputMode("update").option("checkpointLocation", str(tmp_path))
    with pytest.raises(PySparkException, match="(?i)real.?time"):
        writer.trigger(realTime="5 minutes").start().awaitTermination(60)  # type: ignore[call-overload]
