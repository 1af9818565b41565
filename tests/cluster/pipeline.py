"""A transactional pipeline that keeps count: it consumes numbers, and produces each one to another topic, with the
offsets of its group in the same transaction. Each number must be in the output once.

    with ConfluentPipeline(bootstrap, source, target, partitions=3) as pipeline:       or JavaPipeline
        pipeline.wait_for(10)                   so many more transactions are committed
        ...                                     brokers come and go
    assert not pipeline.faults()

A pipeline is a client's consumer and transactional producer on a thread, or in a process, of their own.
"""

import os
import subprocess
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from itertools import pairwise
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.cluster.transactional_clients import FAST, read_committed
from tests.conformance.programs import JavaProgram, hash_of, java_command, missing_tools
from tests.eventually import WITHIN_SECONDS, eventually
from tests.harness import stop_process, tail
from tests.peers.cache import build_once

IDLE_MS = 2000
"""librdkafka 2.16 waits for a group coordinator that is no longer in Metadata until one of its connections changes, for
longer than the call's time-out (its issues 5511 and 5456). An idle connection that is closed is such a change."""
BATCH = 5
PAUSE_S = 0.05


class Pipeline(ABC):
    """One client's pipeline, at work from entering to leaving."""

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
            self._stop()
            self._thread.join(WITHIN_SECONDS)

    @abstractmethod
    def _run(self) -> None:
        """Copies until `_is_stopping`; keeps `ends`, `aborted`, `errors` and `_done`."""

    def _stop(self) -> None:  # noqa: B027 - a thread needs no more than `_is_stopping`
        """Ends what `_run` waits for."""

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


class ConfluentPipeline(Pipeline):
    """confluent-kafka's producer and consumer on a thread."""

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
        recover: KafkaException | None = None
        while not self._is_stopping.is_set():
            try:
                if recover is not None:
                    producer = self._recover(producer, consumer, is_abortable=recover.args[0].txn_requires_abort())
                    recover = None
                messages = [each for each in consumer.consume(100, 0.02) if each.error() is None]
                if messages:
                    self._process(producer, consumer, messages)
            except KafkaException as error:
                failure = error.args[0]
                self.errors.append(f"{failure.name()}: {failure.str()}")
                recover = error
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
        producer = Producer({**settings, "linger.ms": 2, "connections.max.idle.ms": IDLE_MS})
        producer.init_transactions(WITHIN_SECONDS)
        return producer


class JavaPipeline(Pipeline):
    """Apache Kafka's own client, in `java/TransactionalPipeline.java`, which is compiled once."""

    program = Path(__file__).parent / "java" / "TransactionalPipeline.java"
    settings = (
        "retry.backoff.ms=50", "retry.backoff.max.ms=200", "reconnect.backoff.ms=20", "reconnect.backoff.max.ms=200",
        "metadata.max.age.ms=2000", "request.timeout.ms=5000", "default.api.timeout.ms=20000",
    )  # fmt: skip

    @staticmethod
    def missing() -> str | None:
        """Why it cannot run here; None if it can."""
        return missing_tools(JavaProgram.tools)

    def __enter__(self) -> "JavaPipeline":
        arguments = (self.bootstrap, self.source, self.target, self.group, self.transactional_id, str(self.partitions))
        self._directory = tempfile.TemporaryDirectory()
        self._errors = Path(self._directory.name, "stderr")
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [*_java_command(self.program), *arguments, *self.settings],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        super().__enter__()
        return self

    def state(self) -> str:
        """See `Pipeline.state`."""
        return f"{super().state()}\n{tail(self._errors)}"

    def _run(self) -> None:
        assert self._process.stdout is not None
        for line in map(bytes.decode, self._process.stdout):
            event, _, rest = line.strip().partition(" ")
            if event == "committed":
                self._done = int(rest)
                self.ends.append(time.monotonic())
                continue
            self.errors.append(line.strip())
            if event == "aborted":
                self.aborted += 1
                self._done = int(rest.partition(" ")[0])

    def _stop(self) -> None:
        stop_process(self._process)

    def __exit__(self, kind: object, *rest: object) -> None:
        try:
            super().__exit__(kind, *rest)
        finally:
            self._directory.cleanup()


PIPELINES: dict[str, type[Pipeline]] = {"confluent-kafka": ConfluentPipeline, "java": JavaPipeline}


def _java_command(source: Path) -> list[str]:
    """Compiles the program against the newest client of the conformance tests, unless that was done before."""
    library = JavaProgram("4.3.1").library()
    home = build_once(
        f"{source.stem}-{hash_of(source)}",
        lambda home: [["javac", "-nowarn", "-d", str(home), "-cp", library, str(source)]],
    )
    return java_command(f"{home}{os.pathsep}{library}", source.stem)
