"""`flush.messages`, `headrace.flush.acks`: who sent what has to be on the disk first hears of it after that, and nobody
reads it sooner."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from headrace.broker.app import running
from headrace.broker.partitions.replica_manager import Partition
from headrace.broker.services import Services
from headrace.config import parse_broker
from headrace.controller.decisions.topics import RequestedTopic
from headrace.errors import ErrorCode
from headrace.log.shared_syncs import OpenRefused
from headrace.protocol import messages as m
from headrace.records.format2.batch import read_header
from tests.asker import Asker
from tests.eventually import WITHIN_SECONDS
from tests.log.support import Work, hold_background
from tests.wire import Wire, batch, produce_request, stored_batches, string

Make = Callable[[Mapping[str, str]], Awaitable["SlowDisk"]]
EACH_RECORD = [{"flush.messages": "1"}, {"headrace.flush.acks": "true"}]


class SlowDisk:
    """A broker with one partition whose flushes end when the test says so."""

    def __init__(self, broker: Services, bootstrap: str, partition: Partition) -> None:
        self.broker, self.bootstrap, self.partition = broker, bootstrap, partition
        self.log = partition.log
        self.flushes: list[Work] = []
        hold_background(self.log, self.flushes)

    def produce(self, acks: int = -1) -> asyncio.Task[int]:
        """Sends one record from a connection of its own; the task's result is the error code."""
        return asyncio.create_task(asyncio.to_thread(self._produce, acks))

    def _produce(self, acks: int) -> int:
        part = m.ProduceRequest.PartitionProduceData(index=0, records=batch([b"v"]))
        topics = [m.ProduceRequest.TopicProduceData(name="t", partition_data=[part])]
        with Asker(self.bootstrap) as asker:
            answer = asker.ask(m.ProduceRequest(acks=acks, timeout_ms=20_000, topic_data=topics), 9)
        return int(answer.responses[0].partition_responses[0].error_code)

    async def written(self, records: int, flushes: int = 1) -> None:
        """Returns when so many records are in the log, and so many flushes have been asked for and not ended."""
        async with asyncio.timeout(WITHIN_SECONDS):
            while self.log.log_end_offset < records or len(self.flushes) < flushes or self.log.flusher.is_due_soon:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    async def seen(self) -> tuple[int, int]:
        """Where the log ends for a consumer, as ListOffsets and a fetch of everything say."""
        return await asyncio.to_thread(self._seen)

    def _seen(self) -> tuple[int, int]:
        with Wire(self.bootstrap) as wire:
            fetched = wire.fetch("t", 0, max_wait_ms=0)
            assert fetched.error_code == 0
            return wire.list_offset("t", -1)[2], len(stored_batches(fetched.records))

    async def set(self, **settings: str) -> None:
        """Changes settings of the topic; dots are written as underscores."""
        changes = {name.replace("_", "."): value for name, value in settings.items()}
        await asyncio.to_thread(self._set, changes)

    def _set(self, changes: Mapping[str, str]) -> None:
        configs = [
            m.IncrementalAlterConfigsRequest.AlterableConfig(name=name, config_operation=0, value=value)
            for name, value in changes.items()
        ]
        resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=2, resource_name="t", configs=configs
        )
        with Asker(self.bootstrap) as asker:
            answer = asker.ask(m.IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert answer.responses[0].error_code == 0

    def flush(self, error: OSError | None = None) -> None:
        """Ends the flush that is under way."""
        work, done = self.flushes.pop(0)
        if error is None:
            work()
        done(error)


def one(item: bytes) -> bytes:
    """An array of one."""
    return (1).to_bytes(4, "big") + item


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    settings = {"listeners": "127.0.0.1:0", "log.flush.scheduler.interval.ms": "60000"}
    config = parse_broker({"log.dirs": str(tmp_path), **settings})
    async with running(config) as (broker, (listener,)):

        async def of(configs: Mapping[str, str]) -> SlowDisk:
            await broker.controller.create_topics([RequestedTopic("t", configs=dict(configs))])
            return SlowDisk(broker, f"{listener.host}:{listener.port}", broker.replicas.leader("t", 0))

        yield of


@pytest.mark.parametrize("configs", EACH_RECORD)
@pytest.mark.parametrize("acks", [-1, 1])
async def test_an_answer_waits_for_the_disk_and_so_does_a_reader(
    make: Make, acks: int, configs: Mapping[str, str]
) -> None:
    disk = await make(configs)
    answer = disk.produce(acks)
    await disk.written(1)
    assert len(disk.flushes) == 1 and not answer.done()
    assert await disk.seen() == (0, 0)
    disk.flush()
    assert await answer == ErrorCode.NONE
    assert disk.log.flusher.recovery_point == 1
    assert await disk.seen() == (1, 1)


async def test_an_answer_goes_on_waiting_for_a_flush_that_could_not_open_a_file(make: Make) -> None:
    disk = await make({"headrace.flush.acks": "true"})
    answer = disk.produce()
    await disk.written(1)
    disk.flush(OpenRefused(errno.EMFILE, os.strerror(errno.EMFILE), "t-0"))
    assert disk.log.failure is None
    assert not disk.flushes and not disk.log.flusher.is_due_soon, "not at once again: every second"
    assert await disk.seen() == (0, 0)
    assert not answer.done()
    await disk.written(1)
    disk.flush()
    assert await answer == ErrorCode.NONE
    assert await disk.seen() == (1, 1)


async def test_a_record_that_nobody_waits_for_is_flushed_too_before_it_is_read(make: Make) -> None:
    disk = await make({"headrace.flush.acks": "true"})

    def send() -> None:
        with Wire(disk.bootstrap) as wire:
            wire.send(0, 3, produce_request("t", batch([b"v"]), acks=0))

    await asyncio.to_thread(send)
    await disk.written(1)
    assert await disk.seen() == (0, 0)
    disk.flush()
    assert await disk.seen() == (1, 1)


async def test_a_fetch_that_waits_is_answered_by_the_flush(make: Make) -> None:
    disk = await make({"headrace.flush.acks": "true"})

    def fetch() -> bytes:
        with Wire(disk.bootstrap) as wire:
            return bytes(wire.fetch("t", 0, max_wait_ms=60_000).records)

    fetched = asyncio.create_task(asyncio.to_thread(fetch))
    answer = disk.produce()
    await disk.written(1)
    assert not fetched.done()
    disk.flush()
    assert b"v" in await fetched
    assert await answer == ErrorCode.NONE


@pytest.mark.parametrize("configs", EACH_RECORD)
async def test_whoever_comes_during_a_flush_shares_the_next(make: Make, configs: Mapping[str, str]) -> None:
    disk = await make(configs)
    first = disk.produce()
    await disk.written(1)
    others = [disk.produce() for _ in range(5)]
    await disk.written(6)
    assert len(disk.flushes) == 1
    disk.flush()
    assert await first == ErrorCode.NONE
    await disk.written(6)
    assert await disk.seen() == (1, 1)
    assert not any(each.done() for each in others)
    disk.flush()
    assert await asyncio.gather(*others) == [ErrorCode.NONE] * 5
    assert not disk.flushes


async def test_what_comes_in_one_turn_of_the_loop_shares_a_flush(make: Make) -> None:
    disk = await make({"headrace.flush.acks": "true"})

    for _ in range(20):
        data = memoryview(bytearray(batch([b"v"])))
        disk.partition.append(data, read_header(data), now_ms=disk.broker.now_ms(), acks=-1)
    assert not disk.flushes
    await disk.written(20)
    assert len(disk.flushes) == 1
    disk.flush()
    assert disk.partition.high_watermark == 20


async def test_only_the_record_that_fills_the_count_waits(make: Make) -> None:
    disk = await make({"flush.messages": "3"})
    assert [await disk.produce(), await disk.produce()] == [ErrorCode.NONE] * 2
    assert not disk.flushes
    third = disk.produce()
    await disk.written(3)
    assert len(disk.flushes) == 1 and not third.done()
    assert await disk.seen() == (2, 2)
    disk.flush()
    assert await third == ErrorCode.NONE
    assert await disk.seen() == (3, 3)


async def test_what_the_disk_refuses_is_not_acknowledged_and_never_read(make: Make) -> None:
    disk = await make({"headrace.flush.acks": "true"})
    answers = [disk.produce()]
    await disk.written(1)
    answers += [disk.produce(acks) for acks in (1, -1)]
    await disk.written(3)
    disk.flush(OSError(5, "Input/output error"))
    assert await asyncio.gather(*answers) == [ErrorCode.KAFKA_STORAGE_ERROR] * 3
    assert await disk.produce() == ErrorCode.KAFKA_STORAGE_ERROR
    assert not disk.flushes, "nobody tries again and hopes"
    assert disk.partition.high_watermark == disk.log.flusher.recovery_point == 0


async def test_who_waits_while_the_data_directory_goes_offline_hears_of_the_disk(make: Make) -> None:
    disk = await make({"headrace.flush.acks": "true"})
    answers = [disk.produce(acks) for acks in (1, -1)]
    await disk.written(2)
    disk.broker.replicas.take_offline([disk.partition.key])
    assert await asyncio.gather(*answers) == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert await disk.produce() == ErrorCode.KAFKA_STORAGE_ERROR


async def test_an_offset_is_committed_when_it_is_flushed(tmp_path: Path) -> None:
    """What the coordinator writes obeys the same settings."""
    settings = {"headrace.log.flush.acks": "true", "offsets.topic.num.partitions": "1"}
    config = parse_broker({"listeners": "127.0.0.1:0", "log.dirs": str(tmp_path), **settings})
    async with running(config) as (broker, (listener,)):
        await broker.controller.create_topics([RequestedTopic("t")])

        def commit() -> int:
            part = bytes(4) + (7).to_bytes(8, "big") + string(None)
            topics = one(string("t") + one(part))
            body = string("g") + (-1).to_bytes(4, "big", signed=True) + string("") + b"\xff" * 8 + topics
            with Wire(f"{listener.host}:{listener.port}") as wire:
                while wire.ask(10, 0, string("g"))[:2] != bytes(2):  # makes the topic
                    pass
                code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                while code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    code = ErrorCode(int.from_bytes(wire.ask(8, 2, body)[-2:], "big", signed=True))
            return code

        assert await asyncio.to_thread(commit) == ErrorCode.NONE
        disk = SlowDisk(broker, "", broker.replicas.leader("__consumer_offsets", 0))
        assert disk.log.flusher.recovery_point == disk.log.log_end_offset > 0
        committed = asyncio.create_task(asyncio.to_thread(commit))
        await disk.written(disk.log.log_end_offset + 1)
        assert not committed.done()
        disk.flush()
        assert await committed == ErrorCode.NONE
        committed = asyncio.create_task(asyncio.to_thread(commit))
        await disk.written(disk.log.log_end_offset + 1)
        disk.flush(OSError(5, "Input/output error"))
        assert await committed not in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)


async def test_the_mode_can_be_switched_on_and_off(make: Make) -> None:
    disk = await make({})
    assert await disk.produce() == ErrorCode.NONE
    assert not disk.flushes
    await disk.set(headrace_flush_acks="true")
    await disk.written(1)  # what was acknowledged before is brought to the disk, and stays readable meanwhile
    assert await disk.seen() == (1, 1)
    disk.flush()
    waiting = disk.produce()
    await disk.written(2)
    assert not waiting.done()
    await disk.set(headrace_flush_acks="false")
    assert await waiting == ErrorCode.NONE
    assert await disk.seen() == (2, 2)
    assert await disk.produce() == ErrorCode.NONE
