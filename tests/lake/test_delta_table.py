"""The commit protocol of a load, with files written by hand: what makes it exactly once, and what would break it."""

import json
import uuid
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from headrace.lake.compaction import compact
from headrace.lake.delta.delta_table import (
    LoadTable,
    LostRaceError,
    SchemaChangedError,
    TableUnreachableError,
    WrittenFile,
    collect_files,
)
from headrace.lake.delta.unsupported import UnsupportedTableError
from headrace.types import OffsetRange, TopicPartition

JOB = "load"
P0 = TopicPartition("t", 0)
FIRST, SECOND = OffsetRange("t", 0, 0, 10), OffsetRange("t", 0, 10, 25)
SCHEMA = (
    '{"type":"struct","fields":[{"name":"partition","type":"integer","nullable":true,"metadata":{}},'
    '{"name":"offset","type":"long","nullable":true,"metadata":{}},'
    '{"name":"timestamp","type":"timestamp","nullable":true,"metadata":{}}]}'
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    LoadTable.create(tmp_path / "table", SCHEMA)
    return tmp_path / "table"


def opened(directory: Path) -> LoadTable:
    table = LoadTable.open(directory)
    assert table is not None
    return table


def write(directory: Path, one: OffsetRange) -> list[WrittenFile]:
    """What the tasks of one attempt leave behind, under names of its own."""
    load = directory / f"load-{uuid.uuid4().hex}"
    load.mkdir()
    moments = [datetime(2013, 1, 1, 0, 0, 0, offset + 1, tzinfo=UTC) for offset in range(one.start, one.end)]
    rows = pa.table(
        {
            "partition": pa.array([one.partition] * one.size, pa.int32()),
            "offset": pa.array(range(one.start, one.end), pa.int64()),
            "timestamp": pa.array(moments, pa.timestamp("us", "UTC")),
        }
    )
    pq.write_table(rows, load / "part-0.parquet")
    (load / ".part-0.parquet.crc").write_bytes(b"Hadoop's")
    return collect_files(directory, load)


def times_seen(directory: Path) -> Counter[tuple[int, int]]:
    """How often each (partition, offset) is in the table."""
    seen: Counter[tuple[int, int]] = Counter()
    for file in opened(directory).files:
        rows = pq.ParquetFile(file).read(columns=["partition", "offset"]).to_pydict()
        seen.update(zip(rows["partition"], rows["offset"], strict=True))
    return seen


def test_there_is_no_table_in_an_empty_directory(tmp_path: Path) -> None:
    assert LoadTable.open(tmp_path) is None


def test_a_new_table_knows_no_progress(directory: Path) -> None:
    table = opened(directory)
    assert (table.version, table.loads(JOB), table.next_offset(JOB, P0)) == (0, 0, None)


def test_only_one_of_two_creators_wins(directory: Path) -> None:
    with pytest.raises(LostRaceError):
        LoadTable.create(directory, SCHEMA)


def test_rows_and_progress_appear_together(directory: Path) -> None:
    table = opened(directory)
    files = write(directory, FIRST)
    assert not times_seen(directory), "files alone are not in the table"
    assert table.commit(JOB, [FIRST], files) == 1
    after = opened(directory)
    assert (after.loads(JOB), after.next_offset(JOB, P0)) == (1, 10)
    assert times_seen(directory) == Counter({(0, offset): 1 for offset in range(10)})


def test_one_handle_can_commit_again(directory: Path) -> None:
    table = opened(directory)
    table.commit(JOB, [FIRST], write(directory, FIRST))
    assert table.next_offset(JOB, P0) == 10
    table.commit(JOB, [SECOND], write(directory, SECOND))
    assert set(times_seen(directory).values()) == {1}
    assert len(times_seen(directory)) == 25


def test_jobs_keep_their_progress_apart(directory: Path) -> None:
    opened(directory).commit("one", [FIRST], write(directory, FIRST))
    assert opened(directory).next_offset("two", P0) is None


def test_a_range_without_rows_still_counts_as_progress(directory: Path) -> None:
    opened(directory).commit(JOB, [FIRST], [])
    assert opened(directory).next_offset(JOB, P0) == 10


def test_the_history_tells_the_offsets_of_each_commit(directory: Path) -> None:
    opened(directory).commit(JOB, [FIRST, OffsetRange("u", 3, 5, 6)], write(directory, FIRST))
    newest = DeltaTable(str(directory)).history(1)[0]
    assert newest["headrace.job"] == JOB
    assert newest["headrace.offsets"] == '{"t": {"0": [0, 10]}, "u": {"3": [5, 6]}}'


def test_progress_outlives_a_checkpoint(directory: Path) -> None:
    opened(directory).commit(JOB, [FIRST], write(directory, FIRST))
    DeltaTable(str(directory)).create_checkpoint()
    assert opened(directory).next_offset(JOB, P0) == 10


def test_the_later_of_two_drivers_is_refused(directory: Path) -> None:
    early, late = opened(directory), opened(directory)
    early.commit(JOB, [FIRST], write(directory, FIRST))
    with pytest.raises(LostRaceError):
        late.commit(JOB, [FIRST], write(directory, FIRST))
    assert set(times_seen(directory).values()) == {1}


def test_a_commit_is_the_next_version_or_none(directory: Path) -> None:
    """Deltalake would put it behind the other job's, on a snapshot that nobody read the progress from."""
    early, late = opened(directory), opened(directory)
    early.commit("another", [FIRST], write(directory, FIRST))
    with pytest.raises(LostRaceError):
        late.commit(JOB, [FIRST], write(directory, FIRST))
    newer = opened(directory)
    assert newer.has_same_progress(late, JOB, [FIRST])
    assert not newer.has_same_progress(late, "another", [FIRST])


def restored(directory: Path, version: int) -> LoadTable:
    DeltaTable(str(directory)).restore(version)
    return opened(directory)


def test_what_a_restore_undid_is_loaded_again(directory: Path) -> None:
    table = opened(directory)
    table.commit(JOB, [FIRST], write(directory, FIRST))
    table.commit(JOB, [SECOND], write(directory, SECOND))
    table = restored(directory, 1)
    assert table.next_offset(JOB, P0) == 10
    again = OffsetRange("t", 0, 10, 30)
    table.commit(JOB, [again], write(directory, again))
    assert opened(directory).next_offset(JOB, P0) == 30
    assert times_seen(directory) == Counter({(0, offset): 1 for offset in range(30)})


def test_a_restore_of_a_restored_table_is_followed_to_the_end(directory: Path) -> None:
    for start in (0, 10, 20):
        one = OffsetRange("t", 0, start, start + 10)
        opened(directory).commit(JOB, [one], write(directory, one))
    restored(directory, 2)  # version 4
    restored(directory, 1)  # version 5
    table = restored(directory, 4)
    assert table.next_offset(JOB, P0) == 20
    assert len(times_seen(directory)) == 20
    table = restored(directory, 0)
    assert table.next_offset(JOB, P0) is None


def test_a_restore_sets_partitions_back_that_the_next_load_does_not_load(directory: Path) -> None:
    """Two commands load two topics under one job's name; only one of them runs after the RESTORE."""
    p0, other = TopicPartition("u", 0), TopicPartition("u", 1)
    first, second, third = OffsetRange("u", 0, 0, 3), OffsetRange("u", 0, 3, 5), OffsetRange("u", 1, 0, 7)
    for one in (first, second, third):
        opened(directory).commit(JOB, [one], write(directory, one))
    restored(directory, 1).commit(JOB, [FIRST], write(directory, FIRST))
    table = opened(directory)
    assert [table.next_offset(JOB, one) for one in (P0, p0, other)] == [10, 3, None]


def test_a_restore_that_undid_no_load_changes_no_progress(directory: Path) -> None:
    opened(directory).commit(JOB, [FIRST], write(directory, FIRST))
    opened(directory).commit(JOB, [SECOND], write(directory, SECOND))
    DeltaTable(str(directory)).optimize.compact()
    assert restored(directory, 2).next_offset(JOB, P0) == 25


def test_a_restore_to_a_time_is_refused(directory: Path) -> None:
    opened(directory).commit(JOB, [FIRST], write(directory, FIRST))
    moment = datetime.now(UTC)
    opened(directory).commit(JOB, [SECOND], write(directory, SECOND))
    DeltaTable(str(directory)).restore(moment)
    with pytest.raises(UnsupportedTableError, match="is a RESTORE to a time"):
        opened(directory).next_offset(JOB, P0)


def test_a_history_that_begins_after_the_last_load_is_refused(directory: Path) -> None:
    opened(directory).commit(JOB, [FIRST], write(directory, FIRST))
    for _ in range(2):
        opened(directory).commit("another", [FIRST], write(directory, FIRST))
    DeltaTable(str(directory)).create_checkpoint()
    for version in range(3):  # as Delta cleans old history up
        (directory / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(UnsupportedTableError, match="no longer has all commits after version 1"):
        opened(directory).next_offset(JOB, P0)


def test_drivers_with_different_partitions_of_one_job_fence_each_other_too(directory: Path) -> None:
    early, late = opened(directory), opened(directory)
    other = OffsetRange("t", 1, 0, 5)
    early.commit(JOB, [FIRST], write(directory, FIRST))
    with pytest.raises(LostRaceError):
        late.commit(JOB, [other], write(directory, other))


def test_breaking_the_protocol_doubles_the_rows(directory: Path) -> None:
    """Progress from one snapshot, commit on a newer one: the Delta log accepts it, and the rows are there twice."""
    progress = opened(directory).next_offset(JOB, P0)
    assert progress is None  # so plan from the start ... and meanwhile another driver commits the same
    opened(directory).commit(JOB, [FIRST], write(directory, FIRST))
    opened(directory).commit(JOB, [FIRST], write(directory, FIRST))
    assert times_seen(directory) == Counter({(0, offset): 2 for offset in range(10)})


def test_only_the_first_of_two_that_add_columns_at_once_counts(directory: Path) -> None:
    def with_column(name: str) -> str:
        return SCHEMA.replace(
            '{"name":"offset"', f'{{"name":"{name}","type":"long","nullable":true,"metadata":{{}}}},{{"name":"offset"'
        )

    early, late = opened(directory), opened(directory)
    assert early.grow(with_column("x"))
    with pytest.raises(LostRaceError):
        late.grow(with_column("y"))
    assert "x" in opened(directory).arrow_schema.names


def test_only_the_first_of_two_compactions_at_once_counts(directory: Path) -> None:
    """Deltalake's own would both be committed: it does not see that the files of the second one are gone."""
    for one in (FIRST, SECOND):
        opened(directory).commit(JOB, [one], write(directory, one))
    early, late = opened(directory), opened(directory)
    assert compact(early)
    with pytest.raises(LostRaceError):
        compact(late)
    assert times_seen(directory) == Counter({(0, offset): 1 for offset in range(25)})
    assert opened(directory).next_offset(JOB, P0) == 25
    assert opened(directory).file_count == 1
    assert not compact(opened(directory)), "one file is not compacted again"


def test_what_a_killed_attempt_wrote_is_never_read_and_can_be_vacuumed(directory: Path) -> None:
    orphans = write(directory, FIRST)
    opened(directory).commit(JOB, [FIRST], write(directory, FIRST))
    assert set(times_seen(directory).values()) == {1}
    vacuum = DeltaTable(str(directory)).vacuum
    doomed = vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    assert doomed == [file.path for file in orphans]
    assert len(times_seen(directory)) == 10


def test_statistics_let_readers_skip_files(directory: Path) -> None:
    opened(directory).commit(JOB, [SECOND], write(directory, SECOND))
    (action,) = pa.table(DeltaTable(str(directory)).get_add_actions(flatten=True)).to_pylist()
    assert (action["num_records"], action["min.offset"], action["max.offset"]) == (15, 10, 24)
    assert action["min.timestamp"] == datetime(2013, 1, 1, tzinfo=UTC)
    assert action["max.timestamp"] == datetime(2013, 1, 1, 0, 0, 0, 1000, tzinfo=UTC), "rounded up, never down"


def test_other_columns_are_refused_before_anything_is_written(directory: Path) -> None:
    table = opened(directory)
    table.check_schema(SCHEMA)
    with pytest.raises(SchemaChangedError, match=r"other columns than this load \(offset differ\)"):
        table.check_schema(SCHEMA.replace('"long"', '"integer"'))


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"delta.constraints.later": "offset > 5"}, "it has the CHECK constraint later"),
        ({"delta.columnMapping.mode": "name"}, "its property delta.columnMapping.mode is name"),
        ({"delta.enableRowTracking": "true"}, "its property delta.enableRowTracking is set"),
    ],
)
def test_a_table_that_asks_more_of_a_writer_is_refused(directory: Path, properties: dict[str, str], says: str) -> None:
    log = directory / "_delta_log"
    first = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
    (metadata,) = [action["metaData"] for action in first if "metaData" in action]
    (log / f"{1:020d}.json").write_text(json.dumps({"metaData": {**metadata, "configuration": properties}}))
    with pytest.raises(UnsupportedTableError, match=says):
        LoadTable.open(directory)


def test_a_column_with_generated_values_is_refused(directory: Path) -> None:
    log = directory / "_delta_log"
    text = (log / f"{0:020d}.json").read_text()
    quoted = '{\\"delta.generationExpression\\":\\"partition + 1\\"}'
    assert text.count('\\"metadata\\":{}') == 3
    (log / f"{0:020d}.json").write_text(text.replace('\\"metadata\\":{}', f'\\"metadata\\":{quoted}', 2))
    with pytest.raises(UnsupportedTableError, match="its column offset has generated values"):
        LoadTable.open(directory)


def test_a_partitioned_table_is_refused(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "table"), pa.table({"day": ["x"], "offset": [1]}), partition_by=["day"])
    with pytest.raises(UnsupportedTableError, match="it is partitioned by day"):
        LoadTable.open(tmp_path / "table")


def test_unknown_table_features_are_refused(directory: Path) -> None:
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly", "rowTracking"]}
    (directory / "_delta_log" / f"{1:020d}.json").write_text(json.dumps({"protocol": protocol}))
    with pytest.raises(UnsupportedTableError, match="it has the table features rowTracking"):
        LoadTable.open(directory)


def test_a_column_that_may_not_be_null_is_another_column(directory: Path) -> None:
    strict = SCHEMA.replace('"long","nullable":true', '"long","nullable":false')
    with pytest.raises(SchemaChangedError, match="offset differ"):
        opened(directory).check_schema(strict)


def test_a_directory_with_other_files_does_not_become_a_table(tmp_path: Path) -> None:
    (tmp_path / "part-0.parquet").write_bytes(b"somebody else's")
    with pytest.raises(UnsupportedTableError, match="is no Delta table, but has files"):
        LoadTable.create(tmp_path, SCHEMA)
    assert [one.name for one in tmp_path.iterdir()] == ["part-0.parquet"]


@pytest.mark.parametrize("name", ["two words", "ä#?", "{a,b}[c]"])
def test_nearly_any_directory_name_will_do(tmp_path: Path, name: str) -> None:
    LoadTable.create(tmp_path / name, SCHEMA)
    table = opened(tmp_path / name)
    table.commit(JOB, [FIRST], write(tmp_path / name, FIRST))
    assert (table.rows, [file.exists() for file in table.files]) == (10, [True])


def test_a_percent_sign_in_the_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="without a percent sign"):
        LoadTable.create(tmp_path / "a%20b", SCHEMA)


def test_hadoop_checksums_do_not_stay_in_the_table(directory: Path) -> None:
    write(directory, FIRST)
    assert not list(directory.rglob("*.crc"))


def test_why_a_table_cannot_be_read_is_one_line_without_colours(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(TableUnreachableError) as refused:
        LoadTable.open(tmp_path / "file")
    assert str(refused.value).isprintable() and "Not a directory" in str(refused.value)
