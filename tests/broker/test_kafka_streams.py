"""Kafka Streams with exactly_once_v2 counts every word once, though its process is killed."""

import uuid
from collections import defaultdict
from pathlib import Path

import pytest

from headrace.client.consumer.consumer import Consumer, ConsumerSettings
from headrace.client.producer.producer import Producer
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.types import TopicPartition
from tests import rotation
from tests.asker import Asker
from tests.conftest import StartHeadrace
from tests.eventually import eventually
from tests.harness import stop_process, tail
from tests.peers import kafka
from tests.peers.kafka_streams import start_word_count
from tests.wire import Wire

pytestmark = pytest.mark.slow  # processes of its own

SETTINGS = {
    **kafka.SHARED_SETTINGS,
    "group.min.session.timeout.ms": "1000",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.session.timeout.ms": "2000",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.heartbeat.interval.ms": "300",
    "group.streams.initial.rebalance.delay.ms": "500",
}
WORDS = ("all", "words", "are", "counted", "once")
LINES = 600
KILLS = 1


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.xdist_group("java-programs")
@pytest.mark.parametrize(
    "protocol",
    [pytest.param(each, marks=rotation.unless_today(number, 2)) for number, each in enumerate(("classic", "streams"))],
)
def test_a_word_count_that_is_killed_and_restarted_counts_every_word_once(
    protocol: str, headrace_server: StartHeadrace, tmp_path: Path
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
        process = start_word_count(bootstrap, source, target, tmp_path, protocol)
        try:
            for part in range(1, KILLS + 1):
                share = LINES * len(WORDS) * part // (KILLS + 2)

                def has_written_a_share(share: int = share) -> bool:
                    return written.total() >= share

                eventually(has_written_a_share, f"{share} counts", state=lambda: written.state(log))
                process.kill()
                process.wait()
                process = start_word_count(bootstrap, source, target, tmp_path, protocol)
            eventually(
                lambda: committed.total() >= LINES * len(WORDS),
                "all counts",
                state=lambda: committed.state(log),
            )
        finally:
            stop_process(process)
        assert committed.total() == LINES * len(WORDS)
        assert committed.by_word == {word: list(range(1, LINES + 1)) for word in WORDS}
        # Whether a kill met an open transaction is up to the speed of the machine.
        print(f"{written.total() - committed.total()} counts of transactions that were open when their process died")


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.xdist_group("java-programs")
@rotation.on_its_day(2, of=3)
def test_an_instance_takes_over_the_tasks_of_one_that_was_killed_and_the_tools_manage_the_group(
    headrace_server: StartHeadrace, tmp_path: Path
) -> None:
    if reason := kafka.missing_tools():
        pytest.skip(reason)
    bootstrap = headrace_server(settings={**SETTINGS, "group.streams.num.standby.replicas": "1"}).bootstrap
    name = uuid.uuid4().hex[:8]
    source, target, group = f"lines-{name}", f"counts-{name}", f"count-lines-{name}"
    with Wire(bootstrap) as wire:
        for topic in (source, target):
            assert wire.create_topic(topic, 2, {}) == 0
    with Producer(bootstrap) as producer:
        for number in range(LINES):
            producer.send(source, " ".join(WORDS).encode(), partition=number % 2)
    homes = [tmp_path / "one", tmp_path / "two"]
    for home in homes:
        home.mkdir()
    with Asker(bootstrap) as asker, Counts(bootstrap, target, "read_committed") as committed:
        processes = [start_word_count(bootstrap, source, target, home, "streams") for home in homes]

        def described() -> m.StreamsGroupDescribeResponse.DescribedGroup:
            answer: m.StreamsGroupDescribeResponse = asker.ask(m.StreamsGroupDescribeRequest(group_ids=[group]), 0)
            return answer.groups[0]

        def both_have_standby_tasks() -> bool:
            found = described()
            return (
                found.group_state == "Stable"
                and len(found.members) == 2
                and all(each.assignment.active_tasks and each.assignment.standby_tasks for each in found.members)
            )

        try:
            eventually(both_have_standby_tasks, "active and standby tasks of both", state=lambda: str(described()))
            processes[0].kill()
            processes[0].wait()
            eventually(
                lambda: committed.total() >= LINES * len(WORDS),
                "all counts",
                state=lambda: committed.state(homes[1] / "streams.log"),
            )
            assert committed.by_word == {word: list(range(1, LINES + 1)) for word in WORDS}
            shown = streams_groups(bootstrap, tmp_path, "--describe", "--group", group, "--state")
            assert group in shown and "Stable" in shown
            assert source in streams_groups(bootstrap, tmp_path, "--describe", "--group", group, "--offsets")
        finally:
            for process in processes:
                stop_process(process)
        eventually(lambda: described().group_state == "Empty", "an empty group", state=lambda: str(described()))
        assert "Empty" in streams_groups(bootstrap, tmp_path, "--list", "--state")
        reset = ("--reset-offsets", "--group", group, "--all-input-topics", "--to-earliest", "--execute")
        assert source in streams_groups(bootstrap, tmp_path, *reset)
        assert offsets_of(asker, group, source) == {0: 0, 1: 0}
        streams_groups(bootstrap, tmp_path, "--delete-offsets", "--group", group, "--input-topic", f"{source}:0")
        assert set(offsets_of(asker, group, source)) == {1}
        streams_groups(bootstrap, tmp_path, "--delete", "--group", group, "--delete-all-internal-topics")
        assert described().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def streams_groups(bootstrap: str, logs: Path, *arguments: str) -> str:
    """What kafka-streams-groups prints."""
    tool = "org.apache.kafka.tools.streams.StreamsGroupCommand"
    return kafka.run_tool(tool, "--bootstrap-server", bootstrap, *arguments, logs=logs, with_stderr=True)


def offsets_of(asker: Asker, group: str, topic: str) -> dict[int, int]:
    """The committed offsets of a topic, by partition."""
    wanted = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
    (found,) = asker.ask(m.OffsetFetchRequest(groups=[wanted]), 9).groups
    return {
        each.partition_index: each.committed_offset
        for found_topic in found.topics
        if found_topic.name == topic
        for each in found_topic.partitions
        if each.committed_offset >= 0
    }


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
