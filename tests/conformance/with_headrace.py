"""The grid's face of headrace's own client."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.conformance.model import (
    MESSAGES,
    NO_STREAMS,
    Consumed,
    FromOffset,
    FromTime,
    GroupState,
    Joining,
    Message,
    Refused,
    Transforming,
    Writing,
)
from tests.conformance.sharing import HeadraceShareMember
from tests.conformance.transforming import transformed
from tests.eventually import collected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.client.consumer.consumer import Consumer
    from headrace.client.consumer.fetched_batches import ConsumerRecord
    from headrace.client.operations.admin import Admin
    from headrace.types import TopicPartition


class Headrace:
    """headrace.client: Producer, Consumer, Admin, GroupAdmin."""

    name = "headrace"
    messages: Sequence[Message] = MESSAGES
    gaps: Mapping[str, str] = NO_STREAMS
    is_program = False

    def missing(self) -> str | None:
        """It is always here."""
        return None

    def version(self) -> str:
        """The one under test."""
        return ""

    def seen(self, message: Message) -> Message:
        """All of it."""
        return message

    def create_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        """CreateTopics through the admin client."""
        with _admin(bootstrap) as admin:
            admin.create_topic(topic, partitions, 1)

    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], how: Writing) -> None:
        """All messages through one producer."""
        from headrace.client.producer.producer import Producer, ProducerSettings

        acks = "all" if how.acks == -1 else how.acks
        settings = ProducerSettings(acks=acks, compression=how.codec, idempotence=how.idempotent)
        with _errors(), Producer(bootstrap, settings) as producer:
            deliveries = [
                producer.send(topic, each.value, each.key, how.partition, each.timestamp_ms, each.headers)
                for each in messages
            ]
            producer.flush()
            for delivery in deliveries:
                delivery.result(0)

    def read(self, bootstrap: str, topic: str, start: FromOffset | FromTime, count: int) -> list[Consumed]:
        """By assignment."""
        with _assigned(bootstrap, topic) as (consumer, partition):
            if isinstance(start, FromTime):
                consumer.seek_to_time(start.timestamp_ms)
            else:
                consumer.seek(partition, start.offset)
            return _take(consumer, count)

    def read_new(self, bootstrap: str, topic: str, count: int, write: Callable[[], None]) -> list[Consumed]:
        """Seek to the end, make sure that it is known, then write."""
        with _assigned(bootstrap, topic) as (consumer, partition):
            consumer.seek_to_end()
            consumer.position(partition)
            write()
            return _take(consumer, count)

    def join(self, bootstrap: str, topic: str, group: str, how: Joining) -> "HeadraceMember":
        """A new member of a group."""
        return HeadraceMember(bootstrap, topic, group, how)

    def share(self, bootstrap: str, topic: str, group: str, is_explicit: bool) -> HeadraceShareMember:
        """A ShareConsumer."""
        return HeadraceShareMember(bootstrap, topic, group, is_explicit)

    def read_committed(self, bootstrap: str, topic: str, count: int) -> list[Consumed]:
        """With its isolation_level."""
        with _assigned(bootstrap, topic, "read_committed") as (consumer, partition):
            consumer.seek(partition, 0)
            return _take(consumer, count)

    def transactional(self, bootstrap: str, transactional_id: str) -> "HeadraceTransactions":
        """Initialized at once."""
        return HeadraceTransactions(bootstrap, transactional_id)

    def transform(self, bootstrap: str, what: Transforming, commit: bool) -> list[Consumed]:
        """With a consumer and a producer."""
        member = HeadraceMember(bootstrap, what.source, what.group, Joining())
        producer = self.transactional(bootstrap, what.transactional_id)
        return transformed(member, producer, what, commit, lambda: producer.send_offsets(member))

    def list_offset(self, bootstrap: str, topic: str, when: int) -> int:
        """ListOffsets."""
        partition = _partition(topic)
        with _admin(bootstrap) as admin:
            return admin.list_offsets({partition: when})[partition].offset

    def topic_settings(self, bootstrap: str, topic: str) -> Mapping[str, str]:
        """DescribeConfigs."""
        from headrace.client.operations.admin import RESOURCE_TOPIC

        with _admin(bootstrap) as admin:
            return {each.name: each.value or "" for each in admin.describe_configs(RESOURCE_TOPIC, topic)}

    def set_topic_setting(self, bootstrap: str, topic: str, name: str, value: str) -> None:
        """IncrementalAlterConfigs."""
        from headrace.client.operations.admin import RESOURCE_TOPIC

        with _admin(bootstrap) as admin:
            admin.alter_configs(RESOURCE_TOPIC, topic, {name: value})

    def add_partitions(self, bootstrap: str, topic: str, total: int) -> None:
        """CreatePartitions."""
        with _admin(bootstrap) as admin:
            admin.create_partitions(topic, total)

    def delete_records(self, bootstrap: str, topic: str, before: int) -> None:
        """DeleteRecords."""
        with _admin(bootstrap) as admin:
            admin.delete_records({_partition(topic): before})

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        """DeleteTopics."""
        with _admin(bootstrap) as admin:
            admin.delete_topics([topic])

    def groups(self, bootstrap: str) -> set[str]:
        """ListGroups."""
        from headrace.client.operations.group_admin import GroupAdmin

        with _admin(bootstrap) as admin:
            return {each.group_id for each in GroupAdmin(admin.cluster).list_groups()}

    def group_state(self, bootstrap: str, group: str) -> GroupState:
        """DescribeGroups."""
        from headrace.client.operations.group_admin import GroupAdmin

        with _admin(bootstrap) as admin:
            found = GroupAdmin(admin.cluster).describe_group(group)
            return GroupState(found.state, len(found.members))

    def delete_group(self, bootstrap: str, group: str) -> None:
        """DeleteGroups."""
        from headrace.client.operations.group_admin import GroupAdmin

        with _admin(bootstrap) as admin:
            GroupAdmin(admin.cluster).delete_group(group)


class HeadraceMember:
    """A group member; it takes part in rebalances while it is polled."""

    def __init__(self, bootstrap: str, topic: str, group: str, how: Joining) -> None:
        from headrace.client.consumer.consumer import Consumer, ConsumerSettings

        by_protocol = {"assignors": [how.strategy]} if how.protocol == "classic" else {}
        settings = ConsumerSettings(
            group_id=group,
            group_instance_id=how.instance or None,
            group_protocol=how.protocol,
            auto_offset_reset="earliest",
            auto_commit=False,
            **by_protocol,  # type: ignore[arg-type]
        )
        self.consumer = Consumer(bootstrap, settings)
        self.consumer.subscribe(re.compile(how.regex) if how.regex else [topic])

    def assignment(self) -> set[int]:
        """The partitions it holds now."""
        return {each.partition for each in self.consumer.assignment}

    def poll(self, seconds: float) -> list[Consumed]:
        """What arrived."""
        return [_consumed(each) for each in self.consumer.poll(seconds * 1_000)]

    def commit(self) -> None:
        """Commit the positions."""
        self.consumer.commit()

    def close(self) -> None:
        """Leave the group."""
        self.consumer.close()


class HeadraceTransactions:
    """A producer with a transactional id."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        from headrace.client.producer.producer import Producer, ProducerSettings

        self.producer = Producer(bootstrap, ProducerSettings(transactional_id=transactional_id))
        with _errors():
            self.producer.init_transactions()

    def begin(self) -> None:
        """Begin a transaction."""
        self.producer.begin()

    def send(self, topic: str, messages: Sequence[Message]) -> None:
        """Write to partition 0, and wait until all is acknowledged."""
        with _errors():
            deliveries = [
                self.producer.send(topic, each.value, each.key, 0, each.timestamp_ms, each.headers) for each in messages
            ]
            self.producer.flush()
            for delivery in deliveries:
                delivery.result(0)

    def send_offsets(self, member: HeadraceMember) -> None:
        """Commit the positions of a group member with the transaction."""
        consumer = member.consumer
        with _errors():
            positions = {each: consumer.position(each) for each in consumer.assignment}
            self.producer.send_offsets(positions, consumer.group_metadata())

    def commit(self) -> None:
        """Commit."""
        with _errors():
            self.producer.commit()

    def abort(self) -> None:
        """Abort."""
        with _errors():
            self.producer.abort()

    def close(self) -> None:
        """Close the connections."""
        self.producer.close()


@contextmanager
def _errors() -> "Iterator[None]":
    from headrace.errors import KafkaError

    try:
        yield
    except KafkaError as problem:
        raise Refused(int(problem.code), str(problem)) from problem


@contextmanager
def _admin(bootstrap: str) -> "Iterator[Admin]":
    from headrace.client.operations.admin import Admin

    with _errors(), Admin(bootstrap) as admin:
        yield admin


def _partition(topic: str) -> "TopicPartition":
    from headrace.types import TopicPartition

    return TopicPartition(topic, 0)


@contextmanager
def _assigned(
    bootstrap: str, topic: str, isolation_level: str = "read_uncommitted"
) -> "Iterator[tuple[Consumer, TopicPartition]]":
    from headrace.client.consumer.consumer import Consumer, ConsumerSettings

    partition = _partition(topic)
    with Consumer(bootstrap, ConsumerSettings(isolation_level=isolation_level)) as consumer:
        consumer.assign([partition])
        yield consumer, partition


def _take(consumer: "Consumer", count: int) -> list[Consumed]:
    return collected(
        lambda left: [_consumed(each) for each in consumer.poll(200, left)],
        count,
    )


def _consumed(record: "ConsumerRecord") -> Consumed:
    message = Message(record.key, record.value, tuple(record.headers), record.timestamp_ms)
    return Consumed(record.partition, record.offset, message)
