"""The grid's face of aiokafka: an event loop for each call, one in a thread for a group member."""

import asyncio
import importlib.metadata
import importlib.util
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from threading import Thread
from typing import Any

from tests.conformance.model import (
    EARLIEST,
    LATEST,
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
from tests.eventually import WITHIN_SECONDS

PRODUCER_FENCED = 90


class AioKafka:
    """aiokafka: AIOKafkaProducer, AIOKafkaConsumer, AIOKafkaAdminClient."""

    name = "aiokafka"
    messages: Sequence[Message] = MESSAGES
    gaps: Mapping[str, str] = {
        "cooperative": "has eager rebalances only",
        **NO_NEW_GROUPS,
        **NO_SHARES,
        **NO_STREAMS,
        "delete group": "has no call for it",
    }
    is_program = False

    def missing(self) -> str | None:
        """Why it cannot run here; None when it is installed."""
        return None if importlib.util.find_spec("aiokafka") else "aiokafka is not installed"

    def version(self) -> str:
        """As it is installed."""
        return importlib.metadata.version("aiokafka")

    def seen(self, message: Message) -> Message:
        """All of it."""
        return message

    def create_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        """CreateTopics through its admin client."""
        from aiokafka.admin import NewTopic

        answer = _administer(bootstrap, lambda admin: admin.create_topics([NewTopic(topic, partitions, 1)]))
        _check(answer.topic_errors[0][1])

    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], how: Writing) -> None:
        """All messages through one producer."""
        asyncio.run(_produce(bootstrap, topic, messages, how))

    def read(self, bootstrap: str, topic: str, start: FromOffset | FromTime, count: int) -> list[Consumed]:
        """By assignment; a time is looked up first."""

        async def run() -> list[Consumed]:
            async with _consumer(bootstrap, topic) as (consumer, partition):
                offset = start.offset if isinstance(start, FromOffset) else None
                if isinstance(start, FromTime):
                    found = await consumer.offsets_for_times({partition: start.timestamp_ms})
                    offset = found[partition].offset
                consumer.seek(partition, offset)
                return await _take(consumer, count)

        return asyncio.run(run())

    def read_new(self, bootstrap: str, topic: str, count: int, write: Callable[[], None]) -> list[Consumed]:
        """Seek to the end, wait until that is a position, then write."""

        async def run() -> list[Consumed]:
            async with _consumer(bootstrap, topic) as (consumer, partition):
                await consumer.seek_to_end(partition)
                await consumer.position(partition)
                await asyncio.to_thread(write)
                return await _take(consumer, count)

        return asyncio.run(run())

    def join(self, bootstrap: str, topic: str, group: str, how: Joining) -> "AioMember":
        """A new member of a group."""
        return AioMember(bootstrap, topic, group, how)

    def read_committed(self, bootstrap: str, topic: str, count: int) -> list[Consumed]:
        """With its isolation_level."""

        async def run() -> list[Consumed]:
            async with _consumer(bootstrap, topic, isolation_level="read_committed") as (consumer, partition):
                consumer.seek(partition, 0)
                return await _take(consumer, count)

        return asyncio.run(run())

    def transactional(self, bootstrap: str, transactional_id: str) -> "AioTransactions":
        """Initialized at once."""
        return AioTransactions(bootstrap, transactional_id)

    def transform(self, bootstrap: str, what: Transforming, commit: bool) -> list[Consumed]:
        """With a consumer and a producer."""
        member = AioMember(bootstrap, what.source, what.group, Joining())
        producer = self.transactional(bootstrap, what.transactional_id)
        return transformed(member, producer, what, commit, lambda: producer.send_offsets(member, what.group))

    def list_offset(self, bootstrap: str, topic: str, when: int) -> int:
        """ListOffsets, through a consumer."""

        async def run() -> int:
            async with _consumer(bootstrap, topic) as (consumer, partition):
                if when == EARLIEST:
                    return int((await consumer.beginning_offsets([partition]))[partition])
                if when == LATEST:
                    return int((await consumer.end_offsets([partition]))[partition])
                return int((await consumer.offsets_for_times({partition: when}))[partition].offset)

        return asyncio.run(run())

    def topic_settings(self, bootstrap: str, topic: str) -> Mapping[str, str]:
        """DescribeConfigs."""
        from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (answer,) = _administer(bootstrap, lambda admin: admin.describe_configs([resource]))
        code, _, _, _, entries = answer.resources[0]
        _check(code)
        return {entry[0]: entry[1] for entry in entries}

    def set_topic_setting(self, bootstrap: str, topic: str, name: str, value: str) -> None:
        """AlterConfigs, the legacy one."""
        from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})
        (answer,) = _administer(bootstrap, lambda admin: admin.alter_configs([resource]))
        _check(answer.resources[0][0])

    def add_partitions(self, bootstrap: str, topic: str, total: int) -> None:
        """CreatePartitions."""
        from aiokafka.admin import NewPartitions

        _administer(bootstrap, lambda admin: admin.create_partitions({topic: NewPartitions(total)}))

    def delete_records(self, bootstrap: str, topic: str, before: int) -> None:
        """DeleteRecords."""
        from aiokafka import TopicPartition
        from aiokafka.admin.records_to_delete import RecordsToDelete

        wanted = {TopicPartition(topic, 0): RecordsToDelete(before)}
        _administer(bootstrap, lambda admin: admin.delete_records(wanted))

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        """DeleteTopics."""
        answer = _administer(bootstrap, lambda admin: admin.delete_topics([topic]))
        _check(answer.topic_error_codes[0][1])

    def groups(self, bootstrap: str) -> set[str]:
        """ListGroups."""
        return {each[0] for each in _administer(bootstrap, lambda admin: admin.list_consumer_groups())}

    def group_state(self, bootstrap: str, group: str) -> GroupState:
        """DescribeGroups."""
        (answer,) = _administer(bootstrap, lambda admin: admin.describe_consumer_groups([group]))
        code, _, state, _, _, members, *_ = answer.groups[0]
        _check(code)
        return GroupState(state, len(members))

    def delete_group(self, bootstrap: str, group: str) -> None:
        """A gap."""
        raise NotImplementedError


class OwnLoop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of a coroutine."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WITHIN_SECONDS)

    def close(self) -> None:
        """End the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(WITHIN_SECONDS)
        self.loop.close()


class AioMember:
    """A group member on an event loop of its own, which heartbeats while nobody polls."""

    def __init__(self, bootstrap: str, topic: str, group: str, how: Joining) -> None:
        self.loop = OwnLoop()
        self.consumer = self.loop.run(_started_member(bootstrap, topic, group, how))

    def assignment(self) -> set[int]:
        """The partitions it holds now."""
        return {each.partition for each in self.consumer.assignment()}

    def poll(self, seconds: float) -> list[Consumed]:
        """What arrived."""
        return _flatten(self.loop.run(self.consumer.getmany(timeout_ms=int(seconds * 1000))))

    def commit(self) -> None:
        """Commit the positions."""
        if self.consumer.assignment():
            self.loop.run(self.consumer.commit())

    def close(self) -> None:
        """Leave the group."""
        self.loop.run(self.consumer.stop())
        self.loop.close()


class AioTransactions:
    """A producer with a transactional id, on an event loop of its own."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self.loop = OwnLoop()
        self.producer = self.loop.run(_started_producer(bootstrap, transactional_id))

    def begin(self) -> None:
        """Begin a transaction."""
        self._run(self.producer.begin_transaction())

    def send(self, topic: str, messages: Sequence[Message]) -> None:
        """Write to partition 0, and wait until all is acknowledged."""
        self._run(_send_all(self.producer, topic, messages))

    def send_offsets(self, member: AioMember, group: str) -> None:
        """Commit the positions of a group member with the transaction."""

        async def run() -> None:
            consumer = member.consumer
            positions = {each: await consumer.position(each) for each in consumer.assignment()}
            self.positions = positions

        member.loop.run(run())
        self._run(self.producer.send_offsets_to_transaction(self.positions, group))

    def commit(self) -> None:
        """Commit."""
        self._run(self.producer.commit_transaction())

    def abort(self) -> None:
        """Abort."""
        self._run(self.producer.abort_transaction())

    def close(self) -> None:
        """End the loop too."""
        self.loop.run(self.producer.stop())
        self.loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> None:
        with _errors():
            self.loop.run(work)


def _administer(bootstrap: str, call: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
    """The result of one call of an admin client."""
    from aiokafka.admin import AIOKafkaAdminClient

    async def run() -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            with _errors():
                return await call(admin)
        finally:
            await admin.close()

    return asyncio.run(run())


@contextmanager
def _errors() -> Iterator[None]:
    from aiokafka.errors import KafkaError, ProducerFenced

    try:
        yield
    except ProducerFenced as problem:  # which has no number
        raise Refused(PRODUCER_FENCED, repr(problem)) from problem
    except KafkaError as problem:
        raise Refused(getattr(problem, "errno", None) or 0, repr(problem)) from problem


def _check(code: int) -> None:
    if code != 0:
        raise Refused(code, "")


async def _produce(bootstrap: str, topic: str, messages: Sequence[Message], how: Writing) -> None:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if how.codec == "none" else how.codec,
        acks="all" if how.acks == -1 else how.acks,
        enable_idempotence=how.idempotent,
        max_request_size=10 << 20,
    )
    await producer.start()
    try:
        futures = [
            await producer.send(topic, each.value, each.key, how.partition, each.timestamp_ms, list(each.headers))
            for each in messages
        ]
        with _errors():
            await asyncio.wait_for(asyncio.gather(*futures), WITHIN_SECONDS)
    finally:
        await producer.stop()


async def _started_producer(bootstrap: str, transactional_id: str) -> Any:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
    await producer.start()
    return producer


async def _send_all(producer: Any, topic: str, messages: Sequence[Message]) -> None:
    futures = [
        await producer.send(topic, each.value, each.key, 0, each.timestamp_ms, list(each.headers)) for each in messages
    ]
    async with asyncio.timeout(WITHIN_SECONDS):
        await asyncio.gather(*futures)


async def _started_member(bootstrap: str, topic: str, group: str, how: Joining) -> Any:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor

    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=how.instance or None,
        partition_assignment_strategy=(RangePartitionAssignor,),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=300,
        fetch_max_wait_ms=100,
    )
    await consumer.start()
    return consumer


@asynccontextmanager
async def _consumer(bootstrap: str, topic: str, **more: object) -> AsyncIterator[tuple[Any, Any]]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, check_crcs=True, **more)
    await consumer.start()
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        yield consumer, partition
    finally:
        await consumer.stop()


async def _take(consumer: Any, count: int) -> list[Consumed]:
    taken: list[Consumed] = []
    async with asyncio.timeout(WITHIN_SECONDS):
        while len(taken) < count:
            taken += _flatten(await consumer.getmany(timeout_ms=200, max_records=count - len(taken)))
    return taken


def _flatten(batches: dict[Any, list[Any]]) -> list[Consumed]:
    return [
        Consumed(each.partition, each.offset, Message(each.key, each.value, tuple(each.headers), each.timestamp))
        for records in batches.values()
        for each in records
    ]
