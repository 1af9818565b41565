"""Share consumers, alone, together and beside Java's, on our broker and on Apache Kafka."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace import AcknowledgeType, KafkaError, Producer, ShareConsumer, ShareRecord
from headrace.client.operations.admin import RESOURCE_GROUP, Admin
from headrace.client.producer.producer import ProducerSettings
from headrace.errors import ErrorCode, InvalidConfig
from headrace.types import TopicPartition
from tests.client.brokers import topic_name
from tests.eventually import collected, eventually
from tests.peers import kafka
from tests.peers.share_consumers import PROGRAM, JavaShareConsumers

GROUP_RESOURCE = 32
LOCK_MS = 2_000
MakeConsumer = Callable[..., ShareConsumer]

EXPLICIT = {"share_acknowledgement_mode": "explicit"}


@pytest.fixture
def topic(broker: str, admin: Admin) -> str:
    """Two partitions of ten records."""
    name = topic_name("shared")
    admin.create_topic(name, 2, 1)
    produce(broker, name, range(20))
    return name


@pytest.fixture
def group(admin: Admin) -> str:
    """A share group that begins at the first record, with short locks."""
    name = topic_name("share-group")
    changes = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": str(LOCK_MS)}
    admin.alter_configs(RESOURCE_GROUP, name, changes)
    return name


@pytest.fixture
def consumer_of(broker: str, group: str, topic: str) -> Iterator[MakeConsumer]:
    with ExitStack() as stack:

        def make(**options: object) -> ShareConsumer:
            consumer = stack.enter_context(ShareConsumer(broker, group_id=group, **options))  # type: ignore[arg-type]
            consumer.subscribe([topic])
            return consumer

        yield make


def produce(broker: str, topic: str, numbers: range) -> None:
    with Producer(broker, ProducerSettings(linger_ms=50)) as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, partition=number % 2)


def taken(consumer: ShareConsumer, count: int) -> list[ShareRecord]:
    """So many records, accepted where the mode is implicit."""
    return collected(lambda missing: consumer.poll(200, missing), count)


def numbers(records: list[ShareRecord]) -> list[int]:
    return sorted(int(record.value or b"") for record in records)


@pytest.mark.slow
def test_the_next_poll_accepts_what_the_last_one_returned(consumer_of: MakeConsumer) -> None:
    consumer = consumer_of()
    assert numbers(taken(consumer, 20)) == list(range(20))
    assert set(consumer.commit().values()) == {None}
    consumer.close()
    time.sleep(LOCK_MS / 1000)
    assert consumer_of().poll(1_000) == []


@pytest.mark.slow
def test_records_that_were_not_accepted_come_again(consumer_of: MakeConsumer) -> None:
    first = consumer_of(**EXPLICIT)
    for record in collected(lambda _: acknowledged(first, AcknowledgeType.RELEASE, 5), 5):
        assert record.delivery_count == 1
    first.close()
    consumer = consumer_of()
    again = collected(lambda _: consumer.poll(200), 20)
    assert numbers(again) == list(range(20))
    assert max(record.delivery_count for record in again) == 2


def acknowledged(consumer: ShareConsumer, kind: AcknowledgeType, limit: int = 500) -> list[ShareRecord]:
    """The records of one poll, acknowledged."""
    found = consumer.poll(200, limit)
    for record in found:
        consumer.acknowledge(record, kind)
    return found


@pytest.mark.slow
def test_rejected_records_do_not_come_again_and_released_ones_do(consumer_of: MakeConsumer) -> None:
    consumer = consumer_of(**EXPLICIT)
    first: list[ShareRecord] = []
    again: list[ShareRecord] = []

    def poll(_: int) -> list[ShareRecord]:
        for record in (found := consumer.poll(200)):
            if record.delivery_count > 1:
                again.append(record)
                consumer.acknowledge(record)
            else:
                first.append(record)
                is_even = record.offset % 2 == 0
                consumer.acknowledge(record, AcknowledgeType.REJECT if is_even else AcknowledgeType.RELEASE)
        return found

    collected(poll, 30)
    assert numbers(first) == list(range(20))
    assert sorted(record.offset for record in again) == sorted([1, 3, 5, 7, 9] * 2)
    assert set(consumer.commit().values()) == {None}


@pytest.mark.slow
def test_two_members_share_the_records_of_one_partition(consumer_of: MakeConsumer, broker: str, topic: str) -> None:
    members = [consumer_of(share_acquire_mode="record_limit", max_poll_records=5) for _ in range(2)]
    found: list[list[ShareRecord]] = [[], []]

    def poll() -> bool:
        for number, member in enumerate(members):
            found[number] += member.poll(50)
        return sum(map(len, found)) >= 20

    eventually(poll)
    produce(broker, topic, range(20, 120))
    eventually(lambda: poll() and sum(map(len, found)) >= 120)
    assert numbers(found[0] + found[1]) == list(range(120))
    assert all(found)


@pytest.mark.slow
def test_the_records_of_a_member_that_stands_still_are_delivered_again(
    consumer_of: MakeConsumer, broker: str, admin: Admin
) -> None:
    single = topic_name("single")
    admin.create_topic(single, 1, 1)
    with Producer(broker) as producer:
        producer.send(single, b"1")
    slow, heir = consumer_of(**EXPLICIT), consumer_of()
    for each in (slow, heir):
        each.subscribe([single])
    (held,) = eventually(lambda: slow.poll(200))
    (again,) = eventually(lambda: heir.poll(200))
    assert (held.offset, held.delivery_count, again.offset, again.delivery_count) == (0, 1, 0, 2)
    slow.acknowledge(held)
    (refused,) = slow.commit().values()
    assert refused is not None
    assert refused.code == ErrorCode.INVALID_RECORD_STATE
    assert set(heir.commit().values()) == {None}


@pytest.mark.slow
def test_a_renewed_record_stays_with_its_member(consumer_of: MakeConsumer) -> None:
    consumer = consumer_of(**EXPLICIT)
    (record,) = eventually(lambda: consumer.poll(200, 1))
    ends = time.monotonic() + 2 * LOCK_MS / 1000
    while time.monotonic() < ends:
        consumer.acknowledge(record, AcknowledgeType.RENEW)
        assert consumer.commit() == {TopicPartition(record.topic, record.partition): None}
        time.sleep(LOCK_MS / 8000)
    consumer.acknowledge(record)
    assert consumer.commit() == {TopicPartition(record.topic, record.partition): None}


@pytest.mark.slow
def test_the_callback_hears_of_every_acknowledgement(consumer_of: MakeConsumer) -> None:
    consumer = consumer_of()
    heard: list[tuple[TopicPartition, int]] = []
    consumer.on_acknowledged(
        lambda places, error: heard.extend((each, o) for each, offsets in places.items() for o in offsets if not error)
    )
    records = taken(consumer, 20)
    consumer.close()
    assert sorted(heard) == sorted((TopicPartition(r.topic, r.partition), r.offset) for r in records)


@pytest.mark.slow
def test_an_explicit_consumer_must_acknowledge_before_it_polls(consumer_of: MakeConsumer) -> None:
    consumer = consumer_of(**EXPLICIT)
    record = eventually(lambda: consumer.poll(200))[0]
    with pytest.raises(KafkaError, match="acknowledge every record before the next poll"):
        consumer.poll(10)
    consumer.acknowledge(record)
    consumer.commit()
    with pytest.raises(KafkaError, match="not locked for this consumer"):
        consumer.acknowledge(record)


def test_mistakes_are_told() -> None:
    with pytest.raises(InvalidConfig, match="needs a group_id"):
        ShareConsumer("127.0.0.1:1")
    with pytest.raises(InvalidConfig, match="expected implicit or explicit"):
        ShareConsumer("127.0.0.1:1", group_id="g", share_acknowledgement_mode="auto")
    with ShareConsumer("127.0.0.1:1", group_id="g") as consumer, pytest.raises(KafkaError, match="call subscribe"):
        consumer.poll(10)


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.skipif(kafka.missing_tools() is not None, reason=str(kafka.missing_tools()))
def test_members_share_with_java(
    broker: str, topic: str, group: str, consumer_of: MakeConsumer, tmp_path: Path
) -> None:
    java = JavaShareConsumers([*kafka.java_command(tmp_path, *kafka.QUICK_START), str(PROGRAM), broker])
    try:
        java(f"open theirs {group} {topic} max.poll.records=5 share.acquire.mode=record_limit")
        ours = consumer_of(share_acquire_mode="record_limit", max_poll_records=5)
        found: list[list[int]] = [[], []]

        def poll() -> bool:
            found[0] += [int(record.value or b"") for record in ours.poll(50)]
            found[1] += [int(record.value) for record in java.records("poll theirs 50")]
            return len(set(found[0] + found[1])) >= 20 + 100 * is_more

        is_more = False
        eventually(poll)
        produce(broker, topic, range(20, 120))
        is_more = True
        eventually(poll)
        assert sorted(found[0] + found[1]) == list(range(120))
        assert all(found)
    finally:
        java.stop()
