"""Positions, groups and commits, on our broker and on Apache Kafka."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from threading import Thread
from typing import Any

import pytest

from headrace.client.consumer import fetcher
from headrace.client.consumer.consumer import Consumer, ConsumerSettings
from headrace.client.consumer.group_session import GroupTimes
from headrace.client.core.connection import Connection, pump_any
from headrace.client.core.failures import NoOffset
from headrace.client.core.group_metadata import OffsetAndMetadata
from headrace.client.operations.admin import RESOURCE_BROKER, Admin
from headrace.client.operations.group_admin import GroupAdmin
from headrace.client.producer.producer import Producer
from headrace.errors import ErrorCode, InvalidConfig, OffsetOutOfRange, UnknownTopicOrPartition, UnsupportedVersion
from headrace.types import TopicPartition
from tests.client.brokers import topic_name
from tests.eventually import WITHIN_SECONDS, collected, eventually

QUICK = GroupTimes(session_timeout_ms=6_000, heartbeat_interval_ms=100, max_poll_interval_ms=10_000)
MakeConsumer = Callable[..., Consumer]


@pytest.fixture
def topic(broker: str, admin: Admin) -> str:
    """Four partitions of 25 records."""
    name = topic_name("consumed")
    admin.create_topic(name, 4, 1)
    with Producer(broker) as producer:
        for number in range(100):
            producer.send(name, b"%d" % number, partition=number % 4, timestamp_ms=1000 * number)
    return name


@pytest.fixture
def consumer_of(broker: str) -> Iterator[MakeConsumer]:
    with ExitStack() as stack:

        def make(**settings: object) -> Consumer:
            how = ConsumerSettings(auto_offset_reset="earliest", times=QUICK)
            return stack.enter_context(Consumer(broker, how.replace(**settings)))

        yield make


def drain(consumer: Consumer, count: int) -> list[int]:
    return collected(lambda _: [int(record.value or b"") for record in consumer.poll(200)], count)


@pytest.mark.slow
def test_seeks_to_offsets_ends_and_times(consumer_of: MakeConsumer, topic: str) -> None:
    partition = TopicPartition(topic, 1)
    consumer = consumer_of()
    consumer.assign([partition])
    assert drain(consumer, 25) == list(range(1, 100, 4))
    consumer.seek(partition, 20)
    assert drain(consumer, 5) == [81, 85, 89, 93, 97]
    consumer.seek_to_time(50_000)
    assert consumer.position(partition) == 13
    consumer.seek_to_time(1_000_000)
    assert consumer.position(partition) == 25
    consumer.seek_to_beginning()
    assert consumer.position(partition) == 0
    consumer.seek_to_end()
    assert consumer.poll(50) == []


def test_a_position_is_what_was_handed_out(consumer_of: MakeConsumer, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    consumer = consumer_of()
    consumer.assign([partition])
    assert len(consumer.poll(30_000, max_records=3)) == 3
    assert consumer.position(partition) == 3
    assert [record.offset for record in consumer.poll(30_000, max_records=2)] == [3, 4]
    found = consumer.poll_columns(30_000)
    assert [list(columns.offsets) for _, columns in found] == [list(range(5, 25))]


def test_a_paused_partition_waits(consumer_of: MakeConsumer, topic: str) -> None:
    one, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer = consumer_of()
    consumer.assign([one, other])
    consumer.pause([one])
    assert {number % 4 for number in drain(consumer, 25)} == {1}
    assert consumer.poll(50) == []
    consumer.resume([one])
    assert {number % 4 for number in drain(consumer, 25)} == {0}


def test_without_a_place_to_start_it_asks_for_one(consumer_of: MakeConsumer, topic: str) -> None:
    consumer = consumer_of(auto_offset_reset="none", group_id=topic_name("none"))
    consumer.assign([TopicPartition(topic, 0)])
    with pytest.raises(NoOffset, match=rf"{topic}-0.*seek"):
        consumer.poll(1000)
    consumer.seek(TopicPartition(topic, 0), 1000)
    with pytest.raises(OffsetOutOfRange, match=rf"{topic}-0 at offset 1000"):
        consumer.poll(30_000)


def test_an_offset_out_of_range_is_reset(
    consumer_of: MakeConsumer, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = consumer_of()
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek(TopicPartition(topic, 0), 1000)
    assert drain(consumer, 25) == list(range(0, 100, 4))
    (said,) = [each.getMessage() for each in caplog.records if "auto_offset_reset" in each.getMessage()]
    assert f"{topic}-0 at offset 1000" in said and "reading on from the earliest offset, 0" in said


@pytest.mark.parametrize("ask", [Consumer.lag, Consumer.end_offsets, Consumer.seek_to_end])
def test_records_that_came_with_another_answer_are_not_waited_for(
    ask: Callable[[Consumer], object], broker: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(connections: Iterable[Connection], *others: Any) -> bool:
        those = list(connections)
        assert all(each.in_flight for each in those), "waits for a broker that owes nothing"
        return pump_any(those, *others)

    partition = TopicPartition(topic, 0)
    with Producer(broker, linger_ms=0) as producer, Consumer(broker, auto_offset_reset="latest") as consumer:
        consumer.assign([partition])
        assert consumer.poll(10) == []  # a fetch is under way
        monkeypatch.setattr(fetcher, "pump_any", wait)
        for number in range(3):
            at = consumer.position(partition)
            producer.send(topic, b"%d" % number, partition=0).result(WITHIN_SECONDS)
            ask(consumer)  # on the connection of the fetch, which is answered first
            if ask is Consumer.seek_to_end:
                consumer.seek(partition, at)
            assert [record.value for record in consumer.poll(WITHIN_SECONDS * 1000)] == [b"%d" % number]


def test_brokers_of_tests_keep_records_of_any_time(admin: Admin) -> None:
    node = next(iter(admin.cluster.refresh([]).brokers))
    (period_ms,) = [
        each.value
        for each in admin.describe_configs(RESOURCE_BROKER, str(node))
        if each.name == "log.retention.check.interval.ms"
    ]
    assert int(period_ms or 0) >= 86_400_000, "these tests have records of 1970, which retention would delete"


@pytest.mark.slow
def test_a_member_alone_gets_everything_and_resumes_after_its_commit(consumer_of: MakeConsumer, topic: str) -> None:
    group = topic_name("alone")
    first = consumer_of(group_id=group)
    first.subscribe([topic])
    assert sorted(drain(first, 100)) == list(range(100))
    first.close()
    second = consumer_of(group_id=group)
    second.subscribe([topic])
    assert second.poll(1500) == []
    assert second.committed(second.assignment) == {TopicPartition(topic, partition): 25 for partition in range(4)}


def test_only_commit_commits_where_automatic_commits_are_off(consumer_of: MakeConsumer, topic: str) -> None:
    group = topic_name("manual")
    partition = TopicPartition(topic, 0)
    consumer = consumer_of(group_id=group, auto_commit=False)
    consumer.assign([partition])
    assert len(drain(consumer, 25)) == 25
    assert consumer.committed([partition]) == {}
    consumer.commit({partition: 7})
    assert consumer.committed([partition]) == {partition: 7}
    consumer.commit()
    assert consumer.committed([partition]) == {partition: 25}


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_two_members_share_and_one_takes_over(consumer_of: MakeConsumer, topic: str, assignor: str) -> None:
    group = topic_name("shared")
    taken: list[tuple[str, int]] = []
    first = consumer_of(group_id=group, assignors=(assignor,))
    first.subscribe(
        [topic],
        lambda partitions: taken.append(("assigned", len(partitions))),
        lambda partitions: taken.append(("revoked", len(partitions))),
    )
    found = drain(first, 100)
    second = consumer_of(group_id=group, assignors=(assignor,))
    second.subscribe([topic])

    def have(*counts: int) -> bool:
        for one in (first, second)[: len(counts)]:
            found.extend(int(record.value or b"") for record in one.poll(50))
        return (len(first.assignment), len(second.assignment))[: len(counts)] == counts

    eventually(lambda: have(2, 2), "two partitions each", every_s=0)
    second.close()
    eventually(lambda: have(4), "all partitions", every_s=0)
    assert sorted(found) == list(range(100)), "nothing lost, nothing twice"
    assert taken == [("assigned", 4), ("revoked", 4), ("assigned", 2), ("revoked", 2), ("assigned", 4)]


@pytest.mark.slow
def test_a_rebalance_heard_of_during_poll_is_joined_with_the_subscription(
    consumer_of: MakeConsumer, admin: Admin, topic: str
) -> None:
    group = topic_name("interrupted")
    consumer = consumer_of(group_id=group, auto_commit=False)
    consumer.subscribe([topic])
    assert len(drain(consumer, 100)) == 100
    session = consumer._session
    assert session is not None
    found: list[object] = []
    poll = Thread(target=lambda: found.extend(consumer.poll(1_000)))
    with session._lock:  # as the heartbeat's thread holds it while it waits for its answer
        poll.start()
        poll.join(0.2)
        session.membership.heard(ErrorCode.REBALANCE_IN_PROGRESS)
    poll.join(WITHIN_SECONDS)
    drain(consumer, 100 - len(found))
    (member,) = GroupAdmin(admin.cluster).describe_group(group).members
    assert sorted(member.assignment) == sorted(consumer.assignment) == [(topic, partition) for partition in range(4)]


def test_a_pattern_follows_topics(consumer_of: MakeConsumer, topic: str) -> None:
    consumer = consumer_of(group_id=topic_name("pattern"))
    consumer.subscribe(re.compile(re.escape(topic[:-1]) + "."))
    assert sorted(drain(consumer, 100)) == list(range(100))


def test_a_group_is_seen_from_outside(consumer_of: MakeConsumer, admin: Admin, topic: str) -> None:
    groups = GroupAdmin(admin.cluster)
    name = topic_name("seen")
    consumer = consumer_of(group_id=name)
    consumer.subscribe([topic])
    drain(consumer, 100)
    consumer.commit()
    try:
        assert name in [group.group_id for group in groups.list_groups()]
    except UnsupportedVersion as unserved:
        pytest.skip(f"the broker does not list groups: {unserved}")
    described = groups.describe_group(name)
    assert (described.state, described.assignor, len(described.members)) == ("Stable", "range", 1)
    assert len(described.members[0].assignment) == 4
    assert groups.offsets(name) == {TopicPartition(topic, partition): 25 for partition in range(4)}
    consumer.close()
    groups.delete_group(name)
    assert name not in [group.group_id for group in groups.list_groups()]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"auto_offset_reset": "middle"}, "auto_offset_reset='middle'"),
        ({"isolation_level": "none"}, "isolation_level='none'"),
        ({"assignors": ["fair"]}, "'fair'"),
        ({"group_id": ""}, "group_id is empty"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidConfig, match=named):
        Consumer("127.0.0.1:1", ConsumerSettings(**settings))  # type: ignore[arg-type]


def test_subscribe_needs_a_group() -> None:
    with Consumer("127.0.0.1:1") as consumer, pytest.raises(InvalidConfig, match="group_id"):
        consumer.subscribe(["t"])


def test_a_paused_partition_returns_nothing_of_what_was_fetched_before(consumer_of: MakeConsumer, topic: str) -> None:
    place = TopicPartition(topic, 0)
    consumer = consumer_of()
    consumer.assign([place])
    first = consumer.poll(WITHIN_SECONDS * 1000, max_records=5)
    consumer.pause([place])
    assert consumer.poll(100) == []
    consumer.resume([place])
    assert [first[-1].offset + 1] == [record.offset for record in consumer.poll(WITHIN_SECONDS * 1000, max_records=1)]


def test_a_poll_returns_in_time_while_all_that_was_fetched_is_paused(consumer_of: MakeConsumer, topic: str) -> None:
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    consumer = consumer_of()
    consumer.assign(places)
    consumer.poll(WITHIN_SECONDS * 1000)  # the answer has records of the others, too
    consumer.pause(places)
    assert consumer.poll(50) == []


def test_a_wake_up_ends_the_wait_of_a_poll(consumer_of: MakeConsumer, topic: str) -> None:
    consumer = consumer_of(auto_offset_reset="latest")
    consumer.assign([TopicPartition(topic, 0)])
    consumer.poll(10)
    polling = Thread(target=consumer.poll, args=(WITHIN_SECONDS * 1000,))
    polling.start()
    consumer.wakeup()
    polling.join(WITHIN_SECONDS / 2)
    assert not polling.is_alive()


def test_a_callback_may_commit_while_the_consumer_closes(consumer_of: MakeConsumer, topic: str) -> None:
    group = topic_name("closing")
    consumer = consumer_of(group_id=group, auto_commit=False)
    consumer.subscribe([topic], on_revoked=lambda _: consumer.commit())
    drain(consumer, 100)
    consumer.close()
    again = consumer_of(group_id=group)
    assert sum(again.committed([TopicPartition(topic, n) for n in range(4)]).values()) == 100


@pytest.mark.slow
def test_a_topic_that_was_created_anew_is_read_from_its_first_record(
    consumer_of: MakeConsumer, admin: Admin, broker: str, topic: str
) -> None:
    consumer = consumer_of(group_id=topic_name("anew"))
    places = [TopicPartition(topic, partition) for partition in range(4)]
    consumer.assign(places)
    assert len(drain(consumer, 100)) == 100
    admin.delete_topics([topic])
    eventually(lambda: topic not in [each.name for each in admin.list_topics()])
    admin.create_topic(topic, 4, 1)
    with Producer(broker) as producer:
        for number in range(200):  # more than the old topic had, so that the old positions are in range
            producer.send(topic, b"%d" % number, partition=number % 4)
    assert sorted(drain(consumer, 200)) == list(range(200))
    assert [consumer.position(place) for place in places] == [50] * 4


def test_commits_after_a_record_after_a_batch_and_with_a_text(consumer_of: MakeConsumer, topic: str) -> None:
    consumer = consumer_of(group_id=topic_name("by-record"), auto_commit=False)
    place = TopicPartition(topic, 2)
    consumer.assign([place])
    first, second, third = collected(lambda _: consumer.poll(200, 3), 3)
    consumer.commit(first)
    assert consumer.committed([place]) == {place: 1}
    consumer.commit([third, second])
    assert consumer.committed([place]) == {place: 3}
    consumer.commit({place: OffsetAndMetadata(2, "again")})
    assert consumer.committed_with_metadata([place]) == {place: OffsetAndMetadata(2, "again")}
    assert consumer.lag() == {place: 22}


@pytest.mark.slow
def test_partitions_that_are_assigned_again_go_on_where_they_were(consumer_of: MakeConsumer, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer = consumer_of()
    consumer.assign([first])
    assert [record.offset for record in collected(lambda _: consumer.poll(200, 3), 3)] == [0, 1, 2]
    consumer.assign([first, second])
    rest = collected(lambda _: consumer.poll(200), 47)
    assert [record.offset for record in rest if record.partition == 0] == list(range(3, 25))
    consumer.seek(first, 0)
    consumer.pause([second])
    for record in consumer:
        if record.offset == 5:
            consumer.assign([first])
        if record.offset == 8:
            break
    assert consumer.position(first) == 9


def test_a_deleted_topic_does_not_hold_up_the_others(
    consumer_of: MakeConsumer, broker: str, admin: Admin, topic: str
) -> None:
    gone, stays = TopicPartition(topic_name("gone"), 0), TopicPartition(topic, 0)
    admin.create_topic(gone.topic, 1, 1)
    with Producer(broker) as producer:
        producer.send(gone.topic, b"1000")
    consumer = consumer_of(group_id=topic_name("left"), auto_commit_interval_ms=10)
    consumer.assign([gone, stays])
    assert len(drain(consumer, 26)) == 26
    eventually(lambda: consumer.poll(10) == [] and consumer.committed([gone, stays]), "a commit")
    consumer.seek(gone, 0)  # so that there is something to commit
    consumer.seek(stays, 20)
    admin.delete_topics([gone.topic])
    eventually(lambda: gone.topic not in {each.name for each in admin.list_topics()}, "the end of the topic")
    assert len(drain(consumer, 5)) == 5
    eventually(lambda: consumer.poll(10) == [] and consumer.committed([stays]) == {stays: 25}, "the next commit")
    with pytest.raises(UnknownTopicOrPartition, match=gone.topic):
        consumer.commit()


def test_a_topic_that_was_created_anew_is_read_from_its_beginning(
    consumer_of: MakeConsumer, broker: str, admin: Admin
) -> None:
    name = topic_name("anew")
    admin.create_topic(name, 1, 1)
    consumer = consumer_of(auto_offset_reset="latest")
    consumer.assign([TopicPartition(name, 0)])
    consumer.seek_to_beginning()
    with Producer(broker) as producer:
        producer.send(name, b"1")
    assert drain(consumer, 1) == [1]
    admin.delete_topics([name])
    eventually(lambda: name not in {each.name for each in admin.list_topics()}, "the end of the topic")
    admin.create_topic(name, 1, 1)
    with Producer(broker) as producer:
        for number in range(5):
            producer.send(name, b"%d" % number)
    assert drain(consumer, 5) == [0, 1, 2, 3, 4]
