"""A host's disk keeps what a crashed process wrote, and loses with the power what was not synced."""

from pathlib import Path
from random import Random

import pytest

from headrace.config import TopicConfig
from headrace.log.append_state import NOT_APPENDED
from headrace.log.manager import LogManager
from headrace.log.partition_log import PartitionLog
from headrace.types import TopicPartition
from tests.examples import QUICK
from tests.log.support import NOW_MS, append, batch_of, read_all
from tests.simulation.disk import HostDisk, SimFiles
from tests.simulation.scheduler import Process, Scheduler

PARTITION = TopicPartition("events", 0)


@pytest.fixture(params=[False, True], ids=["of single writes", "plain"])
def is_plain(request: pytest.FixtureRequest) -> bool:
    found: bool = request.param
    return found


class Host:
    """A disk and the processes that use it, one after the other."""

    def __init__(self, *, is_plain: bool = False) -> None:
        self.scheduler, self.disk = Scheduler(1), HostDisk(is_plain=is_plain)

    def start(self) -> tuple[Process, LogManager]:
        process = self.scheduler.process("broker")
        files = SimFiles(self.disk, process)
        logs = LogManager([Path("/data")], broker_id=1, topic_config=lambda topic: TopicConfig(), files=files)
        logs.directories.claim("cluster")
        logs.load(NOW_MS)
        return process, logs


def values(logs: LogManager) -> list[bytes]:
    return [record.value for record in read_all(logs.create(PARTITION, None, NOW_MS))]


def append_plain(log: PartitionLog, value: bytes) -> int:
    """Appends by the descriptor alone, as the compiled ways do."""
    batch = batch_of(value)
    return log.append_plain(memoryview(batch), 0, len(batch), 0, NOW_MS, 1, NOW_MS, -1, -1, -1)


def test_a_killed_process_leaves_everything_that_it_wrote(is_plain: bool) -> None:
    host = Host(is_plain=is_plain)
    process, logs = host.start()
    append(logs.create(PARTITION, None, NOW_MS), b"a", b"b")
    process.kill()
    _, logs = host.start()
    assert values(logs) == [b"a", b"b"]


def test_a_plain_disk_has_what_was_written_past_it_and_loses_it_with_the_power_unless_it_was_synced() -> None:
    kept = set()
    for seed in range(10 if QUICK else 40):
        host = Host(is_plain=True)
        process, logs = host.start()
        log = logs.create(PARTITION, None, NOW_MS)
        append(log, b"first")
        assert append_plain(log, b"synced") == 1
        log.flusher.flush(NOW_MS)
        assert append_plain(log, b"not synced") == 2
        process.kill()
        if seed:
            host.disk.lose_power(Random(seed))
        _, logs = host.start()
        found = values(logs)
        assert found in ([b"first", b"synced"], [b"first", b"synced", b"not synced"])
        assert seed or len(found) == 3
        kept.add(len(found))
    assert kept == {2, 3}


def test_a_disk_of_single_writes_is_written_to_by_its_interface_alone() -> None:
    _, logs = Host().start()
    log = logs.create(PARTITION, None, NOW_MS)
    append(log, b"first")
    assert append_plain(log, b"second") == NOT_APPENDED


@pytest.mark.slow
def test_power_loss_takes_what_was_not_synced_and_nothing_else(is_plain: bool) -> None:
    kept = set()
    for seed in range(40):
        host = Host(is_plain=is_plain)
        process, logs = host.start()
        log = logs.create(PARTITION, None, NOW_MS)
        append(log, b"synced")
        log.flusher.flush(NOW_MS)
        for number in range(3):
            append(log, str(number).encode())
        process.kill()
        host.disk.lose_power(Random(seed))
        _, logs = host.start()
        found = values(logs)
        assert found[0] == b"synced"
        assert found[1:] == [b"0", b"1", b"2"][: len(found) - 1]
        kept.add(len(found))
    assert kept == {1, 2, 3, 4}


def test_a_directory_is_locked_until_its_process_ends() -> None:
    host = Host()
    process, _ = host.start()
    other = SimFiles(host.disk, host.scheduler.process("another"))
    with pytest.raises(BlockingIOError):
        other.lock(Path("/data/.lock"))
    process.kill()
    other.lock(Path("/data/.lock")).release()


def test_a_dead_process_writes_nothing_any_more() -> None:
    host = Host()
    process, logs = host.start()
    log = logs.create(PARTITION, None, NOW_MS)
    append(log, b"a")
    process.kill()
    with pytest.raises(Exception, match="dead"):
        append(log, b"b")
    assert not SimFiles(host.disk, process).exists(Path("/data/new"))
    with pytest.raises(OSError):
        SimFiles(host.disk, process).open(Path("/data/new"), create=True)


def test_a_full_disk_takes_no_writes_until_there_is_room() -> None:
    host = Host()
    _, logs = host.start()
    log = logs.create(PARTITION, None, NOW_MS)
    append(log, b"a")
    host.disk.is_full = True
    with pytest.raises(Exception, match="No space"):
        append(log, b"b")
    host.disk.is_full = False
    append(log, b"c")
    assert values(logs) == [b"a", b"c"]
