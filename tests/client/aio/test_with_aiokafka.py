"""aiokafka and the asyncio face on one loop: in one group, and each reading what the other wrote."""

import asyncio

import aiokafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from headrace.client import aio
from headrace.client.consumer.fetched_batches import ConsumerRecord
from headrace.types import TopicPartition
from tests.client.brokers import topic_name
from tests.eventually import WITHIN_SECONDS, eventually_async

COUNT = 400


async def test_each_reads_what_the_other_wrote(broker: str, topic: str) -> None:
    async with (
        aio.Producer(broker, compression_type="lz4") as ours,
        aiokafka.AIOKafkaProducer(bootstrap_servers=broker, compression_type="gzip") as theirs,
    ):
        for number in range(COUNT):
            headers = [("n", b"%d" % number)]
            key = b"%d" % (number % 7)
            await (ours if number % 2 else theirs).send(topic, b"%d" % number, key=key, headers=headers)
    wanted = {(b"%d" % n, b"%d" % (n % 7), (("n", b"%d" % n),)) for n in range(COUNT)}
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    found: list[ConsumerRecord] = []
    async with aio.Consumer(broker, auto_offset_reset="earliest") as consumer, asyncio.timeout(WITHIN_SECONDS):
        await consumer.assign(places)
        while len(found) < COUNT:
            found += await consumer.poll()
    assert {(record.value, record.key, tuple(record.headers)) for record in found} == wanted
    where = {record.key: record.partition for record in found}
    seen: list[aiokafka.ConsumerRecord] = []
    consumer = aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=broker, auto_offset_reset="earliest")
    async with consumer, asyncio.timeout(WITHIN_SECONDS):
        while len(seen) < COUNT:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                seen += records
    assert {(record.value, record.key, tuple(record.headers)) for record in seen} == wanted
    assert {record.key: record.partition for record in seen} == where  # both choose a key's partition alike


async def test_a_group_may_mix_us_and_aiokafka(broker: str, topic: str) -> None:
    group = topic_name("mixed")
    async with aio.Producer(broker) as producer:
        for number in range(COUNT):
            await producer.send(topic, b"%d" % number, partition=number % 2)
    theirs = aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=broker, group_id=group, auto_offset_reset="earliest", session_timeout_ms=6_000,
        heartbeat_interval_ms=100, partition_assignment_strategy=[RangePartitionAssignor],
    )  # fmt: skip
    ours = aio.Consumer(
        broker, group_id=group, auto_offset_reset="earliest", session_timeout_ms=6_000, heartbeat_interval_ms=100
    )
    values: set[bytes | None] = set()
    async with theirs, ours:
        await ours.subscribe([topic])

        async def is_shared() -> bool:
            values.update(record.value for record in await ours.poll(100))
            for records in (await theirs.getmany(timeout_ms=100)).values():
                values.update(record.value for record in records)
            return len(values) == COUNT and len(ours.assignment) == len(theirs.assignment()) == 1

        await eventually_async(is_shared, "both to share the partitions, and all records")
        shared = {(each.topic, each.partition) for each in [*ours.assignment, *theirs.assignment()]}
        assert shared == {(topic, 0), (topic, 1)}
