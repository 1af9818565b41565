"""`spark.readStream.format("headrace")` against a real broker, with AvailableNow and checkpoints instead of sleeps."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.client.core.cluster import Cluster
from headrace.client.operations.admin import Admin, NewTopic
from headrace.client.operations.group_admin import GroupAdmin
from headrace.client.producer.producer import Producer
from headrace.spark.progress import commit_progress, offsets_behind_latest
from tests import rotation
from tests.eventually import eventually
from tests.spark.conftest import fill_readings

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def topic(broker: str, request: pytest.FixtureRequest) -> str:
    """A topic of this test's own with 30 and 10 records."""
    name = f"stream-{abs(hash(request.node.name))}"
    fill_readings(broker, name, {0: 30, 1: 10})
    return name


class Stream:
    """One query, run again and again over one checkpoint; what it saw, batch by batch."""

    def __init__(self, spark: SparkSession, bootstrap: str, checkpoint: Path, options: dict[str, str]) -> None:
        self._source = {"kafka.bootstrap.servers": bootstrap, "startingOffsets": "earliest", **options}
        self._spark, self._checkpoint = spark, checkpoint
        self.batches: list[list[tuple[int, int]]] = []

    def start(self) -> StreamingQuery:
        """Start the query; it goes on until it is stopped."""
        return self._start({}, available_now=False)

    def _start(self, more: dict[str, str], *, available_now: bool = True) -> StreamingQuery:
        stream = self._spark.readStream.format("headrace").options(**self._source, **more).load()
        writer = stream.writeStream.foreachBatch(self._keep).option("checkpointLocation", str(self._checkpoint))
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    def run(self, **more: str) -> StreamingQuery:
        """Read what is there; the ended query."""
        query = self._start(more)
        assert query.awaitTermination(120)
        return query

    def _keep(self, frame: DataFrame, _batch_id: int) -> None:
        self.batches.append([(row.partition, row.offset) for row in frame.collect()])

    @property
    def rows(self) -> Counter[tuple[int, int]]:
        return Counter(row for batch in self.batches for row in batch)


MakeStream = Callable[..., Stream]
"""Type of the fixture `stream`."""


@pytest.fixture
def stream(spark: SparkSession, broker: str, topic: str, tmp_path: Path) -> MakeStream:
    """Makes a stream of the test's topic."""

    def make(**options: str) -> Stream:
        chosen = {} if {"assign", "subscribePattern"} & options.keys() else {"subscribe": topic}
        return Stream(spark, broker, tmp_path / "checkpoint", {**chosen, **options})

    return make


def once(rows: dict[int, int], starts: dict[int, int] | None = None) -> Counter[tuple[int, int]]:
    starts = starts or {}
    return Counter({(p, offset): 1 for p, count in rows.items() for offset in range(starts.get(p, 0), count)})


def produce(broker: str, topic: str, partition: int, count: int) -> None:
    with Producer(broker) as producer:
        for n in range(count):
            producer.send(topic, b"%d" % n, partition=partition, timestamp_ms=1_000_000 + n)


def group_offsets(broker: str, group: str) -> dict[int, int]:
    with Cluster(broker) as cluster:
        return {partition.partition: int(at) for partition, at in GroupAdmin(cluster).offsets(group).items()}


def test_reads_what_is_there_and_goes_on_from_its_checkpoint(stream: MakeStream, broker: str, topic: str) -> None:
    query = stream()
    query.run()
    assert query.rows == once({0: 30, 1: 10})
    produce(broker, topic, 1, 5)
    query.run(startingTimestamp="0")  # asked only when a query is new
    assert query.rows == once({0: 30, 1: 15})
    assert query.batches[-1] == [(1, n) for n in range(10, 15)]


def test_the_offsets_in_the_checkpoint_are_those_of_the_connector(
    stream: MakeStream, topic: str, tmp_path: Path
) -> None:
    last = stream().run().lastProgress
    assert last is not None
    written = (tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[-1]
    assert json.loads(written) == {topic: {"0": 30, "1": 10}}
    assert json.loads(last.sources[0].endOffset) == {topic: {"0": 30, "1": 10}}


def test_no_batch_takes_more_than_the_maximum(stream: MakeStream) -> None:
    query = stream(maxOffsetsPerTrigger="16", minOffsetsPerTrigger="15")
    ended = query.run()
    assert [len(batch) for batch in query.batches] == [16, 16, 8]  # AvailableNow does not wait for the minimum
    assert query.rows == once({0: 30, 1: 10})
    assert Counter(partition for partition, _ in query.batches[0]) == {0: 12, 1: 4}
    behind = [offsets_behind_latest(progress.sources[0]) for progress in ended.recentProgress[:3]]
    assert [one and (one.avg, one.max, one.min) for one in behind] == [(12.0, 18, 6), (4.0, 6, 2), (0.0, 0, 0)]


def test_a_batch_waits_for_its_minimum_in_a_stream_that_goes_on(stream: MakeStream, broker: str, topic: str) -> None:
    query = stream(minOffsetsPerTrigger="20", maxTriggerDelay="1h")
    running = query.start()
    try:
        running.processAllAvailable()
        produce(broker, topic, 0, 19)
        running.processAllAvailable()
        assert len(query.batches) == 1
        produce(broker, topic, 0, 1)
        eventually(lambda: len(query.batches) == 2 or not running.isActive, "the second batch")
        assert query.batches[1] == [(0, n) for n in range(30, 50)]
    finally:
        running.stop()


def test_new_partitions_are_read_from_their_beginning(stream: MakeStream, broker: str, topic: str) -> None:
    query = stream()
    query.run()
    with Admin(broker) as admin:
        admin.create_partitions(topic, 3)
    produce(broker, topic, 2, 4)
    query.run()
    assert query.rows == once({0: 30, 1: 10, 2: 4})


def test_a_partition_that_appears_while_the_query_runs_is_read(stream: MakeStream, broker: str, topic: str) -> None:
    query = stream()
    running = query.start()
    try:
        running.processAllAvailable()
        with Admin(broker) as admin:
            admin.create_partitions(topic, 3)
        produce(broker, topic, 2, 4)
        running.processAllAvailable()
        assert query.rows == once({0: 30, 1: 10, 2: 4})
    finally:
        running.stop()


@pytest.mark.parametrize(
    ("starting", "first"),
    [
        ({"startingOffsets": "latest"}, {0: 30, 1: 10}),
        ({"startingTimestamp": "5500"}, {0: 6, 1: 6}),
        ({"startingTimestamp": "20000", "startingOffsetsByTimestampStrategy": "latest"}, {0: 20, 1: 10}),
    ],
)
def test_starts_where_it_is_told_to(stream: MakeStream, starting: dict[str, str], first: dict[int, int]) -> None:
    query = stream(**starting)
    query.run()
    assert query.rows == once({0: 30, 1: 10}, first)


def test_starts_at_offsets_given_as_json(stream: MakeStream, topic: str) -> None:
    query = stream(startingOffsets=json.dumps({topic: {"0": 25, "1": -1}}))
    query.run()
    assert query.rows == once({0: 30, 1: 10}, {0: 25, 1: 10})


def test_records_deleted_unread_fail_the_query_unless_told_otherwise(
    stream: MakeStream, broker: str, topic: str
) -> None:
    query = stream()
    query.run()
    produce(broker, topic, 0, 10)
    delete_before(broker, topic, 0, 35)
    with pytest.raises(StreamingQueryException, match=f"{topic}-0 has lost offsets 30 to 35"):
        query.run()
    query.run(failOnDataLoss="false")
    assert query.rows == once({0: 30, 1: 10}) + once({0: 40}, {0: 35})


def test_a_topic_made_anew_fails_the_query_or_is_read_from_its_beginning(
    stream: MakeStream, broker: str, topic: str
) -> None:
    query = stream(**{"fetchOffset.numRetries": "0"})
    query.run()
    with Admin(broker) as admin:
        admin.delete_topics([topic])
    fill_readings(broker, topic, {0: 7})
    with pytest.raises(StreamingQueryException, match=f"{topic}-0 was read up to offset 30, but now ends at offset 7"):
        query.run()
    query.run(failOnDataLoss="false")
    assert query.batches[-1] == [(0, n) for n in range(7)]


def test_a_topic_made_anew_is_noticed_by_a_running_query_even_where_the_offsets_fit(
    stream: MakeStream, broker: str, topic: str
) -> None:
    query = stream()
    running = query.start()
    try:
        running.processAllAvailable()
        with Admin(broker) as admin:
            admin.delete_topics([topic])
            admin.create_topics([NewTopic(topic, 2)])
        with pytest.raises(StreamingQueryException, match="would skip records|no longer exists|UNKNOWN_TOPIC"):
            running.awaitTermination(60)
    finally:
        running.stop()


def test_the_group_shows_the_progress_with_the_last_batch(spark: SparkSession, stream: MakeStream, broker: str) -> None:
    group = "stream-watched"
    query = stream(**{"kafka.group.id": group}, maxOffsetsPerTrigger="25")
    ended = query.run()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    assert group_offsets(broker, group) == {0: 30, 1: 10}
    committed = {partition.partition: at for partition, at in commit_progress(ended)[group].items()}
    assert committed == {0: 30, 1: 10}


def test_progress_is_committed_by_the_options_of_the_sources_where_there_is_no_plan(
    spark: SparkSession, stream: MakeStream, broker: str, topic: str
) -> None:
    """As with Spark Connect."""
    ended = stream().run()
    options = {"kafka.bootstrap.servers": broker, "subscribe": topic, "kafka.group.id": "stream-by-options"}
    others = {**options, "subscribe": f"{topic}-other", "kafka.group.id": "stream-of-others"}
    assert list(commit_progress(ended, options, others)) == ["stream-by-options"]
    assert group_offsets(broker, "stream-by-options") == {0: 30, 1: 10}
    assert group_offsets(broker, "stream-of-others") == {}


@pytest.mark.parametrize("_", [pytest.param(None, marks=rotation.unless_today(1, 3))])
def test_spark_connect_runs_queries_and_loads(broker: str, topic: str, tmp_path: Path, _: None) -> None:
    job = Path(__file__).with_name("connect_job.py")
    scratch = {"TMPDIR": str(tmp_path), "SPARK_LOCAL_DIRS": str(tmp_path)}
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_"))}
    command = [sys.executable, str(job), broker, topic, str(tmp_path / "checkpoint"), str(tmp_path / "table")]
    ended = subprocess.run(command, env={**environment, **scratch}, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["40", "40"]
    assert group_offsets(broker, "connect-committed") == {0: 30, 1: 10}
    assert group_offsets(broker, "connect-watched") == {0: 30, 1: 10}


def test_without_a_group_nothing_is_committed(stream: MakeStream) -> None:
    assert commit_progress(stream().run()) == {}


def delete_before(broker: str, topic: str, partition: int, offset: int) -> None:
    from headrace.protocol import messages as m

    part = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = m.DeleteRecordsRequest(
        topics=[m.DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[part])], timeout_ms=10_000
    )
    with Cluster(broker) as cluster:
        answer = cluster.call_any(request, m.DeleteRecordsResponse, cluster.deadline())
        assert answer.topics[0].partitions[0].error_code == 0


@rotation.on_its_day(2, of=5)
def test_streams_apache_kafka_as_well(spark: SparkSession, apache_kafka: str, tmp_path: Path) -> None:
    fill_readings(apache_kafka, "streamed", {0: 30, 1: 10})
    group = {"kafka.group.id": "streamed-group"}
    options = {"subscribe": "streamed", "maxOffsetsPerTrigger": "25", **group}
    query = Stream(spark, apache_kafka, tmp_path / "checkpoint", options)
    query.run()
    produce(apache_kafka, "streamed", 1, 5)
    commit_progress(query.run())
    assert query.rows == once({0: 30, 1: 15})
    assert group_offsets(apache_kafka, "streamed-group") == {0: 30, 1: 15}
