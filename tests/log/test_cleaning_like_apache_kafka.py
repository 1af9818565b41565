"""Apache Kafka's cleaner beside ours, on the same files: batch by batch, what stays is the same."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from headrace.log.files import LocalFiles
from headrace.log.partition_log import PartitionLog
from headrace.records.format2.batch import decode_records
from headrace.records.format2.header import DELETE_HORIZON_BIT
from headrace.types import TopicPartition
from tests.conftest import StartHeadrace
from tests.eventually import eventually
from tests.log.cleaning import batches, clean, compacted, left, newest
from tests.log.test_apache_kafka import NOT_FROM_ZERO, dump_log_segments
from tests.peers import kafka

pytestmark = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.skipif(kafka.missing_tools() is not None, reason=kafka.missing_tools() or ""),
    pytest.mark.xdist_group("logs-of-apache-kafka"),
]
TOPIC = "compacted"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DEEP = ("--deep-iteration", "--print-data-log")
WAIT_SECONDS = 90


class Kafka:
    """An Apache Kafka whose cleaner is let loose when it is told to."""

    def __init__(self, bootstrap: str, data: Path) -> None:
        self.bootstrap, self.data = bootstrap, data
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        topic = NewTopic(TOPIC, 1, 1, config={
            "cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "1.0",
            "delete.retention.ms": "1", "index.interval.bytes": "100", "file.delete.delay.ms": "0",
        })  # fmt: skip
        for made in self.admin.create_topics([topic]).values():
            made.result()
        self.began_ms = int(time.time() * 1000) - 3_600_000
        self.rounds = 0

    def alter(self, kind: ResourceType, name: str, setting: str, value: str) -> None:
        entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(kind, name, incremental_configs=[entry])
        for altered in self.admin.incremental_alter_configs([resource]).values():
            altered.result()

    def write_a_round(self) -> None:
        """Every codec, idempotent and not, tombstones, and transactions that end either way."""
        self.rounds += 1
        at_ms = self.began_ms + 60_000 * self.rounds
        for number, codec in enumerate(CODECS):
            settings = {"bootstrap.servers": self.bootstrap, "compression.type": codec, "linger.ms": 50}
            producer = Producer({**settings, "enable.idempotence": number % 2 == 0})
            for at in range(12):
                value = None if at % 5 == self.rounds % 5 else b"%s %d %d " % (codec.encode(), self.rounds, at) * 5
                key = b"key-%d" % ((at * (number + 1) + self.rounds) % 17)
                producer.produce(TOPIC, value, key=key, timestamp=at_ms + at, headers=[("h", b"x")])
            producer.flush()
            at_ms += 5000
        for number in range(3):
            settings = {"bootstrap.servers": self.bootstrap, "transactional.id": f"t-{self.rounds}-{number}"}
            producer = Producer(settings)
            producer.init_transactions()
            producer.begin_transaction()
            for at in range(4):
                producer.produce(TOPIC, b"tx %d" % self.rounds, key=b"key-%d" % (3 * at), timestamp=at_ms + at)
            producer.flush()
            producer.abort_transaction() if number % 2 else producer.commit_transaction()
        later_ms = at_ms + 7_200_000
        producer = Producer({"bootstrap.servers": self.bootstrap})
        producer.produce(TOPIC, b"rolls the segment", key=b"last", timestamp=min(later_ms, int(time.time() * 1000)))
        producer.flush()

    def copy(self, to: Path) -> Path:
        return Path(shutil.copytree(self.data / f"{TOPIC}-0", to / f"{TOPIC}-0"))

    def cleaned_to(self) -> int:
        path = self.data / "cleaner-offset-checkpoint"
        lines = path.read_text().splitlines() if path.exists() else []
        return next((int(line.split()[2]) for line in lines if line.startswith(f"{TOPIC} 0 ")), 0)

    def clean(self) -> None:
        before = self.cleaned_to()
        self.alter(ResourceType.TOPIC, TOPIC, "min.cleanable.dirty.ratio", "0.0")
        eventually(lambda: self.cleaned_to() != before, "Apache Kafka to clean", within_s=WAIT_SECONDS)
        self.alter(ResourceType.TOPIC, TOPIC, "min.cleanable.dirty.ratio", "1.0")
        directory = self.data / f"{TOPIC}-0"
        eventually(lambda: not [*directory.glob("*.deleted")], "the old files to go", within_s=2 * WAIT_SECONDS)


@pytest.fixture(scope="module")
def their_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    directory = tmp_path_factory.mktemp("their-cleaner")
    with kafka.run_kafka(directory, settings={**kafka.SHARED_SETTINGS, "log.cleaner.backoff.ms": "100"}) as bootstrap:
        yield Kafka(bootstrap, directory / "log")


def opened(directory: Path) -> PartitionLog:
    settings = compacted(delete_retention_ms=1, index_interval_bytes=100)
    now_ms = int(time.time() * 1000)
    log = PartitionLog.open(directory, TopicPartition(TOPIC, 0), settings, files=LocalFiles(), now_ms=now_ms)
    log.flusher.flush(now_ms)
    return log


def shape(log: PartitionLog) -> list[tuple[object, ...]]:
    """Everything about each batch but the moment of its delete horizon, and how its records are compressed."""
    found: list[tuple[object, ...]] = []
    for header, batch in batches(log):
        has_horizon = bool(header.attributes & DELETE_HORIZON_BIT)
        found.append((
            header.base_offset, header.last_offset, header.leader_epoch, header.attributes, header.max_timestamp,
            header.producer_id, header.producer_epoch, header.base_sequence, header.record_count, has_horizon,
            [tuple(record) for record in decode_records(batch, header)],
        ))  # fmt: skip
    return found


def test_of_the_same_files_both_leave_the_same_batches(their_kafka: Kafka, tmp_path: Path) -> None:
    known: dict[str, tuple[int, str]] = {}
    cleaned_to = 0
    ours = theirs = None
    for turn in range(3):
        for _ in range(2):
            their_kafka.write_a_round()
        ours = opened(their_kafka.copy(tmp_path / f"{turn}-before"))
        uncleaned = shape(ours)
        their_kafka.clean()
        theirs = opened(their_kafka.copy(tmp_path / f"{turn}-after"))
        ours.cleaned_to = cleaned_to
        clean(ours, int(time.time() * 1000), roll=False)
        cleaned_to = their_kafka.cleaned_to()
        assert ours.cleaned_to == cleaned_to
        assert shape(ours) == shape(theirs)
        assert len(shape(ours)) < len(uncleaned)
        assert newest(left(ours)) == newest(left(theirs))
        assert [log.log_end_offset for log in (ours, theirs)] == [ours.log_end_offset] * 2
        assert ours.aborted_transactions(0, 10**9) == theirs.aborted_transactions(0, 10**9)
        known |= newest(left(ours))
    assert ours is not None and theirs is not None
    said = dump_log_segments([*ours.directory.glob("*.log")], tmp_path, *DEEP)
    assert complaints(said) == complaints(dump_log_segments([*theirs.directory.glob("*.log")], tmp_path, *DEEP))
    assert "isvalid: false" not in said
    indexes = [path for kind in ("index", "timeindex", "txnindex") for path in ours.directory.glob(f"*.{kind}")]
    said = dump_log_segments(indexes, tmp_path)
    assert "ismatch" not in said
    assert "Index offset" not in said


def complaints(said: str) -> int:
    """The tool says of every compacted log that offsets are missing."""
    return NOT_FROM_ZERO.sub("", said).count("is followed by")


def test_apache_kafkas_consumer_reads_a_topic_that_we_compacted(headrace_server: StartHeadrace, tmp_path: Path) -> None:
    server = headrace_server(
        settings={"log.cleaner.backoff.ms": "50", "log.flush.scheduler.interval.ms": "50",
                  "log.segment.delete.delay.ms": "0"}
    )  # fmt: skip
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    settings = {"cleanup.policy": "compact", "segment.bytes": "3000", "min.cleanable.dirty.ratio": "0.1"}
    for made in admin.create_topics([NewTopic(TOPIC, 1, 1, config=settings)]).values():
        made.result()
    producer = Producer({"bootstrap.servers": server.bootstrap, "compression.type": "zstd", "linger.ms": 0})
    for number in range(100):
        for key in range(10):
            producer.produce(TOPIC, b"value-%d" % number, key=b"key-%d" % key)
        producer.flush()
    directory = server.data / f"{TOPIC}-0"

    def is_compacted() -> bool:
        try:
            return sum(path.stat().st_size for path in directory.glob("*.log")) < 5_000
        except FileNotFoundError:  # a segment was exchanged since the glob
            return False

    eventually(is_compacted)
    said = kafka.run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", server.bootstrap, "--topic", TOPIC,
        "--from-beginning", "--property", "print.key=true", "--timeout-ms", "8000", "--isolation-level",
        "read_committed", logs=tmp_path,
    )  # fmt: skip
    rows = [line.split("\t") for line in said.splitlines() if "\t" in line]
    assert dict(rows) == {f"key-{key}": "value-99" for key in range(10)}
    assert 10 <= len(rows) < 500
