"""`headrace.flush.acks`: what was acknowledged is there after a power failure, whatever happened before it."""

import random
from pathlib import Path
from typing import Any

import pytest

from headrace.log.manager import LogManager
from headrace.log.partition_log import PartitionLog
from headrace.types import TopicPartition
from tests.examples import slow_after
from tests.log.strict_disk import PowerFailure, StrictDisk
from tests.log.support import NOW_MS, append, config, purge, read_all

DATA = Path("/srv/headrace/data")
PARTITIONS = [TopicPartition("t", number) for number in range(3)]
SETTINGS = config(flush_acks=True, segment_bytes=600, file_delete_delay_ms=0)
STEPS_MAX = 60


def start(disk: StrictDisk) -> LogManager:
    manager = LogManager([DATA], broker_id=1, topic_config=lambda topic: SETTINGS, files=disk)
    manager.directories.claim("cluster")
    manager.load(NOW_MS)
    return manager


def acknowledge(log: PartitionLog, *values: bytes, **more: Any) -> None:
    """Appends; returns when a producer would be answered."""
    append(log, *values, **more)
    log.flusher.flush_by_count(NOW_MS)
    assert log.failure is None
    assert log.flusher.recovery_point == log.log_end_offset


def values(log: PartitionLog) -> list[bytes]:
    return [record.value for record in read_all(log)]


@pytest.mark.parametrize("topic_id", [None, b"i" * 16])
def test_the_first_record_of_a_new_broker_survives(topic_id: bytes | None) -> None:
    """Its data directory, the directories above that, the partition's, and the segment's name included."""
    disk = StrictDisk()
    acknowledge(start(disk).create(PARTITIONS[0], topic_id, NOW_MS), b"first")
    log = start(disk.after_power_failure()).get(PARTITIONS[0])
    assert log is not None
    assert values(log) == [b"first"]


def test_a_partition_that_a_killed_broker_made_is_brought_to_the_disk_by_the_next() -> None:
    disk = StrictDisk()
    start(disk).create(PARTITIONS[0], None, NOW_MS)
    log = start(disk).get(PARTITIONS[0])  # the first was killed: its files are there, for as long as the power is
    assert log is not None
    acknowledge(log, b"first")
    log = start(disk.after_power_failure()).get(PARTITIONS[0])
    assert log is not None
    assert values(log) == [b"first"]


def test_what_recovery_finds_is_on_the_disk_before_anybody_sees_it() -> None:
    disk = StrictDisk()
    append(start(disk).create(PARTITIONS[0], None, NOW_MS), b"not acknowledged")
    log = start(disk).get(PARTITIONS[0])
    assert log is not None
    assert values(log) == [b"not acknowledged"]
    assert log.flusher.recovery_point == 1
    log = start(disk.after_power_failure()).get(PARTITIONS[0])
    assert log is not None
    assert values(log) == [b"not acknowledged"]


def test_without_the_setting_the_strict_disk_forgets() -> None:
    """Or the tests above would say nothing."""
    disk = StrictDisk()
    log = start(disk).create(PARTITIONS[0], None, NOW_MS)
    log.configure(config())
    append(log, b"first")
    assert log.flusher.flush_by_count(NOW_MS) == 0
    assert start(disk.after_power_failure()).get(PARTITIONS[0]) is None


class Machine:
    """A broker's logs, and what was acknowledged, through kills, clean stops and power failures."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = StrictDisk()
        self.manager: LogManager | None = None
        self.acknowledged: dict[TopicPartition, list[bytes]] = {}
        self.in_doubt: dict[TopicPartition, bytes] = {}
        self.sent = 0

    def run(self) -> None:
        while self.sent < 80:
            self.disk.steps_left = self.chance.choice([-1, self.chance.randrange(STEPS_MAX)])
            try:
                self.live()
            except PowerFailure:
                pass
            if self.chance.random() < 0.8:
                self.disk = self.disk.after_power_failure()
            self.disk.steps_left = -1
            self.manager = None
            self.check()

    def live(self) -> None:
        """Some requests, and perhaps a clean stop."""
        manager = start(self.disk)
        for _ in range(self.chance.randrange(15)):
            partition = self.chance.choice(PARTITIONS)
            what = self.chance.random()
            log = manager.get(partition)
            if log is None:
                log = manager.create(partition, self.chance.choice([None, b"i" * 16]), NOW_MS)
            if what < 0.75:
                self.produce(log)
            elif what < 0.85:
                log.roll(NOW_MS)
            elif what < 0.95:
                manager.checkpoint()
            else:
                purge(log, NOW_MS)
        if self.chance.random() < 0.3:
            manager.close(NOW_MS)

    def produce(self, log: PartitionLog) -> None:
        self.sent += 1
        value = b"%d " % self.sent + b"x" * self.chance.randrange(200)
        self.in_doubt[log.partition] = value
        acknowledge(
            log,
            value,
            epoch=self.chance.choice([0, 0, 0, self.sent])
            if not log.leader_epochs.entries
            else log.leader_epochs.latest + (self.chance.random() < 0.1),
        )
        self.acknowledged.setdefault(log.partition, []).append(value)
        del self.in_doubt[log.partition]

    def check(self) -> None:
        manager = start(self.disk)
        for partition in PARTITIONS:
            expected = self.acknowledged.setdefault(partition, [])
            log = manager.get(partition)
            found = [] if log is None else values(log)
            assert found[: len(expected)] == expected, f"{partition}: acknowledged {len(expected)}, found {len(found)}"
            more = found[len(expected) :]
            assert more in ([], [self.in_doubt.get(partition)]), f"{partition}: {more} was never sent"
            expected += more  # it can be read now, so it has to stay
            self.in_doubt.pop(partition, None)
        self.disk = self.disk.after_power_failure() if self.chance.random() < 0.3 else self.disk


@pytest.mark.slow
@pytest.mark.parametrize("seed", slow_after(4, range(20)))
def test_what_was_acknowledged_or_read_is_never_lost(seed: int) -> None:
    Machine(seed).run()
