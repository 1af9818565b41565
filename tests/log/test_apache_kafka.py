"""Our files under Apache Kafka's own dump tool, and Apache Kafka's files under ours."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.log.files import LocalFiles
from headrace.log.manager import LogManager
from headrace.log.partition_log import PartitionLog
from headrace.offline.dump import dump
from headrace.records.codecs.compression import Codec
from headrace.records.format2.control import ABORT, COMMIT
from headrace.types import TopicPartition
from tests.log.support import NOW_MS, PARTITION, append, append_marker, config, offset_for_time, read_all
from tests.peers import kafka

pytestmark = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.skipif(kafka.missing_tools() is not None, reason=kafka.missing_tools() or ""),
    pytest.mark.xdist_group("logs-of-apache-kafka"),
]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NOT_FROM_ZERO = re.compile(r"Non-consecutive offsets in \S+\n  -1 is followed by \d+\n")
"""Kafka's tool says this of every segment that does not begin at offset 0, its own too."""


def dump_log_segments(paths: list[Path], logs: Path, *options: str) -> str:
    """What Kafka's dump tool says of some files, its complaints included."""
    files = ",".join(map(str, sorted(paths)))
    return kafka.run_tool(
        "org.apache.kafka.tools.DumpLogSegments", *options, "--files", files, logs=logs, with_stderr=True
    )


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition that we wrote: every codec, several segments, transactions, closed."""
    directory = tmp_path_factory.mktemp("ours")
    manager = LogManager([directory], broker_id=1, topic_config=lambda _: config(segment_bytes=6000))
    manager.directories.claim(kafka.CLUSTER_ID)
    manager.load(NOW_MS)
    log = manager.create(PARTITION, bytes(range(16)), NOW_MS)
    sequence = 0
    for number in range(100):
        count = 1 + number % 4
        times = [NOW_MS + 7 * number % 50 + at for at in range(count)]
        values = [b"value %d" % number * 10] * count
        append(log, *values, timestamps_ms=times, producer_id=77, sequence=sequence, codec=Codec(number % 5))
        sequence += count
    for number in range(4):
        append(log, b"tx", producer_id=88, sequence=number, is_transactional=True)
        append_marker(log, ABORT if number % 2 else COMMIT, 88)
    append(log, b"open", producer_id=99, sequence=0, is_transactional=True)
    manager.close(NOW_MS)
    return directory / str(PARTITION)


def test_kafkas_dump_tool_reads_every_record_that_we_wrote(ours: Path, tmp_path: Path) -> None:
    said = dump_log_segments([*ours.glob("*.log")], tmp_path, "--deep-iteration", "--print-data-log")
    assert len(re.findall(r"^\| offset: \d+", said, re.M)) == 250 + 9
    assert said.count("isvalid: true") == said.count("baseOffset: ") == 100 + 9
    assert said.count("endTxnMarker: ABORT") == 2
    assert said.count("payload: " + "value 42" * 10) == 3


@pytest.mark.parametrize("options", [("--index-sanity-check",), ("--verify-index-only",), ()])
def test_kafkas_dump_tool_finds_no_fault_with_our_indexes(ours: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    indexes = [*ours.glob("*.index"), *ours.glob("*.timeindex")]
    said = dump_log_segments(indexes, tmp_path, *options)
    assert "ismatch" not in said
    assert "Index offset" not in said
    if options == ("--index-sanity-check",):
        assert said.count("passed sanity check") == len(indexes)


def test_kafkas_dump_tool_reads_our_producers_and_transactions(ours: Path, tmp_path: Path) -> None:
    newest = max(ours.glob("*.snapshot"))
    said = dump_log_segments([newest, *ours.glob("*.txnindex")], tmp_path)
    assert "producerId: 77 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty" in said
    assert "firstSequence: 246 lastSequence: 249 lastOffset: 249 offsetDelta: 3" in said
    assert "currentTxnFirstOffset: OptionalLong[258]" in said
    assert "producerId: 88 firstOffset: 252 lastOffset: 253 lastStableOffset: 254" in said


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of an Apache Kafka that was stopped: `plain` in every codec, `tx` with transactions; and
    below `running` as it was before the stop."""
    directory = tmp_path_factory.mktemp("theirs")
    with kafka.run_kafka(directory) as bootstrap:
        produce(bootstrap)
        shutil.copytree(directory / "log", directory / "running")
    yield directory
    shutil.rmtree(directory)


def produce(bootstrap: str) -> None:
    address: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap}
    plain = NewTopic(
        "plain", 1, 1, config={"retention.ms": "-1", "index.interval.bytes": "1000", "segment.bytes": "1048576"}
    )
    admin = AdminClient(address)
    for created in admin.create_topics([plain, NewTopic("tx", 1, 1)]).values():
        created.result()
    for codec in CODECS:
        producer = Producer({**address, "compression.type": codec, "enable.idempotence": True, "batch.size": 4000})
        for number in range(1000):
            value = b"%s %d " % (codec.encode(), number) * 60
            producer.produce("plain", value, key=b"k", timestamp=NOW_MS + number, headers=[("h", b"x")])
        producer.flush()
    transactional = Producer({**address, "transactional.id": "t"})
    transactional.init_transactions()
    for number in range(4):
        transactional.begin_transaction()
        transactional.produce("tx", b"v")
        transactional.flush()
        transactional.abort_transaction() if number % 2 else transactional.commit_transaction()
    Producer({**address, "transactional.id": "t"}).init_transactions()  # answered once the last marker is written


@pytest.mark.parametrize("state", ["log", "running"], ids=["stopped", "running"])
def test_our_dump_finds_no_fault_with_kafkas_files(theirs: Path, state: str) -> None:
    kinds = []
    for topic in ("plain-0", "tx-0"):
        rows = list(dump(theirs / state / topic, deep=True))
        assert all(row.get("is_valid", True) for row in rows)
        kinds += [row["kind"] for row in rows]
    assert "damage" not in kinds
    assert kinds.count("record") == 5004
    assert kinds.count("marker") == 4
    assert kinds.count("aborted_transaction") == 2
    assert kinds.count("offset_entry") > 100
    assert kinds.count("time_entry") > 50


@pytest.mark.parametrize(("state", "was_clean"), [("log", True), ("log", False), ("running", False)])
def test_we_open_the_logs_that_kafka_wrote(theirs: Path, tmp_path: Path, state: str, was_clean: bool) -> None:
    copy = tmp_path / "plain-0"
    shutil.copytree(theirs / state / "plain-0", copy)
    log = PartitionLog.open(
        copy, TopicPartition("plain", 0), config(), files=LocalFiles(), now_ms=NOW_MS, was_clean=was_clean
    )
    assert [record.offset for record in read_all(log, 100_000)] == list(range(5000))
    assert {entry.last_sequence for entry in log.producers.entries.values()} == {999}
    assert offset_for_time(log, NOW_MS + 500, 5000) == (500, NOW_MS + 500, 0)
    assert log.leader_epochs.entries == [(0, 0)]
    assert append(log, b"ours").base_offset == 5000


def test_kafkas_tool_says_of_its_own_segments_what_it_says_of_ours(theirs: Path, ours: Path, tmp_path: Path) -> None:
    logs = [*(theirs / "log" / "plain-0").glob("*.log"), *ours.glob("*.log")]
    complaints = NOT_FROM_ZERO.sub("", dump_log_segments(logs, tmp_path, "--deep-iteration"))
    assert "Non-consecutive" not in complaints
