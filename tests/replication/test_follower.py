"""What a follower decides: by any history of leaders it ends with its leader's log, and keeps what is in both."""

from bisect import bisect_right
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import ErrorCode
from headrace.replication.follower import (
    BackOff,
    Compare,
    EpochEnd,
    FollowerAppend,
    RequestOffsets,
    Restart,
    Truncate,
    comparison_start,
    on_answer,
    out_of_range,
    truncation,
)
from tests.examples import examples

UNKNOWN = EpochEnd(-1, -1)


class Log:
    """The epochs of a log's records, and what Kafka calls its epoch cache, which may note epochs without records."""

    def __init__(self, epochs: list[int] = ()) -> None:  # type: ignore[assignment]
        self.epochs = list(epochs)
        self.noted: list[tuple[int, int]] = []

    @property
    def cache(self) -> list[tuple[int, int]]:
        """(epoch, start offset), ascending; of records, and where terms were noted when they began."""
        starts: dict[int, int] = {}
        for offset, epoch in enumerate(self.epochs):
            starts.setdefault(epoch, offset)
        for epoch, offset in self.noted:
            if offset <= len(self.epochs):
                starts.setdefault(epoch, offset)
        return sorted(starts.items())

    @property
    def latest(self) -> int:
        return self.cache[-1][0] if self.cache else -1

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """As a follower asks its own log."""
        known = [each for each, _ in self.cache]
        if not known or epoch < 0 or epoch > known[-1]:
            return UNKNOWN
        after = bisect_right(known, epoch)
        end = self.cache[after][1] if after < len(known) else len(self.epochs)
        return EpochEnd(known[after - 1] if after else epoch, end)

    def answer_as_leader(self, leader_epoch: int, asked: int) -> EpochEnd:
        """As a leader in `leader_epoch` answers."""
        if asked == leader_epoch:
            return EpochEnd(asked, len(self.epochs))
        return self.end_of_epoch(min(asked, self.latest))

    def truncate(self, offset: int) -> None:
        del self.epochs[offset:]
        self.noted = [(epoch, start) for epoch, start in self.noted if start < offset]


def follow(follower: Log, leader: Log, leader_epoch: int) -> None:
    """Truncates until the logs agree, as fetches do."""
    for _ in range(100):
        asked = follower.latest
        if asked < 0 or leader.latest < 0:
            follower.truncate(min(len(follower.epochs), len(leader.epochs)))
            return
        end = leader.answer_as_leader(leader_epoch, asked)
        if end.epoch == asked and end.end_offset >= len(follower.epochs):
            return
        decided = truncation(end, len(follower.epochs), 0, follower.end_of_epoch)
        assert isinstance(decided, Truncate)
        follower.truncate(decided.offset)
    raise AssertionError("it never ended")


TERMS = st.lists(
    st.tuples(
        st.integers(0, 2),  # who leads
        st.integers(0, 3),  # how many records it writes
        st.lists(st.integers(0, 2), max_size=2, unique=True),  # who follows it
    ),
    min_size=1,
    max_size=12,
)


def play(terms: list[tuple[int, int, list[int]]], *, notes_terms: bool) -> list[Log]:
    """Three logs after these terms. What leads may lack what was written before: unclean elections too."""
    logs = [Log(), Log(), Log()]
    for epoch, (leader, count, followers) in enumerate(terms):
        if notes_terms:
            logs[leader].noted.append((epoch, len(logs[leader].epochs)))
        logs[leader].epochs += [epoch] * count
        for each in followers:
            if each != leader:
                follow(logs[each], logs[leader], epoch)
                logs[each].epochs += logs[leader].epochs[len(logs[each].epochs) :]
    return logs


@settings(deadline=None, max_examples=examples(300))
@given(TERMS)
def test_a_follower_ends_with_what_is_in_both_logs_and_with_nothing_else(
    terms: list[tuple[int, int, list[int]]],
) -> None:
    logs = play(terms, notes_terms=False)
    for follower, leader in ((0, 1), (1, 2), (2, 0)):
        mine, theirs = Log(logs[follower].epochs), Log(logs[leader].epochs)
        shared = next(
            (at for at, pair in enumerate(zip(mine.epochs, theirs.epochs, strict=False)) if pair[0] != pair[1]),
            min(len(mine.epochs), len(theirs.epochs)),
        )
        follow(mine, theirs, len(terms))
        assert mine.epochs == theirs.epochs[: len(mine.epochs)]
        assert len(mine.epochs) == shared


@settings(deadline=None, max_examples=examples(300))
@given(TERMS)
def test_epochs_without_records_need_not_be_noted(terms: list[tuple[int, int, list[int]]]) -> None:
    plain, noting = play(terms, notes_terms=False), play(terms, notes_terms=True)
    assert [log.epochs for log in plain] == [log.epochs for log in noting]
    assert all(a <= b for log in plain for a, b in pairwise(log.epochs))


def test_the_leaders_epoch_is_not_known_here_so_all_above_the_one_before_goes() -> None:
    follower = Log([1, 1, 3, 3])
    assert truncation(EpochEnd(2, 10), 4, 1, follower.end_of_epoch) == Truncate(2)


def test_the_shorter_end_of_a_shared_epoch_counts() -> None:
    follower = Log([1, 1, 1, 4])
    assert truncation(EpochEnd(1, 2), 4, 1, follower.end_of_epoch) == Truncate(2)
    assert truncation(EpochEnd(1, 9), 4, 1, follower.end_of_epoch) == Truncate(3)


def test_without_epochs_here_the_end_of_the_leaders_epoch_counts() -> None:
    assert truncation(EpochEnd(1, 2), 5, 1, lambda epoch: UNKNOWN) == Truncate(2)


def test_without_epochs_at_the_leader_the_logs_are_compared_from_the_high_watermark_on() -> None:
    assert truncation(EpochEnd(-1, 3), 5, 1, lambda epoch: UNKNOWN) == Compare(1)
    assert truncation(UNKNOWN, 5, 1, lambda epoch: UNKNOWN) == Compare(1)
    assert truncation(UNKNOWN, 5, 7, lambda epoch: UNKNOWN) == Compare(5)


@pytest.mark.parametrize(
    ("last_epoch", "end", "high_watermark", "start"), [(-1, 5, 3, 3), (-1, 5, 5, None), (0, 5, 3, None)]
)
def test_a_log_whose_last_record_has_no_epoch_is_compared_above_its_high_watermark(
    last_epoch: int, end: int, high_watermark: int, start: int | None
) -> None:
    assert comparison_start(last_epoch, end, high_watermark) == start


@pytest.mark.parametrize(
    ("start", "end", "own_end", "decided"),
    [(0, 5, 9, Truncate(5)), (7, 9, 3, Restart(7)), (0, 9, 4, Truncate(4)), (4, 4, 4, Truncate(4))],
)
def test_an_offset_that_the_leader_does_not_have(
    start: int, end: int, own_end: int, decided: Truncate | Restart
) -> None:
    assert out_of_range(start, end, own_end) == decided


@pytest.mark.parametrize(
    ("start", "end", "decided"),
    [
        (0, 3, Truncate(3)),  # elected uncleanly: the high watermark, from which on the log is compared, is above it
        (6, 20, Compare(6)),  # retention at the leader took what was to be compared, but not all that is here
        (9, 20, Restart(9)),
        (12, 20, Restart(12)),
        (0, 20, Compare(4)),  # by now it has it
    ],
)
def test_an_offset_that_the_leader_does_not_have_during_a_comparison(
    start: int, end: int, decided: Truncate | Restart | Compare
) -> None:
    assert out_of_range(start, end, 9, 4) == decided


def test_answers_and_what_they_ask_for() -> None:
    log = Log([1, 1, 2])

    def decide(code: int, diverging: EpochEnd = UNKNOWN) -> object:
        return on_answer(code, diverging, 3, 1, log.end_of_epoch)

    assert decide(ErrorCode.NONE) == FollowerAppend()
    assert decide(ErrorCode.NONE, EpochEnd(1, 1)) == Truncate(1)
    assert decide(ErrorCode.NONE, EpochEnd(-1, 3)) == Compare(1)
    assert decide(ErrorCode.OFFSET_OUT_OF_RANGE) == RequestOffsets()
    for code in (
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ):
        assert decide(code) == BackOff(code)
    assert decide(9_999) == BackOff(ErrorCode.UNKNOWN_SERVER_ERROR), "a code of a newer release"
