"""Transactions in a log: verification, markers, the last stable offset, and what a restart or a truncation leaves."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ErrorCode, InvalidProducerEpoch, KafkaError, OutOfOrderSequence, StorageError
from headrace.log import appending, truncation, upkeep
from headrace.log.appending import AppendOrigin, AppendResult
from headrace.log.partition_log import PartitionLog
from headrace.log.producers.transactions import PartitionTransactions
from headrace.log.producers.verification import NOT_REQUIRED, Verification
from headrace.records.format2.batch import read_header
from headrace.records.format2.control import ABORT, COMMIT
from tests.log.support import NOW_MS, append, append_batch, append_marker, batch_of, config, open_log
from tests.log.test_refusing_disk import RefusingFiles

SMALL = config(segment_bytes=300)


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return open_log(tmp_path)


def begin(
    log: PartitionLog, sequence: int = 0, *, producer: int = 7, epoch: int = 0, bumps: bool = False
) -> Verification | None:
    return log.begin_verification(producer, sequence, epoch, supports_epoch_bump=bumps, now_ms=NOW_MS)


def send(
    log: PartitionLog,
    sequence: int,
    verification: Verification | None = NOT_REQUIRED,
    *,
    producer: int = 7,
    epoch: int = 0,
    value: bytes = b"v",
) -> AppendResult:
    """Append one record in a producer's transaction."""
    batch = batch_of(value, producer_id=producer, epoch=epoch, sequence=sequence, is_transactional=True)
    return append_batch(log, batch, verification=verification)


def commit_all(log: PartitionLog) -> int:
    """Set the high watermark to the log's end, and return the last stable offset."""
    log.restore_high_watermark(log.log_end_offset)
    return log.last_stable_offset(log.high_watermark)


# Verification of the first append


def test_a_batch_that_would_open_a_transaction_unverified_is_refused(log: PartitionLog) -> None:
    with pytest.raises(KafkaError, match="was not verified") as refused:
        send(log, 0, None)
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE
    assert log.log_end_offset == 0


def test_a_verified_batch_opens_the_transaction_and_the_next_ones_need_no_verification(log: PartitionLog) -> None:
    send(log, 0, begin(log))
    assert begin(log, 1) is None
    assert send(log, 1, None).base_offset == 1
    append_marker(log, COMMIT, 7)
    assert begin(log, 2) is not None, "the next transaction"


def test_a_verification_from_before_a_marker_opens_no_transaction(log: PartitionLog) -> None:
    late = begin(log)
    append_marker(log, ABORT, 7)
    begin(log)
    with pytest.raises(KafkaError, match="was not verified"):
        send(log, 0, late)
    assert commit_all(log) == 1, "nothing hangs"


def test_a_verification_serves_no_other_producer(log: PartitionLog) -> None:
    with pytest.raises(KafkaError, match="was not verified"):
        send(log, 0, begin(log, producer=8))


def test_the_lowest_sequence_that_asked_for_a_verification_comes_first(log: PartitionLog) -> None:
    verification = begin(log, 5)
    assert begin(log, 3) is verification
    with pytest.raises(OutOfOrderSequence):
        send(log, 5, verification)
    send(log, 3, verification)
    send(log, 4, None)


def test_a_later_epoch_disregards_the_sequences_of_an_earlier_one(log: PartitionLog) -> None:
    verification = begin(log, 5, epoch=0)
    assert begin(log, 9, epoch=1) is verification
    assert begin(log, 1, epoch=0) is verification
    with pytest.raises(OutOfOrderSequence):
        send(log, 10, verification, epoch=1)
    send(log, 9, verification, epoch=1)


def test_a_producer_of_version_2_whose_state_is_gone_begins_with_sequence_zero(log: PartitionLog) -> None:
    with pytest.raises(OutOfOrderSequence, match="instead of 0"):
        send(log, 3, begin(log, 3, bumps=True))
    log = open_log(log.directory)
    send(log, 3, begin(log, 3, bumps=False))


def test_an_older_epoch_is_refused_before_the_coordinator_is_asked(log: PartitionLog) -> None:
    send(log, 0, epoch=2)
    with pytest.raises(InvalidProducerEpoch):
        begin(log, 1, epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        send(log, 1, None, epoch=1)


def test_a_newer_epoch_is_verified_although_a_transaction_of_the_old_one_is_open(log: PartitionLog) -> None:
    send(log, 0, epoch=1)
    with pytest.raises(KafkaError, match="was not verified"):
        send(log, 0, None, epoch=2)
    with pytest.raises(OutOfOrderSequence):
        send(log, 1, begin(log, 1, epoch=2), epoch=2)
    send(log, 0, begin(log, 0, epoch=2), epoch=2)
    assert commit_all(log) == 0, "it is the same open transaction for readers"


def test_a_duplicate_is_answered_after_its_transaction_has_ended(log: PartitionLog) -> None:
    send(log, 0)
    append_marker(log, COMMIT, 7)
    assert send(log, 0, None) == AppendResult(0, 0, NOW_MS, 0, True), "with the timestamp of its batch, as in Kafka"
    assert log.log_end_offset == 2


def test_a_coordinators_batch_is_verified_and_its_sequence_is_not_checked(log: PartitionLog) -> None:
    def commit_offsets(verification: Verification | None) -> AppendResult:
        batch = batch_of(b"offsets", producer_id=7, sequence=0, is_transactional=True)
        return appending.append(
            log,
            memoryview(batch),
            read_header(batch),
            leader_epoch=0,
            now_ms=NOW_MS,
            verification=verification,
            origin=AppendOrigin.COORDINATOR,
        )

    with pytest.raises(KafkaError, match="was not verified"):
        commit_offsets(None)
    commit_offsets(begin(log))
    assert commit_offsets(None).base_offset == 1, "the same sequence again is no duplicate"
    append_marker(log, COMMIT, 7, epoch=1, transaction_version=2)
    with pytest.raises(InvalidProducerEpoch):
        commit_offsets(None)


def test_a_verification_that_no_append_ended_expires(log: PartitionLog) -> None:
    verification = begin(log)
    log.producers.expire(NOW_MS + 59_999, 60_000)
    assert begin(log) is verification
    log.producers.expire(NOW_MS + 60_000, 60_000)
    assert begin(log) is not verification


# Markers


def test_a_marker_of_version_2_has_a_later_epoch_than_the_transaction(log: PartitionLog) -> None:
    send(log, 0, epoch=4)
    for epoch in (3, 4):
        with pytest.raises(InvalidProducerEpoch):
            append_marker(log, COMMIT, 7, epoch=epoch, transaction_version=2)
    assert commit_all(log) == 0
    append_marker(log, COMMIT, 7, epoch=5, transaction_version=2)
    assert commit_all(log) == 2


@pytest.mark.parametrize("version", [0, 1])
def test_a_marker_of_version_0_or_1_has_the_transactions_epoch(log: PartitionLog, version: int) -> None:
    send(log, 0, epoch=4)
    append_marker(log, COMMIT, 7, epoch=4, transaction_version=version)
    assert commit_all(log) == 2


def test_a_marker_that_the_coordinator_repeats_is_written_again(log: PartitionLog) -> None:
    send(log, 0, epoch=4)
    for _ in range(2):
        append_marker(log, ABORT, 7, epoch=5, transaction_version=2)
    assert log.log_end_offset == 3
    assert len(log.aborted_transactions(0, 3)) == 1


def test_after_a_marker_of_version_2_the_next_epoch_begins_at_zero(log: PartitionLog) -> None:
    send(log, 0, epoch=4)
    append_marker(log, COMMIT, 7, epoch=5, transaction_version=2)
    with pytest.raises(InvalidProducerEpoch):
        send(log, 1, epoch=4)
    with pytest.raises(OutOfOrderSequence):
        send(log, 1, epoch=5)
    send(log, 0, epoch=5)


@pytest.mark.parametrize("was_clean", [True, False])
def test_an_older_coordinator_stays_fenced_after_a_restart(tmp_path: Path, was_clean: bool) -> None:
    log = open_log(tmp_path)
    send(log, 0)
    append_marker(log, COMMIT, 7, coordinator_epoch=5)
    if was_clean:
        log.close(NOW_MS)
    log = open_log(tmp_path, was_clean=was_clean)
    send(log, 1)
    with pytest.raises(KafkaError) as refused:
        append_marker(log, COMMIT, 7, coordinator_epoch=4)
    assert refused.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    append_marker(log, COMMIT, 7, coordinator_epoch=6)
    assert commit_all(log) == log.log_end_offset


def test_a_marker_gets_the_log_append_time_of_the_topic(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(message_timestamp_type="LogAppendTime"))
    assert append_marker(log, COMMIT, 7).log_append_time_ms == NOW_MS


# Last stable offset


def test_the_oldest_of_several_open_transactions_bounds_the_last_stable_offset(log: PartitionLog) -> None:
    for producer in (1, 2, 3):
        send(log, 0, producer=producer)
    stable = []
    for producer in (2, 1, 3):
        append_marker(log, COMMIT, producer)
        stable.append(commit_all(log))
    assert stable == [0, 2, 6]


def test_an_aborted_transaction_is_indexed_with_the_last_stable_offset_after_it(log: PartitionLog) -> None:
    for producer in (1, 2, 3):
        send(log, 0, producer=producer)
    for producer in (2, 1, 3):
        append_marker(log, ABORT, producer)
    assert [tuple(each) for each in log.aborted_transactions(0, 6)] == [(2, 1, 3, 0), (1, 0, 4, 2), (3, 2, 5, 6)]


def test_aborted_transactions_of_a_range_are_found_over_several_segments(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    for number in range(12):
        send(log, number)
        append_marker(log, ABORT if number % 3 == 0 else COMMIT, 7)
    assert len(log.segments) > 3
    every = [(each.first_offset, each.last_offset) for each in log.aborted_transactions(0, 24)]
    assert every == [(0, 1), (6, 7), (12, 13), (18, 19)]
    for begin_at in range(24):
        for end_at in range(begin_at, 25):
            found = [(each.first_offset, each.last_offset) for each in log.aborted_transactions(begin_at, end_at)]
            assert found == [each for each in every if each[1] >= begin_at and each[0] < end_at]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.integers(0, 3))))
def test_the_first_unstable_offset_is_that_of_all_transactions_that_are_not_replicated(
    steps: list[tuple[bool, int, int]],
) -> None:
    transactions = PartitionTransactions()
    open_since: dict[int, int] = {}
    closed: list[tuple[int, int]] = []
    high_watermark = 0
    for end, (ends, producer, replicated) in enumerate(steps):
        if ends and producer in open_since:
            closed.append((open_since[producer], end))
            transactions.end(open_since.pop(producer), producer, end)
        elif producer not in open_since:
            open_since[producer] = end
            transactions.begin(end, producer)
        high_watermark = min(end + 1, high_watermark + replicated)
        unstable = [*open_since.values(), *(first for first, last in closed if last >= high_watermark)]
        assert transactions.first_unstable_offset(high_watermark) == min(unstable, default=None)


def test_ten_thousand_unreplicated_transactions_cost_a_reader_nothing() -> None:
    transactions = PartitionTransactions()
    for offset in range(0, 20_000, 2):
        transactions.begin(offset, offset)
    for offset in reversed(range(0, 20_000, 2)):
        transactions.end(offset, offset, 40_000 - offset)
    assert transactions.first_unstable_offset(0) == 0
    assert len(transactions._closed) == 1, "the last marker to come outlasts the others"


def test_a_marker_whose_transaction_cannot_be_indexed_does_not_show_aborted_records(tmp_path: Path) -> None:
    disk = RefusingFiles()
    log = open_log(tmp_path, files=disk)
    send(log, 0)
    disk.refuses = lambda call, name: name.endswith(".txnindex")
    with pytest.raises(StorageError, match="could not be indexed"):
        append_marker(log, ABORT, 7)
    assert log.log_end_offset == 2, "the marker itself is written"
    assert commit_all(log) == 0
    again = open_log(tmp_path)
    assert commit_all(again) == 2
    assert len(again.aborted_transactions(0, 2)) == 1


# Deletion, truncation, restart


def test_records_of_an_open_transaction_can_be_deleted_up_to_the_high_watermark(log: PartitionLog) -> None:
    append(log, b"plain")
    send(log, 0)
    append(log, b"plain")
    assert commit_all(log) == 1
    assert upkeep.delete_records_before(log, 3, NOW_MS) == 3
    assert log.last_stable_offset(log.high_watermark) == 3
    send(log, 1, None)
    assert commit_all(log) == 3, "it is still open"
    append_marker(log, COMMIT, 7)
    assert commit_all(log) == 5


def test_retention_deletes_segments_of_an_open_transaction_as_apache_kafka_does(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(segment_bytes=300, retention_bytes=300))
    for number in range(12):
        send(log, number)
    assert commit_all(log) == 0
    assert upkeep.delete_old_segments(log, NOW_MS) > 0
    assert 0 < log.log_start_offset < log.log_end_offset
    assert log.last_stable_offset(log.high_watermark) == log.log_start_offset


@pytest.mark.parametrize("segment_bytes", [1 << 20, 300])
def test_a_truncation_below_a_marker_opens_its_transaction_again(tmp_path: Path, segment_bytes: int) -> None:
    settings = config(segment_bytes=segment_bytes)
    log = open_log(tmp_path, settings)
    for number in range(4):
        send(log, number)
        append_marker(log, ABORT, 7)
    assert len(log.aborted_transactions(0, 8)) == 4
    truncation.truncate_to(log, 5, NOW_MS)
    for each in (log, open_log(tmp_path, settings)):
        assert [(t.first_offset, t.last_offset) for t in each.aborted_transactions(0, 5)] == [(0, 1), (2, 3)]
        assert commit_all(each) == 4
    append_marker(log, COMMIT, 7)
    assert commit_all(log) == 6
    assert len(log.aborted_transactions(0, 6)) == 2


@pytest.mark.parametrize("has_snapshots", [True, False])
@pytest.mark.parametrize("was_clean", [True, False])
def test_a_restart_knows_each_open_transaction(tmp_path: Path, was_clean: bool, has_snapshots: bool) -> None:
    log = open_log(tmp_path, SMALL)
    for producer in (1, 2, 3):
        send(log, 0, producer=producer)
    for number in range(9):
        append(log, b"%d" % number * 30)
    append_marker(log, ABORT, 2)
    assert len(log.segments) > 3
    log.close(NOW_MS)
    if not has_snapshots:
        for path in tmp_path.glob("*.snapshot"):
            path.unlink()
        was_clean = False
    log = open_log(tmp_path, SMALL, was_clean=was_clean, recovery_point=log.log_end_offset)
    assert commit_all(log) == 0
    assert [log.producers.entries[each].open_since for each in (1, 2, 3)] == [0, -1, 2]
    append_marker(log, COMMIT, 1)
    assert commit_all(log) == 2
    append_marker(log, ABORT, 3)
    assert commit_all(log) == log.log_end_offset
    assert [each.producer_id for each in log.aborted_transactions(0, log.log_end_offset)] == [2, 3]


def test_a_follower_takes_the_leaders_transactions_as_they_are(tmp_path: Path, log: PartitionLog) -> None:
    follower = open_log(tmp_path / "follower")
    send(log, 0, epoch=3)
    append_marker(log, COMMIT, 7, epoch=4, transaction_version=2)
    send(log, 0, epoch=4)
    append_marker(log, ABORT, 7, epoch=5, transaction_version=2)
    send(log, 0, producer=8)
    content = log.read_bytes(log.read(0, 1 << 20, end_offset=5, at_least_one=True))
    assert appending.append_replicated(follower, memoryview(content), now_ms=NOW_MS) == 5
    assert commit_all(follower) == 4
    assert follower.aborted_transactions(0, 5) == log.aborted_transactions(0, 5)
    assert follower.begin_verification(8, 1, 0, supports_epoch_bump=True, now_ms=NOW_MS) is None
