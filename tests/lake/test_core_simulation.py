"""Writers of a simulated table, killed at every action: each offset is in the table exactly once, or in a hole."""

import random

import pytest

from headrace.lake.core.plan import DataLoss, RoundLimits
from headrace.lake.core.writer import Wait
from headrace.types import TopicPartition
from tests.lake.simulated_lake import Log, SimulatedWriter, Table

P0, P1, P2 = (TopicPartition("t", index) for index in range(3))
LIMITS = RoundLimits(round_records=20, data_loss=DataLoss.RECORD)
STEPS_MAX = 500


def some_logs(chance: random.Random) -> dict[TopicPartition, Log]:
    logs = {P0: Log(), P1: Log(), P2: Log()}
    for log in logs.values():
        log.append(chance, chance.randint(1, 50))
    return logs


def write_all(logs: dict[TopicPartition, Log], table: Table) -> None:
    """A writer that nobody disturbs, to the end of the logs."""
    last = SimulatedWriter(logs, table, LIMITS)
    last.writer.finish()
    for now_ms in range(STEPS_MAX):
        if isinstance(last.action, Wait):
            return
        last.step(now_ms)
    raise AssertionError(f"a writer that is alone has not come to the end: {last.action}")


def wrong(logs: dict[TopicPartition, Log], table: Table) -> list[str]:
    """What is not exactly once."""
    found = []
    for partition, log in logs.items():
        for offset in range(log.end):
            times, lost = table.rows[partition, offset], table.lost[partition, offset]
            may_be_lost = offset < log.start
            if times > 1 or lost > 1 or (times and lost):
                found.append(f"{partition} {offset}: {times} times, {lost} times in a hole")
            elif offset in log.offsets and not times and not lost and not may_be_lost:
                found.append(f"{partition} {offset} is missing")
            elif lost and not may_be_lost:
                found.append(f"{partition} {offset} is in a hole, and in the log")
            elif times and offset not in log.offsets:
                found.append(f"{partition} {offset} never was")
    return found


def steps_to_the_end(seed: int) -> int:
    chance = random.Random(seed)
    alone = SimulatedWriter(some_logs(chance), Table(), LIMITS)
    alone.writer.finish()
    steps = 0
    while not isinstance(alone.action, Wait):
        alone.step(steps)
        steps += 1
    return steps


@pytest.mark.parametrize("dies_before_it_knows", [False, True])
def test_a_writer_that_is_killed_at_any_action_has_lost_and_doubled_nothing(dies_before_it_knows: bool) -> None:
    kills = steps_to_the_end(1)
    assert kills > 10
    for killed_at in range(kills):
        chance = random.Random(1)
        logs, table = some_logs(chance), Table()
        victim = SimulatedWriter(logs, table, LIMITS)
        victim.writer.finish()
        for now_ms in range(killed_at):
            victim.step(now_ms)
        if dies_before_it_knows:
            victim.step(killed_at, dies_before_it_knows=True)
        write_all(logs, table)
        assert wrong(logs, table) == [], f"killed at action {killed_at}, {victim.action}"


def storm(seed: int, table: Table, writers: int = 3) -> dict[TopicPartition, Log]:
    """Writers on the same partitions, appends, retention, kills and others' commits, in an order that `seed` gives."""
    chance = random.Random(seed)
    logs = some_logs(chance)
    limits = RoundLimits(round_records=20, linger_ms=5, data_loss=DataLoss.RECORD)
    alive = [SimulatedWriter(logs, table, limits, chance) for _ in range(writers)]
    for now_ms in range(300):
        event = chance.random()
        log = chance.choice(list(logs.values()))
        if event < 0.1:
            log.append(chance, chance.randint(1, 30))
        elif event < 0.13:
            log.delete_before(log.start + chance.randint(1, 20))
        elif event < 0.16:
            table.commit_of_another()
        else:
            index = chance.randrange(writers)
            is_killed = chance.random() < 0.05
            alive[index].step(now_ms, dies_before_it_knows=is_killed)
            if is_killed:
                alive[index] = SimulatedWriter(logs, table, limits, chance)
    write_all(logs, table)
    return logs


@pytest.mark.parametrize("seed", range(60))
def test_three_writers_on_the_same_partitions_write_each_offset_once(seed: int) -> None:
    table = Table()
    logs = storm(seed, table)
    assert wrong(logs, table) == []
    assert sum(table.rows.values()) > 0


def test_the_storm_would_show_a_table_that_does_not_fence_commits() -> None:
    seen = []
    for seed in range(10):
        table = Table(checks_version=False)
        seen += wrong(storm(seed, table), table)
    assert any("2 times" in problem for problem in seen)


def test_the_storms_have_holes() -> None:
    tables = [Table() for _ in range(10)]
    for seed, table in enumerate(tables):
        storm(seed, table)
    assert any(table.lost for table in tables)
