"""The decisions of a lake writer: when a round begins, what it has, what a loss does, and where files end."""

import pytest

from headrace.lake.core.plan import Bounds, DataLoss, LogReplacedError, OvertakenError, RoundLimits, Slice, plan
from headrace.lake.core.roll import Roll, Sizes, roll
from headrace.lake.core.writer import (
    REFUSALS_MAX,
    AskBounds,
    Bounded,
    Commit,
    CommitRefused,
    CommitStormError,
    Committed,
    Discard,
    LakeWriter,
    Opened,
    OpenTable,
    Wait,
    Waited,
    Write,
    Written,
)
from headrace.types import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
LIMITS = RoundLimits(round_records=100, linger_ms=4_000, poll_ms=500)
RECORDS_LOSS = RoundLimits(round_records=100, linger_ms=0, data_loss=DataLoss.RECORD)


def test_nothing_new_is_asked_for_again_after_the_poll_interval() -> None:
    assert plan({P0: 10}.get, {P0: Bounds(0, 10)}, LIMITS, None, 0).wait_ms == LIMITS.poll_ms


def test_few_records_linger_and_are_written_when_the_oldest_has_waited() -> None:
    bounds = {P0: Bounds(0, 12)}
    first = plan({P0: 10}.get, bounds, LIMITS, None, 1_000)
    assert (first.slices, first.wait_ms, first.is_pending) == ((), 4_000, True)
    assert plan({P0: 10}.get, bounds, LIMITS, 1_000, 3_000).wait_ms == 2_000
    assert plan({P0: 10}.get, bounds, LIMITS, 1_000, 5_000).slices == (Slice(P0, 10, 10, 12),)


def test_a_full_round_does_not_linger_and_each_partition_gets_its_share() -> None:
    found = plan({P0: 0}.get, {P0: Bounds(0, 1_000), P1: Bounds(5, 1_000)}, LIMITS, None, 0)
    assert found.slices == (Slice(P0, 0, 0, 50), Slice(P1, None, 5, 55))


def test_a_clock_that_goes_back_makes_no_longer_wait_than_the_linger() -> None:
    assert plan({P0: 10}.get, {P0: Bounds(0, 12)}, LIMITS, 9_000, 1_000).wait_ms == 4_000


def test_retention_that_overtakes_the_table_stops_it_and_says_what_is_missing() -> None:
    with pytest.raises(OvertakenError, match="t-0 begins at offset 30, but the table has only what is before 10"):
        plan({P0: 10}.get, {P0: Bounds(30, 40)}, LIMITS, None, 0)


def test_a_hole_is_recorded_where_the_setting_says_so_even_if_nothing_follows_it() -> None:
    assert plan({P0: 10}.get, {P0: Bounds(30, 40)}, RECORDS_LOSS, 0, 0).slices == (Slice(P0, 10, 30, 40),)
    [only] = plan({P0: 10}.get, {P0: Bounds(30, 30)}, RECORDS_LOSS, 0, 0).slices
    assert (only.size, only.lost) == (0, 20)


def test_a_partition_that_the_table_never_had_begins_where_its_log_begins_without_a_hole() -> None:
    [only] = plan(dict[TopicPartition, int]().get, {P0: Bounds(30, 40)}, RECORDS_LOSS, 0, 0).slices
    assert (only.start, only.lost) == (30, 0)


@pytest.mark.parametrize("limits", [LIMITS, RECORDS_LOSS])
def test_a_log_that_ends_before_the_tables_progress_is_another_log(limits: RoundLimits) -> None:
    with pytest.raises(LogReplacedError, match="deleted and created again"):
        plan({P0: 10}.get, {P0: Bounds(0, 4)}, limits, None, 0)


def a_writer_with_written_rows() -> LakeWriter:
    writer = LakeWriter(LIMITS)
    writer.finish()
    assert writer.begin() == OpenTable()
    assert writer.after(Opened({P0: 10}.get), 0) == AskBounds()
    asked = writer.after(Bounded({P0: Bounds(0, 20)}), 0)
    assert asked == Write((Slice(P0, 10, 10, 20),))
    assert writer.after(Written(asked.slices), 0) == Commit(asked.slices)
    return writer


def test_a_refused_commit_is_tried_again_on_a_snapshot_with_the_same_progress() -> None:
    writer = a_writer_with_written_rows()
    assert writer.after(CommitRefused(), 0) == OpenTable()
    assert writer.after(Opened({P0: 10, P1: 99}.get), 0) == Commit((Slice(P0, 10, 10, 20),))


def test_a_refused_commit_is_dropped_where_somebody_wrote_the_same_offsets() -> None:
    writer = a_writer_with_written_rows()
    writer.after(CommitRefused(), 0)
    assert writer.after(Opened({P0: 20}.get), 0) == Discard()


def test_a_table_that_was_restored_meanwhile_does_not_get_rows_that_leave_a_gap() -> None:
    writer = a_writer_with_written_rows()
    writer.after(CommitRefused(), 0)
    assert writer.after(Opened({P0: 5}.get), 0) == Discard()


def test_a_writer_gives_up_in_a_storm_of_commits() -> None:
    writer = a_writer_with_written_rows()
    with pytest.raises(CommitStormError):
        for _ in range(REFUSALS_MAX + 1):
            writer.after(CommitRefused(), 0)
            writer.after(Opened({P0: 10}.get), 0)


def test_a_finished_writer_waits_only_when_the_table_has_everything() -> None:
    writer = a_writer_with_written_rows()
    writer.after(Committed({P0: 20}.get), 0)
    assert writer.after(Bounded({P0: Bounds(0, 20)}), 0) == Wait(LIMITS.poll_ms)


def test_records_are_written_within_the_linger_however_often_more_arrive() -> None:
    writer = LakeWriter(LIMITS)
    writer.begin()
    writer.after(Opened({P0: 0}.get), 0)
    now_ms, end, asked = 0, 1, writer.after(Bounded({P0: Bounds(0, 1)}), 0)
    while isinstance(asked, Wait):
        now_ms, end = now_ms + 100, end + 1  # a wait may be ended early
        writer.after(Waited(), now_ms)
        asked = writer.after(Bounded({P0: Bounds(0, end)}), now_ms)
    assert now_ms == LIMITS.linger_ms


@pytest.mark.parametrize(
    ("rows", "size", "written", "partition_ends", "expected"),
    [
        (10, 10, 0, False, Roll.NOTHING),
        (10, 10, 0, True, Roll.NOTHING),
        (100, 10, 0, False, Roll.GROUP),
        (10, 1_000, 0, False, Roll.GROUP),
        (25, 10, 0, True, Roll.GROUP),
        (24, 10, 0, True, Roll.NOTHING),
        (1, 1, 5_000, False, Roll.FILE),
    ],
)
def test_groups_and_files_end_at_their_sizes(
    rows: int, size: int, written: int, partition_ends: bool, expected: Roll
) -> None:
    sizes = Sizes(group_rows=100, group_bytes=1_000, file_bytes=5_000)
    assert roll(sizes, rows, size, written, partition_ends=partition_ends) is expected
