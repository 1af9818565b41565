"""`flush.messages`: whose record fills the count hears of it after the disk has it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from headrace.broker.app import running
from headrace.broker.replica_manager import Partition
from headrace.config import parse_broker
from headrace.coordination.topics import NewTopic
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.wire import batch

Make = Callable[[int], Awaitable["SlowDisk"]]
Flush = tuple[Callable[[], None], Callable[[Exception | None], None]]


class SlowDisk:
    """A broker with one partition whose flushes end when the test says so."""

    def __init__(self, bootstrap: str, partition: Partition) -> None:
        self.bootstrap = bootstrap
        self.log = partition.log
        self.flushes: list[Flush] = []
        self.log.background = lambda work, done: self.flushes.append((work, done))

    def produce(self, acks: int = -1) -> asyncio.Task[int]:
        """Sends one record from a connection of its own; the task's result is the error code."""
        return asyncio.create_task(asyncio.to_thread(self._produce, acks))

    def _produce(self, acks: int) -> int:
        part = m.ProduceRequest.PartitionProduceData(index=0, records=batch([b"v"]))
        topics = [m.ProduceRequest.TopicProduceData(name="t", partition_data=[part])]
        with Asker(self.bootstrap) as asker:
            answer = asker.ask(m.ProduceRequest(acks=acks, timeout_ms=20_000, topic_data=topics), 9)
        return int(answer.responses[0].partition_responses[0].error_code)

    async def written(self, records: int) -> None:
        """Returns when so many records are in the log, and the loop has done what it does about them."""
        while self.log.log_end_offset < records:  # noqa: ASYNC110 - nothing says so
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)

    def flush(self, error: OSError | None = None) -> None:
        """Ends the flush that is under way."""
        (work, done), *self.flushes = self.flushes
        if error is None:
            work()
        done(error)


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    settings = {"listeners": "127.0.0.1:0", "log.flush.scheduler.interval.ms": "60000"}
    config = parse_broker({"log.dirs": str(tmp_path), **settings})
    async with running(config) as (broker, (listener,)):

        async def of(flush_messages: int) -> SlowDisk:
            wish = NewTopic("t", configs={"flush.messages": str(flush_messages)})
            await broker.controller.create_topics([wish])
            return SlowDisk(f"{listener.host}:{listener.port}", broker.replicas.leader("t", 0))

        yield of


@pytest.mark.parametrize("acks", [-1, 1])
async def test_an_answer_waits_for_the_disk(make: Make, acks: int) -> None:
    disk = await make(1)
    answer = disk.produce(acks)
    await disk.written(1)
    assert len(disk.flushes) == 1 and not answer.done()
    disk.flush()
    assert await answer == ErrorCode.NONE
    assert disk.log.recovery_point == 1


async def test_whoever_comes_during_a_flush_shares_the_next(make: Make) -> None:
    disk = await make(1)
    first = disk.produce()
    await disk.written(1)
    others = [disk.produce() for _ in range(5)]
    await disk.written(6)
    assert len(disk.flushes) == 1
    disk.flush()
    assert await first == ErrorCode.NONE
    while not disk.flushes:  # noqa: ASYNC110 - nothing says so
        await asyncio.sleep(0.001)
    assert not any(each.done() for each in others)
    disk.flush()
    assert await asyncio.gather(*others) == [ErrorCode.NONE] * 5
    assert not disk.flushes


async def test_only_the_record_that_fills_the_count_waits(make: Make) -> None:
    disk = await make(3)
    assert [await disk.produce(), await disk.produce()] == [ErrorCode.NONE] * 2
    assert not disk.flushes
    third = disk.produce()
    await disk.written(3)
    assert len(disk.flushes) == 1 and not third.done()
    disk.flush()
    assert await third == ErrorCode.NONE


async def test_what_the_disk_refuses_is_not_acknowledged(make: Make) -> None:
    disk = await make(1)
    answer = disk.produce()
    await disk.written(1)
    disk.flush(OSError(5, "Input/output error"))
    assert await answer == ErrorCode.KAFKA_STORAGE_ERROR
    assert await disk.produce() == ErrorCode.KAFKA_STORAGE_ERROR
