"""Segment files read without a broker."""

from pathlib import Path

import pytest

from headrace.errors import CorruptMessage
from headrace.log.directories import checkpoints
from headrace.log.filenames import INDEX, LOG, offset_file
from headrace.log.files import LocalFiles
from headrace.offline.segment_reader import PartitionFiles, find_partitions, offset_for_time, read_segment
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, encode_batch
from headrace.types import TopicPartition

FILES = LocalFiles()
P0 = TopicPartition("flights", 0)


def batch(base_offset: int, count: int, codec: Codec = Codec.NONE) -> bytes:
    """Records whose value is their offset, and whose time is ten times that."""
    rows = [Record(n, 10 * n, b"k", b"%d" % n, ()) for n in range(base_offset, base_offset + count)]
    return bytes(encode_batch(rows, base_offset=base_offset, codec=codec))


def write_segment(directory: Path, base_offset: int, *batches: bytes) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / offset_file(base_offset, LOG)
    path.write_bytes(b"".join(batches))
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """flights-0: closed segments from 0 and 20, the newest from 30 to 35; other-3: a newest one alone."""
    write_segment(tmp_path / "flights-0", 0, batch(0, 5), batch(5, 15, Codec.LZ4))
    write_segment(tmp_path / "flights-0", 20, batch(20, 10, Codec.ZSTD))
    write_segment(tmp_path / "flights-0", 30, batch(30, 5))
    write_segment(tmp_path / "other-3", 7, batch(7, 3))
    (tmp_path / "meta.properties").touch()
    return tmp_path


def found(path: Path, *, newest: bool = False) -> dict[TopicPartition, list[tuple[int, int]]]:
    return {
        one.partition: [(segment.base_offset, segment.end_offset) for segment in one.segments]
        for one in find_partitions(FILES, path, newest=newest)
    }


def flights(data: Path, *, newest: bool = True) -> PartitionFiles:
    [one] = find_partitions(FILES, data / "flights-0", newest=newest)
    return one


def offsets(path: Path, start: int, end: int, rows: int = 1000) -> list[int]:
    chunks = list(read_segment(FILES, path, start, end, batch_rows=rows))
    assert all(chunk.count for chunk in chunks)
    return [offset for chunk in chunks for offset in chunk.offsets]


def test_the_newest_segment_is_left_out_unless_asked_for(data: Path) -> None:
    assert found(data) == {P0: [(0, 20), (20, 30)], TopicPartition("other", 3): []}
    assert found(data, newest=True)[P0] == [(0, 20), (20, 30), (30, 35)]
    assert found(data / "flights-0") == {P0: [(0, 20), (20, 30)]}


def test_one_file_is_read_as_it_is(data: Path) -> None:
    assert found(data / "flights-0" / offset_file(30, LOG)) == {P0: [(30, 35)]}


@pytest.mark.parametrize("name", ["nowhere", "flights-0/00000000000000000099.log", "empty"])
def test_a_path_without_segments_is_said_to_be_one(data: Path, name: str) -> None:
    (data / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=name):
        find_partitions(FILES, data / name, newest=False)


def test_records_before_the_log_start_are_not_there(data: Path) -> None:
    (data / checkpoints.LOG_START_OFFSET).write_text("0\n1\nflights 0 22\n")
    one = flights(data)
    assert (one.start_offset, one.end_offset) == (22, 35)
    assert [segment.base_offset for segment in one.segments] == [20, 30]


@pytest.mark.parametrize("damage", [b"\0" * 100, batch(35, 4)[:-1], batch(35, 4)[:30], b"x" * 200])
def test_what_is_torn_at_the_end_of_the_newest_segment_is_not_there(data: Path, damage: bytes) -> None:
    path = data / "flights-0" / offset_file(30, LOG)
    path.write_bytes(path.read_bytes() + damage)
    assert flights(data).end_offset == 35
    assert offsets(path, 30, 35) == [*range(30, 35)]


@pytest.mark.parametrize(("start", "end"), [(0, 20), (3, 17), (5, 6), (4, 5), (19, 20), (20, 20)])
def test_reads_a_range_of_offsets(data: Path, start: int, end: int) -> None:
    path = data / "flights-0" / offset_file(0, LOG)
    assert offsets(path, start, end) == [*range(start, end)]
    assert offsets(path, start, end, rows=1) == [*range(start, end)]


def test_values_keys_and_times_come_with_them(data: Path) -> None:
    [chunk] = read_segment(FILES, data / "flights-0" / offset_file(20, LOG), 21, 23, batch_rows=9, headers=True)
    assert chunk.values is not None and chunk.headers is not None
    assert [chunk.values.value(row) for row in range(2)] == [b"21", b"22"]
    assert list(chunk.timestamps_ms) == [210, 220]
    assert list(memoryview(chunk.headers.list_offsets).cast("B").cast("i")) == [0, 0, 0]


def test_the_index_shows_where_to_begin(data: Path) -> None:
    path = data / "flights-0" / offset_file(0, LOG)
    second = len(batch(0, 5))
    path.with_suffix(INDEX).write_bytes(b"".join(n.to_bytes(4, "big") for n in (19, second)))
    spoiled = bytearray(path.read_bytes())
    spoiled[20] ^= 1  # the CRC of the first batch, which is not looked at
    path.write_bytes(spoiled)
    assert offsets(path, 19, 20) == [19]
    path.with_suffix(INDEX).write_bytes(b"nonsense")
    with pytest.raises(CorruptMessage):
        offsets(path, 3, 20)


def test_a_batch_larger_than_a_chunk_is_read_whole(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.offline.segment_reader.CHUNK_BYTES", 100)
    assert offsets(data / "flights-0" / offset_file(0, LOG), 0, 20) == [*range(20)]


def test_damage_in_the_middle_is_an_error_with_file_and_position(data: Path) -> None:
    path = data / "flights-0" / offset_file(0, LOG)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptMessage, match=f"{path.name}, from position {len(batch(0, 5))} on"):
        offsets(path, 0, 20)
    path.write_bytes(content[:-9])
    with pytest.raises(CorruptMessage, match="is cut off"):
        offsets(path, 0, 20)


@pytest.mark.parametrize(("timestamp_ms", "offset"), [(0, 0), (51, 6), (199, 20), (340, 34), (341, None)])
def test_finds_the_first_record_at_or_after_a_time(data: Path, timestamp_ms: int, offset: int | None) -> None:
    assert offset_for_time(FILES, flights(data), timestamp_ms) == offset
