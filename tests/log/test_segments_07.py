"""A partition as Kafka 0.7 left it on disk: read, written, cut short, damaged."""

import json
from pathlib import Path

import pytest

from headrace.log.files import LocalFiles
from headrace.offline import segments_07
from headrace.offline.dump import dump
from headrace.offline.segments_07 import LogReader07, list_segments, partition_of
from headrace.records.codecs.compression import Codec
from headrace.records.legacy.format_07 import encode_entry, encode_set, iter_messages
from headrace.types import TopicPartition
from tests.log.log_writer_07 import LogWriter07

FILES = LocalFiles()
GOLDEN = Path(__file__).parents[1] / "records" / "golden" / "log_07.json"
FIRST = "00000000000000000000.kafka"


def payloads(reader: LogReader07, from_offset: int = 0) -> list[bytes]:
    return [bytes(payload) for _, _, found in reader.messages(from_offset) for payload in found]


def rows(count: int) -> list[bytes]:
    return [b"row %d " % i + b"." * (i % 50) for i in range(count)]


def write(directory: Path, count: int = 100, **settings: int) -> LogWriter07:
    writer = LogWriter07(FILES, directory, **settings)
    for row in rows(count):
        writer.append([row])
    writer.flush()
    return writer


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """A log that Kafka 0.7 itself wrote; see tests/records/golden/Kafka07.java."""
    directory = tmp_path / "golden-0"
    directory.mkdir()
    for name, data in json.loads(GOLDEN.read_text()).items():
        (directory / name).write_bytes(bytes.fromhex(data))
    return directory


def test_what_kafka_0_7_wrote_is_read(golden: Path) -> None:
    reader = LogReader07(FILES, golden)
    found = [(end, [bytes(payload) for payload in payloads]) for _, end, payloads in reader.messages()]
    plain = [([b"value %d" % i], [b""]) for i in range(10)]
    assert [rows for _, rows in found] == [
        *(rows for pair in plain for rows in pair),
        [b"zipped 0", b"zipped 1", b"zipped 2"],
        [b"snappy 0", b"snappy 1"],
        [b"deep 0", b"deep 1", b"shallow"],
        [b"value"],
    ]
    assert [end for end, _ in found[:4]] == [17, 27, 44, 54]  # as 0.7's own reader tells them
    assert [end for end, _ in found[-4:]] == [337, 402, 499, 513]
    assert [segment.base_offset for segment in reader.segments] == [0, 216, 499]
    assert (reader.damages, reader.missing()) == ([], [])


def test_what_is_written_is_what_kafka_0_7_wrote(golden: Path, tmp_path: Path) -> None:
    """Byte for byte, but for gzip's own header."""
    writer = LogWriter07(FILES, tmp_path / "ours-0", segment_bytes=200)
    for i in range(10):
        writer.append([b"value %d" % i, b""])
    writer.flush()
    theirs = (golden / FIRST).read_bytes()
    assert (tmp_path / "ours-0" / FIRST).read_bytes() == theirs
    snappy = encode_set([b"snappy 0", b"snappy 1"], codec=Codec.SNAPPY)
    assert snappy in (golden / "00000000000000000216.kafka").read_bytes()
    assert (golden / "00000000000000000499.kafka").read_bytes() == encode_entry(b"value", magic=0)


def test_it_can_be_dumped(golden: Path) -> None:
    rows = list(dump(golden, deep=True))
    messages = [row for row in rows if row["kind"] == "message"]
    assert [(row["offset"], row["codec"], row["record_count"]) for row in messages[-4:]] == [
        (270, "gzip", 3), (337, "snappy", 2), (402, "gzip", 3), (499, "none", 1)
    ]  # fmt: skip
    assert all(row["is_valid"] for row in messages)
    assert [row["value"] for row in rows if row["kind"] == "record"][-4:] == ["deep 0", "deep 1", "shallow", "value"]
    data = bytearray((golden / FIRST).read_bytes())
    data[-11] ^= 1
    (golden / FIRST).write_bytes(data[:-3])
    rows = list(dump(golden / FIRST))
    assert [row["is_valid"] for row in rows[:-1]] == [True] * 14 + [False]
    assert rows[-1]["kind"] == "damage" and rows[-1]["position"] == 206


def test_directories_are_named_with_a_dash_or_an_underscore() -> None:
    assert partition_of("my_topic-0") == TopicPartition("my_topic", 0)
    assert partition_of("my_topic_1") == TopicPartition("my_topic", 1)
    assert partition_of("my-topic-12") == TopicPartition("my-topic", 12)
    assert partition_of("topic") is partition_of("_1") is partition_of("topic_x") is None


def test_files_are_named_by_the_position_of_their_first_byte(tmp_path: Path) -> None:
    writer = LogWriter07(FILES, tmp_path, segment_bytes=20)
    offsets = [writer.append([b"value"]) for _ in range(6)]  # 15 bytes each; a file is left once it is over 20
    assert offsets == [0, 15, 30, 45, 60, 75] and writer.next_offset == 90
    assert FILES.names(tmp_path) == [FIRST, "00000000000000000030.kafka", "00000000000000000060.kafka"]
    assert (tmp_path / FIRST).read_bytes() == encode_entry(b"value") * 2


def test_names_of_11_digits_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "00000000000.kafka").write_bytes(encode_entry(b"one", magic=0))
    (tmp_path / "00000000012.kafka").write_bytes(encode_entry(b"two", magic=1))
    (tmp_path / "notes.kafka").write_bytes(b"not ours")
    reader = LogReader07(FILES, tmp_path)
    assert payloads(reader) == [b"one", b"two"]
    assert (reader.start_offset, reader.end_offset, reader.missing()) == (0, 25, [])


def test_everything_comes_back_in_order_across_files(tmp_path: Path) -> None:
    writer = write(tmp_path, 500, segment_bytes=2000)
    writer.append([b"x", b"y"], codec=Codec.GZIP)
    writer.append([b"z"], codec=Codec.SNAPPY)
    writer.append([b"old"], magic=0)
    reader = LogReader07(FILES, tmp_path)
    assert len(reader.segments) > 5
    assert payloads(reader) == [*rows(500), b"x", b"y", b"z", b"old"]
    assert reader.damages == []


def test_reading_goes_on_from_where_a_message_ends(tmp_path: Path) -> None:
    write(tmp_path, 200, segment_bytes=1000)
    ends = [end for _, end, _ in LogReader07(FILES, tmp_path).messages()]
    for at in (0, 3, 77, 198):
        assert payloads(LogReader07(FILES, tmp_path), ends[at]) == rows(200)[at + 1 :]


def test_a_read_is_a_fetch_of_0_7_bytes_from_a_position_and_the_last_message_cut(tmp_path: Path) -> None:
    write(tmp_path, 50, segment_bytes=500)
    reader = LogReader07(FILES, tmp_path)
    found, offset = [], 0
    while offset < reader.end_offset:
        messages = list(iter_messages(reader.read(offset, 100), offset))
        found += [message.payload for message in messages]
        offset = messages[-1].next_offset
    assert found == rows(50)
    assert reader.read(reader.end_offset, 100) == b""
    with pytest.raises(ValueError, match="not within"):
        reader.read(reader.end_offset + 1, 100)


def test_messages_of_many_chunks_and_larger_than_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments_07, "CHUNK_BYTES", 64)
    writer = LogWriter07(FILES, tmp_path)
    sizes = [0, 1, 54, 55, 56, 63, 64, 65, 1000, 3, 200]
    for size in sizes:
        writer.append([bytes(size)])
    assert [len(each) for each in payloads(LogReader07(FILES, tmp_path))] == sizes


@pytest.mark.parametrize("torn", [1, 3, 4, 8, 14])
def test_a_torn_tail_is_told(tmp_path: Path, torn: int) -> None:
    writer = write(tmp_path, 10)
    end = writer.next_offset
    with (tmp_path / FIRST).open("ab") as file:
        file.write(encode_entry(b"value")[:torn])
    reader = LogReader07(FILES, tmp_path)
    assert payloads(reader) == rows(10)
    assert [(each.offset, each.end_offset) for each in reader.damages] == [(end, end + torn)]


def test_nonsense_at_the_end_is_told_by_its_length_or_its_crc(tmp_path: Path) -> None:
    end = write(tmp_path, 10).next_offset
    for nonsense in (bytes(4096), b"\xff" * 100, b"\x00\x00\x00\x50" + bytes(80), b"\x00\x00\x00\x0b\x07" + bytes(10)):
        with (tmp_path / FIRST).open("r+b") as file:
            file.truncate(end)
            file.seek(end)
            file.write(nonsense)
        reader = LogReader07(FILES, tmp_path)
        assert payloads(reader) == rows(10)
        assert reader.damages[0].offset == end and reader.damages[0].reason


def test_an_absurd_length_is_damage_and_asks_for_no_memory(tmp_path: Path) -> None:
    with (tmp_path / FIRST).open("wb") as file:
        file.write(encode_entry(b"good") + (0x7FFFFFFF).to_bytes(4, "big"))
        file.truncate(3 << 30)  # sparse: the length fits the file
    reader = LogReader07(FILES, tmp_path)
    assert payloads(reader) == [b"good"]
    assert "above the limit" in reader.damages[0].reason


def test_damage_in_a_closed_file_ends_that_file_alone(tmp_path: Path) -> None:
    write(tmp_path, 100, segment_bytes=500)
    segments = list_segments(FILES, tmp_path)
    assert len(segments) >= 4
    first, second = segments[0], segments[1]
    data = bytearray(second.path.read_bytes())
    entries = list(iter_messages(bytes(data)))
    data[entries[2].next_offset - 1] ^= 1  # in the payload of the third
    second.path.write_bytes(data)
    lost = [message.payload for message in entries[2:]]
    reader = LogReader07(FILES, tmp_path)
    assert payloads(reader) == [row for row in rows(100) if row not in lost]
    (damage,) = reader.damages
    assert damage.offset == second.base_offset + entries[2].offset and damage.end_offset == second.end_offset
    assert "CRC" in damage.reason and first.end_offset == second.base_offset


@pytest.mark.slow
def test_a_wrapper_that_does_not_open_is_passed_over_alone(tmp_path: Path) -> None:
    writer = write(tmp_path, 3)
    offset = writer.append_set(encode_entry(b"no gzip at all", codec=Codec.GZIP))
    writer.append_set(encode_set([b"after"]))
    reader = LogReader07(FILES, tmp_path)
    assert payloads(reader) == [*rows(3), b"after"]
    assert [each.offset for each in reader.damages] == [offset]


def test_a_missing_file_in_between_is_told(tmp_path: Path) -> None:
    write(tmp_path, 100, segment_bytes=500)
    gone = list_segments(FILES, tmp_path)[1]
    gone.path.unlink()
    reader = LogReader07(FILES, tmp_path)
    assert reader.missing() == [(gone.base_offset, gone.end_offset)]
    assert payloads(reader)


def test_a_directory_without_segments_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"\.kafka"):
        LogReader07(FILES, tmp_path)
