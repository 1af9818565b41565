"""A replica moves from one data directory to another of its broker, while it is written to and read."""

import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.offline.verify import BadIndex, Damage, verify
from headrace.protocol import messages as m
from headrace.records.format2.batch import decode_records, iter_headers
from tests.asker import Asker
from tests.broker.forked_brokers import ForkedBroker, ForkedBrokers, missing_strace
from tests.eventually import WITHIN_SECONDS, eventually, eventually_equal
from tests.harness import tail
from tests.peers import kafka
from tests.wire import Wire, batch

pytestmark = pytest.mark.slow  # processes of its own


UNDER_WAY_MAX = 1000
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
SETTINGS = {"offsets.topic.num.partitions": "1", "log.segment.delete.delay.ms": "0"}


class Home:
    """A broker with two data directories."""

    def __init__(self, tmp_path: Path, brokers: ForkedBrokers) -> None:
        self.first, self.second = tmp_path / "first", tmp_path / "second"
        self.brokers = brokers
        self.broker: ForkedBroker | None = None

    def start(
        self, settings: dict[str, str] | None = None, faults: tuple[str, ...] = (), only: tuple[Path, ...] = ()
    ) -> ForkedBroker:
        both = Path(f"{self.first},{self.second}")
        self.broker = self.brokers.start(both, {**SETTINGS, **(settings or {})}, faults, only)
        assert self.broker.wait_until_ready(), tail(self.brokers.stderr_file)
        return self.broker

    def where(self, topic: str) -> Path:
        """The data directory of partition 0."""
        (found,) = [each for each in (self.first, self.second) if (each / f"{topic}-0").exists()]
        return found

    def other(self, directory: Path) -> Path:
        return self.second if directory == self.first else self.first

    def check_files(self) -> None:
        """Nothing is damaged, and nothing is left over of a move."""
        for directory in (self.first, self.second):
            assert not [found for found in verify(directory, deep=True) if isinstance(found, Damage | BadIndex)]
            assert not [each for each in directory.iterdir() if each.name.endswith(("-future", "-delete"))]
            assert not list(directory.glob("*/replaces"))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with ForkedBrokers(tmp_path) as brokers:
        yield Home(tmp_path, brokers)


def move(asker: Asker, path: Path | str, topic: str, *partitions: int) -> dict[int, ErrorCode]:
    wish = m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(
        path=str(path),
        topics=[m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=list(partitions or (0,)))],
    )
    (result,) = asker.ask(m.AlterReplicaLogDirsRequest(dirs=[wish]), 2).results
    return {each.partition_index: ErrorCode(each.error_code) for each in result.partitions}


def places(asker: Asker, topic: str) -> set[tuple[str, bool]]:
    """The data directories that partition 0 is in, and whether as a future replica."""
    results = asker.ask(m.DescribeLogDirsRequest(topics=None), 4).results
    return {
        (Path(each.log_dir).name, part.is_future_key)
        for each in results
        for found in each.topics
        if found.name == topic
        for part in found.partitions
        if part.partition_index == 0
    }


def read_values(bootstrap: str, topic: str, start: int = 0) -> list[bytes]:
    with Wire(bootstrap) as wire:
        _, _, end = wire.list_offset(topic, -1)
        values: list[bytes] = []
        while start + len(values) < end:
            fetched = wire.fetch(topic, start + len(values), max_bytes=4 << 20)
            assert fetched.error_code == 0
            for position, header in iter_headers(fetched.records):
                records = decode_records(fetched.records[position:], header)
                values += [record.value or b"" for record in records if record.offset == start + len(values)]
        return values


def fill(wire: Wire, topic: str, count: int, size: int = 1000, values: list[bytes] | None = None) -> list[bytes]:
    values = [] if values is None else values
    for _ in range(count):
        value = b"%d " % len(values) + b"x" * size
        assert wire.produce(topic, batch([value])) == (0, len(values))
        values.append(value)
    return values


@pytest.mark.parametrize("settings", [{}, {"segment.bytes": "20000", "flush.messages": "1"}])
def test_a_replica_moves_and_everything_is_as_it_was(home: Home, settings: dict[str, str]) -> None:
    broker = home.start()
    with Wire(broker.bootstrap) as wire, Asker(broker.bootstrap) as asker:
        assert wire.create_topic("t", configs={"retention.ms": "-1", "index.interval.bytes": "100", **settings}) == 0
        values = fill(wire, "t", 100)
        source = home.where("t")
        target = home.other(source)
        assert move(asker, target, "t") == {0: ErrorCode.NONE}
        eventually_equal(lambda: places(asker, "t"), {(target.name, False)})
        assert read_values(broker.bootstrap, "t") == values
        fill(wire, "t", 50, values=values)
        assert read_values(broker.bootstrap, "t") == values
        eventually_equal(lambda: (source / "t-0").exists(), False)
        assert move(asker, target, "t") == {0: ErrorCode.NONE}  # it is there
        assert move(asker, source, "t") == {0: ErrorCode.NONE}  # and back
        eventually_equal(lambda: places(asker, "t"), {(source.name, False)})
        fill(wire, "t", 50, values=values)
        eventually_equal(lambda: (target / "t-0").exists(), False)
    for ending in (signal.SIGKILL, signal.SIGTERM):
        broker.end(ending)
        broker = home.start()
        assert read_values(broker.bootstrap, "t") == values
    assert broker.end(signal.SIGTERM) == 0
    home.check_files()


@pytest.mark.parametrize("count", [0, 3])
def test_a_partition_that_nobody_writes_to_takes_records_after_its_move(home: Home, count: int) -> None:
    broker = home.start()
    with Wire(broker.bootstrap) as wire, Asker(broker.bootstrap) as asker:
        assert wire.create_topic("t", configs={"retention.ms": "-1"}) == 0
        values = fill(wire, "t", count, size=500_000)
        target = home.other(home.where("t"))
        assert move(asker, target, "t") == {0: ErrorCode.NONE}
        eventually_equal(lambda: places(asker, "t"), {(target.name, False)})
        fill(wire, "t", 2, values=values)
        assert read_values(broker.bootstrap, "t") == values


def test_what_a_move_is_refused_for(home: Home) -> None:
    broker = home.start()
    with Wire(broker.bootstrap) as wire, Asker(broker.bootstrap) as asker:
        assert wire.create_topic("t") == 0
        assert move(asker, "/nowhere", "t") == {0: ErrorCode.LOG_DIR_NOT_FOUND}
        assert move(asker, home.second.name, "t") == {0: ErrorCode.LOG_DIR_NOT_FOUND}
        assert move(asker, home.second, "t", 7) == {7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert move(asker, home.second, "none") == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        long_name = "n" * 220
        assert wire.create_topic(long_name) == 0
        assert move(asker, home.second, long_name) == {0: ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert broker.end(signal.SIGTERM) == 0


def test_a_slow_move_is_seen_cancelled_and_ended_by_a_deletion(home: Home) -> None:
    broker = home.start({RATE: "20000"})
    with Wire(broker.bootstrap) as wire, Asker(broker.bootstrap) as asker:
        for topic in ("t", "u"):
            assert wire.create_topic(topic, configs={"retention.ms": "-1"}) == 0
            fill(wire, topic, 100, 10_000)
            source = home.where(topic)
            target = home.other(source)
            assert move(asker, target, topic) == {0: ErrorCode.NONE}
            assert places(asker, topic) == {(source.name, False), (target.name, True)}
            eventually_equal(lambda: len(list(target.glob("*-future/*.log"))), 1)  # noqa: B023
            if topic == "t":
                assert move(asker, source, topic) == {0: ErrorCode.NONE}
            else:
                assert (
                    asker.ask(m.DeleteTopicsRequest(topic_names=["u"], timeout_ms=5000), 4).responses[0].error_code == 0
                )
            assert (target.name, True) not in places(asker, topic)
            eventually(lambda: not [*target.glob("*-future"), *source.glob("*-delete")])  # noqa: B023
        assert len(read_values(broker.bootstrap, "t")) == 100
    assert broker.end(signal.SIGTERM) == 0
    home.check_files()


class Traffic:
    """An idempotent producer of confluent-kafka that goes on until it is told to stop, and a consumer behind it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.library = pytest.importorskip("confluent_kafka")
        self.bootstrap, self.topic = bootstrap, topic
        self.acknowledged: list[int] = []
        self.read: list[int] = []
        self.failures: list[str] = []
        self.is_over = threading.Event()
        self.threads = [threading.Thread(target=each) for each in (self._produce, self._consume)]
        for thread in self.threads:
            thread.start()

    def _produce(self) -> None:
        producer = self.library.Producer(
            {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 1}
        )

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self.failures.append(str(error))
            else:
                self.acknowledged.append(int(message.value().split()[0]))

        number = 0
        while not self.is_over.is_set():
            # On a busy machine it could write faster than a replica is copied, for good.
            for _ in range(20 if len(producer) < UNDER_WAY_MAX else 0):
                producer.produce(self.topic, b"%d " % number + b"y" * 500, partition=0, on_delivery=delivered)
                number += 1
            producer.poll(0.005)
        if producer.flush(WITHIN_SECONDS):
            self.failures.append("not all was delivered")

    def _consume(self) -> None:
        consumer = self.library.Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "g", "enable.auto.commit": False}
        )
        consumer.assign([self.library.TopicPartition(self.topic, 0, 0)])

        def has_all() -> bool:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.read.append(int(message.value().split()[0]))
                return False
            return self.is_over.is_set() and not self.threads[0].is_alive() and len(self.read) >= len(self.acknowledged)

        try:
            eventually(has_all, "all that was acknowledged", within_s=3 * WITHIN_SECONDS, every_s=0)
        except AssertionError as late:
            self.failures.append(str(late))
        consumer.close()

    def end(self) -> None:
        """Everything that was acknowledged was read once, in order, and nothing else."""
        self.is_over.set()
        for thread in self.threads:
            thread.join(4 * WITHIN_SECONDS)
        assert self.failures == []
        assert self.acknowledged == list(range(len(self.acknowledged)))
        assert self.read == self.acknowledged


def test_clients_notice_nothing_of_a_move(home: Home) -> None:
    broker = home.start()
    with Wire(broker.bootstrap) as wire, Asker(broker.bootstrap) as asker:
        assert wire.create_topic("t", configs={"retention.ms": "-1", "segment.bytes": "1100000"}) == 0
        traffic = Traffic(broker.bootstrap, "t")
        eventually_equal(lambda: len(traffic.acknowledged) > 1000, True)
        for _ in range(4):
            target = home.other(home.where("t"))
            assert move(asker, target, "t") == {0: ErrorCode.NONE}
            eventually_equal(lambda: places(asker, "t"), {(target.name, False)})
            eventually_equal(lambda: (home.other(target) / "t-0").exists(), False)  # noqa: B023
            before = len(traffic.acknowledged)
            eventually_equal(lambda: len(traffic.acknowledged) > before + 100, True)  # noqa: B023
        traffic.end()
    assert broker.end(signal.SIGTERM) == 0
    home.check_files()


def test_a_broker_that_is_killed_while_it_moves_goes_on_afterwards(home: Home) -> None:
    broker = home.start({RATE: "500000"})
    with Wire(broker.bootstrap) as wire, Asker(broker.bootstrap) as asker:
        assert wire.create_topic("t", configs={"retention.ms": "-1", "segment.bytes": "100000"}) == 0
        values = fill(wire, "t", 60, 10_000)
        source = home.where("t")
        target = home.other(source)
        assert move(asker, target, "t") == {0: ErrorCode.NONE}
        eventually_equal(lambda: len(list(target.glob("*-future/*.log"))) > 1, True)
    broker.end(signal.SIGKILL)
    broker = home.start()
    with Wire(broker.bootstrap) as wire, Asker(broker.bootstrap) as asker:
        eventually_equal(lambda: places(asker, "t"), {(target.name, False)})
        fill(wire, "t", 5, values=values)
        eventually_equal(lambda: (source / "t-0").exists(), False)
    assert read_values(broker.bootstrap, "t") == values
    assert broker.end(signal.SIGTERM) == 0
    home.check_files()


@pytest.mark.parametrize(
    ("call", "where"),
    [("openat", "target"), ("rename", "source"), ("unlink", "target/replaces")],
)
def test_a_broker_that_is_killed_as_it_changes_over_has_everything(home: Home, call: str, where: str) -> None:
    if reason := missing_strace():
        pytest.skip(reason)
    broker = home.start()
    with Wire(broker.bootstrap) as wire:
        assert wire.create_topic("t", configs={"retention.ms": "-1", "segment.bytes": "20000"}) == 0
        values = fill(wire, "t", 60)
    assert broker.end(signal.SIGTERM) == 0
    source = home.where("t")
    target = home.other(source)
    path = (source if where == "source" else target) / "t-0" / where.partition("/")[2]
    broker = home.start(faults=(f"{call}:signal=SIGKILL:when=1",), only=(path,))
    with Wire(broker.bootstrap) as wire, Asker(broker.bootstrap) as asker:
        fill(wire, "t", 5, values=values)

        def is_killed() -> bool:
            values.append(b"%d after" % len(values))  # in doubt, until it is answered
            try:
                assert wire.produce("t", batch([values[-1]])) == (0, len(values) - 1)
            except ConnectionError:
                return True
            return False

        with suppress(ConnectionError):
            move(asker, target, "t")
        eventually(is_killed, f"the kill at {call} in {where}", every_s=0.005)
    assert broker.end(signal.SIGTERM) == signal.SIGKILL
    broker = home.start()
    found = read_values(broker.bootstrap, "t")
    assert found in (values, values[:-1])
    with Asker(broker.bootstrap) as asker:
        assert move(asker, target, "t") == {0: ErrorCode.NONE}
        eventually_equal(lambda: places(asker, "t"), {(target.name, False)})
        eventually_equal(lambda: (source / "t-0").exists(), False)
    assert read_values(broker.bootstrap, "t") == found
    assert broker.end(signal.SIGTERM) == 0
    home.check_files()


def test_a_partition_that_is_in_two_directories_by_hand_is_not_guessed_at(home: Home) -> None:
    broker = home.start()
    with Wire(broker.bootstrap) as wire:
        assert wire.create_topic("t") == 0
    assert broker.end(signal.SIGTERM) == 0
    source = home.where("t")
    shutil.copytree(source / "t-0", home.other(source) / "t-0")
    broker = home.brokers.start(Path(f"{home.first},{home.second}"), SETTINGS)
    assert not broker.wait_until_ready()
    assert os.waitstatus_to_exitcode(broker.status or 0) == 2
    said = tail(home.brokers.stderr_file)
    assert f"headrace serve: t-0 is in {home.first} and in {home.second}" in said
    assert "Traceback" not in said


def test_kafka_python_moves_and_describes(home: Home) -> None:
    library = pytest.importorskip("kafka")
    broker = home.start()
    with Wire(broker.bootstrap) as wire:
        assert wire.create_topic("t", 2) == 0
        fill(wire, "t", 10)
    target = home.other(home.where("t"))
    admin = library.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        partition = library.TopicPartition("t", 0)
        assert "NoError" in repr(admin.alter_replica_log_dirs({library.TopicPartitionReplica("t", 0, 0): str(target)}))
        eventually_equal(lambda: (target / "t-0").exists(), True)
        assert partition.topic in repr(admin.describe_log_dirs())
    finally:
        admin.close()
    assert broker.end(signal.SIGTERM) == 0


@pytest.mark.peer
def test_apache_kafkas_reassignment_tool_moves_and_its_log_dirs_tool_sees_it(home: Home, tmp_path: Path) -> None:
    if reason := kafka.missing_tools():
        pytest.skip(reason)
    broker = home.start()
    with Wire(broker.bootstrap) as wire:
        assert wire.create_topic("t") == 0
        values = fill(wire, "t", 10)
    source = home.where("t")
    target = home.other(source)
    plan = tmp_path / "plan.json"
    entry = {"topic": "t", "partition": 0, "replicas": [0], "log_dirs": [str(target)]}
    plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    arguments = ("--bootstrap-server", broker.bootstrap, "--reassignment-json-file", str(plan))
    tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    said = kafka.run_tool(tool, *arguments, "--execute", logs=tmp_path)
    assert f"Successfully started moving log directory to {target} for replica t-0 with broker 0" in said
    eventually_equal(lambda: (source / "t-0").exists(), False)
    verified = kafka.run_tool(tool, *arguments, "--verify", "--preserve-throttles", logs=tmp_path)
    assert "completed successfully" in verified
    described = kafka.run_tool(
        "org.apache.kafka.tools.LogDirsCommand", "--bootstrap-server", broker.bootstrap, "--describe",
        "--topic-list", "t", logs=tmp_path,
    )  # fmt: skip
    (found,) = json.loads(described.splitlines()[-1])["brokers"]
    held = {each["logDir"]: [(p["partition"], p["isFuture"]) for p in each["partitions"]] for each in found["logDirs"]}
    assert held == {str(source): [], str(target): [("t-0", False)]}
    assert read_values(broker.bootstrap, "t") == values
    assert broker.end(signal.SIGTERM) == 0
