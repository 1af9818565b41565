"""A producer and a consumer that keep count: nothing acknowledged may be missing, nothing may be there twice.

    with VerifyingProducer(bootstrap, "t", partitions=3) as producer:
        ...                                     brokers come and go
    report = verify(bootstrap, "t", producer)
    assert not report.faults()

Each value is a number that is sent once, in ascending order within its partition, by confluent-kafka. Without
idempotence a retry may write a value twice or out of order, which is then no fault. Source: the verifiable producer
and the checks of Apache Kafka's system tests.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from tests.eventually import WITHIN_SECONDS, eventually

SETTLE_SECONDS = WITHIN_SECONDS


class Acknowledged(NamedTuple):
    """Where the cluster said that a value is (offset -1: it did not say), and when it said so (monotonic seconds)."""

    partition: int
    offset: int
    at: float


class VerifyingProducer:
    """Sends values at a steady pace on a thread of its own, from entering to leaving."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        partitions: int,
        per_second: int = 1000,
        is_idempotent: bool = True,
        codec: str = "none",
        acks: str = "all",
        delivery_seconds: float = SETTLE_SECONDS,
        first: int = 0,
    ) -> None:
        """`first`: the first value, so that several can be told apart."""
        self.first = first
        self.topic, self.partitions, self.per_second, self.is_idempotent = topic, partitions, per_second, is_idempotent
        self.sent: dict[int, int] = {}  # value -> partition
        self.acknowledged: dict[int, Acknowledged] = {}
        self.failed: dict[int, str] = {}
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "log_level": 0,
                "acks": acks,
                "enable.idempotence": is_idempotent,
                "compression.type": codec,
                "linger.ms": 2,
                "message.timeout.ms": int(delivery_seconds * 1000),
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 200,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.interval.ms": 2000,
                "socket.timeout.ms": 5000,
                "request.timeout.ms": 5000,
            }
        )
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="verifying-producer", daemon=True)

    def __enter__(self) -> "VerifyingProducer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopping.set()
        self._thread.join()

    def longest_silence(self, since: float = 0.0) -> float:
        """The longest time between two acknowledgements of one partition, in seconds, from `since` on."""
        times: dict[int, list[float]] = defaultdict(list)
        for each in list(self.acknowledged.values()):
            if each.at >= since:
                times[each.partition].append(each.at)
        return max(
            (later - earlier for each in times.values() for earlier, later in pairwise(sorted(each))), default=0.0
        )

    def wait_for(self, count: int, seconds: float = SETTLE_SECONDS) -> None:
        """Returns once that many more values are acknowledged than now; AssertionError when that takes too long."""
        wanted = len(self.acknowledged) + count
        eventually(
            lambda: len(self.acknowledged) >= wanted,
            f"{wanted} acknowledged values",
            within_s=seconds,
            state=self._state,
        )

    def _state(self) -> str:
        errors = sorted(set(self.failed.values()))[:3]
        return f"{len(self.acknowledged)} are acknowledged, {len(self.failed)} failed {errors}"

    def _run(self) -> None:
        value, began = self.first, time.monotonic()
        while not self._is_stopping.is_set():
            due = self.first + int((time.monotonic() - began) * self.per_second)
            while value < due and not self._is_stopping.is_set():
                self._send(value)
                value += 1
            self._producer.poll(0.005)
        self._producer.flush(SETTLE_SECONDS)

    def _send(self, value: int) -> None:
        partition = value % self.partitions
        self.sent[value] = partition
        text = str(value).encode()
        while True:
            try:
                self._producer.produce(self.topic, text, text, partition, on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        data = message.value()
        assert data is not None
        if error is not None:
            self.failed[int(data)] = error.str()
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        # A retry of a batch that was appended long ago is acknowledged without an offset (DUPLICATE_SEQUENCE_NUMBER).
        self.acknowledged[int(data)] = Acknowledged(partition, -1 if offset is None else offset, time.monotonic())


@dataclass
class Report:
    """What was read, beside what was sent."""

    is_idempotent: bool
    acknowledged: int = 0
    read: int = 0
    lost: list[int] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)  # acknowledged at one offset and read at others only
    doubled: list[int] = field(default_factory=list)
    disordered: list[int] = field(default_factory=list)
    invented: list[int] = field(default_factory=list)

    def faults(self) -> dict[str, list[int]]:
        """Every kind of fault that the cluster may not commit, with the first values of each."""
        kinds = ["lost", "invented"]
        if self.is_idempotent:
            kinds += ["moved", "doubled", "disordered"]
        return {kind: getattr(self, kind)[:20] for kind in kinds if getattr(self, kind)}


def verify(bootstrap: str, topic: str, producer: VerifyingProducer) -> Report:
    """Reads the whole topic and compares."""
    reads = read_all(bootstrap, topic, producer.partitions)
    return compare(producer.sent, producer.acknowledged, reads, is_idempotent=producer.is_idempotent)


def compare(
    sent: Collection[int],
    acknowledged: Mapping[int, Acknowledged],
    reads: Iterable[tuple[int, int, int]],
    *,
    is_idempotent: bool,
) -> Report:
    """The report on what `read_all` gave."""
    places: dict[int, list[tuple[int, int]]] = defaultdict(list)
    report = Report(is_idempotent, acknowledged=len(acknowledged))
    last: dict[int, int] = {}
    for partition, offset, value in reads:
        report.read += 1
        places[value].append((partition, offset))
        if value < last.get(partition, -1):
            report.disordered.append(value)
        last[partition] = max(value, last.get(partition, -1))
    report.invented = sorted(value for value in places if value not in sent)
    report.doubled = sorted(value for value, each in places.items() if len(each) > 1)
    for value, said in sorted(acknowledged.items()):
        if value not in places:
            report.lost.append(value)
        elif said.offset >= 0 and (said.partition, said.offset) not in places[value]:
            report.moved.append(value)
    return report


def read_all(bootstrap: str, topic: str, partitions: int) -> list[tuple[int, int, int]]:
    """(partition, offset, value) of every record that is there now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "group.id": "verifying-consumer",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "reconnect.backoff.max.ms": 200,
        }
    )
    found: list[tuple[int, int, int]] = []
    try:
        open_ones = set(range(partitions))
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in open_ones])
        while open_ones:
            # in a list, because a message without a value is false
            (message,) = eventually(
                lambda: [each for each in [consumer.poll(0.2)] if each is not None],
                f"the ends of {topic}'s partitions {open_ones}",
                every_s=0,
            )
            error, partition, offset = message.error(), message.partition(), message.offset()
            assert partition is not None
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    open_ones.discard(partition)
                continue
            data = message.value()
            assert data is not None and offset is not None
            found.append((partition, offset, int(data)))
    finally:
        consumer.close()
    return found
