"""The small files of a data directory: checkpoints, leader epochs, identities, topic ids."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.log.directories import checkpoints
from headrace.log.directories.checkpoints import CorruptCheckpoint
from headrace.log.directories.meta_properties import CorruptMetaProperties, MetaProperties, format_text, parse
from headrace.log.directories.partition_metadata import (
    CorruptPartitionMetadata,
    format_topic_id,
    parse_topic_id,
    read_topic_id,
    write_topic_id,
)
from headrace.log.filenames import delete_name, parse_partition
from headrace.log.files import LocalFiles
from headrace.log.leader_epochs import LeaderEpochs
from headrace.types import TopicPartition

FILES = LocalFiles()


def test_a_checkpoint_is_text_with_version_count_and_one_line_each(tmp_path: Path) -> None:
    path = tmp_path / checkpoints.RECOVERY_POINT
    offsets = {TopicPartition("flights", 1): 59266, TopicPartition("flights", 0): 191427}
    checkpoints.write_offsets(FILES, path, offsets)
    assert path.read_text() == "0\n2\nflights 0 191427\nflights 1 59266\n"
    assert checkpoints.read_offsets(FILES, path) == offsets
    assert [child.name for child in tmp_path.iterdir()] == [checkpoints.RECOVERY_POINT], "nothing temporary is left"


@pytest.mark.parametrize(
    "text",
    ["0\n", "1\n0\n", "0\n2\na 0 1\n", "0\n1\na 0\n", "0\n1\na x 1\n", "zero\n1\n", "\x00\x00\x00", "0\n1\n\xff"],
)
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / checkpoints.RECOVERY_POINT
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(CorruptCheckpoint):
        checkpoints.read_offsets(FILES, path)


def test_an_empty_or_missing_checkpoint_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / checkpoints.RECOVERY_POINT
    assert checkpoints.read_offsets(FILES, path) == {}
    path.touch()
    assert checkpoints.read_offsets(FILES, path) == {}


@given(st.binary(max_size=60))
def test_any_bytes_are_a_checkpoint_or_corrupt(data: bytes) -> None:
    with suppress(CorruptCheckpoint):
        checkpoints.parse_lines(data, "any")


def epochs_of(directory: Path, *entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs(FILES, directory)
    for epoch, start_offset in entries:
        epochs.assign(epoch, start_offset)
    return epochs


def test_leader_epochs_are_kept_in_a_file_that_apache_kafka_reads(tmp_path: Path) -> None:
    epochs_of(tmp_path, (0, 0), (3, 42))
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n3 42\n"
    assert LeaderEpochs(FILES, tmp_path).entries == [(0, 0), (3, 42)]


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [(0, (0, 10)), (1, (0, 10)), (2, (2, 42)), (5, (5, 100)), (6, (-1, -1)), (-1, (-1, -1))],
)
def test_an_epoch_ends_where_the_next_known_one_begins(tmp_path: Path, epoch: int, answer: tuple[int, int]) -> None:
    assert epochs_of(tmp_path, (0, 0), (2, 10), (5, 42)).end_offset_for(epoch, log_end_offset=100) == answer


def test_an_epoch_before_the_first_known_ends_where_that_begins(tmp_path: Path) -> None:
    assert epochs_of(tmp_path, (4, 30), (5, 50)).end_offset_for(2, 100) == (2, 30)


def test_a_new_epoch_drops_the_ones_that_contradict_it(tmp_path: Path) -> None:
    assert epochs_of(tmp_path, (0, 0), (2, 10), (3, 20), (4, 10)).entries == [(0, 0), (4, 10)]


def test_truncation_drops_epochs_from_the_end_and_moves_the_first_from_the_start(tmp_path: Path) -> None:
    epochs = epochs_of(tmp_path, (0, 0), (2, 10), (3, 20))
    epochs.truncate_from_end(20)
    assert epochs.entries == [(0, 0), (2, 10)]
    epochs.truncate_from_start(15)
    assert epochs.entries == [(2, 15)]
    assert [epochs.epoch_for(offset) for offset in (14, 15, 99)] == [-1, 2, 2]


def test_reads_both_versions_of_meta_properties() -> None:
    text = "#\n#Tue Nov 11 10:00:00 UTC 2026\ncluster.id=MkU3OEVBNTcwNTJENDM2Qk\n"
    assert parse(f"{text}version=0\nbroker.id=7\n") == MetaProperties(7, "MkU3OEVBNTcwNTJENDM2Qk")
    assert parse(f"{text}version=1\nnode.id=7\ndirectory.id=2uUXPWAy9ZCeIKWFvlSt1Q\n") == MetaProperties(
        7, "MkU3OEVBNTcwNTJENDM2Qk", "2uUXPWAy9ZCeIKWFvlSt1Q", 1
    )


@pytest.mark.parametrize("version", [0, 1])
def test_meta_properties_come_back_as_they_were_written(version: int) -> None:
    properties = MetaProperties(3, "abc", "def" if version else None, version)
    assert parse(format_text(properties)) == properties


@pytest.mark.parametrize(
    "text", ["", "version=0\n", "version=x\nbroker.id=1\ncluster.id=a\n", "version=0\nbroker.id=\ncluster.id=a"]
)
def test_meta_properties_without_an_identity_are_refused(text: str) -> None:
    with pytest.raises(CorruptMetaProperties):
        parse(text)


def test_a_topic_id_is_url_safe_base64(tmp_path: Path) -> None:
    topic_id = bytes(range(0xF0, 0x100))
    write_topic_id(FILES, tmp_path, topic_id)
    assert (tmp_path / "partition.metadata").read_text() == "version: 0\ntopic_id: 8PHy8_T19vf4-fr7_P3-_w\n"
    assert read_topic_id(FILES, tmp_path) == topic_id


@given(st.binary(min_size=16, max_size=16))
def test_topic_ids_come_back_as_they_were_printed(topic_id: bytes) -> None:
    assert parse_topic_id(format_topic_id(topic_id)) == topic_id


def test_partition_metadata_that_a_crash_cut_short_counts_as_none(tmp_path: Path) -> None:
    write_topic_id(FILES, tmp_path, bytes(range(16)))
    path = tmp_path / "partition.metadata"
    whole = path.read_bytes()
    for size in range(len(whole)):
        for rest in (b"", bytes(len(whole) - size)):
            path.write_bytes(whole[:size] + rest)
            assert read_topic_id(FILES, tmp_path) == (None if size < len(whole) - 1 else bytes(range(16)))


def test_damaged_partition_metadata_is_refused(tmp_path: Path) -> None:
    assert read_topic_id(FILES, tmp_path) is None
    for text in ("", "\0" * 40):
        (tmp_path / "partition.metadata").write_text(text)
        assert read_topic_id(FILES, tmp_path) is None
    for text in ("version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n", "version: 0\ntopic_id: short\n", "garbage"):
        (tmp_path / "partition.metadata").write_text(text)
        with pytest.raises(CorruptPartitionMetadata):
            read_topic_id(FILES, tmp_path)


@pytest.mark.parametrize(
    ("name", "partition"),
    [("a-b-12", TopicPartition("a-b", 12)), ("flights", None), ("-1", None), ("a-", None), ("a-x", None)],
)
def test_a_partition_is_read_from_its_directory_name(name: str, partition: TopicPartition | None) -> None:
    assert parse_partition(name) == partition


def test_the_name_of_a_deleted_partition_fits_a_file_system() -> None:
    name = delete_name(TopicPartition("t" * 249, 12345), "f" * 32)
    assert len(name) <= 255
    assert name.endswith("-12345." + "f" * 32 + "-delete")
    assert parse_partition(name) is None
