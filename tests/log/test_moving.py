"""A log that moves to another data directory, step by step."""

from pathlib import Path

from headrace.log.files import LocalFiles
from headrace.log.moving import LAST_PIECE_BYTES, LogMove
from tests.log.support import NOW_MS, append, config, open_log, read_all


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
