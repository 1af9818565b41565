"""kill -9 of the broker at random moments under load: nothing acknowledged is lost, nothing is doubled.

An idempotent producer that is not ours writes numbered values through all of it. What it was told at each
acknowledgement is compared with what is in the log at the end.
"""

import random
import time
from collections import Counter
from contextlib import suppress
from threading import Event, Thread
from typing import Any

import pytest

from tests import rotation
from tests.conftest import StartHeadrace
from tests.eventually import WITHIN_SECONDS, eventually
from tests.wire import Wire, batch

pytestmark = pytest.mark.slow  # processes of its own

PARTITIONS = 3
KILLS_BETWEEN_PROGRESS = 5
"""After so many kills the next one waits until something more was acknowledged. librdkafka takes up to a second after
each lost connection until it has asked for its producer id again, so on a busy machine the kills alone could keep it
from writing until its records time out."""


class Load:
    """Writes "0", "1", "2" … to all partitions until it is told to stop; remembers what was acknowledged where."""

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        from confluent_kafka import Producer

        self.topic = topic
        self.random = random.Random(seed)
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.failed: list[tuple[bytes, str]] = []
        self.sent = 0
        self.stopping = Event()
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "compression.type": self.random.choice(["none", "lz4", "zstd"]),
                "linger.ms": self.random.choice([0, 1, 5]),
                "message.timeout.ms": int(WITHIN_SECONDS * 1000),
                "queue.buffering.max.messages": 2_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
            }
        )
        self.thread = Thread(target=self._write, daemon=True)
        self.thread.start()

    def wait_for_progress(self) -> None:
        """Until something more was acknowledged."""
        before = len(self.acknowledged)
        eventually(
            lambda: len(self.acknowledged) > before or self.failed, "another acknowledgement", within_s=WITHIN_SECONDS
        )

    def stop(self) -> None:
        """Write no more; wait until everything is acknowledged or has failed."""
        self.stopping.set()
        self.thread.join(WITHIN_SECONDS)
        assert self.producer.flush(WITHIN_SECONDS) == 0

    def _write(self) -> None:
        while not self.stopping.is_set():
            value = b"%d " % self.sent + b"x" * self.random.randrange(400)
            with suppress(BufferError):
                self.producer.produce(self.topic, value, partition=self.sent % PARTITIONS, on_delivery=self._delivered)
                self.sent += 1
                self.producer.poll(0)
                continue
            self.producer.poll(0.01)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append((message.value(), str(error)))
        else:
            self.acknowledged[message.partition(), message.offset()] = message.value()


def read_everything(bootstrap: str, topic: str) -> dict[tuple[int, int], bytes]:
    """(partition, offset) -> value of the whole topic, CRCs checked."""
    from confluent_kafka import Consumer, TopicPartition

    with Wire(bootstrap) as wire:
        ends = [wire.list_offset(topic, -1, partition=partition)[2] for partition in range(PARTITIONS)]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "check.crcs": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: dict[tuple[int, int], bytes] = {}
    while len(found) < sum(ends):  # each wait has its own time: millions of records take a busy machine minutes
        for message in eventually(
            lambda: consumer.consume(10_000, 0.5), "another record", state=lambda: f"{len(found)} of {sum(ends)} came"
        ):
            assert message.error() is None, message.error()
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None and offset is not None and value is not None
            assert (partition, offset) not in found
            found[partition, offset] = value
    consumer.close()
    assert len(found) == sum(ends)
    return found


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_and_nothing_doubled_over_ten_kills(headrace_server: StartHeadrace) -> None:
    kill_under_load(headrace_server, kills=10)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_nothing_acknowledged_is_lost_and_nothing_doubled_over_three_hundred_kills(
    headrace_server: StartHeadrace,
) -> None:
    kill_under_load(headrace_server, kills=300)


def kill_under_load(headrace_server: StartHeadrace, kills: int) -> None:
    """Writes while the broker is killed and restarted, then compares every record."""
    seed = rotation.drawn("kill -9", 0)
    moments = random.Random(seed)
    server = headrace_server(settings={"log.segment.bytes": "262144"})
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic("numbers", PARTITIONS) == 0
    load = Load(server.bootstrap, "numbers", seed)
    try:
        for number in range(kills):
            if number % KILLS_BETWEEN_PROGRESS == 0:
                load.wait_for_progress()
            time.sleep(moments.uniform(0.02, 0.8))
            server.kill()
            server.restart()
    finally:
        load.stop()
    compare(load, read_everything(server.bootstrap, "numbers"))
    assert not load.failed
    assert len(load.acknowledged) == load.sent > kills


def compare(load: Load, found: dict[tuple[int, int], bytes]) -> None:
    """Everything that was acknowledged is where it was said to be, once, and nothing else is there but perhaps what the
    client gave up."""
    lost = {where: value for where, value in load.acknowledged.items() if found.get(where) != value}
    assert not lost, f"{len(lost)} acknowledged records are gone, first {next(iter(lost.items()))}"
    doubled = [value for value, times in Counter(found.values()).items() if times > 1]
    assert not doubled, f"{len(doubled)} records are there twice, first {doubled[0]!r}"
    assert len(load.acknowledged) <= len(found) <= len(load.acknowledged) + len(load.failed) == load.sent
    for partition in range(PARTITIONS):
        numbers = [int(value.split()[0]) for (where, _), value in sorted(found.items()) if where == partition]
        assert numbers == sorted(numbers), f"partition {partition} is not in the order of sending"


def test_a_committed_offset_survives(headrace_server: StartHeadrace) -> None:
    from confluent_kafka import Consumer, TopicPartition

    server = headrace_server()
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic("read", configs={"retention.ms": "-1"}) == 0
        assert wire.produce("read", batch([b"%d" % number for number in range(10)])).error_code == 0
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("read", 0, 7)], asynchronous=False)
    server.kill()
    server.restart()
    (committed,) = consumer.committed([TopicPartition("read", 0)], WITHIN_SECONDS)
    consumer.close()
    assert committed.offset == 7
