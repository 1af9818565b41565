"""A log that moves to another data directory, step by step."""

from pathlib import Path

import pytest

from headrace.log.directories.moving import LAST_PIECE_BYTES, LogMove
from headrace.log.files import LocalFiles
from headrace.log.segment.segment_indexes import SegmentIndexes
from tests.log.support import NOW_MS, append, config, open_log, read_all
from tests.log.test_refusing_disk import RefusingFiles


def test_a_log_that_is_written_to_between_all_steps_gets_there(tmp_path: Path) -> None:
    source, target = tmp_path / "first", tmp_path / "second"
    target.mkdir()
    log = open_log(source / "flights-0", config())
    for _ in range(5):
        append(log, b"x" * LAST_PIECE_BYTES)
    move = LogMove(LocalFiles(), log, target)
    move.begin()
    copied = 0
    while (piece := move.next_piece(LAST_PIECE_BYTES)) is not None and not move.is_last(piece):
        move.copy(piece)
        append(log, b"more")
        copied += 1
        assert copied < 10
    assert copied >= 5
    assert move.swap(NOW_MS)
    append(log, b"after")
    assert move.is_safe
    move.finish()
    values = [record.value for record in read_all(log)]
    assert values == [b"x" * LAST_PIECE_BYTES] * 5 + [b"more"] * copied + [b"after"]
    assert log.directory == target / "flights-0"
    assert not list(source.iterdir())


@pytest.mark.parametrize("has_records", [False, True])
def test_a_log_whose_active_segment_is_empty_takes_records_where_it_is_now(tmp_path: Path, has_records: bool) -> None:
    """A move of a broker rolls a log of some size, to copy a closed segment."""
    (tmp_path / "second").mkdir()
    log = open_log(tmp_path / "first" / "flights-0", config())
    values = [b"before"] if has_records else []
    if has_records:
        append(log, b"before")
        log.roll(NOW_MS)
    move = LogMove(LocalFiles(), log, tmp_path / "second")
    move.begin()
    while (piece := move.next_piece(LAST_PIECE_BYTES)) is not None:
        move.copy(piece)
    assert move.swap(NOW_MS)
    move.finish()
    for number in range(30):
        append(log, b"%d" % number)
        values.append(b"%d" % number)
    log.close(NOW_MS)
    again = open_log(log.directory, config(), was_clean=True)
    assert [record.value for record in read_all(again)] == values


def test_a_swap_whose_old_disk_fails_leaves_the_log_and_the_copy_where_they_were(tmp_path: Path) -> None:
    source, target = tmp_path / "first", tmp_path / "second"
    target.mkdir()
    disk = RefusingFiles()
    log = open_log(source / "flights-0", config(), disk)
    append(log, b"x" * 1000)
    log.close(NOW_MS)
    log = open_log(source / "flights-0", config(), disk, was_clean=True)
    move = LogMove(disk, log, target)
    move.begin()
    log.active.indexes = SegmentIndexes(disk, log.active.records, 0, config())
    disk.refuses = lambda call, name: call == "read" and name.endswith("index")
    with pytest.raises(OSError, match="no read"):
        move.swap(NOW_MS)
    assert [path.name for path in target.iterdir()] == [move.path.name]
    assert move.path.name.endswith("-future")
    disk.refuses = lambda call, name: False
    assert log.directory == source / "flights-0"
    assert [record.value for record in read_all(log)] == [b"x" * 1000]
    assert move.swap(NOW_MS)
