"""Few records for a follower are read at once, unless that could wait for the disk."""

import os
from pathlib import Path

import pytest

from headrace.broker.fetch import small_reads
from headrace.broker.fetch.small_reads import read_if_cached
from headrace.log.files import DiskFile
from headrace.log.segment_list import SegmentRange


@pytest.fixture
def file(tmp_path: Path) -> DiskFile:
    made = DiskFile(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    made.write(bytes(range(200)), 0)
    return made


def test_what_the_page_cache_has_is_read(file: DiskFile) -> None:
    if not small_reads._RWF_NOWAIT:
        pytest.skip("the system cannot tell what the page cache has")
    assert read_if_cached(SegmentRange(file, 10, 50)) in (bytes(range(10, 60)), None), "other bytes"


def test_a_range_that_the_file_does_not_have_is_left_to_the_sending(file: DiskFile) -> None:
    assert read_if_cached(SegmentRange(file, 190, 50)) is None


def test_a_read_that_would_wait_for_the_disk_is_left_to_the_sending(
    file: DiskFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def would_wait(*_: object) -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "preadv", would_wait)
    assert read_if_cached(SegmentRange(file, 0, 50)) is None


def test_a_file_that_is_not_on_the_disk_is_read_by_its_own_method(tmp_path: Path) -> None:
    class OtherFile(DiskFile):
        """A file with a way of its own to read."""

    other = OtherFile(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    other.write(bytes(100), 0)
    assert read_if_cached(SegmentRange(other, 0, 50)) is None
