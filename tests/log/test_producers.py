"""Idempotent producers: what is written, what is answered again, what is refused; and their snapshot file."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import (
    ErrorCode,
    InvalidProducerEpoch,
    KafkaError,
    OutOfOrderSequence,
)
from headrace.limits import INT32_MAX
from headrace.log.files import Bytes, LocalFiles, LogFile, PathText
from headrace.log.partition_log import PartitionLog
from headrace.log.producers.producer_snapshot import (
    CorruptSnapshot,
    decode_snapshot,
    encode_snapshot,
    write_snapshot,
)
from headrace.log.producers.producer_state import KeptBatch, ProducerEntry, Producers
from headrace.records.format2.control import ABORT, COMMIT
from tests.log.support import NOW_MS, append, append_batch, append_marker, batch_of, config, open_log


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return open_log(tmp_path)


def send(log: PartitionLog, sequence: int, count: int = 1, *, epoch: int = 0, **more: object) -> tuple[int, int, bool]:
    """Append a batch of producer 7."""
    batch = batch_of(*[b"v"] * count, producer_id=7, epoch=epoch, sequence=sequence, **more)  # type: ignore[arg-type]
    result = append_batch(log, batch)
    return result.base_offset, result.last_offset, result.is_duplicate


def test_each_of_the_last_five_batches_sent_again_is_answered_with_its_old_offsets(log: PartitionLog) -> None:
    for number in range(7):
        send(log, 3 * number, 3)
    for number in range(2, 7):
        assert send(log, 3 * number, 3) == (3 * number, 3 * number + 2, True)
    assert log.log_end_offset == 21


def test_a_batch_before_the_last_five_is_out_of_order_and_no_duplicate(log: PartitionLog) -> None:
    for number in range(7):
        send(log, number)
    with pytest.raises(OutOfOrderSequence):
        send(log, 1)


def test_sequences_before_an_unknown_producers_first_batch_are_out_of_order_and_no_duplicate(log: PartitionLog) -> None:
    send(log, 10, 10)
    with pytest.raises(OutOfOrderSequence):
        send(log, 0, 10)
    assert log.log_end_offset == 10


def test_sequences_before_the_batch_that_a_snapshot_has_are_out_of_order(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 10, 10)
    log.close(NOW_MS)
    log = open_log(tmp_path, was_clean=True)
    with pytest.raises(OutOfOrderSequence):
        send(log, 0, 10)
    assert send(log, 10, 10) == (0, 9, True)


@pytest.mark.parametrize(("sequence", "count"), [(11, 1), (8, 1), (8, 5), (5, 3), (500, 1)])
def test_a_batch_that_does_not_follow_is_out_of_order(log: PartitionLog, sequence: int, count: int) -> None:
    send(log, 0, 5)
    send(log, 5, 5)
    with pytest.raises(OutOfOrderSequence):
        send(log, sequence, count)
    assert send(log, 10) == (10, 10, False)


def test_sequences_wrap_to_zero(log: PartitionLog) -> None:
    send(log, INT32_MAX - 1, 4)
    assert send(log, INT32_MAX - 1, 4) == (0, 3, True)
    assert send(log, 2) == (4, 4, False)


def test_a_batch_that_ends_with_the_largest_sequence_is_followed_by_zero(log: PartitionLog) -> None:
    send(log, INT32_MAX)
    assert send(log, 0) == (1, 1, False)


def test_an_unknown_producer_may_begin_anywhere(log: PartitionLog) -> None:
    assert send(log, 42) == (0, 0, False)


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_zero(log: PartitionLog) -> None:
    send(log, 0, epoch=3)
    with pytest.raises(InvalidProducerEpoch):
        send(log, 1, epoch=2)
    with pytest.raises(OutOfOrderSequence):
        send(log, 1, epoch=4)
    assert send(log, 0, epoch=4) == (1, 1, False)
    with pytest.raises(InvalidProducerEpoch):
        send(log, 1, epoch=3)


def test_a_producer_is_forgotten_by_the_clock_and_not_by_the_age_of_its_records(log: PartitionLog) -> None:
    send(log, 0, timestamps_ms=[1_357_000_000_000])
    log.producers.expire(NOW_MS + 1000, 60_000)
    assert send(log, 0) == (0, 0, True)
    log.producers.expire(NOW_MS + 60_000, 60_000)
    assert send(log, 0) == (1, 1, False)


# Transactions


def test_an_open_transaction_holds_back_the_last_stable_offset(log: PartitionLog) -> None:
    append(log, b"plain")
    send(log, 0, is_transactional=True)
    append(log, b"plain")
    log.restore_high_watermark(log.log_end_offset)
    assert log.last_stable_offset(log.high_watermark) == 1
    append_marker(log, COMMIT, 7)
    assert log.last_stable_offset(3) == 1, "the marker is not below the high watermark yet"
    log.restore_high_watermark(log.log_end_offset)
    assert log.last_stable_offset(log.high_watermark) == 4


def test_a_transaction_that_every_replica_has_is_forgotten_though_nobody_reads(log: PartitionLog) -> None:
    for number in range(3):
        send(log, number, is_transactional=True)
        append_marker(log, COMMIT, 7)
        log.restore_high_watermark(log.log_end_offset)
    assert log.producers.transactions.first_unstable_offset(0) == 4, "the last one goes with the next marker"


def test_an_aborted_transaction_is_indexed_and_found_again(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number in range(4):
        send(log, number, is_transactional=True)
        append_marker(log, ABORT if number % 2 else COMMIT, 7)
    assert (tmp_path / "00000000000000000000.txnindex").stat().st_size == 2 * 34
    for again in (log, open_log(tmp_path)):
        found = again.aborted_transactions(0, 8)
        assert [(t.producer_id, t.first_offset, t.last_offset, t.last_stable_offset) for t in found] == [
            (7, 2, 3, 4),
            (7, 6, 7, 8),
        ]
        assert [t.first_offset for t in again.aborted_transactions(4, 8)] == [6]
        assert again.aborted_transactions(0, 2) == []


def test_an_open_transaction_is_known_after_a_restart(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, b"plain")
    send(log, 0, is_transactional=True)
    log.close(NOW_MS)
    log = open_log(tmp_path, was_clean=True)
    assert log.last_stable_offset(2) == 1
    append_marker(log, COMMIT, 7)
    log.restore_high_watermark(3)
    assert log.last_stable_offset(3) == 3


def test_a_batch_outside_the_open_transaction_is_refused(log: PartitionLog) -> None:
    send(log, 0, is_transactional=True)
    with pytest.raises(KafkaError) as refused:
        send(log, 1)
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE


def test_a_marker_of_an_older_epoch_or_coordinator_is_refused(log: PartitionLog) -> None:
    send(log, 0, epoch=2, is_transactional=True)
    with pytest.raises(InvalidProducerEpoch):
        append_marker(log, COMMIT, 7, epoch=1)
    append_marker(log, COMMIT, 7, epoch=2, coordinator_epoch=5)
    with pytest.raises(KafkaError) as refused:
        append_marker(log, ABORT, 7, epoch=2, coordinator_epoch=4)
    assert refused.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert log.log_end_offset == 2


# Snapshots

# version 1, crc, 1 entry: producer 7, epoch 2, last sequence 9, last offset 100, delta 4, time, no coordinator, no txn
GOLDEN = bytes.fromhex(
    "0001 b07c43fe 00000001 0000000000000007 0002 00000009 0000000000000064 00000004"
    "0000018bcfe56800 ffffffff ffffffffffffffff"
)


def one_producer() -> Producers:
    producers = Producers(101)
    entry = ProducerEntry(7, 2, NOW_MS)
    entry.batches.append(KeptBatch(9, 100, 4, NOW_MS))
    producers.restore(entry)
    return producers


def test_a_snapshot_has_apache_kafkas_bytes() -> None:
    assert encode_snapshot(one_producer()) == GOLDEN
    [entry] = decode_snapshot(GOLDEN)
    assert (entry.producer_id, entry.epoch, entry.batches) == (7, 2, [KeptBatch(9, 100, 4, NOW_MS)])


@given(st.integers(0, 10**6), st.integers(0, 7))
def test_a_flipped_bit_or_a_missing_byte_makes_a_snapshot_corrupt(place: int, bit: int) -> None:
    data = bytearray(encode_snapshot(one_producer()))
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(bytes(data[: place % len(data)]))
    data[place % len(data)] ^= 1 << bit
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(bytes(data))


@pytest.mark.parametrize("left", [0, 1, 30, -1])
@pytest.mark.parametrize("has_zeros", [False, True])
def test_a_bad_snapshot_is_passed_over_for_an_older_one_and_the_log(tmp_path: Path, left: int, has_zeros: bool) -> None:
    log = open_log(tmp_path, config(segment_bytes=300))
    for number in range(12):
        send(log, number)
    newest = max(tmp_path.glob("*.snapshot"))
    part = newest.read_bytes()[:left]  # a crash may leave it empty, torn, or as zeros
    newest.write_bytes(bytes(len(part)) if has_zeros else part)
    log = open_log(tmp_path, config(segment_bytes=300))
    assert send(log, 11) == (11, 11, True)
    assert send(log, 12) == (12, 12, False)


def test_a_snapshot_that_exists_is_replaced_as_a_whole(tmp_path: Path) -> None:
    class Watching(LocalFiles):
        def open_new(self, path: PathText) -> LogFile:
            asked.append("new")
            return super().open_new(path)

        def replace(self, path: PathText, data: Bytes, *, sync: bool = True) -> None:
            asked.append("replace")
            super().replace(path, data, sync=sync)

    asked: list[str] = []
    producers, other = one_producer(), Producers(one_producer().end_offset)
    assert encode_snapshot(producers) != encode_snapshot(other)
    for each, steps in ((producers, ["new"]), (other, ["new", "replace"])):
        asked.clear()
        path, file = write_snapshot(Watching(), tmp_path, each)
        assert asked == steps
        assert Path(path).read_bytes() == file.read(1000, 0) == encode_snapshot(each)


def test_snapshots_past_the_end_or_of_no_segment_are_removed(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0)
    for offset in (0, 99):
        (tmp_path / f"{offset:020d}.snapshot").write_bytes(encode_snapshot(Producers(offset)))
    log.close(NOW_MS)
    open_log(tmp_path)
    assert [path.name for path in sorted(tmp_path.glob("*.snapshot"))] == [
        "00000000000000000000.snapshot",
        "00000000000000000001.snapshot",
    ]
