"""What waits, what may go, and in which order; no broker, no thread, no clock."""

import pytest

from headrace.client.producer.accumulator import BATCH_FILLED, BATCH_OPENED, NOTHING_NEW, Accumulator, Limits, cut
from headrace.client.producer.delivery import NO_SEQUENCE, Batch, ColumnSlice
from headrace.records.binary import column_of, int64s
from headrace.types import BrokerId, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
LEADERS = {P0: BrokerId(1), P1: BrokerId(1)}


def accumulator(batch_bytes: int = 100, linger_s: float = 1.0, request_bytes: int = 1000) -> Accumulator:
    return Accumulator(Limits(batch_bytes, linger_s, request_bytes, 60.0))


def append(held: Accumulator, partition: TopicPartition = P0, size: int = 30, now_s: float = 0.0) -> int:
    return held.append(partition, None, bytes(size), 0, (), now_s)[1]


def send(held: Accumulator, now_s: float = 0.0, flushing: bool = False) -> list[Batch]:
    return [batch for batches in held.plan(LEADERS, now_s, flushing).values() for batch in batches]


def test_a_record_waits_for_linger() -> None:
    held = accumulator()
    append(held)
    assert held.next_due_s(False) == 1.0
    assert send(held, 0.9) == []
    assert [batch.count for batch in send(held, 1.0)] == [1]


def test_a_full_batch_goes_at_once_and_the_rest_waits() -> None:
    held = accumulator()
    assert [append(held) for _ in range(3)] == [BATCH_OPENED, NOTHING_NEW, BATCH_FILLED]
    assert [batch.count for batch in send(held)] == [2]
    assert send(held) == []


def test_a_flush_sends_what_has_not_waited() -> None:
    held = accumulator()
    append(held)
    assert [batch.count for batch in send(held, flushing=True)] == [1]


def test_a_flush_ends_the_linger_and_not_the_pause_before_a_retry() -> None:
    held = accumulator(linger_s=10.0)
    append(held, now_s=5.0)
    assert (held.next_due_s(False), held.next_due_s(True)) == (15.0, 5.0)
    (batch,) = send(held, 5.0, flushing=True)
    held.queues[P0].give_back(batch, 7.0)
    assert (held.next_due_s(False), held.next_due_s(True)) == (7.0, 7.0)
    assert send(held, 6.9, flushing=True) == []


def test_what_is_ready_and_has_to_wait_hides_nobody_who_will_be_ready() -> None:
    held = accumulator(linger_s=1.0)
    append(held, P0, now_s=5.0)
    append(held, P1, now_s=5.5)
    assert (held.next_due_s(False), held.next_due_s(False, 6.0), held.next_due_s(False, 6.5)) == (6.0, 6.5, None)


def test_a_record_larger_than_a_batch_goes_alone() -> None:
    held = accumulator()
    append(held, size=500)
    append(held, size=1)
    assert [batch.count for batch in send(held)] == [1]


def test_a_request_carries_one_batch_a_partition_and_not_too_many_bytes() -> None:
    held = accumulator(request_bytes=100)
    for _ in range(6):
        append(held, P0)
        append(held, P1)
    assert [batch.partition for batch in send(held)] == [P0]
    held = accumulator()
    for _ in range(6):
        append(held, P0)
        append(held, P1)
    assert [batch.partition for batch in send(held)] == [P0, P1]


def test_partitions_without_a_leader_wait_and_hold_nobody_up() -> None:
    held = accumulator()
    append(held, P0)
    append(held, P1)
    assert list(held.plan({P1: BrokerId(2)}, 2.0, False)) == [2]


def test_sequences_follow_the_order_of_sending() -> None:
    held = accumulator()
    for _ in range(5):
        append(held)
    first, second = send(held)[0], send(held)[0]
    assert (first.base_sequence, second.base_sequence) == (0, 2)


def test_sequences_start_again_at_zero_after_the_largest_int32() -> None:
    held = accumulator()
    append(held)
    append(held)
    held.queues[P0].next_sequence = 2**31 - 1
    batch = send(held, flushing=True)[0]
    assert (batch.base_sequence, held.queues[P0].next_sequence) == (2**31 - 1, 1)


def test_a_retry_goes_before_what_is_newer_and_keeps_its_sequence() -> None:
    held = accumulator()
    for _ in range(6):
        append(held)
    first, second = send(held)[0], send(held)[0]
    held.queues[P0].give_back(second, retry_at_s=5.0)
    held.queues[P0].give_back(first, retry_at_s=4.0)
    assert send(held, 4.9) == []
    assert send(held, 5.0) == [first]
    assert send(held, 5.0) == [], "one retry at a time, so that order holds"
    held.done(first)
    assert send(held, 5.0) == [second]
    assert (first.base_sequence, second.base_sequence) == (0, 2)


def test_nothing_newer_passes_a_retry_that_waits_for_one_in_flight() -> None:
    held = accumulator()
    for _ in range(7):
        append(held)
    first, second = send(held)[0], send(held)[0]
    held.queues[P0].give_back(first, retry_at_s=0.0)
    assert send(held, 9.0) == [], "the second is still out"
    held.queues[P0].give_back(second, retry_at_s=0.0)
    assert send(held, 9.0) == [first]


def test_a_new_producer_id_renumbers_what_was_refused_and_what_follows_it() -> None:
    held = accumulator()
    for _ in range(9):
        append(held)
    batches = [*send(held), *send(held), *send(held)]
    queue = held.queues[P0]
    queue.refused(batches[1])
    for batch in batches:
        batch.encoded = bytearray(b"sent")
        queue.give_back(batch, 0.0)
    queue.forget_sequences()
    assert [(batch.base_sequence, batch.encoded) for batch in batches] == [
        (0, b"sent"),
        (NO_SEQUENCE, None),
        (NO_SEQUENCE, None),
    ]
    for batch in batches:
        assert send(held) == [batch]
        held.done(batch, is_stored=True)
    assert [batch.base_sequence for batch in batches] == [0, 0, 2]


def test_a_retry_under_the_producer_id_of_before_does_not_make_the_new_one_known() -> None:
    held = Accumulator(Limits(100, 1.0, 1000, 60.0), is_idempotent=True)
    for _ in range(9):
        append(held)
    [retried] = send(held)
    held.queues[P0].give_back(retried, 0.0)
    held.queues[P0].forget_sequences()
    assert send(held) == [retried]
    assert send(held) == [], "what is new waits for it"
    held.done(retried, is_stored=True)
    [first] = send(held)
    assert first.base_sequence == 0
    assert send(held) == [], "the broker does not know the new id yet"
    held.done(first, is_stored=True)
    assert [batch.base_sequence for batch in send(held)] == [2]


def test_bytes_are_free_again_when_a_batch_is_done() -> None:
    held = accumulator()
    append(held)
    batch = send(held, flushing=True)[0]
    assert held.bytes_held > 0 and not held.is_empty
    held.done(batch)
    assert held.bytes_held == 0 and held.is_empty


def test_batches_that_waited_too_long_are_taken_out() -> None:
    held = accumulator()
    append(held, now_s=0.0)
    append(held, P1, now_s=30.0)
    assert [batch.partition for batch in held.take_expired(60.0)] == [P0]
    append(held, P0, now_s=61.0)
    assert [batch.count for batch in send(held, 62.0)] == [1, 1]


@pytest.mark.parametrize("batch_bytes", [1, 100, 1000, 100_000])
def test_columns_are_cut_into_fitting_slices_without_a_gap(batch_bytes: int) -> None:
    values = column_of([bytes(size) for size in range(50)])
    slices = [part for part, _ in cut(ColumnSlice(None, values, int64s(50), None, 3, 50), batch_bytes)]
    assert [part.start for part in slices] == [3, *(part.stop for part in slices[:-1])]
    assert slices[-1].stop == 50
    assert all(size <= batch_bytes or part.stop - part.start == 1 for part, size in cut(slices[0], batch_bytes))


def test_nothing_overtakes_the_first_batch_of_a_producer_that_the_broker_does_not_know() -> None:
    held = Accumulator(Limits(100, 1.0, 1000, 60.0), is_idempotent=True)
    for _ in range(9):
        append(held)
    [first] = send(held)
    assert send(held) == [] and held.next_due_s(False) is None
    held.queues[P0].give_back(first, 5.0)
    assert send(held, 4.0) == [] and held.next_due_s(False) == 5.0
    assert send(held, 5.0) == [first]
    held.done(first, is_stored=True)
    assert [batch.base_sequence for batch in [*send(held), *send(held)]] == [2, 4]


@pytest.mark.parametrize(("is_known", "at_once"), [(True, 2), (False, 1)])
def test_a_new_epoch_is_known_and_a_new_producer_id_is_not(is_known: bool, at_once: int) -> None:
    held = Accumulator(Limits(100, 1.0, 1000, 60.0), is_idempotent=True)
    append(held)
    [first] = send(held, flushing=True)
    held.done(first, is_stored=True)
    held.queues[P0].forget_sequences(is_known=is_known)
    for _ in range(9):
        append(held)
    assert len([*send(held), *send(held)]) == at_once
