"""A broker that stops: what it waits for before it closes the logs."""

import asyncio
from pathlib import Path

from headrace.broker.app import running
from headrace.config import parse_broker
from headrace.controller.decisions.topics import RequestedTopic
from headrace.log import truncation
from headrace.log.flusher import inline
from headrace.log.partition_log import PartitionLog
from tests.eventually import WITHIN_SECONDS
from tests.log.support import NOW_MS, Work, append, hold_background


async def end_the_truncation(log: PartitionLog, works: list[Work], running_before: set["asyncio.Task[object]"]) -> None:
    """Ends the truncation when the broker has stopped everything that began after `running_before`."""
    async with asyncio.timeout(WITHIN_SECONDS):
        while len(asyncio.all_tasks() - running_before) > 1:  # noqa: ASYNC110 - the end of the others is no event
            await asyncio.sleep(0.01)
    for _ in range(1000):  # turns in which a stop that does not wait would close the logs
        await asyncio.sleep(0)
    work, done = works.pop()
    inline(work, done)


async def test_a_stop_waits_for_a_truncation_before_it_closes_the_logs(tmp_path: Path) -> None:
    config = parse_broker({"log.dirs": str(tmp_path), "listeners": "127.0.0.1:0"})
    works: list[Work] = []
    before = asyncio.all_tasks()
    async with running(config) as (broker, _):
        await broker.controller.create_topics([RequestedTopic("t")])
        log = broker.replicas.leader("t", 0).log
        append(log, b"a")
        append(log, b"b")
        hold_background(log, works)
        truncation.truncate_to(log, 1, NOW_MS)
        assert log.is_truncating
        ending = asyncio.create_task(end_the_truncation(log, works, before))
    await ending
    assert (tmp_path / ".kafka_cleanshutdown").exists()
