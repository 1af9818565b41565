"""The group service on a real event loop and a real log: deadlines, order of writes, loading."""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.broker.coordinator_host.group_service import GroupService
from headrace.broker.coordinator_host.internal_topic import InternalTopic, offsets_topic
from headrace.config import BrokerConfig, TopicConfig
from headrace.coordinators.groups.classic.members import Join
from headrace.errors import ErrorCode, KafkaError
from headrace.log import appending
from headrace.log.filenames import LOG, offset_file
from headrace.log.files import LocalFiles
from headrace.log.partition_log import PartitionLog
from headrace.log.producers.verification import Verification
from headrace.metadata.metadata_cache import MetadataCache
from headrace.protocol import messages as m
from headrace.records.format2.header import read_header
from headrace.types import TopicPartition

CONFIG = replace(BrokerConfig(), group_initial_rebalance_delay_ms=10, offsets_topic_num_partitions=1)
OFFSETS = TopicPartition("__consumer_offsets", 0)


class Host:
    """`__consumer_offsets` with one partition on disk. With `is_slow`, writes are done when `finish` is called."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / str(OFFSETS)
        self.is_slow = False
        self.failure: KafkaError | None = None
        self.waiting: list[tuple[bytearray, asyncio.Future[int]]] = []
        self.log = self.open()

    def open(self) -> PartitionLog:
        """The log as it is on disk."""
        return PartitionLog.open(self.directory, OFFSETS, TopicConfig(), files=LocalFiles(), now_ms=0)

    def append(
        self, key: TopicPartition, batch: bytearray, *, timeout_ms: int, verification: Verification | None = None
    ) -> Awaitable[int]:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.waiting.append((batch, future))
        if not self.is_slow:
            self.finish()
        return future

    def high_watermark(self, key: TopicPartition) -> int:
        """See `Appends`."""
        return self.log.log_end_offset

    def finish(self) -> None:
        """Everything that waits is written, or fails."""
        waiting, self.waiting = self.waiting, []
        for batch, future in waiting:
            if self.failure is not None:
                future.set_exception(self.failure)
            else:
                view = memoryview(batch)
                future.set_result(
                    appending.append(self.log, view, read_header(view), leader_epoch=0, now_ms=0).base_offset
                )

    def service(self, clock: "Clock") -> GroupService:
        """A coordinator of groups whose topic this is."""
        metadata = MetadataCache()
        topic = InternalTopic(offsets_topic(CONFIG, is_alone=True), metadata, create_nothing)
        loop = asyncio.get_running_loop()
        return GroupService(CONFIG, topic, metadata, appends=self, spawn=loop.create_task, loop=loop, now_ms=clock)


async def create_nothing(_: object) -> dict[str, KafkaError | None]:
    raise AssertionError("nobody asks for the topic")


class Clock:
    """A wall clock that can be set, beside the loop's own."""

    def __init__(self) -> None:
        self.ahead_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.ahead_ms + int(asyncio.get_running_loop().time() * 1000)


class Inbox:
    """What one client is told."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[object] = asyncio.Queue()

    def __call__(self, message: object) -> None:
        self.messages.put_nowait(message)

    async def next(self) -> object:
        return await asyncio.wait_for(self.messages.get(), 5)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


async def a_service(host: Host, clock: Clock) -> GroupService:
    service = host.service(clock)
    await service.runtime.load(0, host.log, 0)
    return service


def a_join(member_id: str = "") -> Join:
    return Join("g", member_id, None, "client", "/h", 10_000, 60_000, "consumer", (("range", b""),), False, True)


def a_commit(offset: int, generation: int = -1, member_id: str = "") -> m.OffsetCommitRequest:
    partition = m.OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    return m.OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=generation, member_id=member_id, topics=[topic]
    )


def offset_of(service: GroupService) -> int:
    error, (fetched,) = service.fetch_offsets("g", [TopicPartition("t", 0)], False)
    assert error is ErrorCode.NONE
    return fetched.offset


async def test_a_join_is_answered_when_its_deadline_passes_on_the_loop(host: Host) -> None:
    service, inbox = await a_service(host, Clock()), Inbox()
    service.join(a_join(), inbox)
    joined = await inbox.next()
    assert isinstance(joined, m.JoinGroupResponse)
    assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 1)
    service.runtime.close()


async def test_a_clock_that_is_set_neither_ends_sessions_nor_stops_a_rebalance(host: Host) -> None:
    clock = Clock()
    service, inbox = await a_service(host, clock), Inbox()
    service.join(a_join(), inbox)
    clock.ahead_ms -= 3_600_000
    joined = await inbox.next()
    assert isinstance(joined, m.JoinGroupResponse)
    clock.ahead_ms += 2 * 3_600_000
    heartbeat = m.HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
    assert service.heartbeat(heartbeat) is ErrorCode.NONE
    service.runtime.close()


async def test_a_commit_is_answered_when_it_is_written_and_found_by_the_next_broker(host: Host) -> None:
    service, inbox = await a_service(host, Clock()), Inbox()
    host.is_slow = True
    service.commit(a_commit(5), 8, inbox)
    await asyncio.sleep(0)
    assert inbox.messages.empty()
    assert offset_of(service) == -1
    host.finish()
    await inbox.next()
    assert offset_of(service) == 5
    service.runtime.close()
    host.log = host.open()
    again = await a_service(host, Clock())
    assert offset_of(again) == 5
    again.runtime.close()


async def test_a_write_that_fails_is_told_in_the_clients_terms(host: Host) -> None:
    service, inbox = await a_service(host, Clock()), Inbox()
    host.failure = KafkaError("too big", ErrorCode.MESSAGE_TOO_LARGE)
    service.commit(a_commit(5), 8, inbox)
    answer = await inbox.next()
    assert isinstance(answer, m.OffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert offset_of(service) == -1
    service.runtime.close()


async def test_one_client_that_cannot_be_answered_does_not_keep_the_others_waiting(host: Host) -> None:
    service, inbox = await a_service(host, Clock()), Inbox()

    def broken(_: object) -> None:
        raise ValueError("this version cannot carry it")

    service.join(a_join(), broken)
    service.join(a_join(), inbox)
    assert isinstance(await inbox.next(), m.JoinGroupResponse)
    service.runtime.close()


async def test_groups_are_loading_from_the_moment_the_partition_is_led(host: Host) -> None:
    service = host.service(Clock())
    assert service.fetch_offsets("g", None, False)[0] is ErrorCode.NOT_COORDINATOR
    reading = service.runtime.load(0, host.log, 0)
    assert service.fetch_offsets("g", None, False)[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await reading
    assert service.fetch_offsets("g", None, False)[0] is ErrorCode.NONE
    service.runtime.unload(0)
    assert service.fetch_offsets("g", None, False)[0] is ErrorCode.NOT_COORDINATOR
    service.runtime.close()


@pytest.mark.slow
async def test_a_long_log_is_read_in_pieces_between_which_others_are_served(host: Host) -> None:
    service, inbox = await a_service(host, Clock()), Inbox()
    for offset in range(4000):
        service.commit(a_commit(offset), 8, inbox)
        await asyncio.sleep(0)
    service.runtime.close()
    again = host.service(Clock())
    reading = asyncio.ensure_future(again.runtime.load(0, host.log, 0))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 1
    assert offset_of(again) == 3999
    again.runtime.close()


async def test_an_older_load_that_fails_leaves_the_newer_one_alone(host: Host) -> None:
    service, inbox = await a_service(host, Clock()), Inbox()
    service.commit(a_commit(5), 8, inbox)
    service.runtime.close()
    again = host.service(Clock())
    older = again.runtime.load(0, host.open(), 0)
    again.runtime.unload(0)
    newer = again.runtime.load(0, host.log, 0)
    path = host.directory / offset_file(0, LOG)
    data = path.read_bytes()
    path.write_bytes(b"")
    await older
    assert again.fetch_offsets("g", None, False)[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    path.write_bytes(data)
    await newer
    assert offset_of(again) == 5
    again.runtime.close()
