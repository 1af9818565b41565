"""The consumer for asyncio, on our broker and on Apache Kafka: reading, positions, commits, groups, listeners."""

import asyncio
import re
from collections.abc import Collection

import pytest

from headrace.client import aio
from headrace.client.core.failures import ClientClosed, ConcurrentUse, NoOffset
from headrace.client.core.group_metadata import OffsetAndMetadata
from headrace.client.operations.admin import Admin
from headrace.errors import InvalidConfig, KafkaError
from headrace.types import TopicPartition
from tests.client.brokers import topic_name
from tests.eventually import WITHIN_SECONDS, eventually_async

QUICK = {"auto_offset_reset": "earliest", "session_timeout_ms": 6_000, "heartbeat_interval_ms": 100}
COUNT = 40


@pytest.fixture
async def filled(broker: str, topic: str) -> str:
    """Two partitions of twenty records: the even numbers, and the odd ones."""
    async with aio.Producer(broker) as producer:
        for number in range(COUNT):
            await producer.send(topic, b"%d" % number, partition=number % 2, timestamp_ms=1_000_000_000_000 + number)
    return topic


def consumer(broker: str, **options: object) -> aio.Consumer:
    return aio.Consumer({"bootstrap_servers": broker, **QUICK, **options})


async def numbers(reader: aio.Consumer, count: int) -> list[int]:
    """The next records, by `async for`."""
    found: list[int] = []
    async with asyncio.timeout(WITHIN_SECONDS):
        async for record in reader:
            found.append(int(record.value or b""))
            if len(found) == count:
                break
    return found


async def test_async_for_gives_every_record_in_the_order_of_its_partition(broker: str, filled: str) -> None:
    async with consumer(broker) as reader:
        await reader.assign([TopicPartition(filled, 0), TopicPartition(filled, 1)])
        found = await numbers(reader, COUNT)
    assert [n for n in found if n % 2] == list(range(1, COUNT, 2))
    assert [n for n in found if not n % 2] == list(range(0, COUNT, 2))


@pytest.mark.slow
async def test_the_ways_to_read_take_turns_without_a_gap(broker: str, filled: str) -> None:
    place = TopicPartition(filled, 0)
    async with consumer(broker) as reader:
        await reader.assign([place])
        first = await reader.getone()
        assert (first.offset, await reader.position(place)) == (0, 1)
        assert [record.offset for record in await reader.poll(max_records=3)] == [1, 2, 3]
        many = await reader.getmany(max_records=2)
        assert [record.offset for record in many[place]] == [4, 5]
        assert [n // 2 for n in await numbers(reader, 4)] == [6, 7, 8, 9]
        ((where, columns),) = await reader.poll_columns(WITHIN_SECONDS * 1000)
        assert (where, list(columns.offsets)) == (place, list(range(10, 20)))
        assert await reader.position(place) == 20
        assert await reader.getmany(timeout_ms=50) == {}
        assert await reader.poll_columns(timeout_ms=50) == []
        await reader.seek(place, 0)
        assert [record.offset for record in await reader.poll(max_records=5)] == [0, 1, 2, 3, 4]
        ((_, columns),) = await reader.poll_columns(WITHIN_SECONDS * 1000)
        assert list(columns.offsets) == list(range(5, 20)), "after the last one that was received"


@pytest.mark.slow
async def test_seeks_in_all_forms(broker: str, filled: str) -> None:
    even, odd = TopicPartition(filled, 0), TopicPartition(filled, 1)
    async with consumer(broker) as reader:
        await reader.assign([even])
        assert await numbers(reader, 3) == [0, 2, 4]
        await reader.seek(even, 15)  # what was read ahead is dropped
        assert await numbers(reader, 2) == [30, 32]
        await reader.seek(even, OffsetAndMetadata(1, "a text"))
        assert await numbers(reader, 1) == [2]
        await reader.seek_to_time(1_000_000_000_021)
        assert await numbers(reader, 1) == [22]
        await reader.seek_to_beginning(even)
        assert await numbers(reader, 1) == [0]
        await reader.seek_to_end()
        assert (await reader.position(even), await reader.lag()) == (20, {even: 0})
        assert await reader.beginning_offsets([odd]) == {odd: 0}
        assert await reader.end_offsets([even, odd]) == {even: 20, odd: 20}
        found = await reader.offsets_for_times({even: 1_000_000_000_005, odd: 1_000_000_000_999})
        assert found[odd] is None
        assert getattr(found[even], "offset", None) == 3


async def test_a_seek_of_another_partition_keeps_what_was_read_ahead(broker: str, filled: str) -> None:
    even, odd = TopicPartition(filled, 0), TopicPartition(filled, 1)
    async with consumer(broker) as reader:
        await reader.assign([even, odd])
        first = await numbers(reader, 2)
        await reader.seek(odd if first[0] % 2 == 0 else even, 20)
        assert await numbers(reader, 18) == list(range(first[0] + 4, COUNT + first[0], 2))


@pytest.mark.slow
async def test_a_paused_partition_waits_also_with_what_was_read_ahead(broker: str, filled: str) -> None:
    even, odd = TopicPartition(filled, 0), TopicPartition(filled, 1)
    async with consumer(broker, max_poll_records=5) as reader:
        await reader.assign([even])
        assert await numbers(reader, 2) == [0, 2]
        await reader.pause([even])
        assert reader.paused == {even}
        assert await reader.poll(timeout_ms=100) == []
        await reader.resume([even])
        assert await numbers(reader, 18) == list(range(4, COUNT, 2))
        await reader.assign([odd])
        assert await numbers(reader, 1) == [1]


async def test_a_commit_covers_what_was_received(broker: str, filled: str) -> None:
    place, group = TopicPartition(filled, 0), topic_name("group")
    async with consumer(broker, group_id=group, auto_commit=False) as reader:
        await reader.assign([place])
        await numbers(reader, 7)
        await reader.commit()
        assert await reader.committed([place]) == {place: 7}
        record = await reader.getone()
        await reader.commit(record)
        assert await reader.committed([place]) == {place: 8}
        await reader.commit({place: OffsetAndMetadata(3, "half done")})
        assert await reader.committed_with_metadata([place]) == {place: OffsetAndMetadata(3, "half done")}
        await reader.commit({place: 4})
    async with consumer(broker, group_id=group) as reader:
        await reader.assign([place])
        assert await numbers(reader, 1) == [8]


async def test_close_commits_automatically_what_was_received_and_no_more(broker: str, filled: str) -> None:
    group = topic_name("group")
    async with consumer(broker, group_id=group) as reader:
        await reader.subscribe([filled])
        first = await numbers(reader, 13)
    async with consumer(broker, group_id=group) as reader:
        await reader.subscribe([filled])
        assert sorted([*first, *(await numbers(reader, COUNT - 13))]) == list(range(COUNT))


async def test_without_a_place_to_start_it_asks_for_one(broker: str, filled: str) -> None:
    async with consumer(broker, group_id=topic_name("none"), auto_offset_reset="none") as reader:
        await reader.assign([TopicPartition(filled, 0)])
        with pytest.raises(NoOffset, match="seek"):
            await reader.poll()


async def test_read_committed_leaves_out_what_was_aborted(broker: str, topic: str) -> None:
    async with aio.Producer(broker, transactional_id=topic_name("id")) as producer:
        await producer.init_transactions()
        for value, is_kept in ((b"1", True), (b"2", False), (b"3", True)):
            await producer.begin()
            await producer.send(topic, value, partition=0)
            await producer.flush()
            await (producer.commit() if is_kept else producer.abort())
    async with consumer(broker, isolation_level="read_committed") as reader:
        await reader.assign([TopicPartition(topic, 0)])
        assert await numbers(reader, 2) == [1, 3]


# -- groups


async def test_two_members_share_the_partitions_and_listeners_may_be_coroutines(broker: str, filled: str) -> None:
    group, told = topic_name("group"), []
    place = TopicPartition(filled, 0)

    async with consumer(broker, group_id=group, auto_commit=False) as first:

        async def assigned(partitions: Collection[TopicPartition]) -> None:
            told.append(("assigned", len(partitions), await first.end_offsets([place])))

        async def revoked(partitions: Collection[TopicPartition]) -> None:
            await first.commit()  # a call of the consumer whose poll waits for this
            told.append(("revoked", len(partitions), await first.committed([place])))

        await first.subscribe([filled], on_assigned=assigned, on_revoked=revoked)
        await numbers(first, COUNT)
        assert told == [("assigned", 2, {place: 20})]
        seen: list[TopicPartition] = []
        async with consumer(broker, group_id=group) as second:
            await second.subscribe([filled], on_assigned=seen.extend)

            async def share() -> bool:
                await asyncio.gather(first.poll(50), second.poll(50))
                return len(first.assignment) == len(second.assignment) == 1

            await eventually_async(share, "both to have one partition")
            assert {*first.assignment, *second.assignment} == {place, TopicPartition(filled, 1)}
            assert seen[-1:] == second.assignment
        assert ("revoked", 2, {place: 20}) in told


async def test_a_listener_that_reads_or_fails_is_an_error_of_the_poll(broker: str, filled: str) -> None:
    async with consumer(broker, group_id=topic_name("group")) as reader:

        async def reads(_: Collection[TopicPartition]) -> None:
            await reader.poll()

        await reader.subscribe([filled], on_assigned=reads)
        with pytest.raises(ConcurrentUse, match="a listener cannot read"):
            await reader.getone()
        assert sorted(await numbers(reader, COUNT)) == list(range(COUNT))


async def test_a_pattern_and_unsubscribe(broker: str, filled: str) -> None:
    async with consumer(broker, group_id=topic_name("group")) as reader:
        pattern = re.compile(re.escape(filled[:-1]) + ".")
        await reader.subscribe(pattern)
        assert await reader.getone()
        assert reader.subscription == pattern
        assert len(reader.assignment) == 2
        assert reader.group_metadata().member_id
        await reader.unsubscribe()
        assert (reader.subscription, reader.assignment) == ([], [])
        with pytest.raises(KafkaError, match="call subscribe or assign"):
            await reader.poll()


async def test_a_static_member_returns_to_its_partitions(broker: str, filled: str) -> None:
    group = topic_name("group")
    members = []
    for _ in range(2):
        async with consumer(broker, group_id=group, group_instance_id="till-1") as reader:
            await reader.subscribe([filled])
            await eventually_async(lambda reader=reader: _joined(reader), "the assignment")
            members.append(reader.group_metadata().generation)
    assert members[0] == members[1]


async def _joined(reader: aio.Consumer) -> bool:
    await reader.poll(50)
    return len(reader.assignment) == 2


# -- mistakes


async def test_mistakes_are_told_at_the_call(broker: str, filled: str) -> None:
    with pytest.raises(InvalidConfig, match="auto_offset_reset='begin'"):
        aio.Consumer(broker, auto_offset_reset="begin")
    async with consumer(broker) as reader:
        with pytest.raises(InvalidConfig, match="subscribe requires a group_id"):
            await reader.subscribe([filled])
        with pytest.raises(TypeError, match="is text"):
            await reader.subscribe(filled)
        with pytest.raises(KafkaError, match="is not assigned"):
            await reader.seek(TopicPartition(filled, 0), 1)
        with pytest.raises(InvalidConfig, match="commit needs a group_id"):
            await reader.commit()


async def test_after_close_every_call_is_refused(broker: str, filled: str) -> None:
    reader = consumer(broker)
    await reader.assign([TopicPartition(filled, 0)])
    await reader.close()
    await reader.close()
    for call in (reader.poll(), reader.getone(), reader.seek(TopicPartition(filled, 0), 1), reader.poll_columns()):
        with pytest.raises(ClientClosed, match="the consumer is closed"):
            await call
    assert [record async for record in reader] == []


async def test_another_loop_is_an_error_that_says_so(broker: str) -> None:
    async with consumer(broker) as reader:
        with pytest.raises(ConcurrentUse, match="a consumer of its own"):
            await asyncio.to_thread(lambda: asyncio.run(reader.poll()))


async def test_admin_creates_lists_and_describes(broker: str, admin: Admin) -> None:
    name = topic_name("created")
    async with aio.Admin(broker) as helper:
        await helper.create_topic(name, partitions=3, replication_factor=1)
        assert name in [topic.name for topic in await helper.list_topics()]
        assert len((await helper.describe_topic(name)).partitions) == 3
        assert await helper.run(lambda core, which: len(core.partitions_of(which)), name) == 3
        await helper.delete_topics([name])
    with pytest.raises(ClientClosed, match="the admin is closed"):
        await helper.list_topics()


PROTOCOLS: list[dict[str, object]] = [
    {"partition_assignment_strategy": "roundrobin", **QUICK},
    {"partition_assignment_strategy": "cooperative-sticky", **QUICK},
    {"group_protocol": "consumer", "auto_offset_reset": "earliest"},
]


@pytest.mark.slow
@pytest.mark.parametrize("how", PROTOCOLS, ids=["eager", "cooperative", "KIP-848"])
async def test_members_come_and_go_and_every_record_is_read(broker: str, topic: str, how: dict[str, object]) -> None:
    options = {"bootstrap_servers": broker, "group_id": topic_name("group"), "max_poll_records": 5, **how}
    sent: list[bytes] = []
    seen: list[bytes] = []
    lost: list[TopicPartition] = []
    is_enough = asyncio.Event()

    async def send() -> None:
        async with aio.Producer(broker, linger_ms=0) as producer:
            while not is_enough.is_set():
                sent.append(b"%d" % len(sent))
                await producer.send_and_wait(topic, sent[-1], partition=len(sent) % 2)

    async def read(reader: aio.Consumer, count: int) -> None:
        async for record in reader:
            seen.append(record.value or b"")
            count -= 1
            if count == 0:
                break

    sending = asyncio.create_task(send())
    async with aio.Consumer(options) as first:
        await first.subscribe([topic], on_lost=lost.extend)
        await read(first, 20)
        async with aio.Consumer(options) as second:
            await second.subscribe([topic], on_lost=lost.extend)
            staying = asyncio.create_task(read(first, -1))
            try:
                async with asyncio.timeout(WITHIN_SECONDS):
                    await read(second, 30)
            finally:
                is_enough.set()
        await sending
        await eventually_async(
            lambda: len(seen) >= len(sent), "all records", state=lambda: f"{len(seen)} of {len(sent)}"
        )
        staying.cancel()
        await asyncio.gather(staying, return_exceptions=True)
    assert (sorted(seen), lost) == (sorted(sent), [])
