"""Files as rows: whatever is in a data directory, whole or damaged."""

import json
from pathlib import Path

import pytest

from headrace.log import upkeep
from headrace.log.manager import LogManager
from headrace.offline.dump import dump
from headrace.offline.dump_07 import Row
from headrace.records.codecs.compression import Codec
from headrace.records.format2.control import ABORT
from tests.log.support import NOW_MS, PARTITION, append, append_marker, config


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a bit of everything."""
    manager = LogManager([tmp_path], broker_id=1, topic_config=lambda _: config(segment_bytes=700))
    manager.directories.claim("cluster")
    manager.load(NOW_MS)
    log = manager.create(PARTITION, bytes(16), NOW_MS)
    for number in range(8):
        append(log, b"value", b"\xff", producer_id=7, sequence=2 * number, codec=Codec(number % 5))
    append(log, b"tx", producer_id=8, sequence=0, is_transactional=True)
    append_marker(log, ABORT, 8)
    log.restore_high_watermark(log.log_end_offset)
    upkeep.delete_records_before(log, 1, NOW_MS)
    manager.close(NOW_MS)
    return tmp_path


def rows(path: Path, kind: str | None = None, *, deep: bool = False) -> list[Row]:
    found = list(dump(path, deep=deep))
    assert json.loads(json.dumps(found)) == found
    return [row for row in found if kind in (None, row["kind"])]


def test_a_directory_is_dumped_file_by_file(data: Path) -> None:
    kinds = {row["kind"] for row in rows(data, deep=True)}
    assert kinds == {
        "aborted_transaction",
        "batch",
        "checkpoint",
        "data_directory",
        "leader_epoch",
        "marker",
        "offset_entry",
        "partition",
        "producer",
        "record",
        "time_entry",
    }


def test_batches_come_with_their_offsets_codec_and_validity(data: Path) -> None:
    batches = rows(data, "batch")
    assert [row["base_offset"] for row in batches] == [0, 2, 4, 6, 8, 10, 12, 14, 16, 17]
    assert [row["codec"] for row in batches[:5]] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert all(row["is_valid"] for row in batches)
    assert [row["is_control"] for row in batches][-2:] == [False, True]


def test_records_come_when_asked_for_with_bytes_that_people_can_read(data: Path) -> None:
    records = rows(data, "record", deep=True)
    assert len(records) == 17
    assert [row["value"] for row in records[:2]] == ["value", "\\xff"]
    assert [row["sequence"] for row in records[:3]] == [0, 1, 2]
    assert not rows(data, "record")


def test_index_entries_are_compared_with_the_segment(data: Path) -> None:
    entries = rows(data, "offset_entry", deep=True)
    assert entries
    assert all(row["is_valid"] for row in entries)
    path = next(path for path in data.glob("*/*.index") if path.stat().st_size)
    path.write_bytes(path.read_bytes()[:-1] + b"\7")
    assert [row["is_valid"] for row in rows(path, deep=True)][-1] is False


def test_a_flipped_bit_is_an_invalid_batch_and_the_rest_is_read(data: Path) -> None:
    path = data / "flights-0" / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[70] ^= 1
    path.write_bytes(content)
    assert [row["is_valid"] for row in rows(path, "batch")][:3] == [False, True, True]


def test_a_torn_batch_is_damage_with_its_position(data: Path) -> None:
    path = data / "flights-0" / "00000000000000000000.log"
    content = path.read_bytes()
    path.write_bytes(content[:-5])
    *_, last = rows(path)
    assert last["kind"] == "damage"
    assert last["position"] == rows(path, "batch")[-1]["position"] + rows(path, "batch")[-1]["size_bytes"]  # type: ignore[operator]


def test_damage_of_every_file_is_a_row(data: Path) -> None:
    for path in [*data.glob("*checkpoint"), data / "meta.properties", *data.glob("*/*")]:
        if path.suffix != ".txnindex" and path.stat().st_size:
            path.write_bytes(b"\x01garbage\xff")
            assert [row["kind"] for row in dump(path, deep=True)] == ["damage"], path


def test_a_file_that_is_none_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ValueError, match="is not a file of a data directory"):
        list(dump(tmp_path / "notes.txt"))
