"""The share consumer for asyncio, on our broker and on Apache Kafka."""

import asyncio
import threading
import time
from collections.abc import Mapping

import pytest

from headrace import AcknowledgeType, KafkaError, ShareConsumer
from headrace.client import aio
from headrace.client.core.failures import ClientClosed
from headrace.client.operations.admin import RESOURCE_GROUP, Admin
from headrace.client.share.acquired_records import ShareRecord
from headrace.types import TopicPartition
from tests.client.brokers import topic_name
from tests.eventually import WITHIN_SECONDS

COUNT = 60


@pytest.fixture
def group(admin: Admin) -> str:
    """A share group that begins at the first record."""
    name = topic_name("share-group")
    admin.alter_configs(RESOURCE_GROUP, name, {"share.auto.offset.reset": "earliest"})
    return name


@pytest.fixture
async def filled(broker: str, topic: str) -> str:
    async with aio.Producer(broker, linger_ms=0) as producer:
        for number in range(COUNT):
            await producer.send(topic, b"%d" % number, partition=number % 2)
            if number % 10 == 9:
                await producer.flush()
    return topic


async def some(consumer: aio.ShareConsumer, count: int) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(WITHIN_SECONDS):
        async for record in consumer:
            found.append(int(record.value or b""))
            if len(found) == count:
                break
    return found


@pytest.mark.slow
async def test_iteration_accepts_what_it_gave_and_no_more(broker: str, group: str, filled: str) -> None:
    async with aio.ShareConsumer(broker, group_id=group) as consumer:
        await consumer.subscribe([filled])
        first = await some(consumer, 25)
        assert consumer.subscription == [filled]
    async with aio.ShareConsumer(broker, group_id=group) as consumer:
        await consumer.subscribe([filled])
        assert sorted([*first, *(await some(consumer, COUNT - 25))]) == list(range(COUNT))


@pytest.mark.slow
def test_iteration_in_a_thread_accepts_no_more_either(broker: str, group: str, filled: str) -> None:
    seen: list[int] = []
    for end in (25, COUNT):
        with ShareConsumer(broker, group_id=group) as consumer:
            consumer.subscribe([filled])
            for record in consumer:
                seen.append(int(record.value or b""))
                if len(seen) == end:
                    break
    assert sorted(seen) == list(range(COUNT))


@pytest.mark.slow
async def test_cancelled_polls_lose_nothing_and_accept_nothing(broker: str, group: str, filled: str) -> None:
    found: list[int] = []
    async with aio.ShareConsumer(broker, group_id=group) as consumer:
        await consumer.subscribe([filled])
        deadline, turn = time.monotonic() + WITHIN_SECONDS, 0
        while len(found) < COUNT and time.monotonic() < deadline:
            turn += 1
            try:
                async with asyncio.timeout(0.002 * (turn % 20)):
                    records = await consumer.poll(max_records=7)
            except TimeoutError:
                continue
            assert all(record.delivery_count == 1 for record in records)
            found += [int(record.value or b"") for record in records]
    assert sorted(found) == list(range(COUNT))


def arrived(consumer: aio.ShareConsumer, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a poll of the thread has found records."""
    found = threading.Event()
    poll = consumer.core.poll

    def noted(timeout_ms: float = 0, max_records: int | None = None) -> list[ShareRecord]:
        records = poll(timeout_ms, max_records)
        if records:
            found.set()
        return records

    monkeypatch.setattr(consumer.core, "poll", noted)
    return found


@pytest.mark.slow
async def test_a_commit_after_a_cancelled_poll_accepts_nothing_that_nobody_received(
    broker: str, group: str, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aio.ShareConsumer(broker, group_id=group) as consumer:
        await consumer.subscribe([filled])
        (first,) = await consumer.poll(WITHIN_SECONDS * 1000, 1)
        found = arrived(consumer, monkeypatch)
        polling = asyncio.create_task(consumer.poll(WITHIN_SECONDS * 1000, 5))
        await asyncio.sleep(0)
        assert found.wait(WITHIN_SECONDS)  # the loop stands still: its task does not hear of the records
        committing = asyncio.create_task(consumer.commit())
        polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await polling
        await committing
    async with aio.ShareConsumer(broker, group_id=group) as consumer:
        await consumer.subscribe([filled])
        assert sorted(await some(consumer, COUNT - 1)) == sorted({*range(COUNT)} - {int(first.value or b"")})


@pytest.mark.slow
async def test_a_cancelled_poll_of_a_subscription_that_has_ended_leaves_nothing(
    broker: str, group: str, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aio.ShareConsumer(broker, group_id=group) as consumer:
        await consumer.subscribe([filled])
        (first,) = await consumer.poll(WITHIN_SECONDS * 1000, 1)
        found = arrived(consumer, monkeypatch)
        polling = asyncio.create_task(consumer.poll(WITHIN_SECONDS * 1000, 5))
        await asyncio.sleep(0)
        assert found.wait(WITHIN_SECONDS)
        ending = asyncio.create_task(consumer.unsubscribe())
        polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await polling
        await ending
        await consumer.subscribe([filled])
        assert sorted(await some(consumer, COUNT - 1)) == sorted({*range(COUNT)} - {int(first.value or b"")})


@pytest.mark.slow
async def test_each_record_is_acknowledged_and_the_callback_may_be_a_coroutine(
    broker: str, group: str, filled: str
) -> None:
    told: list[int] = []

    async def acknowledged(offsets: Mapping[TopicPartition, frozenset[int]], error: KafkaError | None) -> None:
        await asyncio.sleep(0)
        assert error is None
        told.extend(offset for each in offsets.values() for offset in each)

    async with aio.ShareConsumer(broker, group_id=group, share_acknowledgement_mode="explicit") as consumer:
        consumer.on_acknowledged(acknowledged)
        await consumer.subscribe([filled])
        record = await consumer.getone()
        with pytest.raises(KafkaError, match="1 records of .* are not acknowledged"):
            await consumer.poll()
        await consumer.acknowledge(record, AcknowledgeType.RELEASE)
        assert list((await consumer.commit()).values()) == [None]
        assert record.offset in told
        again = set()
        async with asyncio.timeout(WITHIN_SECONDS):
            while (record.partition, record.offset, 2) not in again:
                for each in await consumer.poll(500):
                    again.add((each.partition, each.offset, each.delivery_count))
                    await consumer.acknowledge(each)


async def test_close_ends_a_poll_and_refuses_later_calls(broker: str, group: str, topic: str) -> None:
    consumer = aio.ShareConsumer(broker, group_id=group)
    await consumer.subscribe([topic])
    polling = asyncio.create_task(consumer.poll(WITHIN_SECONDS * 1000))
    await asyncio.sleep(0.05)
    await consumer.close()
    with pytest.raises(ClientClosed):
        await polling
    with pytest.raises(ClientClosed, match="the share consumer is closed"):
        await consumer.poll()
    assert [record async for record in consumer] == []
