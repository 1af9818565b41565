"""Measures the processor time of a segment's end: its roll, its flush, and its deletion by retention.

    python benchmarks/log/rolls.py [DIR] [--rounds 10] [--logs 2000] [--json]

Partitions as those of benchmarks/cluster/replicated_requests.py: each segment has as many batches of one idempotent
producer, and so as many index entries, as one of 16 MiB with batches of 15 KiB; but the batches are small. All is done
as in a broker: by the log manager, with an event loop, and with threads that sync and remove. Time in the kernel
depends on the disk (DIR, by default a temporary directory); a file system in memory syncs for nothing.

    append      all batches of a segment, of which some write pages of its indexes
    roll        the roll and the flush of what it closed, until the log has taken note of it; one partition at a time
    retention   a pass that deletes one segment of each partition, and its checkpoints
    removal     a pass that removes their files
    idle tick, idle retention    a pass over one log that has nothing to do, of many
"""

import argparse
import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.paired import report, summarise
from headrace.broker.background import background_on
from headrace.config import TopicConfig
from headrace.log import appending
from headrace.log.manager import LogManager, Periods
from headrace.log.partition_log import PartitionLog
from headrace.records.format2.batch import Record, encode_batch, read_header
from headrace.types import TopicPartition

PARTITIONS = 16
TURNS = 8
"""In each round."""

DISTURBING_BYTES = 8 << 20
BATCHES = 1092
NOW_MS = 1_700_000_000_000
RETENTION_CHECK_MS = 3_600_000
DELETE_DELAY_MS = 1_000
OUR_SIDE = "headrace"


class Spent(NamedTuple):
    """Processor time in microseconds for each segment, or for each log of an idle pass."""

    user_us: float
    kernel_us: float


class Flushes:
    """Awaits the ends of flushes."""

    def __init__(self, logs: LogManager) -> None:
        self._ended = asyncio.Event()
        logs.on_flush(lambda _: self._ended.set())

    async def of(self, log: PartitionLog) -> None:
        """Return once the log has no flush under way."""
        while log.flusher.is_under_way:
            self._ended.clear()
            await self._ended.wait()


class Background:
    """Work on threads, as a broker has it; its end can be awaited."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._run = background_on(asyncio.get_running_loop(), pool)
        self._under_way = 0
        self._end = asyncio.Event()

    def __call__(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        def end(error: Exception | None) -> None:
            self._under_way -= 1
            done(error)
            self._end.set()

        self._under_way += 1
        self._run(work, end)

    async def ended(self) -> None:
        """Return once nothing is under way."""
        while self._under_way:
            self._end.clear()
            await self._end.wait()


Used = tuple[float, float]
"""User and kernel time in seconds. The system counts their sum exactly and divides it by samples: only sums over many
milliseconds tell them apart."""


async def used(of: Callable[[], Awaitable[None]]) -> Used:
    """The processor time of some work of all threads."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    await of()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime


def spent(times: Sequence[Used], count: int) -> Spent:
    """The sum of these times, divided by `count`."""
    return Spent(1e6 * sum(user for user, _ in times) / count, 1e6 * sum(kernel for _, kernel in times) / count)


class Rolls:
    """Partitions that roll in turns."""

    def __init__(self, logs: LogManager, background: Background) -> None:
        self._logs, self._background = logs, background
        self._flushes = Flushes(logs)
        self._partitions = [logs.create(TopicPartition("rolls", n), None, NOW_MS) for n in range(PARTITIONS)]
        records = [Record(0, NOW_MS, None, b"x" * 100, ())]
        batch = encode_batch(records, producer_id=1, producer_epoch=0, base_sequence=0)
        self._batch, self._header = memoryview(batch), read_header(batch)
        self._count = 0
        self._now_ms = NOW_MS
        self._other = bytearray(DISTURBING_BYTES)

    async def round(self, turns: int) -> dict[str, Spent]:
        """Fill a segment of each partition, roll, and delete it, so many times; what each of these took."""
        times: dict[str, list[Used]] = {}
        for _ in range(turns):
            times.setdefault("append", []).append(await used(self.append))
            for log in self._partitions:
                self._disturb()
                times.setdefault("roll", []).append(await used(partial(self.roll, log)))
            for phase in (self.retention, self.removal):
                self._disturb()
                times.setdefault(phase.__name__, []).append(await used(phase))
        return {phase: spent(each, turns * PARTITIONS) for phase, each in times.items()}

    def _disturb(self) -> None:
        """Empty the processor's caches, as the requests of a broker do between two rolls."""
        self._other[:] = bytes(len(self._other))

    async def append(self) -> None:
        """Fill the active segment of each partition."""
        for log in self._partitions:
            for number in range(BATCHES):
                header = self._header._replace(base_sequence=self._count + number, max_timestamp=self._now_ms + number)
                appending.append(log, self._batch, header, leader_epoch=0, now_ms=self._now_ms)
        self._count += BATCHES

    async def roll(self, log: PartitionLog) -> None:
        """Roll a partition."""
        log.roll(self._now_ms)
        await self._flushes.of(log)
        log.restore_high_watermark(log.log_end_offset)

    async def retention(self) -> None:
        """Delete the closed segment of each partition."""
        self._now_ms += RETENTION_CHECK_MS
        self._logs.tick(self._now_ms)
        await self._background.ended()

    async def removal(self) -> None:
        """Remove their files."""
        self._now_ms += DELETE_DELAY_MS
        self._logs.tick(self._now_ms)
        await self._background.ended()
        assert all(len(log.segments) == 1 and not log.removals for log in self._partitions)


async def measure(directory: Path, rounds: int, idle_logs: int) -> dict[str, list[Spent]]:
    """What each phase took in each round."""
    config = TopicConfig(index_interval_bytes=1, retention_bytes=0, file_delete_delay_ms=DELETE_DELAY_MS)
    found: dict[str, list[Spent]] = {}
    periods = Periods(retention_check_ms=RETENTION_CHECK_MS, high_watermark_checkpoint_ms=1 << 40)
    with ThreadPoolExecutor(16) as pool:
        background = Background(pool)
        logs = LogManager(
            [directory / "rolls"], broker_id=1, topic_config=lambda _: config, background=background, periods=periods
        )
        logs.load(NOW_MS)
        rolls = Rolls(logs, background)
        await rolls.round(1)
        for _ in range(rounds):
            for phase, took in (await rolls.round(TURNS)).items():
                found.setdefault(phase, []).append(took)
        logs.close(NOW_MS)

        many = LogManager(
            [directory / "idle"], broker_id=1, topic_config=lambda _: config, background=background, periods=periods
        )
        many.load(NOW_MS)
        for number in range(idle_logs):
            many.create(TopicPartition("idle", number), None, NOW_MS)
        for number in range(5):  # the first of them writes checkpoints
            took = spent([await used(lambda: _idle(many, NOW_MS + 1))], idle_logs)
            await background.ended()
            if number:
                found.setdefault("idle tick", []).append(took)
        for _ in range(5):
            before = time.thread_time()
            for _ in many.delete_old_segments(NOW_MS):
                pass
            took = Spent(1e6 * (time.thread_time() - before) / idle_logs, 0.0)
            found.setdefault("idle retention", []).append(took)
        many.close(NOW_MS)
    return found


async def _idle(many: LogManager, now_ms: int) -> None:
    many.tick(now_ms)


def main() -> None:
    """Prints the medians of all phases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--logs", type=int, default=2_000, help="of the idle passes")
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=wanted.directory) as directory:
        found = asyncio.run(measure(Path(directory), wanted.rounds, wanted.logs))
    report({phase: summarise({OUR_SIDE: rounds}) for phase, rounds in found.items()}, as_json=wanted.json)


if __name__ == "__main__":
    main()
