"""Snapshots that readers keep: the newest one is found after each commit, and after another table took its place."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headrace.lake.compaction import compact
from headrace.lake.delta import snapshots
from headrace.lake.delta.location import Location
from headrace.lake.delta.snapshots import newest_snapshot
from tests.lake.lakes import opened, produce, run_once


@pytest.fixture(autouse=True)
def old_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Files of these tests are newer than what is kept, and there may be snapshots of other tests."""
    monkeypatch.setattr(snapshots, "RECENT_NS", -(10**18))
    snapshots._kept.clear()
    yield
    snapshots._kept.clear()


def test_a_snapshot_is_kept_until_somebody_commits(broker: str, topic: str, table: Path) -> None:
    location = Location.of(table)
    found = newest_snapshot(location)
    assert found is None
    for turn in range(3):
        produce(broker, topic, 10, first=10 * turn)
        run_once(broker, topic, table)
        found = newest_snapshot(location)
        assert found is not None and found.rows == 10 * (turn + 1)
        assert newest_snapshot(Location.of(table.as_uri())) is found
        assert len(found.file_bounds) == turn + 1
    assert compact(opened(table))
    compacted = newest_snapshot(location)
    assert compacted is not None and compacted is not found and compacted.file_count == 1
    DeltaTable(str(table)).restore(2)
    restored = newest_snapshot(location)
    assert restored is not None and restored.rows < 30
    DeltaTable(str(table)).create_checkpoint()  # the log has another file, and the table is as it was
    assert newest_snapshot(location) is restored


def test_a_table_at_the_place_of_another_is_read(broker: str, topic: str, table: Path, tmp_path: Path) -> None:
    location, other = Location.of(table), tmp_path / "other"
    produce(broker, topic, 10)
    run_once(broker, topic, table)
    shutil.copytree(table, other)  # with the same commits, of the same size and time
    first = newest_snapshot(location)
    assert first is not None
    shutil.rmtree(table)
    assert newest_snapshot(location) is None
    other.rename(table)
    second = newest_snapshot(location)
    assert second is not None and second is not first
    assert newest_snapshot(location) is second


def test_what_was_written_just_now_is_not_kept(
    broker: str, topic: str, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "RECENT_NS", 10**18)  # whatever the clock says
    produce(broker, topic, 10)
    run_once(broker, topic, table)
    assert newest_snapshot(Location.of(table)) is not newest_snapshot(Location.of(table))


def test_few_tables_are_kept(broker: str, topic: str, table: Path, tmp_path: Path) -> None:
    produce(broker, topic, 10)
    run_once(broker, topic, table)
    copies = [tmp_path / f"copy-{n}" for n in range(snapshots.KEPT_TABLES + 1)]
    for copy in copies:
        shutil.copytree(table, copy)
    found = [newest_snapshot(Location.of(copy)) for copy in copies]
    assert newest_snapshot(Location.of(copies[-1])) is found[-1]
    assert newest_snapshot(Location.of(copies[0])) is not found[0]
    assert len(snapshots._kept) == snapshots.KEPT_TABLES
