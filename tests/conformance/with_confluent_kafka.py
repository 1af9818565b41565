"""The grid's face of confluent-kafka, which is librdkafka."""

import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.conformance.model import (
    EARLIEST,
    FROM_START,
    LATEST,
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
from tests.conformance.sharing import ConfluentShareMember
from tests.conformance.transforming import transformed
from tests.eventually import WITHIN_SECONDS, collected

PRODUCER_FENCED = 90


class ConfluentKafka:
    """confluent-kafka: Producer, Consumer, AdminClient."""

    name = "confluent-kafka"
    messages: Sequence[Message] = MESSAGES
    gaps: Mapping[str, str] = NO_STREAMS
    is_program = False

    def missing(self) -> str | None:
        """Why it cannot run here; None when it is installed."""
        return None if importlib.util.find_spec("confluent_kafka") else "confluent-kafka is not installed"

    def version(self) -> str:
        """As it is installed."""
        return importlib.metadata.version("confluent-kafka")

    def seen(self, message: Message) -> Message:
        """All of it."""
        return message

    def create_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        """CreateTopics through its admin client."""
        from confluent_kafka.admin import NewTopic

        _administer(
            bootstrap,
            lambda admin: admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)]),
        )

    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], how: Writing) -> None:
        """All messages through one producer."""
        from confluent_kafka import Producer

        failures: list[Any] = []
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": how.codec,
                "acks": how.acks,
                "enable.idempotence": how.idempotent,
                "partitioner": "murmur2_random",
                "message.max.bytes": 10 << 20,
                "linger.ms": 20,
                "message.timeout.ms": int(WITHIN_SECONDS * 1000),
            }
        )
        for message in messages:
            stamp: dict[str, Any] = {} if message.timestamp_ms is None else {"timestamp": message.timestamp_ms}
            producer.produce(
                topic,
                message.value,
                message.key,
                -1 if how.partition is None else how.partition,
                on_delivery=lambda error, _: failures.append(error) if error else None,
                headers=list(message.headers),
                **stamp,
            )
        assert producer.flush(WITHIN_SECONDS) == 0
        if failures:
            raise Refused(failures[0].code(), failures[0].str())

    def read(self, bootstrap: str, topic: str, start: FromOffset | FromTime, count: int) -> list[Consumed]:
        """By assignment; a time is looked up first."""
        return self._read(bootstrap, topic, start, count)

    def read_committed(self, bootstrap: str, topic: str, count: int) -> list[Consumed]:
        """With its isolation.level."""
        return self._read(bootstrap, topic, FROM_START, count, {"isolation.level": "read_committed"})

    def _read(
        self,
        bootstrap: str,
        topic: str,
        start: FromOffset | FromTime,
        count: int,
        more: Mapping[str, str] | None = None,
    ) -> list[Consumed]:
        from confluent_kafka import TopicPartition

        consumer = _consumer(bootstrap, **{"isolation.level": "read_uncommitted", **(more or {})})
        try:
            at = TopicPartition(topic, 0, start.offset if isinstance(start, FromOffset) else start.timestamp_ms)
            if isinstance(start, FromTime):
                (at,) = consumer.offsets_for_times([at], WITHIN_SECONDS)
                assert at.error is None
            consumer.assign([at])
            return _take(consumer, count)
        finally:
            consumer.close()

    def read_new(self, bootstrap: str, topic: str, count: int, write: Callable[[], None]) -> list[Consumed]:
        """The end is asked for first, so that it is known to be where it was before the writing."""
        from confluent_kafka import TopicPartition

        consumer = _consumer(bootstrap)
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), WITHIN_SECONDS)
            consumer.assign([TopicPartition(topic, 0, end)])
            write()
            return _take(consumer, count)
        finally:
            consumer.close()

    def join(self, bootstrap: str, topic: str, group: str, how: Joining) -> "ConfluentMember":
        """A new member of a group."""
        return ConfluentMember(bootstrap, topic, group, how)

    def share(self, bootstrap: str, topic: str, group: str, is_explicit: bool) -> ConfluentShareMember:
        """A ShareConsumer."""
        return ConfluentShareMember(bootstrap, topic, group, is_explicit)

    def transactional(self, bootstrap: str, transactional_id: str) -> "ConfluentTransactions":
        """Initialized at once."""
        return ConfluentTransactions(bootstrap, transactional_id)

    def transform(self, bootstrap: str, what: Transforming, commit: bool) -> list[Consumed]:
        """With a consumer and a producer."""
        member = ConfluentMember(bootstrap, what.source, what.group, Joining(protocol=what.protocol))
        producer = self.transactional(bootstrap, what.transactional_id)
        return transformed(member, producer, what, commit, lambda: producer.send_offsets(member))

    def list_offset(self, bootstrap: str, topic: str, when: int) -> int:
        """ListOffsets."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        named: dict[int, Callable[[], OffsetSpec]] = {EARLIEST: OffsetSpec.earliest, LATEST: OffsetSpec.latest}
        spec = named[when]() if when in named else OffsetSpec.for_timestamp(when)
        return int(_administer(bootstrap, lambda admin: admin.list_offsets({TopicPartition(topic, 0): spec})).offset)

    def topic_settings(self, bootstrap: str, topic: str) -> Mapping[str, str]:
        """DescribeConfigs."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        entries = _administer(
            bootstrap, lambda admin: admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)])
        )
        return {each.name: each.value for each in entries.values()}

    def set_topic_setting(self, bootstrap: str, topic: str, name: str, value: str) -> None:
        """IncrementalAlterConfigs."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        _administer(bootstrap, lambda admin: admin.incremental_alter_configs([resource]))

    def add_partitions(self, bootstrap: str, topic: str, total: int) -> None:
        """CreatePartitions."""
        from confluent_kafka.admin import NewPartitions

        _administer(bootstrap, lambda admin: admin.create_partitions([NewPartitions(topic, total)]))

    def delete_records(self, bootstrap: str, topic: str, before: int) -> None:
        """DeleteRecords."""
        from confluent_kafka import TopicPartition

        _administer(bootstrap, lambda admin: admin.delete_records([TopicPartition(topic, 0, before)]))

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        """DeleteTopics."""
        _administer(bootstrap, lambda admin: admin.delete_topics([topic]))

    def groups(self, bootstrap: str) -> set[str]:
        """ListGroups."""
        listed = _administer(bootstrap, lambda admin: {"all": admin.list_consumer_groups()})
        assert not listed.errors
        return {each.group_id for each in listed.valid}

    def group_state(self, bootstrap: str, group: str) -> GroupState:
        """DescribeGroups."""
        found = _administer(bootstrap, lambda admin: admin.describe_consumer_groups([group]))
        return GroupState(found.state.name.title(), len(found.members))

    def delete_group(self, bootstrap: str, group: str) -> None:
        """DeleteGroups."""
        _administer(bootstrap, lambda admin: admin.delete_consumer_groups([group]))


class ConfluentMember:
    """A group member; librdkafka's own thread does the heartbeats."""

    def __init__(self, bootstrap: str, topic: str, group: str, how: Joining) -> None:
        more: dict[str, object] = {"partition.assignment.strategy": how.strategy, "heartbeat.interval.ms": 300}
        if how.protocol == "consumer":
            more = {"group.protocol": "consumer"}
        if how.instance:
            more["group.instance.id"] = how.instance
        self.consumer = _consumer(bootstrap, group=group, **more)
        self.consumer.subscribe([f"^{how.regex}$" if how.regex else topic])

    def assignment(self) -> set[int]:
        """The partitions it holds now."""
        return {each.partition for each in self.consumer.assignment()}

    def poll(self, seconds: float) -> list[Consumed]:
        """What arrived."""
        return [_consumed(each) for each in self.consumer.consume(500, seconds) if _is_record(each)]

    def commit(self) -> None:
        """Commit the positions; nothing to commit is fine."""
        from confluent_kafka import KafkaError, KafkaException

        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as problem:
            if problem.args[0].code() != KafkaError._NO_OFFSET:
                raise

    def close(self) -> None:
        """Leave the group."""
        self.consumer.close()


class ConfluentTransactions:
    """A producer with a transactional id."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 5}
        self.producer = Producer(settings)
        self._run(self.producer.init_transactions)

    def begin(self) -> None:
        """Begin a transaction."""
        self.producer.begin_transaction()

    def send(self, topic: str, messages: Sequence[Message]) -> None:
        """Write to partition 0, and wait until all is acknowledged."""
        failures: list[Any] = []
        for message in messages:
            stamp: dict[str, Any] = {} if message.timestamp_ms is None else {"timestamp": message.timestamp_ms}
            self.producer.produce(
                topic,
                message.value,
                message.key,
                0,
                on_delivery=lambda error, _: failures.append(error) if error else None,
                headers=list(message.headers),
                **stamp,
            )
        assert self.producer.flush(WITHIN_SECONDS) == 0
        if failures:
            raise Refused(failures[0].code(), failures[0].str())

    def send_offsets(self, member: ConfluentMember) -> None:
        """Commit the positions of a group member with the transaction."""
        consumer = member.consumer
        positions = consumer.position(consumer.assignment())
        self._run(
            lambda seconds: self.producer.send_offsets_to_transaction(
                positions, consumer.consumer_group_metadata(), seconds
            )
        )

    def commit(self) -> None:
        """Commit."""
        self._run(self.producer.commit_transaction)

    def abort(self) -> None:
        """Abort."""
        self._run(self.producer.abort_transaction)

    def close(self) -> None:
        """Its threads end with the object."""
        del self.producer

    def _run(self, call: Callable[[float], None]) -> None:
        from confluent_kafka import KafkaError, KafkaException

        try:
            call(WITHIN_SECONDS)
        except KafkaException as problem:
            code = problem.args[0].code()  # librdkafka has a number of its own for PRODUCER_FENCED
            raise Refused(PRODUCER_FENCED if code == KafkaError._FENCED else code, problem.args[0].str()) from problem


def _administer(bootstrap: str, call: Callable[[Any], dict[Any, Any]]) -> Any:
    """The result of the one future that a call of an admin client gives."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap})  # must outlive the future
    (future,) = call(admin).values()
    try:
        return future.result(WITHIN_SECONDS)
    except KafkaException as problem:
        raise Refused(problem.args[0].code(), problem.args[0].str()) from problem


def _consumer(bootstrap: str, group: str = "unused", **more: object) -> Any:
    from confluent_kafka import Consumer

    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            "check.crcs": True,
            **more,
        }
    )


def _take(consumer: Any, count: int) -> list[Consumed]:
    return collected(
        lambda left: [_consumed(each) for each in consumer.consume(left, 0.2) if _is_record(each)],
        count,
    )


def _is_record(message: Any) -> bool:
    from confluent_kafka import KafkaError, KafkaException

    error = message.error()
    if error is None:
        return True
    if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
        return False
    raise KafkaException(error)


def _consumed(message: Any) -> Consumed:
    kind, timestamp_ms = message.timestamp()  # 0 of a kind of 0 is none
    plain = Message(message.key(), message.value(), tuple(message.headers() or ()), timestamp_ms if kind else None)
    return Consumed(message.partition(), message.offset(), plain)
