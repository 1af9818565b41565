"""Groups of KIP-848 of our consumers and Java's, on our broker and on Apache Kafka."""

import logging
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.client.consumer.consumer import Consumer
from headrace.client.core import versions
from headrace.client.operations.admin import Admin
from headrace.client.producer.producer import Producer
from headrace.errors import ErrorCode, InvalidConfig, KafkaError
from headrace.protocol.apis import ApiKey
from headrace.types import TopicPartition
from tests.client.brokers import topic_name
from tests.client.groups.members import Polling, confluent_member, java_member
from tests.eventually import eventually, eventually_equal
from tests.peers import kafka

MakeMember = Callable[..., Polling]


@pytest.fixture
def topic(broker: str, admin: Admin) -> str:
    """Six partitions of ten records."""
    name = topic_name("assigned")
    admin.create_topic(name, 6, 1)
    with Producer(broker) as producer:
        for number in range(60):
            producer.send(name, b"%d" % number, partition=number % 6)
    return name


@pytest.fixture
def group() -> str:
    return topic_name("group")


@pytest.fixture
def member(broker: str, topic: str, group: str) -> Iterator[MakeMember]:
    with ExitStack() as stack:

        def make(wanted: object = None, **options: object) -> Polling:
            made = Polling(broker, wanted or [topic], group_id=group, group_protocol="consumer", **options)
            stack.callback(made.stop)
            return made

        yield make


def together(*members: Polling) -> list[int]:
    return sorted(index for each in members for _, index in each.assigned)


@pytest.mark.slow
def test_members_keep_what_does_not_move(member: MakeMember) -> None:
    first = member()
    eventually_equal(lambda: len(first.assigned), 6)
    second = member()
    eventually_equal(lambda: (len(first.assigned), len(second.assigned)), (3, 3))
    assert together(first, second) == list(range(6))
    assert first.names() == ["assigned", "revoked"]
    second.stop()
    eventually_equal(lambda: len(first.assigned), 6)
    assert first.names() == ["assigned", "revoked", "assigned"]
    eventually_equal(lambda: sorted(set(map(int, first.values + second.values))), list(range(60)))
    assert len(first.values + second.values) == 60


def test_commits_are_of_the_members_epoch(member: MakeMember, broker: str, group: str, topic: str) -> None:
    first = member()
    eventually_equal(lambda: len(first.values), 60)
    first.stop()
    with Consumer(broker, group_id=group) as reader:
        places = [TopicPartition(topic, number) for number in range(6)]
        assert reader.committed(places) == dict.fromkeys(places, 10)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_members_choose_the_assignor(member: MakeMember, admin: Admin, topic: str, assignor: str) -> None:
    other = topic_name("other")
    admin.create_topic(other, 1, 1)
    members = [member([topic, other], group_remote_assignor=assignor) for _ in range(2)]
    # Range gives partition 0 of both topics to one member, uniform evens out: seven are three and four either way.
    eventually_equal(lambda: sorted(len(each.assigned) for each in members), [3, 4])
    with_other = next(each for each in members if TopicPartition(other, 0) in each.assigned)
    if assignor == "range":
        assert TopicPartition(topic, 0) in with_other.assigned


@pytest.mark.slow
def test_the_broker_matches_a_pattern(member: MakeMember, admin: Admin, topic: str) -> None:
    matching = member(re.compile(re.escape(topic).upper() + "(-more)?", re.IGNORECASE))
    eventually_equal(lambda: {each.topic for each in matching.assigned}, {topic})
    admin.create_topic(f"{topic}-more", 1, 1)
    eventually_equal(lambda: {each.topic for each in matching.assigned}, {topic, f"{topic}-more"})


def test_a_pattern_that_the_broker_does_not_know_is_refused(member: MakeMember) -> None:
    failed = member(re.compile("(?=o).*"))
    failure = eventually(lambda: failed.failure)
    assert failure is not None
    assert failure.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "RE2" in str(failure)


def test_an_unknown_assignor_is_refused(member: MakeMember) -> None:
    failed = member(group_remote_assignor="fair")
    failure = eventually(lambda: failed.failure)
    assert failure is not None
    assert "group.consumer.assignors" in str(failure)


@pytest.mark.slow
def test_a_static_member_comes_back_to_its_partitions(member: MakeMember) -> None:
    other, static = member(group_instance_id="a"), member(group_instance_id="b")
    eventually_equal(lambda: (len(other.assigned), len(static.assigned)), (3, 3))
    before, told = static.assigned, list(other.told)
    static.stop()
    again = member(group_instance_id="b")
    eventually_equal(lambda: again.assigned, before)
    assert other.told == told


def test_an_instance_id_in_use_is_refused(member: MakeMember) -> None:
    first = member(group_instance_id="a")
    eventually_equal(lambda: len(first.assigned), 6)
    second = member(group_instance_id="a")
    failure = eventually(lambda: second.failure)
    assert failure is not None
    assert failure.code == ErrorCode.UNRELEASED_INSTANCE_ID


@pytest.mark.slow
def test_a_member_that_does_not_poll_loses_its_partitions(
    broker: str, group: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []
    with (
        caplog.at_level(logging.WARNING, "headrace"),
        Consumer(broker, group_id=group, group_protocol="consumer", max_poll_interval_ms=500) as consumer,
    ):
        consumer.subscribe(
            [topic], lambda _: told.append("assigned"), lambda _: told.append("revoked"), lambda _: told.append("lost")
        )
        eventually(lambda: consumer.poll(50) or consumer.assignment)
        eventually(lambda: "max_poll_interval_ms" in caplog.text)

        def told_after_poll() -> list[str]:
            consumer.poll(50)
            return told

        eventually_equal(told_after_poll, ["assigned", "lost", "assigned"])
        assert len(consumer.assignment) == 6


def test_a_broker_without_the_protocol_is_told_apart(
    broker: str, group: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(versions.SPOKEN, ApiKey.CONSUMER_GROUP_HEARTBEAT, (99, 99))
    with Consumer(broker, group_id=group, group_protocol="consumer") as consumer:
        consumer.subscribe([topic])
        with pytest.raises(KafkaError, match="set group_protocol=classic") as refused:
            consumer.poll(20_000)
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_settings_of_the_other_protocol_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="group_remote_assignor"):
        Consumer("127.0.0.1:1", group_id="g", group_protocol="consumer", partition_assignment_strategy="sticky")
    with pytest.raises(InvalidConfig, match="group_protocol=consumer"):
        Consumer("127.0.0.1:1", group_id="g", group_remote_assignor="uniform")


def test_members_share_with_librdkafka(member: MakeMember, broker: str, group: str, topic: str) -> None:
    ours = member()
    eventually_equal(lambda: len(ours.assigned), 6)
    with confluent_member(broker, topic, group_id=group, group_protocol="consumer"):
        eventually_equal(lambda: len(ours.assigned), 3)
    eventually_equal(lambda: len(ours.assigned), 6)


@pytest.mark.slow
def test_a_classic_group_moves_to_the_protocol_and_back(
    member: MakeMember, broker: str, group: str, topic: str
) -> None:
    classic = Polling(broker, [topic], group_id=group, heartbeat_interval_ms=100, session_timeout_ms=6_000)
    try:
        eventually_equal(lambda: len(classic.assigned), 6)
        ours = member()
        eventually_equal(lambda: together(classic, ours), list(range(6)))
        eventually_equal(lambda: (len(classic.assigned), len(ours.assigned)), (3, 3))
        ours.stop()
        eventually_equal(lambda: len(classic.assigned), 6)
    finally:
        classic.stop()


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.skipif(kafka.missing_tools() is not None, reason=str(kafka.missing_tools()))
def test_members_share_with_java(member: MakeMember, broker: str, group: str, topic: str, tmp_path: Path) -> None:
    ours = member()
    eventually_equal(lambda: len(ours.assigned), 6)
    with java_member(broker, topic, tmp_path, group_id=group, group_protocol="consumer"):
        eventually_equal(lambda: len(ours.assigned), 3)
    eventually_equal(lambda: len(ours.assigned), 6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [{"group_protocol": "consumer"}, {"partition_assignment_strategy": "cooperative-sticky"}, {}],
    ids=["consumer", "cooperative", "eager"],
)
def test_a_consumer_changes_its_subscription_and_comes_back(
    broker: str, group: str, topic: str, admin: Admin, how: dict[str, str]
) -> None:
    other = topic_name("other")
    admin.create_topic(other, 1, 1)
    told: list[tuple[str, set[str]]] = []

    def note(name: str) -> Callable[[Collection[TopicPartition]], None]:
        return lambda partitions: told.append((name, {each.topic for each in partitions}))

    with Consumer(broker, group_id=group, heartbeat_interval_ms=100, **how) as consumer:  # type: ignore[arg-type]

        def reads(*topics: str) -> bool:
            consumer.poll(50)
            return {each.topic for each in consumer.assignment} == set(topics)

        consumer.subscribe([topic], note("assigned"), note("revoked"))
        eventually(lambda: reads(topic))
        consumer.subscribe([topic, other], note("assigned"), note("revoked"))
        eventually(lambda: reads(topic, other))
        is_eager = not how
        assert (("revoked", {topic}) in told) == is_eager
        consumer.subscribe([other], note("assigned"), note("revoked"))
        eventually(lambda: reads(other))
        consumer.unsubscribe()
        assert consumer.assignment == []
        assert other in told[-1][1]
        consumer.subscribe([topic])
        eventually(lambda: reads(topic))
