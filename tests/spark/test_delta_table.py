"""The commit protocol of a load, with files written by hand: what makes it exactly once, and what would break it."""

import uuid
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from headrace.spark.load.delta_table import LoadTable, LostRaceError, SchemaChangedError, WrittenFile, collect_files
from headrace.spark.source.offsets import OffsetRange
from headrace.types import TopicPartition

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
