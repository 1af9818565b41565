"""Kafka Streams with exactly_once_v2 counts every word once, though its process is killed."""

import uuid
from collections import defaultdict
from pathlib import Path

import pytest

from headrace.client.consumer.consumer import Consumer, ConsumerSettings
from headrace.client.producer.producer import Producer
from headrace.types import TopicPartition
from tests.conftest import StartHeadrace
from tests.eventually import eventually
from tests.harness import stop_process, tail
from tests.peers import kafka
from tests.peers.kafka_streams import start_word_count
from tests.wire import Wire

SETTINGS = {**kafka.SHARED_SETTINGS, "group.min.session.timeout.ms": "1000"}
WORDS = ("all", "words", "are", "counted", "once")
LINES = 600
KILLS = 1


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.xdist_group("apache-kafka")
def test_a_word_count_that_is_killed_and_restarted_counts_every_word_once(
    headrace_server: StartHeadrace, tmp_path: Path
) -> None:
    if reason := kafka.missing_tools():
        pytest.skip(reason)
    bootstrap = headrace_server(settings=SETTINGS).bootstrap
    name = uuid.uuid4().hex[:8]
    source, target = f"lines-{name}", f"counts-{name}"
    with Wire(bootstrap) as wire:
        for topic in (source, target):
            assert wire.create_topic(topic, 2, {}) == 0
    with Producer(bootstrap) as producer:
        for number in range(LINES):
            producer.send(source, " ".join(WORDS).encode(), partition=number % 2)
    log = tmp_path / "streams.log"
    with Counts(bootstrap, target) as written, Counts(bootstrap, target, "read_committed") as committed:
        process = start_word_count(bootstrap, source, target, tmp_path)
        try:
            for part in range(1, KILLS + 1):
                share = LINES * len(WORDS) * part // (KILLS + 2)

                def has_written_a_share(share: int = share) -> bool:
                    return written.total() >= share

                eventually(has_written_a_share, f"{share} counts", state=lambda: written.state(log))
                process.kill()
                process.wait()
                process = start_word_count(bootstrap, source, target, tmp_path)
            eventually(
                lambda: committed.total() >= LINES * len(WORDS),
                "all counts",
                state=lambda: committed.state(log),
            )
        finally:
            stop_process(process)
        assert committed.total() == LINES * len(WORDS)
        assert committed.by_word == {word: list(range(1, LINES + 1)) for word in WORDS}
        eventually(
            lambda: written.total() > committed.total(), "counts of a transaction that was open when its process died"
        )


class Counts:
    """The counts in the target topic, by word."""

    def __init__(self, bootstrap: str, topic: str, isolation_level: str = "read_uncommitted") -> None:
        self.consumer = Consumer(bootstrap, ConsumerSettings(isolation_level=isolation_level))
        self.consumer.assign([TopicPartition(topic, partition) for partition in range(2)])
        self.consumer.seek_to_beginning()
        self.by_word: dict[str, list[int]] = defaultdict(list)

    def __enter__(self) -> "Counts":
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.close()

    def total(self) -> int:
        """Read what is new; how many counts there were so far."""
        for record in self.consumer.poll(100):
            assert record.key is not None
            assert record.value is not None
            self.by_word[record.key.decode()].append(int(record.value))
        return sum(map(len, self.by_word.values()))

    def state(self, log: Path) -> str:
        """For the message of a failure."""
        return f"{ ({word: len(counts) for word, counts in self.by_word.items()}) }\n{tail(log)}"
