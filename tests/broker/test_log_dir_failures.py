"""One data directory of several fails, at the start or under a running broker: its partitions are offline, the others
go on, and a start with the directory back serves everything again. The last one, and the first, end the broker."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.broker.forked_brokers import ForkedBroker, ForkedBrokers, missing_strace
from tests.eventually import WITHIN_SECONDS, collected, eventually_equal
from tests.harness import tail
from tests.wire import Fetched, Wire, batch

pytestmark = pytest.mark.slow  # processes of its own


OFFLINE = ErrorCode.KAFKA_STORAGE_ERROR
SETTINGS = {"offsets.topic.num.partitions": "2", "replica.high.watermark.checkpoint.interval.ms": "50"}


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[ForkedBrokers]:
    """Brokers under strace."""
    if reason := missing_strace():
        pytest.skip(reason)
    with ForkedBrokers(tmp_path) as process:
        yield process


class Home:
    """Two data directories, and a topic with partitions in both."""

    def __init__(self, brokers: ForkedBrokers, tmp_path: Path) -> None:
        self.brokers = brokers
        self.first, self.second = tmp_path / "first", tmp_path / "second"
        self.stderr = brokers.stderr_file

    def start(self, *faults: str, only: tuple[Path, ...] = (), settings: dict[str, str] | None = None) -> ForkedBroker:
        both = Path(f"{self.first},{self.second}")
        broker = self.brokers.start(both, {**SETTINGS, **(settings or {})}, faults, only)
        assert broker.wait_until_ready(), tail(self.stderr)
        return broker

    def prepare(self) -> None:
        """A topic `t` with one record in each of its four partitions."""
        broker = self.start()
        with Wire(broker.bootstrap) as wire:
            assert wire.create_topic("t", 4, {"retention.ms": "-1"}) == 0
            for number in range(4):
                assert wire.produce("t", batch([b"before"]), partition=number) == (0, 0)
        assert broker.end(signal.SIGTERM) == 0
        assert len(self.held(self.first)) == len(self.held(self.second)) == 2

    def held(self, directory: Path) -> list[int]:
        """The partitions of `t` in a directory."""
        return sorted(int(each.name[2:]) for each in directory.glob("t-[0-9]"))

    def segment(self, number: int) -> Path:
        """The file that partition `number`, in the second directory, is written to."""
        return self.second / f"t-{number}" / f"{0:020d}.log"


@pytest.fixture
def home(brokers: ForkedBrokers, tmp_path: Path) -> Home:
    made = Home(brokers, tmp_path)
    made.prepare()
    return made


PartitionFacts = tuple[int, int, list[int]]


def metadata(asker: Asker, topic: str = "t") -> dict[int, PartitionFacts]:
    """(error, leader, offline replicas) of each partition."""
    asked = m.MetadataRequest.MetadataRequestTopic(name=topic)
    (found,) = asker.ask(m.MetadataRequest(topics=[asked], allow_auto_topic_creation=False), 9).topics
    return {p.partition_index: (p.error_code, p.leader_id, p.offline_replicas) for p in found.partitions}


def log_dirs(asker: Asker) -> dict[str, tuple[int, set[tuple[str, int]]]]:
    """(error, partitions) of each data directory, by its last name."""
    results = asker.ask(m.DescribeLogDirsRequest(topics=None), 4).results
    return {
        Path(each.log_dir).name: (
            each.error_code,
            {(topic.name, p.partition_index) for topic in each.topics for p in topic.partitions},
        )
        for each in results
    }


def check_second_is_offline(home: Home, broker: ForkedBroker) -> None:
    bad, good = home.held(home.second), home.held(home.first)
    with Wire(broker.bootstrap) as wire, Asker(broker.bootstrap) as asker:
        gone: PartitionFacts = (ErrorCode.LEADER_NOT_AVAILABLE, -1, [0])
        here: PartitionFacts = (0, 0, [])
        eventually_equal(lambda: metadata(asker), {n: gone if n in bad else here for n in range(4)})
        for number in bad:
            assert wire.produce("t", batch([b"x"]), partition=number).error_code == OFFLINE
            assert wire.fetch("t", 0, partition=number).error_code == OFFLINE
            assert wire.list_offset("t", -1, partition=number)[0] == OFFLINE
        for number in good:
            assert wire.fetch("t", 0, partition=number).error_code == 0
            assert wire.produce("t", batch([b"on"]), partition=number).error_code == 0
        found = log_dirs(asker)
        assert found["second"] == (OFFLINE, set())
        assert found["first"][0] == 0
        assert {number for topic, number in found["first"][1] if topic == "t"} == set(good)
        if not os.path.lexists(home.first / "new-0"):
            assert wire.create_topic("new", 3) == 0
        assert len(list(home.first.glob("new-*"))) == 3


def check_all_is_back(home: Home) -> None:
    broker = home.start()
    with Wire(broker.bootstrap) as wire, Asker(broker.bootstrap) as asker:
        assert metadata(asker) == {number: (0, 0, []) for number in range(4)}
        for number in range(4):
            assert b"before" in wire.fetch("t", 0, partition=number).records
            assert wire.produce("t", batch([b"again"]), partition=number).error_code == 0
        assert [error for error, _ in log_dirs(asker).values()] == [0, 0]
    assert broker.end(signal.SIGTERM) == 0


def test_a_directory_that_fails_takes_its_partitions_offline_and_no_others(home: Home) -> None:
    bad, other_bad = home.held(home.second)
    broker = home.start("pwrite64:error=EIO:when=1+", only=(home.segment(bad),))
    with Wire(broker.bootstrap) as wire, Wire(broker.bootstrap) as waiting:
        answers: list[Fetched] = []
        reader = threading.Thread(
            target=lambda: answers.append(waiting.fetch("t", 1, partition=other_bad, min_bytes=1, max_wait_ms=50_000))
        )
        reader.start()
        assert wire.produce("t", batch([b"lost"]), partition=bad).error_code == OFFLINE
        reader.join(WITHIN_SECONDS)
        assert [each.error_code for each in answers] == [OFFLINE]  # long before its time was up
    check_second_is_offline(home, broker)
    assert broker.end(signal.SIGTERM) == 0
    assert broker.faults_seen() <= 2  # by the short way of a produce and by the long one; nothing more was tried there
    check_all_is_back(home)


@pytest.mark.parametrize("call", ["fdatasync", "openat"])
def test_a_checkpoint_that_cannot_be_written_takes_its_directory_offline(home: Home, call: str) -> None:
    checkpoint = home.second / "replication-offset-checkpoint.tmp"
    broker = home.start(f"{call}:error=EIO:when=1+", only=(checkpoint,))
    check_second_is_offline(home, broker)
    assert broker.end(signal.SIGKILL) == signal.SIGKILL
    assert broker.faults_seen() == 1
    check_all_is_back(home)


def test_a_failed_sync_takes_the_directory_offline_before_the_producer_is_told(home: Home) -> None:
    (bad, _) = home.held(home.second)
    settings = {"log.flush.interval.messages": "1"}
    broker = home.start("fdatasync:error=EIO:when=1+", only=(home.segment(bad),), settings=settings)
    with Wire(broker.bootstrap) as wire:
        assert wire.produce("t", batch([b"doubtful"]), partition=bad).error_code == OFFLINE
    check_second_is_offline(home, broker)
    broker.end(signal.SIGTERM)
    check_all_is_back(home)


def break_meta(home: Home) -> Callable[[], None]:
    path = home.second / "meta.properties"
    content = path.read_bytes()
    path.write_bytes(b"nothing of use")

    def mend() -> None:
        path.write_bytes(content)

    return mend


def replace_by_a_file(home: Home) -> Callable[[], None]:
    aside = home.second.with_name("aside")
    home.second.rename(aside)
    home.second.write_text("in the way")

    def restore() -> None:
        home.second.unlink()
        aside.rename(home.second)

    return restore


def break_a_partition(home: Home) -> Callable[[], None]:
    path = home.second / f"t-{home.held(home.second)[0]}" / "partition.metadata"
    content = path.read_bytes()
    path.write_bytes(b"nothing of use")

    def mend() -> None:
        path.write_bytes(content)

    return mend


@pytest.mark.parametrize("damage", [break_meta, replace_by_a_file, break_a_partition])
def test_a_start_without_one_directory_does_not_make_its_partitions_anew(
    home: Home, damage: Callable[[Home], Callable[[], None]]
) -> None:
    bad = home.held(home.second)
    restore = damage(home)
    broker = home.start()
    good = home.held(home.first)
    assert not set(bad) & set(good)
    with Wire(broker.bootstrap) as wire, Asker(broker.bootstrap) as asker:
        gone: PartitionFacts = (ErrorCode.LEADER_NOT_AVAILABLE, -1, [0])
        here: PartitionFacts = (0, 0, [])
        assert metadata(asker) == {n: gone if n in bad else here for n in range(4)}
        assert [wire.produce("t", batch([b"x"]), partition=n).error_code for n in bad] == [OFFLINE] * 2
        assert [wire.produce("t", batch([b"x"]), partition=n).error_code for n in good] == [0, 0]
        assert log_dirs(asker)["second"] == (OFFLINE, set())
    assert broker.end(signal.SIGTERM) == 0
    assert home.held(home.first) == good
    restore()
    check_all_is_back(home)


def test_a_topic_with_an_offline_partition_is_deleted_when_it_is_back(home: Home) -> None:
    restore = break_meta(home)
    broker = home.start()
    with Wire(broker.bootstrap) as wire, Asker(broker.bootstrap) as asker:
        (deleted,) = asker.ask(m.DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), 4).responses
        assert deleted.error_code == 0
        assert wire.create_topic("t") == ErrorCode.TOPIC_ALREADY_EXISTS  # it is marked for deletion
    assert broker.end(signal.SIGTERM) == 0
    restore()
    broker = home.start(settings={"log.segment.delete.delay.ms": "0"})
    with Wire(broker.bootstrap) as wire:
        assert wire.create_topic("t", 4) == 0
        assert [wire.list_offset("t", -1, partition=number)[2] for number in range(4)] == [0] * 4
    assert broker.end(signal.SIGTERM) == 0


def ended(broker: ForkedBroker) -> int:
    """The exit code of a broker that ends by itself."""
    answers: list[int] = []
    waiter = threading.Thread(target=lambda: answers.append(broker.end(signal.SIGCONT)))
    waiter.start()
    waiter.join(WITHIN_SECONDS)
    if not answers:
        os.kill(broker.pid, signal.SIGKILL)
        waiter.join(WITHIN_SECONDS)
    return os.waitstatus_to_exitcode(answers[0])


def test_the_broker_ends_with_its_first_directory_and_says_why(home: Home) -> None:
    segment = home.first / f"t-{home.held(home.first)[0]}" / f"{0:020d}.log"
    broker = home.start("pwrite64:error=EIO:when=1+", only=(segment,))
    before = home.stderr.stat().st_size
    with Wire(broker.bootstrap) as wire:
        wire.socket.settimeout(WITHIN_SECONDS)
        try:
            answer = wire.produce("t", batch([b"lost"]), partition=home.held(home.first)[0])
        except OSError:
            pass  # it was gone before it could answer
        else:
            assert answer.error_code == OFFLINE
    assert ended(broker) == 1
    said = home.stderr.read_text()[before:]
    assert f"headrace serve: data directory {home.first} failed: Input/output error" in said
    assert "Traceback" not in said
    check_all_is_back(home)


def test_a_start_without_the_first_directory_is_refused(home: Home, tmp_path: Path) -> None:
    (home.first / "meta.properties").write_bytes(b"nothing of use")
    broker = home.brokers.start(Path(f"{home.first},{home.second}"), SETTINGS)
    assert not broker.wait_until_ready()
    assert broker.status is not None and os.waitstatus_to_exitcode(broker.status) == 2
    assert "Traceback" not in home.stderr.read_text()


def test_clients_of_the_other_directory_notice_nothing(home: Home) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    bad, good = home.held(home.second)[0], home.held(home.first)[0]
    broker = home.start("pwrite64:error=EIO:when=1+", only=(home.segment(bad),))
    config: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 60_000}
    producer = confluent_kafka.Producer({**config, "enable.idempotence": True})
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition("t", good, 0)])
    failures: list[object] = []
    for number in range(300):
        producer.produce(
            "t", b"%d" % number, partition=good, on_delivery=lambda e, _: failures.append(e) if e else None
        )
        producer.poll(0)
        if number == 100:
            with Wire(broker.bootstrap) as wire:
                assert wire.produce("t", batch([b"lost"]), partition=bad).error_code == OFFLINE
        time.sleep(0.002)
    assert producer.flush(WITHIN_SECONDS) == 0
    values = collected(
        lambda left: [each.value() for each in consumer.consume(left, 0.5) if each.error() is None],
        301,
    )
    consumer.close()
    assert failures == []
    assert values == [b"before", *(b"%d" % number for number in range(300))]
    assert broker.end(signal.SIGTERM) == 0
    check_all_is_back(home)


@pytest.mark.parametrize("start", [0, 5000])
def test_a_tree_that_cannot_be_read_is_refused_in_one_line(home: Home, start: int) -> None:
    path = home.first / "headrace-tree.sqlite"
    kept = path.read_bytes()
    path.write_bytes(kept[:start] + b"nothing of use" * 500 + kept[start + 7000 :])
    before = home.stderr.stat().st_size
    broker = home.brokers.start(Path(f"{home.first},{home.second}"), SETTINGS)
    assert not broker.wait_until_ready()
    assert broker.status is not None
    assert os.waitstatus_to_exitcode(broker.status) == 2
    said = home.stderr.read_text()[before:]
    assert "Traceback" not in said
    assert said.count("headrace serve: ") == 1
    path.write_bytes(kept)
    check_all_is_back(home)


@pytest.mark.parametrize("at", [1, 3, 6, 9])
def test_a_tree_that_cannot_be_written_is_refused_in_one_line(home: Home, at: int) -> None:
    store = home.first / "headrace-tree.sqlite-wal"
    before = home.stderr.stat().st_size
    both = Path(f"{home.first},{home.second}")
    broker = home.brokers.start(both, SETTINGS, [f"pwrite64:error=EIO:when={at}+"], [store])
    is_ready = broker.wait_until_ready()
    assert not is_ready or at > 1
    if is_ready:  # it needed fewer
        broker.end(signal.SIGTERM)
    else:
        assert broker.status is not None
        assert os.waitstatus_to_exitcode(broker.status) == 2
        assert "headrace serve: " in home.stderr.read_text()[before:]
    assert "Traceback" not in home.stderr.read_text()[before:]
    check_all_is_back(home)


def test_a_directory_that_is_empty_all_of_a_sudden_is_spoken_of(home: Home) -> None:
    bad = home.held(home.second)
    home.second.rename(home.second.with_name("not-mounted"))
    broker = home.start()
    assert broker.end(signal.SIGTERM) == 0
    said = home.stderr.read_text()
    for number in range(4):
        line = f"t-{number} is missing from all data directories and starts empty; check that all disks are mounted"
        assert (line in said) == (number in bad)
