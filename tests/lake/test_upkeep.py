"""Compaction and vacuum of a table that a runner writes."""

from pathlib import Path

import pytest

from headrace.lake.delta.location import Location
from headrace.lake.upkeep import ROUNDS_BETWEEN, VACUUM_EVERY_S, Upkeep, UpkeepSettings
from tests.lake.lakes import offsets_of, opened, produce, run_once


def rounds(broker: str, topic: str, table: Path, count: int) -> None:
    """So many commits of one file each."""
    for first in range(0, count * 2, 2):
        produce(broker, topic, 2, first=first)
        run_once(broker, topic, table)


@pytest.mark.slow
def test_files_are_counted_now_and_then_and_what_is_left_small_is_not_compacted_again(
    broker: str, topic: str, table: Path
) -> None:
    upkeep = Upkeep(Location.of(table), UpkeepSettings(compact_at=3))
    rounds(broker, topic, table, 3)
    upkeep.after_round()
    assert opened(table).file_count == 1
    version = opened(table).version
    rounds(broker, topic, table, 2)
    for _ in range(ROUNDS_BETWEEN):
        upkeep.after_round()
    assert (opened(table).file_count, opened(table).version) == (3, version + 2), "two are new, which is not enough"
    rounds(broker, topic, table, 1)
    for _ in range(ROUNDS_BETWEEN):
        upkeep.after_round()
    assert opened(table).file_count == 1
    assert set(offsets_of(table).values()) == {1}


def test_a_vacuum_deletes_what_no_version_of_the_last_hours_needs(broker: str, topic: str, table: Path) -> None:
    now = [0.0]
    upkeep = Upkeep(Location.of(table), UpkeepSettings(compact_at=2, vacuum_hours=0), lambda: now[0])
    rounds(broker, topic, table, 2)
    upkeep.after_round()
    assert len(list(table.glob("*.parquet"))) == 3, "the small ones stay for older versions"
    now[0] += VACUUM_EVERY_S
    for _ in range(ROUNDS_BETWEEN):
        upkeep.after_round()
    assert len(list(table.glob("*.parquet"))) == 1
    assert len(offsets_of(table)) == 4


def test_no_upkeep_is_no_look_at_the_table(tmp_path: Path) -> None:
    upkeep = Upkeep(Location("s3://not-there/at-all"), UpkeepSettings(compact_at=0))
    upkeep.after_round()
