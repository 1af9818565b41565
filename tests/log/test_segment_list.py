"""The list of a log's segments: look-ups by offset, and the lists that follow from one."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from headrace.log.files import LocalFiles
from headrace.log.segment.segment import Segment
from headrace.log.segment_list import SegmentList
from tests.log.support import config


@pytest.fixture
def segments(tmp_path: Path) -> SegmentList:
    """Closed segments at 0 and 4711, and an active one at 9000."""
    return SegmentList(segment(tmp_path, base_offset, size=100) for base_offset in (0, 4711, 9000))


def segment(directory: Path, base_offset: int, size: int = 0) -> Segment:
    return Segment(LocalFiles(), directory, base_offset, config(), size=size, now_ms=0)


def bases(segments: Iterable[Segment]) -> list[int]:
    return [each.base_offset for each in segments]


def test_finds_the_segment_that_holds_an_offset(segments: SegmentList) -> None:
    assert [segments.number_of(offset) for offset in (0, 4710, 4711, 8999, 9000, 10**12)] == [0, 0, 1, 1, 2, 2]


def test_an_offset_below_all_segments_is_looked_for_in_the_first(segments: SegmentList) -> None:
    assert segments.without_oldest(1).number_of(3) == 0


def test_a_segment_ends_where_the_next_begins_and_the_last_one_with_the_log(segments: SegmentList) -> None:
    assert [segments.end_of(number, 9500) for number in range(3)] == [4711, 9000, 9500]


def test_only_the_last_segment_is_active(segments: SegmentList) -> None:
    assert segments.active.base_offset == 9000
    assert [each.base_offset for each in segments.closed] == [0, 4711]
    assert segments.size_bytes == 300


def test_a_new_active_segment_closes_the_one_before(segments: SegmentList, tmp_path: Path) -> None:
    assert bases(segments.followed_by(segment(tmp_path, 9500))) == [0, 4711, 9000, 9500]


def test_a_new_active_segment_takes_the_place_of_one_without_records(segments: SegmentList, tmp_path: Path) -> None:
    rolled = segments.followed_by(segment(tmp_path, 9500))
    assert bases(rolled.followed_by(segment(tmp_path, 2**32))) == [0, 4711, 9000, 2**32]


def test_a_log_that_ends_at_a_border_keeps_the_segment_that_begins_there(segments: SegmentList) -> None:
    assert bases(segments.ending_at(4710)) == [0]
    assert bases(segments.ending_at(4711)) == [0, 4711]


def test_a_cleaned_segment_takes_the_place_of_those_it_was_made_from(segments: SegmentList, tmp_path: Path) -> None:
    cleaned = segment(tmp_path, 0)
    replaced = segments.replaced(segments.closed, cleaned)
    assert tuple(replaced) == (cleaned, segments.active)
    assert bases(replaced) == [0, 9000]


def test_segments_that_could_not_go_come_back_in_front(segments: SegmentList) -> None:
    assert bases(segments.without_oldest(2).preceded_by(segments[1:2])) == [4711, 9000]


def test_a_list_that_another_follows_from_stays_as_it_is(segments: SegmentList, tmp_path: Path) -> None:
    before = tuple(segments)
    segments.followed_by(segment(tmp_path, 9500))
    segments.without_oldest(1)
    segments.replaced(segments.closed, segment(tmp_path, 0))
    assert tuple(segments) == before
