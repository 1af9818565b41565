"""A transactional pipeline that keeps count: it consumes numbers, and produces each one to another topic, with the
offsets of its group in the same transaction. Each number must be in the output once.

    with Pipeline(bootstrap, source, target, partitions=3) as pipeline:
        pipeline.wait_for(10)                   so many more transactions are committed
        ...                                     brokers come and go
    assert not pipeline.faults()
"""

import threading
import time
from collections import Counter
from itertools import pairwise

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.cluster.transactional_clients import FAST, read_committed
from tests.eventually import WITHIN_SECONDS, eventually

BATCH = 5
PAUSE_S = 0.05


class Pipeline:
    """confluent-kafka's producer and consumer on a thread of their own, from entering to leaving."""

    def __init__(self, bootstrap: str, source: str, target: str, *, partitions: int) -> None:
        self.bootstrap, self.source, self.target, self.partitions = bootstrap, source, target, partitions
        self.group, self.transactional_id = f"{target}-group", f"{target}-id"
        self.ends: list[float] = []
        self.aborted = 0
        self.errors: list[str] = []
        self._fed = 0
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pipeline", daemon=True)
        self._is_fed = threading.Event()
        self._done = 0
        self._feeding = threading.Thread(target=self._feed, name="feeder", daemon=True)

    def __enter__(self) -> "Pipeline":
        self._thread.start()
        self._feeding.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._is_fed.set()
        self._feeding.join(WITHIN_SECONDS)
        try:
            if kind is None:
                eventually(self._is_at_the_end, "all numbers in the output", state=self.state)
        finally:
            self._is_stopping.set()
            self._thread.join(WITHIN_SECONDS)

    def state(self) -> str:
        """For a failure's report."""
        return f"{self._fed} numbers, {len(self.ends)} commits, {self.aborted} aborts, {self.errors[-5:]}"

    def wait_for(self, count: int) -> None:
        """Returns once that many more transactions are committed."""
        wanted = len(self.ends) + count
        eventually(lambda: len(self.ends) >= wanted, f"{wanted} commits", state=self.state)

    def longest_pause(self) -> float:
        """The longest time between two commits, in seconds."""
        return max((later - earlier for earlier, later in pairwise(self.ends)), default=0.0)

    def faults(self) -> list[str]:
        """What the output has too much or too little."""
        found = read_committed(self.bootstrap, self.target, self.partitions)
        counts = Counter(int(value) for values in found.values() for value in values)
        lost = [number for number in range(self._fed) if not counts[number]]
        doubled = [number for number, count in counts.items() if count > 1]
        disordered = [key for key, values in found.items() if list(map(int, values)) != sorted(map(int, values))]
        named = {"lost": lost, "doubled": doubled, "disordered": disordered}
        return [f"{name}: {each[:20]}" for name, each in named.items() if each]

    def _is_at_the_end(self) -> bool:
        return self._done >= self._fed

    def _feed(self) -> None:
        """Writes numbers to the source at a steady pace."""
        feeder = Producer({**FAST, "bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 2})
        while not self._is_fed.is_set():
            for number in range(self._fed, self._fed + BATCH):
                feeder.produce(self.source, str(number).encode(), partition=number % self.partitions)
            self._fed += BATCH
            feeder.poll(0)
            self._is_fed.wait(PAUSE_S)
        feeder.flush(WITHIN_SECONDS)

    def _run(self) -> None:
        producer = self._producer()
        consumer = Consumer(
            {
                **FAST,
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.assign([TopicPartition(self.source, number) for number in range(self.partitions)])
        while not self._is_stopping.is_set():
            try:
                messages = [each for each in consumer.consume(100, 0.02) if each.error() is None]
                if messages:
                    self._process(producer, consumer, messages)
            except KafkaException as error:
                failure = error.args[0]
                self.errors.append(f"{failure.name()}: {failure.str()}")
                producer = self._recover(producer, consumer, is_abortable=failure.txn_requires_abort())
        consumer.close()

    def _process(self, producer: Producer, consumer: Consumer, messages: list[Message]) -> None:
        producer.begin_transaction()
        for each in messages:
            producer.produce(self.target, each.value(), partition=each.partition() or 0)
        offsets = consumer.position(consumer.assignment())
        known = [each for each in offsets if each.offset >= 0]
        producer.send_offsets_to_transaction(known, consumer.consumer_group_metadata(), WITHIN_SECONDS)
        while True:
            try:
                producer.commit_transaction(WITHIN_SECONDS)
                break
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                self.errors.append(f"again: {error.args[0].name()}")
        self._done += len(messages)
        self.ends.append(time.monotonic())

    def _recover(self, producer: Producer, consumer: Consumer, *, is_abortable: bool) -> Producer:
        """Aborts, or begins with a new producer, and goes back to the committed offsets."""
        self.aborted += 1
        if is_abortable:
            producer.abort_transaction(WITHIN_SECONDS)
        else:
            producer = self._producer()
        assigned = [TopicPartition(self.source, number) for number in range(self.partitions)]
        committed = consumer.committed(assigned, WITHIN_SECONDS)
        self._done = sum(max(each.offset, 0) for each in committed)
        for each in committed:
            consumer.seek(TopicPartition(self.source, each.partition, max(each.offset, 0)))
        return producer

    def _producer(self) -> Producer:
        settings = {**FAST, "bootstrap.servers": self.bootstrap, "transactional.id": self.transactional_id}
        producer = Producer({**settings, "linger.ms": 2})
        producer.init_transactions(WITHIN_SECONDS)
        return producer
