"""Which offsets a read covers, and how they become Spark tasks."""

import re
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.source.offsets import DataLossError, resolve_ranges, split_ranges
from headrace.spark.source.options import Assign, OptionError, Selection, Subscribe, SubscribePattern, parse_options
from headrace.types import OffsetRange, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class DictLog:
    """A cluster as a dictionary: partition -> (log start, {offset: timestamp}, log end)."""

    def __init__(self, logs: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self.logs = logs

    def partitions_of(self, selection: Selection) -> list[TopicPartition]:
        match selection:
            case Assign(partitions):
                return list(partitions)
            case Subscribe(topics):
                return [tp for tp in self.logs if tp.topic in topics]
            case SubscribePattern(pattern):
                return [tp for tp in self.logs if re.fullmatch(pattern, tp.topic)]

    def earliest(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: self.logs[tp][0] for tp in partitions}

    def latest(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: self.logs[tp][1] for tp in partitions}

    def at_time(self, timestamps_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        """Record n has timestamp 1000 * n."""
        found = {tp: max(-(-time // 1000), self.logs[tp][0]) for tp, time in timestamps_ms.items()}
        return {tp: offset if offset < self.logs[tp][1] else None for tp, offset in found.items()}


LOG = DictLog({P0: (0, 100), P1: (10, 50), TopicPartition("u", 0): (0, 0)})


def resolve(resume_at: Mapping[TopicPartition, int] | None = None, /, **options: str) -> list[tuple[int, ...]]:
    chosen = {"subscribe": "t"} if not {"assign", "subscribePattern"} & options.keys() else {}
    parsed = parse_options({"kafka.bootstrap.servers": "b:1", **chosen, **options})
    return [tuple(one[1:]) for one in resolve_ranges(parsed, LOG, resume_at or {})]


def test_reads_everything_by_default() -> None:
    assert resolve() == [(0, 0, 100), (1, 10, 50)]


def test_an_empty_partition_makes_no_range() -> None:
    assert resolve(subscribePattern=".") == [(0, 0, 100), (1, 10, 50)]


def test_assigned_partitions_only() -> None:
    assert resolve(assign='{"t":[1]}') == [(1, 10, 50)]


def test_offsets_by_partition_with_earliest_and_latest_as_numbers() -> None:
    assert resolve(startingOffsets='{"t":{"0":20,"1":-2}}', endingOffsets='{"t":{"0":30,"1":-1}}') == [
        (0, 20, 30),
        (1, 10, 50),
    ]


def test_offsets_must_name_every_partition() -> None:
    with pytest.raises(OptionError, match=r"startingOffsets: must name every partition that is read; missing t-1"):
        resolve(startingOffsets='{"t":{"0":20}}')
    with pytest.raises(OptionError, match="not read t-2"):
        resolve(endingOffsets='{"t":{"0":20,"1":20,"2":4}}')


def test_starts_at_the_first_record_at_or_after_a_time() -> None:
    assert resolve(startingTimestamp="20500", endingTimestamp="30000") == [(0, 21, 30), (1, 21, 30)]


def test_an_ending_time_after_all_records_ends_at_the_end() -> None:
    assert resolve(endingTimestamp="70000") == [(0, 0, 70), (1, 10, 50)]


def test_a_starting_time_after_all_records_is_an_error_or_reads_nothing() -> None:
    with pytest.raises(OptionError, match="t-1 has no record at or after that time"):
        resolve(startingTimestamp="70000")
    assert resolve(startingTimestamp="70000", startingOffsetsByTimestampStrategy="latest") == [(0, 70, 100)]


def test_times_by_partition() -> None:
    assert resolve(startingOffsetsByTimestamp='{"t":{"0":99000,"1":0}}') == [(0, 99, 100), (1, 10, 50)]


def test_an_inverted_range_reads_nothing() -> None:
    assert resolve(startingTimestamp="40000", endingTimestamp="20000") == []


def test_deleted_records_fail_the_read_unless_told_otherwise() -> None:
    asked = {"startingOffsets": '{"t":{"0":0,"1":5}}'}
    with pytest.raises(DataLossError, match=r"t-1 no longer has all offsets from 5 to 50; it has those from 10 to 50"):
        resolve(**asked)
    assert resolve(**asked, failOnDataLoss="false") == [(0, 0, 100), (1, 10, 50)]


def test_an_end_beyond_the_log_fails_the_read_unless_told_otherwise() -> None:
    asked = {"endingOffsets": '{"t":{"0":200,"1":20}}'}
    with pytest.raises(DataLossError, match="t-0"):
        resolve(**asked)
    assert resolve(**asked, failOnDataLoss="false") == [(0, 0, 100), (1, 10, 20)]


def test_progress_comes_before_the_starting_options() -> None:
    assert resolve({P0: 40}, startingTimestamp="20000") == [(0, 40, 100), (1, 20, 50)]
    assert resolve({P0: 100, P1: 50}) == []


def test_progress_beyond_the_log_means_that_the_topic_was_made_anew() -> None:
    with pytest.raises(DataLossError, match="created again"):
        resolve({P0: 101})


def test_splits_large_ranges_until_there_are_enough() -> None:
    ranges = [OffsetRange("t", 0, 0, 300), OffsetRange("t", 1, 0, 10)]
    assert split_ranges(ranges, 4, None) == [
        OffsetRange("t", 0, 0, 100),
        OffsetRange("t", 0, 100, 200),
        OffsetRange("t", 0, 200, 300),
        OffsetRange("t", 1, 0, 10),
    ]


def test_leaves_ranges_alone_when_there_are_enough() -> None:
    ranges = [OffsetRange("t", 0, 0, 300), OffsetRange("t", 1, 0, 10), OffsetRange("t", 2, 5, 5)]
    assert split_ranges(ranges, 2, None) == ranges[:2]
    assert split_ranges(ranges, None, None) == ranges[:2]


def test_no_part_is_larger_than_the_limit() -> None:
    parts = split_ranges([OffsetRange("t", 0, 7, 32)], None, 10)
    assert [(one.start, one.end) for one in parts] == [(7, 15), (15, 23), (23, 32)]


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 500)), max_size=8),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 90),
)
def test_parts_cover_the_ranges_without_gap_or_overlap(
    sizes: list[tuple[int, int]], min_partitions: int | None, max_records: int | None
) -> None:
    ranges = [OffsetRange("t", index, start, start + size) for index, (start, size) in enumerate(sizes)]
    parts = split_ranges(ranges, min_partitions, max_records)
    assert all(part.size > 0 for part in parts)
    assert max_records is None or all(part.size <= max_records for part in parts)
    covered = [(part.partition, offset) for part in parts for offset in range(part.start, part.end)]
    assert covered == [(one.partition, offset) for one in ranges for offset in range(one.start, one.end)]
