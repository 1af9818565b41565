"""How much a micro-batch takes: exact, fair, and never beyond what is there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.source.admission import AdmissionLimits, is_due, share_out, waiting
from headrace.spark.source.options import OptionError, parse_options
from headrace.types import TopicPartition

P0, P1, P2 = (TopicPartition("t", index) for index in range(3))
logs = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("tu"), st.integers(0, 5)),
    st.tuples(st.integers(0, 10**12), st.integers(0, 10**6) | st.integers(0, 9)),
    max_size=9,
)


def test_without_a_maximum_a_batch_takes_all_there_is() -> None:
    assert share_out(None, {P0: 5, P1: 0}, {P0: 9, P1: 3}) == {P0: 9, P1: 3}


def test_a_maximum_is_shared_in_proportion_to_what_waits() -> None:
    assert share_out(100, {P0: 0, P1: 1000}, {P0: 300, P1: 1100}) == {P0: 75, P1: 1025}


def test_a_nearly_empty_partition_is_not_starved_by_full_ones() -> None:
    assert share_out(10, {P0: 0, P1: 0, P2: 7}, {P0: 10**9, P1: 1, P2: 7}) == {P0: 9, P1: 1, P2: 7}


def test_with_less_to_give_than_partitions_the_longest_queues_come_first() -> None:
    assert share_out(1, {P0: 0, P1: 0, P2: 0}, {P0: 2, P1: 9, P2: 9}) == {P0: 0, P1: 1, P2: 0}


@given(logs, st.integers(1, 10**6))
def test_shares_are_exact_within_bounds_and_leave_nobody_out(
    log: dict[TopicPartition, tuple[int, int]], max_offsets: int
) -> None:
    starts = {partition: start for partition, (start, _) in log.items()}
    ends = {partition: start + size for partition, (start, size) in log.items()}
    chosen = share_out(max_offsets, starts, ends)
    taken = {partition: chosen[partition] - starts[partition] for partition in ends}
    nonempty = [partition for partition in ends if ends[partition] > starts[partition]]
    assert chosen.keys() == ends.keys()
    assert sum(taken.values()) == min(max_offsets, waiting(starts, ends))
    assert all(starts[partition] <= chosen[partition] <= ends[partition] for partition in ends)
    if max_offsets >= len(nonempty):
        assert all(taken[partition] >= 1 for partition in nonempty)


@given(logs, st.integers(1, 50))
def test_batch_after_batch_reaches_the_end_in_the_fewest_batches(
    log: dict[TopicPartition, tuple[int, int]], max_offsets: int
) -> None:
    position = {partition: start for partition, (start, _) in log.items()}
    ends = {partition: start + size % 100 for partition, (start, size) in log.items()}
    needed = -(-waiting(position, ends) // max_offsets)
    for _ in range(needed):
        assert position != ends
        position = share_out(max_offsets, position, ends)
    assert position == ends


@pytest.mark.parametrize(
    ("waiting_offsets", "last_batch_ms", "due"),
    [(10, 900, True), (9, 900, False), (0, 900, False), (9, 0, True), (9, 1, False), (0, None, True)],
)
def test_a_batch_waits_for_its_minimum_but_not_longer_than_the_delay(
    waiting_offsets: int, last_batch_ms: int | None, due: bool
) -> None:
    limits = AdmissionLimits(min_offsets=10, max_delay_ms=1000)
    assert is_due(limits, waiting_offsets, last_batch_ms, now_ms=1000) is due


def test_without_a_minimum_every_moment_is_right() -> None:
    assert is_due(AdmissionLimits(max_offsets=3), 0, 999, 1000)


def limits_of(**options: str) -> AdmissionLimits:
    base = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
    return parse_options({**base, **options}, streaming=True).limits


def test_the_limits_come_from_the_connectors_options() -> None:
    assert limits_of() == AdmissionLimits(None, None, 15 * 60_000)
    assert limits_of(maxOffsetsPerTrigger="9", minOffsetsPerTrigger="3", maxTriggerDelay="2s") == AdmissionLimits(
        9, 3, 2_000
    )


@pytest.mark.parametrize(
    ("text", "ms"), [("5", 5), ("5ms", 5), ("5s", 5_000), ("2m", 120_000), ("2min", 120_000), ("1h", 3_600_000)]
)
def test_durations_are_written_as_spark_writes_them(text: str, ms: int) -> None:
    assert limits_of(maxTriggerDelay=text).max_delay_ms == ms


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger = '0': is a whole number from 1 on"),
        ({"minOffsetsPerTrigger": "-1"}, "minOffsetsPerTrigger = '-1': is a whole number from 1 on"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay = 'soon': is a duration like"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "must not be above maxOffsetsPerTrigger"),
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"endingTimestamp": "5"}, "a stream has no end"),
        ({"fetchOffset.numRetries": "x"}, "is a whole number from 0 on"),
        ({"path": "/data"}, "files are read in a batch"),
        ({"segments": "all"}, "is for reading files"),
    ],
)
def test_what_a_stream_cannot_honour_is_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError) as refused:
        limits_of(**options)
    assert says in str(refused.value)
