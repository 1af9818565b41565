"""Members of groups for tests: consumers that poll in threads, and Kafka's own in a JVM."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import confluent_kafka

from headrace.client.consumer.consumer import Consumer
from headrace.client.operations.group_admin import GroupAdmin
from headrace.errors import KafkaError
from headrace.types import TopicPartition
from tests.eventually import eventually
from tests.peers import kafka

JAVA = Path(__file__).parent / "java"


class Polling:
    """Our consumer, polled by a thread of its own. `told` are its callbacks in order."""

    def __init__(self, bootstrap: str, topics: object, **options: object) -> None:
        self.told: list[tuple[str, list[TopicPartition]]] = []
        self.values: list[bytes] = []
        self.failure: KafkaError | None = None
        self.consumer = Consumer(bootstrap, auto_offset_reset="earliest", **options)  # type: ignore[arg-type]
        self._topics = topics
        self._ended = Event()
        self._closes = True
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self, *, leaves: bool = True) -> None:
        """Closes the consumer, or drops it as a process that dies does."""
        self._closes = leaves
        self._ended.set()
        self._thread.join()

    @property
    def assigned(self) -> list[TopicPartition]:
        return sorted(self.consumer.assignment)

    def names(self) -> list[str]:
        """Which callbacks were called, in order, without those of no partitions."""
        return [name for name, partitions in self.told if partitions]

    def _run(self) -> None:
        self.consumer.subscribe(self._topics, self._note("assigned"), self._note("revoked"), self._note("lost"))  # type: ignore[arg-type]
        try:
            while not self._ended.is_set():
                self.values += [record.value or b"" for record in self.consumer.poll(100)]
        except KafkaError as failure:
            self.failure = failure
        if self._closes:
            self.consumer.close()

    def _note(self, name: str) -> Callable[[Collection[TopicPartition]], None]:
        return lambda partitions: self.told.append((name, sorted(partitions)))


@contextmanager
def java_member(bootstrap: str, topic: str, logs: Path, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """Kafka's consumer; `settings` with underscores for dots. It leaves at the end."""
    named = {name.replace("_", "."): value for name, value in settings.items()} | {"bootstrap.servers": bootstrap}
    command = [*kafka.java_command(logs, "-Xmx128m", *kafka.QUICK_START, *kafka.shared_classes())]
    process = subprocess.Popen(
        [*command, str(JAVA / "OneMember.java"), topic, *(f"{name}={value}" for name, value in named.items())],
        stdin=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


@contextmanager
def confluent_member(bootstrap: str, topic: str, **settings: object) -> Iterator[None]:
    """librdkafka's consumer, polled by a thread; `settings` with underscores for dots."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", **named})
    consumer.subscribe([topic])
    ended = Event()

    def run() -> None:
        while not ended.is_set():
            consumer.poll(0.1)
        consumer.close()

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def shares(groups: GroupAdmin, group: str) -> dict[str, list[TopicPartition]]:
    """Who has what in a stable group; nothing while it is not stable."""
    described = groups.describe_group(group)
    if described.state != "Stable":
        return {}
    return {member.member_id: sorted(member.assignment) for member in described.members}


def eventually_shared(groups: GroupAdmin, group: str, members: int, partitions: int) -> dict[str, list[TopicPartition]]:
    """The shares, once so many members have all partitions between them, each once, and nobody has none."""

    def found() -> dict[str, list[TopicPartition]] | None:
        now = shares(groups, group)
        held = [partition for each in now.values() for partition in each]
        is_whole = len(held) == len(set(held)) == partitions
        return now if len(now) == members and is_whole and all(now.values()) else None

    result = eventually(found, f"{members} members with {partitions} partitions", state=lambda: shares(groups, group))
    assert result is not None
    return result
