"""The group shell on a real event loop and a real log: deadlines, order of writes, loading."""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.broker.group_shell import GroupShell
from headrace.config import BrokerConfig, TopicConfig
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.members import Join
from headrace.log.files import LocalFiles
from headrace.log.partition_log import PartitionLog
from headrace.protocol import messages as m
from headrace.records.header import read_header
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

    def append_internal(self, partition: int, batch: bytearray) -> Awaitable[int]:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.waiting.append((batch, future))
        if not self.is_slow:
            self.finish()
        return future

    def finish(self) -> None:
        """Everything that waits is written, or fails."""
        waiting, self.waiting = self.waiting, []
        for batch, future in waiting:
            if self.failure is not None:
                future.set_exception(self.failure)
            else:
                view = memoryview(batch)
                future.set_result(self.log.append(view, read_header(view), leader_epoch=0, now_ms=0).base_offset)

    def partition_count(self) -> int:
        return 1

    async def ensure_offsets_topic(self) -> None:
        """It is there."""


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


async def a_shell(host: Host, clock: Clock) -> GroupShell:
    shell = GroupShell(CONFIG, host, loop=asyncio.get_running_loop(), now_ms=clock)
    await shell.load_partition(0, host.log)
    return shell


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


def offset_of(shell: GroupShell) -> int:
    error, (fetched,) = shell.fetch_offsets("g", [TopicPartition("t", 0)], False)
    assert error is ErrorCode.NONE
    return fetched.offset


async def test_a_join_is_answered_when_its_deadline_passes_on_the_loop(host: Host) -> None:
    shell, inbox = await a_shell(host, Clock()), Inbox()
    shell.join(a_join(), inbox)
    joined = await inbox.next()
    assert isinstance(joined, m.JoinGroupResponse)
    assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 1)
    shell.close()


async def test_a_clock_that_is_set_neither_ends_sessions_nor_stops_a_rebalance(host: Host) -> None:
    clock = Clock()
    shell, inbox = await a_shell(host, clock), Inbox()
    shell.join(a_join(), inbox)
    clock.ahead_ms -= 3_600_000
    joined = await inbox.next()
    assert isinstance(joined, m.JoinGroupResponse)
    clock.ahead_ms += 2 * 3_600_000
    heartbeat = m.HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
    assert shell.heartbeat(heartbeat) is ErrorCode.NONE
    shell.close()


async def test_a_commit_is_answered_when_it_is_written_and_found_by_the_next_broker(host: Host) -> None:
    shell, inbox = await a_shell(host, Clock()), Inbox()
    host.is_slow = True
    shell.commit(a_commit(5), inbox)
    await asyncio.sleep(0)
    assert inbox.messages.empty()
    assert offset_of(shell) == -1
    host.finish()
    await inbox.next()
    assert offset_of(shell) == 5
    shell.close()
    host.log = host.open()
    again = await a_shell(host, Clock())
    assert offset_of(again) == 5
    again.close()


async def test_a_write_that_fails_is_told_in_the_clients_terms(host: Host) -> None:
    shell, inbox = await a_shell(host, Clock()), Inbox()
    host.failure = KafkaError("too big", ErrorCode.MESSAGE_TOO_LARGE)
    shell.commit(a_commit(5), inbox)
    answer = await inbox.next()
    assert isinstance(answer, m.OffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert offset_of(shell) == -1
    shell.close()


async def test_one_client_that_cannot_be_answered_does_not_keep_the_others_waiting(host: Host) -> None:
    shell, inbox = await a_shell(host, Clock()), Inbox()

    def broken(_: object) -> None:
        raise ValueError("this version cannot carry it")

    shell.join(a_join(), broken)
    shell.join(a_join(), inbox)
    assert isinstance(await inbox.next(), m.JoinGroupResponse)
    shell.close()


async def test_groups_are_loading_from_the_moment_the_partition_is_led(host: Host) -> None:
    shell = GroupShell(CONFIG, host, loop=asyncio.get_running_loop(), now_ms=Clock())
    assert shell.fetch_offsets("g", None, False)[0] is ErrorCode.NOT_COORDINATOR
    reading = shell.load_partition(0, host.log)
    assert shell.fetch_offsets("g", None, False)[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await reading
    assert shell.fetch_offsets("g", None, False)[0] is ErrorCode.NONE
    shell.unload_partition(0)
    assert shell.fetch_offsets("g", None, False)[0] is ErrorCode.NOT_COORDINATOR
    shell.close()


async def test_a_long_log_is_read_in_pieces_between_which_others_are_served(host: Host) -> None:
    shell, inbox = await a_shell(host, Clock()), Inbox()
    for offset in range(4000):
        shell.commit(a_commit(offset), inbox)
    shell.close()
    again = GroupShell(CONFIG, host, loop=asyncio.get_running_loop(), now_ms=Clock())
    reading = asyncio.ensure_future(again.load_partition(0, host.log))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 1
    assert offset_of(again) == 3999
    again.close()
