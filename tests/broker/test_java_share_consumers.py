"""Java's KafkaShareConsumer: acknowledgements, renewals, redelivery, limits, killed consumers, transactions."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from tests.eventually import eventually
from tests.harness import HeadraceServer, unused
from tests.peers import kafka
from tests.peers.share_consumers import PROGRAM, JavaShareConsumers, Taken
from tests.wire import Wire, batch

pytestmark = pytest.mark.peer

EXPLICIT = "share.acknowledgement.mode=explicit"
LOCK_MS, POLL_MS = 3000, 800


def start(bootstrap: str, logs: Path) -> JavaShareConsumers:
    """A JVM without consumers so far."""
    return JavaShareConsumers([*kafka.java_command(logs, "-Xmx256m", *kafka.QUICK_START), str(PROGRAM), bootstrap])


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose locks may be short."""
    if reason := kafka.missing_tools():
        pytest.skip(reason)
    shortest = {"group.share.min.record.lock.duration.ms": str(LOCK_MS)}
    server = HeadraceServer(tmp_path_factory.mktemp("shares") / "data", {**kafka.SHARED_SETTINGS, **shortest}).start()
    yield server.bootstrap
    server.stop()


@pytest.fixture(scope="module")
def java(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaShareConsumers]:
    """The JVM that all tests share."""
    consumers = start(bootstrap, tmp_path_factory.mktemp("java"))
    yield consumers
    consumers.stop()


class Queue(NamedTuple):
    """A topic of one partition, and a group that begins at its first record."""

    topic: str
    group: str

    def open(self, name: str, *settings: str) -> str:
        """The line that opens a consumer."""
        return " ".join(("open", f"{name}-{self.topic}", self.group, self.topic, *settings))

    def of(self, name: str) -> str:
        """A consumer's whole name."""
        return f"{name}-{self.topic}"


@pytest.fixture
def queue(bootstrap: str, java: JavaShareConsumers) -> Queue:
    """A topic of its own, empty."""
    topic = unused("queue")
    with Wire(bootstrap) as wire:
        wire.create_topic(topic, 1)
    java(f"group group-{topic} share.auto.offset.reset=earliest")
    return Queue(topic, f"group-{topic}")


def fill(bootstrap: str, queue: Queue, *batches: str) -> None:
    """Produces a batch of one-letter records for each word."""
    with Wire(bootstrap) as wire:
        for each in batches:
            assert wire.produce(queue.topic, batch([letter.encode() for letter in each])).error_code == 0


def test_implicit_acknowledgements_finish_records(bootstrap: str, java: JavaShareConsumers, queue: Queue) -> None:
    fill(bootstrap, queue, "abc", "def")
    java(queue.open("one"))
    assert java.records(f"take {queue.of('one')} 6 15000") == [Taken(n, v, 1) for n, v in enumerate("abcdef")]
    assert java(f"commit {queue.of('one')}") == "none"
    java(f"close {queue.of('one')}")
    java(queue.open("two"))
    assert java.records(f"poll {queue.of('two')} 700") == []
    java(f"close {queue.of('two')}")


def test_each_record_may_be_accepted_released_and_rejected(
    bootstrap: str, java: JavaShareConsumers, queue: Queue
) -> None:
    one = queue.of("one")
    fill(bootstrap, queue, "abc", "de")
    java(queue.open("one", EXPLICIT))
    assert [each.value for each in java.records(f"take {one} 5 15000")] == list("abcde")
    for offset, kind in enumerate(("ACCEPT", "RELEASE", "REJECT", "RELEASE", "ACCEPT")):
        java(f"ack {one} {offset} {kind}")
    assert java(f"commit {one}") == "none"
    again = java.records(f"take {one} 2 5000")
    assert again == [Taken(1, "b", 2), Taken(3, "d", 2)]
    for each in again:
        java(f"ack {one} {each.offset} ACCEPT")
    assert java(f"commit {one}") == "none"
    java(f"close {one}")


def test_a_record_is_delivered_up_to_the_limit(bootstrap: str, java: JavaShareConsumers, queue: Queue) -> None:
    one = queue.of("one")
    java(f"group {queue.group} share.delivery.count.limit=3")
    fill(bootstrap, queue, "a")
    java(queue.open("one", EXPLICIT))
    counts = []
    for _ in range(3):
        (taken,) = java.records(f"take {one} 1 15000")
        counts.append(taken.delivery_count)
        java(f"ack {one} 0 RELEASE")
        assert java(f"commit {one}") == "none"
    assert counts == [1, 2, 3]
    assert java.records(f"poll {one} 700") == []
    java(f"close {one}")


def test_a_lock_holds_while_it_is_renewed_and_then_ends(bootstrap: str, java: JavaShareConsumers, queue: Queue) -> None:
    one, two = queue.of("one"), queue.of("two")
    java(f"group {queue.group} share.record.lock.duration.ms={LOCK_MS}")
    fill(bootstrap, queue, "a")
    java(queue.open("one", EXPLICIT))
    assert java.records(f"take {one} 1 15000") == [Taken(0, "a", 1)]
    java(queue.open("two"))
    for _ in range(2 * LOCK_MS // POLL_MS):
        java(f"ack {one} 0 RENEW")
        assert java(f"commit {one}") == "none"
        assert java.records(f"poll {two} {POLL_MS}") == []
        assert java.records(f"poll {one} 50") == [Taken(0, "a", 1)]  # from the consumer itself
    assert java.records(f"take {two} 1 15000") == [Taken(0, "a", 2)]
    java(f"ack {one} 0 ACCEPT")
    assert java(f"commit {one}") == "InvalidRecordStateException"
    java(f"close {one}")
    java(f"close {two}")


def test_the_records_of_a_killed_consumer_come_to_another(
    bootstrap: str, java: JavaShareConsumers, queue: Queue, tmp_path: Path
) -> None:
    fill(bootstrap, queue, "abcd")
    killed = start(bootstrap, tmp_path)
    try:
        killed(queue.open("one", EXPLICIT))
        assert len(killed.records(f"take {queue.of('one')} 4 15000")) == 4
    finally:
        killed.stop()
    java(queue.open("two"))
    assert java.records(f"take {queue.of('two')} 4 15000") == [Taken(n, v, 2) for n, v in enumerate("abcd")]
    java(f"close {queue.of('two')}")


def test_several_consumers_get_each_record_once(bootstrap: str, java: JavaShareConsumers, queue: Queue) -> None:
    names = [queue.of(name) for name in ("one", "two", "three")]
    for name in ("one", "two", "three"):
        java(queue.open(name, "max.poll.records=5"))
    fill(bootstrap, queue, *(["abcde"] * 30))
    got: Counter[int] = Counter()

    def all_came() -> bool:
        for name in names:
            got.update(each.offset for each in java.records(f"poll {name} 50"))
        return len(got) == 150

    eventually(all_came, "all records")
    assert set(got.values()) == {1}
    for name in names:
        java(f"close {name}")


def test_committed_transactions_alone_are_read(bootstrap: str, java: JavaShareConsumers, queue: Queue) -> None:
    java(f"group {queue.group} share.isolation.level=read_committed")
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": queue.topic})
    producer.init_transactions()
    for word, is_committed in (("ab", True), ("cd", False), ("ef", True)):
        producer.begin_transaction()
        for letter in word:
            producer.produce(queue.topic, letter.encode(), partition=0)
        producer.commit_transaction() if is_committed else producer.abort_transaction()
    java(queue.open("one"))
    taken = java.records(f"take {queue.of('one')} 4 15000")
    assert ([each.value for each in taken], {each.delivery_count for each in taken}) == (list("abef"), {1})
    java(f"close {queue.of('one')}")


def test_the_console_share_consumer_prints_records(bootstrap: str, queue: Queue, tmp_path: Path) -> None:
    fill(bootstrap, queue, "abc")
    tool = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
    where = ("--bootstrap-server", bootstrap, "--topic", queue.topic, "--group", queue.group)
    printed = kafka.run_tool(tool, *where, "--max-messages", "3", "--timeout-ms", "20000", logs=tmp_path)
    assert printed.split() == list("abc")
