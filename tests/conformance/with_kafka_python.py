"""The grid's face of kafka-python."""

import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import Any

from tests.conformance.model import (
    MESSAGES,
    NO_NEW_GROUPS,
    NO_SHARES,
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
from tests.conformance.transforming import transformed
from tests.eventually import WITHIN_SECONDS, collected


class KafkaPython:
    """kafka-python: KafkaProducer, KafkaConsumer, KafkaAdminClient."""

    name = "kafka-python"
    messages: Sequence[Message] = MESSAGES
    gaps: Mapping[str, str] = {**NO_NEW_GROUPS, **NO_SHARES, **NO_STREAMS}
    is_program = False
    settings: Mapping[str, Any] = {}
    """What every one of its producers and consumers is told."""

    def missing(self) -> str | None:
        """Why it cannot run here; None when it is installed."""
        return None if importlib.util.find_spec("kafka") else "kafka-python is not installed"

    def version(self) -> str:
        """As it is installed."""
        return importlib.metadata.version("kafka-python")

    def seen(self, message: Message) -> Message:
        """All of it."""
        return message

    def create_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        """CreateTopics through its admin client."""
        with _admin(bootstrap) as admin:
            admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1}})

    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], how: Writing) -> None:
        """All messages through one producer."""
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if how.codec == "none" else how.codec,
            acks=how.acks,
            enable_idempotence=how.idempotent,
            linger_ms=20,
            max_request_size=10 << 20,
            **self.settings,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    each.value,
                    each.key,
                    list(each.headers),
                    partition=how.partition,
                    timestamp_ms=each.timestamp_ms,
                )
                for each in messages
            ]
            with _errors():
                for future in futures:
                    future.get(WITHIN_SECONDS)
        finally:
            producer.close(WITHIN_SECONDS)

    def read(self, bootstrap: str, topic: str, start: FromOffset | FromTime, count: int) -> list[Consumed]:
        """By assignment; a time is looked up first."""
        consumer, partition = _consumer(bootstrap, topic, self.settings)
        try:
            if isinstance(start, FromTime):
                consumer.seek(partition, consumer.offsets_for_times({partition: start.timestamp_ms})[partition].offset)
            else:
                consumer.seek(partition, start.offset)
            return _take(consumer, count)
        finally:
            consumer.close()

    def read_new(self, bootstrap: str, topic: str, count: int, write: Callable[[], None]) -> list[Consumed]:
        """Seek to the end, wait until that is a position, then write."""
        consumer, partition = _consumer(bootstrap, topic, self.settings)
        try:
            consumer.seek_to_end(partition)
            consumer.position(partition)
            write()
            return _take(consumer, count)
        finally:
            consumer.close()

    def join(self, bootstrap: str, topic: str, group: str, how: Joining) -> "KafkaPythonMember":
        """A new member of a group."""
        return KafkaPythonMember(bootstrap, topic, group, how, self.settings)

    def read_committed(self, bootstrap: str, topic: str, count: int) -> list[Consumed]:
        """With its isolation_level."""
        settings = {**self.settings, "isolation_level": "read_committed"}
        consumer, partition = _consumer(bootstrap, topic, settings)
        try:
            consumer.seek(partition, 0)
            return _take(consumer, count)
        finally:
            consumer.close()

    def transactional(self, bootstrap: str, transactional_id: str) -> "KafkaPythonTransactions":
        """Initialized at once."""
        return KafkaPythonTransactions(bootstrap, transactional_id)

    def transform(self, bootstrap: str, what: Transforming, commit: bool) -> list[Consumed]:
        """With a consumer and a producer."""
        member = KafkaPythonMember(bootstrap, what.source, what.group, Joining())
        producer = self.transactional(bootstrap, what.transactional_id)
        return transformed(member, producer, what, commit, lambda: producer.send_offsets(member))

    def list_offset(self, bootstrap: str, topic: str, when: int) -> int:
        """ListOffsets."""
        from kafka import TopicPartition

        partition = TopicPartition(topic, 0)
        with _admin(bootstrap) as admin:
            return int(admin.list_partition_offsets({partition: when})[partition].offset)

    def topic_settings(self, bootstrap: str, topic: str) -> Mapping[str, str]:
        """DescribeConfigs."""
        from kafka.admin import ConfigResource

        with _admin(bootstrap) as admin:
            found = admin.describe_configs([ConfigResource("topic", topic)], config_filter="all")
            return {name: each["value"] for name, each in found["topic"][topic].items()}

    def set_topic_setting(self, bootstrap: str, topic: str, name: str, value: str) -> None:
        """IncrementalAlterConfigs."""
        from kafka.admin import ConfigResource

        with _admin(bootstrap) as admin:
            admin.alter_configs([ConfigResource("topic", topic, {name: value})])

    def add_partitions(self, bootstrap: str, topic: str, total: int) -> None:
        """CreatePartitions."""
        with _admin(bootstrap) as admin:
            admin.create_partitions({topic: total})

    def delete_records(self, bootstrap: str, topic: str, before: int) -> None:
        """DeleteRecords."""
        from kafka import TopicPartition

        with _admin(bootstrap) as admin:
            admin.delete_records({TopicPartition(topic, 0): before})

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        """DeleteTopics."""
        with _admin(bootstrap) as admin:
            admin.delete_topics([topic])

    def groups(self, bootstrap: str) -> set[str]:
        """ListGroups."""
        with _admin(bootstrap) as admin:
            return {each["group_id"] for each in admin.list_groups()}

    def group_state(self, bootstrap: str, group: str) -> GroupState:
        """DescribeGroups."""
        with _admin(bootstrap) as admin:
            found = admin.describe_groups([group])[group]
            return GroupState(found["group_state"], len(found["members"]))

    def delete_group(self, bootstrap: str, group: str) -> None:
        """DeleteGroups; the answer is OK, or the name of an error."""
        import kafka.errors

        with _admin(bootstrap) as admin:
            answer = admin.delete_groups([group])[group]
            if answer != "OK":
                raise getattr(kafka.errors, answer)


class KafkaPythonMember:
    """A group member that a thread of its own polls, as programs do: it takes part in rebalances only in `poll`."""

    def __init__(
        self, bootstrap: str, topic: str, group: str, how: Joining, settings: Mapping[str, Any] | None = None
    ) -> None:
        from kafka import KafkaConsumer
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        from kafka.coordinator.assignors.range import RangePartitionAssignor

        assignors = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}

        self.consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            group_instance_id=how.instance or None,
            partition_assignment_strategy=[assignors[how.strategy]],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=300,
            fetch_max_wait_ms=100,
            metadata_max_age_ms=1_000,
            **(settings or {}),
        )
        self.turn = Lock()
        self.closing = Event()
        self.arrived: SimpleQueue[list[Consumed]] = SimpleQueue()
        self.thread = Thread(target=self._poll_until_closed, daemon=True)
        self.thread.start()

    def assignment(self) -> set[int]:
        """The partitions it holds now."""
        return {each.partition for each in self.consumer.assignment() or ()}

    def poll(self, seconds: float) -> list[Consumed]:
        """What arrived."""
        try:
            return self.arrived.get(timeout=seconds)
        except Empty:
            return []

    def commit(self) -> None:
        """Commit the positions."""
        with self.turn:
            if self.consumer.assignment():
                self.consumer.commit()

    def close(self) -> None:
        """Leave the group."""
        self.closing.set()
        self.thread.join(WITHIN_SECONDS)
        self.consumer.close()

    def _poll_until_closed(self) -> None:
        while not self.closing.wait(0.01):
            with self.turn:
                # it can lose a join that outlasts a poll (and does so on Apache Kafka as well)
                batches = self.consumer.poll(timeout_ms=200 if self.consumer.assignment() else 5_000)
            if batches:
                self.arrived.put(_flatten(batches))


class KafkaPythonTransactions:
    """A producer with a transactional id."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        from kafka import KafkaProducer

        self.producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        with _errors():
            self.producer.init_transactions()

    def begin(self) -> None:
        """Begin a transaction."""
        self.producer.begin_transaction()

    def send(self, topic: str, messages: Sequence[Message]) -> None:
        """Write to partition 0, and wait until all is acknowledged."""
        futures = [
            self.producer.send(
                topic, each.value, each.key, list(each.headers), partition=0, timestamp_ms=each.timestamp_ms
            )
            for each in messages
        ]
        with _errors():
            for future in futures:
                future.get(WITHIN_SECONDS)

    def send_offsets(self, member: KafkaPythonMember) -> None:
        """Commit the positions of a group member with the transaction."""
        from kafka.structs import OffsetAndMetadata

        with _errors(), member.turn:
            consumer = member.consumer
            positions = {each: OffsetAndMetadata(consumer.position(each), "", -1) for each in consumer.assignment()}
            self.producer.send_offsets_to_transaction(positions, consumer.group_metadata())

    def commit(self) -> None:
        """Commit."""
        with _errors():
            self.producer.commit_transaction()

    def abort(self) -> None:
        """Abort."""
        with _errors():
            self.producer.abort_transaction()

    def close(self) -> None:
        """Close the connections."""
        self.producer.close(WITHIN_SECONDS)


@contextmanager
def _errors() -> Iterator[None]:
    from kafka.errors import KafkaError

    try:
        yield
    except KafkaError as problem:
        raise Refused(getattr(problem, "errno", None) or 0, repr(problem)) from problem


@contextmanager
def _admin(bootstrap: str) -> Iterator[Any]:
    from kafka.admin import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        with _errors():
            yield admin
    finally:
        admin.close()


def _consumer(bootstrap: str, topic: str, settings: Mapping[str, Any]) -> tuple[Any, Any]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, check_crcs=True, **settings)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    return consumer, partition


def _take(consumer: Any, count: int) -> list[Consumed]:
    return collected(
        lambda left: _flatten(consumer.poll(timeout_ms=200, max_records=left)),
        count,
    )


def _flatten(batches: dict[Any, list[Any]]) -> list[Consumed]:
    return [
        Consumed(each.partition, each.offset, Message(each.key, each.value, tuple(each.headers), each.timestamp))
        for records in batches.values()
        for each in records
    ]
