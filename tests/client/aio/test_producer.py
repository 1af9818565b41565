"""The producer for asyncio, on our broker and on Apache Kafka: deliveries, back-pressure, columns, transactions."""

import asyncio
import gc
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pyarrow
import pytest

from headrace.client import aio
from headrace.client.core.failures import BufferExhausted, ClientClosed, DeadlineExceeded
from headrace.client.operations.admin import Admin
from headrace.client.producer.delivery import RecordMetadata
from headrace.client.producer.transactions import TransactionError
from headrace.errors import InvalidRecord, KafkaError, UnknownTopicOrPartition
from headrace.types import TopicPartition
from tests.client.brokers import topic_name
from tests.eventually import WITHIN_SECONDS, eventually
from tests.harness import HeadraceServer


async def values(broker: str, topic: str, *, isolation: str = "read_committed") -> list[bytes]:
    """All values of a topic of two partitions, by partition."""
    found: list[bytes] = []
    async with aio.Consumer(broker, isolation_level=isolation) as consumer:
        partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        await consumer.assign(partitions)
        await consumer.seek_to_beginning()
        ends = await consumer.end_offsets()
        async with asyncio.timeout(WITHIN_SECONDS):
            while any([await consumer.position(each) < ends[each] for each in partitions]):
                found += [record.value or b"" for record in await consumer.poll(100)]
    return found


async def test_a_delivery_is_awaited_for_the_place(broker: str, topic: str) -> None:
    async with aio.Producer(broker) as producer:
        delivery = await producer.send(topic, b"tea", key=b"anna", partition=1, headers={"shop": b"north"})
        place = await delivery
        assert (place.topic, place.partition, place.offset) == (topic, 1, 0)
        assert await delivery == place == delivery.result(0)
        assert (await producer.send_and_wait(topic, b"bun", partition=1)).offset == 1
        assert await producer.partitions(topic) == 2
    assert await values(broker, topic) == [b"tea", b"bun"]


async def test_many_tasks_await_the_records_of_one_batch(broker: str, topic: str) -> None:
    async with aio.Producer(broker, linger_ms=50) as producer:
        places = await asyncio.gather(*(producer.send_and_wait(topic, b"%d" % n, partition=0) for n in range(2_000)))
    assert [place.offset for place in places] == list(range(2_000))


async def test_the_first_send_creates_the_topic_where_brokers_do(broker: str) -> None:
    async with aio.Producer(broker) as producer:
        assert (await producer.send_and_wait(topic_name("created"), b"first")).offset == 0


async def test_a_full_buffer_makes_sends_wait_and_loses_nothing(broker: str, topic: str) -> None:
    count = 3_000
    async with aio.Producer(broker, buffer_memory=20_000, batch_size=5_000) as producer:

        async def send(name: int) -> list[RecordMetadata]:
            sent = [await producer.send(topic, b"%d %d" % (name, n), partition=name % 2) for n in range(count // 4)]
            return [await delivery for delivery in sent]

        everything = await asyncio.gather(*(send(name) for name in range(4)))
    assert sum(map(len, everything)) == count
    for places in everything:
        offsets = [place.offset for place in places]
        assert offsets == sorted(offsets)
    found = [tuple(map(int, value.split())) for value in await values(broker, topic)]
    for name in range(4):
        assert [number for who, number in found if who == name] == list(range(count // 4))


async def test_a_full_buffer_does_not_block_the_loop(broker: str, topic: str) -> None:
    async with aio.Producer(broker, buffer_memory=1_000, linger_ms=60_000, max_block_ms=60_000) as producer:
        steps = 0

        async def count_steps() -> None:
            nonlocal steps
            while True:
                await asyncio.sleep(0)
                steps += 1

        counting = asyncio.create_task(count_steps())
        for _ in range(50):
            await producer.send(topic, bytes(900))
        counting.cancel()
        assert steps > 50


async def test_no_broker_is_an_error_of_the_first_send() -> None:
    async with aio.Producer("127.0.0.1:1") as producer:
        with pytest.raises(KafkaError, match=r"cannot connect to 127\.0\.0\.1:1"):
            await producer.send("orders", b"tea")


@contextmanager
def silent(server: HeadraceServer) -> Iterator[None]:
    """The broker acknowledges nothing meanwhile."""
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


@pytest.fixture
def own_topic(shared_headrace: HeadraceServer) -> str:
    """A topic of our broker."""
    with Admin(shared_headrace.bootstrap) as admin:
        admin.create_topic(name := topic_name("aio"), 2)
    return name


async def test_waiting_for_room_ends_after_max_block_ms(shared_headrace: HeadraceServer, own_topic: str) -> None:
    async with aio.Producer(shared_headrace.bootstrap, buffer_memory=200, max_block_ms=100) as producer:
        await producer.send_and_wait(own_topic, bytes(100))
        with silent(shared_headrace):
            last = await producer.send(own_topic, bytes(100))
            for _ in range(2):
                with pytest.raises(BufferExhausted, match=r"-\d: the buffer's 200 bytes have been full for 100 ms"):
                    await producer.send(own_topic, bytes(100))
        await last


async def test_a_cancelled_send_leaves_its_place_in_the_line(shared_headrace: HeadraceServer, own_topic: str) -> None:
    async with aio.Producer(shared_headrace.bootstrap, buffer_memory=200) as producer:
        await producer.partitions(own_topic)
        with silent(shared_headrace):
            await producer.send(own_topic, bytes(100), partition=0)
            tasks = [asyncio.create_task(producer.send(own_topic, b"%d" % n * 100, partition=1)) for n in range(4)]
            await asyncio.sleep(0)
            assert not any(task.done() for task in tasks)
            tasks[0].cancel()
            tasks[2].cancel()
            await asyncio.sleep(0)
        await asyncio.gather(await tasks[1], await tasks[3])
    assert await values(shared_headrace.bootstrap, own_topic) == [bytes(100), b"1" * 100, b"3" * 100]


async def test_columns_go_out_and_await_their_batches(broker: str, topic: str) -> None:
    rows = [b"%d" % n for n in range(5_000)]
    async with aio.Producer(broker, batch_size=10_000, buffer_memory=40_000) as producer:
        delivery = await producer.send_columns(topic, None, pyarrow.array(rows, pyarrow.binary()))
        assert delivery.count == len(rows)
        places = await delivery
        assert len(places) > 4
        keyed = await producer.send_columns(topic, [b"a", b"b"], [b"x", b"y"], headers=[[], [("h", None)]])
        await keyed
    assert sorted(await values(broker, topic)) == sorted([*rows, b"x", b"y"])


async def test_refused_arguments_are_errors_of_the_call(broker: str, topic: str) -> None:
    async with aio.Producer(broker) as producer:
        with pytest.raises(InvalidRecord, match=r"value='tea' is a str"):
            await producer.send(topic, "tea")
        with pytest.raises(UnknownTopicOrPartition, match="has partitions 0 to 1"):
            await producer.send(topic, b"tea", partition=7)
        with pytest.raises(InvalidRecord, match="same length"):
            await producer.send_columns(topic, [b"a"], [b"x", b"y"])


async def test_a_partition_that_was_added_is_sent_to_when_it_is_named(broker: str, admin: Admin, topic: str) -> None:
    async with aio.Producer(broker) as producer:
        await producer.send_and_wait(topic, b"x", partition=1)
        admin.create_partitions(topic, 3)
        eventually(lambda: len(admin.describe_topic(topic).partitions) == 3, "three partitions")
        assert (await producer.send_and_wait(topic, b"x", partition=2)).partition == 2


async def test_a_send_that_is_cancelled_while_others_have_their_turn_sent_nothing(broker: str, topic: str) -> None:
    async with aio.Producer(broker) as producer:
        await producer.send_and_wait(topic, b"first", partition=0)
        sent = cancelled = 0
        while not cancelled and sent < 10_000:
            task = asyncio.ensure_future(producer.send(topic, b"next", partition=0))
            await asyncio.sleep(0)
            if task.done():
                sent += 1
                continue
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            cancelled += 1
        assert cancelled, "no send let others have their turn"
    assert len(await values(broker, topic)) == 1 + sent


async def test_a_delivery_that_fails_raises_where_it_is_awaited(
    broker: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with aio.Producer(broker) as producer:
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            await producer.send_and_wait(topic, bytes(2 << 20))
        small = await asyncio.gather(producer.send_and_wait(topic, b"small"))
    assert small[0].offset == 0
    gc.collect()
    assert "nobody asked" not in caplog.text


async def test_after_close_a_send_is_refused(broker: str, topic: str) -> None:
    producer = aio.Producer(broker)
    delivery = await producer.send(topic, b"tea")
    await producer.close()
    assert delivery.result(0).offset == 0
    for call in (producer.send(topic, b"bun"), producer.partitions(topic), producer.send_columns(topic, None, [b"x"])):
        with pytest.raises(ClientClosed, match="the producer is closed"):
            await call
    await producer.close()


async def test_flush_waits_for_all_and_says_when_it_cannot(shared_headrace: HeadraceServer, own_topic: str) -> None:
    async with aio.Producer(shared_headrace.bootstrap, linger_ms=60_000) as producer:
        sent = [await producer.send(own_topic, b"%d" % n) for n in range(10)]
        await producer.flush()
        assert all(delivery.done() for delivery in sent)
        with silent(shared_headrace):
            await producer.send(own_topic, b"late")
            with pytest.raises(DeadlineExceeded, match="1 batches are not acknowledged"):
                await producer.flush(timeout_ms=50)


async def test_one_producer_serves_several_loops(broker: str, topic: str) -> None:
    async with aio.Producer(broker) as producer:

        def on_a_loop_of_its_own() -> None:
            asyncio.run(send(b"elsewhere"))

        async def send(value: bytes) -> None:
            await producer.send_and_wait(topic, value)

        await asyncio.gather(asyncio.to_thread(on_a_loop_of_its_own), send(b"here"))
    assert sorted(await values(broker, topic)) == [b"elsewhere", b"here"]


# -- transactions


@asynccontextmanager
async def transactional(broker: str, name: str) -> AsyncIterator[aio.Producer]:
    async with aio.Producer(broker, transactional_id=name) as producer:
        await producer.init_transactions()
        yield producer


async def test_a_transaction_commits_and_aborts(broker: str, topic: str) -> None:
    async with transactional(broker, topic_name("id")) as producer:
        async with producer.transaction():
            await producer.send(topic, b"committed", partition=0)
            await producer.send_columns(topic, None, [b"column"], partition=1)
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send(topic, b"aborted", partition=0)
                await producer.flush()
                raise ZeroDivisionError
        with pytest.raises(TransactionError, match="call begin first"):
            await producer.send(topic, b"outside")
    assert await values(broker, topic) == [b"committed", b"column"]
    assert b"aborted" in await values(broker, topic, isolation="read_uncommitted")


async def test_a_cancelled_transaction_is_aborted(broker: str, topic: str) -> None:
    async with transactional(broker, topic_name("id")) as producer:
        has_sent = asyncio.Event()

        async def work() -> None:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"cancelled", partition=0)
                has_sent.set()
                await asyncio.sleep(WITHIN_SECONDS)

        task = asyncio.create_task(work())
        await has_sent.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with producer.transaction():
            await producer.send(topic, b"next", partition=0)
    assert await values(broker, topic) == [b"next"]


async def test_a_fenced_producer_says_so(broker: str, topic: str) -> None:
    name = topic_name("fenced")
    async with transactional(broker, name) as first, transactional(broker, name):
        await first.begin()
        await first.send(topic, b"late")
        with pytest.raises(TransactionError, match="another producer has its transactional_id"):
            await first.commit()


async def test_offsets_are_committed_with_the_transaction(broker: str, topic: str) -> None:
    group = topic_name("group")
    async with transactional(broker, topic_name("id")) as producer:
        async with producer.transaction():
            await producer.send(topic, b"in", partition=0)
        async with aio.Consumer(broker, group_id=group, auto_offset_reset="earliest", auto_commit=False) as consumer:
            await consumer.subscribe([topic])
            record = await consumer.getone()
            async with producer.transaction():
                place = TopicPartition(record.topic, record.partition)
                await producer.send_offsets({place: record.offset + 1}, consumer.group_metadata())
            assert (await consumer.committed([place]))[place] == record.offset + 1


async def test_another_task_goes_on_while_sends_do_not_wait(broker: str, topic: str) -> None:
    async with aio.Producer(broker) as producer:
        await producer.partitions(topic)
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        began = time.monotonic()
        for _ in range(5_000):
            await producer.send(topic, b"tea")
        task.cancel()
        assert turns >= 5, time.monotonic() - began
