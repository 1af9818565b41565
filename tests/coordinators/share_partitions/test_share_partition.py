"""One share partition, record by record: what is acquired, acknowledged, released, timed out, and stored."""

import random
from collections import Counter

import pytest

from headrace.coordinators.share_partitions.acknowledgement import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledged,
    acknowledge,
)
from headrace.coordinators.share_partitions.acquisition import AcquiredBatches, Acquirer, LogBatch, acquire
from headrace.coordinators.share_partitions.records import RecordState
from headrace.coordinators.share_partitions.share_partition import InconsistentState, ShareLimits, SharePartition
from headrace.coordinators.share_state.persister import StateBatch
from headrace.errors import ErrorCode, KafkaError

A, B = "member-a", "member-b"
LIMITS = ShareLimits(delivery_count_max=5, in_flight_max=100, lock_ms=1000)


class World:
    """A share partition over a log of batches, which are given by their base offsets and the log's end."""

    def __init__(
        self,
        bases: list[int],
        end: int,
        *,
        start: int = 0,
        stored: list[StateBatch] | None = None,
        limits: ShareLimits = LIMITS,
    ) -> None:
        self.partition = SharePartition(start, stored or [], limits)
        self.batches = [LogBatch(a, b - 1) for a, b in zip(bases, [*bases[1:], end], strict=True)]
        self.now_ms = 0
        self.written: list[StateBatch] = []

    def fetch(
        self, member: str = A, records: int = 500, *, limit: bool = False, size: int = 500, bytes_batches: int = 99
    ) -> list[tuple[int, int, int]]:
        """Acquires as the broker does: from the next fetch offset, while the partition may acquire."""
        partition = self.partition
        if not partition.can_acquire:
            return []
        offset = partition.next_fetch_offset()
        fetched = [each for each in self.batches if each.last_offset >= offset][:bytes_batches]
        acquired = acquire(partition, Acquirer(member, limit, size, records), offset, fetched, (), self.now_ms)
        return [(first, last, count) for first, last, count in acquired]

    def acknowledge(self, first: int, last: int, *types: int, member: str = A) -> None:
        acknowledge(self.partition, member, [Acknowledged(first, last, types or (ACCEPT,))], self.now_ms)

    def store(self, *, is_stored: bool = True) -> list[StateBatch]:
        """Ends all writes; returns what they had."""
        writes, self.partition.writes = self.partition.writes, []
        for write in writes:
            self.partition.stored(write, self.now_ms, is_stored=is_stored)
        return [batch for write in writes for batch in write.batches]

    def refused(self, first: int, last: int, *types: int, member: str = A) -> tuple[ErrorCode, str]:
        with pytest.raises(KafkaError) as caught:
            self.acknowledge(first, last, *types, member=member)
        assert self.partition.writes == []
        return caught.value.code, caught.value.message


def test_acquires_whole_batches_and_goes_on_behind_them() -> None:
    world = World([0, 10, 20], 30)
    assert world.fetch(records=15) == [(0, 19, 1)]
    assert world.fetch(B, records=15) == [(20, 29, 1)]
    assert world.partition.next_fetch_offset() == 30


def test_splits_acquired_records_at_the_batch_size() -> None:
    assert World([0, 10, 20, 30], 40).fetch(size=20) == [(0, 19, 1), (20, 39, 1)]


def test_the_record_limit_takes_no_record_more() -> None:
    world = World([0], 10)
    assert world.fetch(records=4, limit=True) == [(0, 3, 1)]
    assert world.fetch(B, records=4, limit=True) == [(4, 7, 1)]
    assert world.fetch(records=4, limit=True) == [(8, 9, 1)]


def test_accepted_records_move_the_start_offset_once_they_are_stored() -> None:
    world = World([0, 10], 20)
    world.fetch()
    world.acknowledge(0, 19)
    assert world.partition.start_offset == 0
    assert world.store() == [StateBatch(0, 19, 2, 1)]
    assert (world.partition.start_offset, world.partition.end_offset, len(world.partition.in_flight)) == (20, 20, 0)


def test_released_records_come_again_and_count() -> None:
    world = World([0], 10)
    world.fetch()
    world.acknowledge(3, 4, RELEASE)
    assert world.fetch(B) == []  # not before it is stored
    assert world.store() == [StateBatch(3, 4, 0, 1)]
    assert world.fetch(B) == [(3, 4, 2)]


def test_each_record_of_a_batch_has_its_own_acknowledgement() -> None:
    world = World([0], 5)
    world.fetch()
    world.acknowledge(0, 4, ACCEPT, GAP, REJECT, RELEASE, ACCEPT)
    assert world.store() == [
        StateBatch(0, 0, 2, 1),
        StateBatch(1, 2, 4, 1),
        StateBatch(3, 3, 0, 1),
        StateBatch(4, 4, 2, 1),
    ]
    assert world.partition.start_offset == 3
    assert world.partition.delivery_complete_count == 1
    assert world.fetch(B) == [(3, 3, 2)]


def test_a_write_that_fails_leaves_the_records_with_their_member() -> None:
    world = World([0], 10)
    world.fetch()
    world.acknowledge(0, 9)
    world.store(is_stored=False)
    assert world.partition.delivery_complete_count == 0
    assert world.fetch(B) == []
    world.acknowledge(0, 9)
    world.store()
    assert world.partition.start_offset == 10


def test_a_lock_that_ends_during_a_failed_write_makes_the_records_available() -> None:
    world = World([0], 10)
    world.fetch()
    world.acknowledge(0, 9)
    world.now_ms = 2000
    assert world.partition.release_expired(2000) == 0
    world.store(is_stored=False)
    assert world.fetch(B) == [(0, 9, 2)]


def test_a_lock_still_ends_after_a_failed_write() -> None:
    world = World([0], 10)
    world.fetch()
    world.now_ms = 500
    world.acknowledge(0, 9)
    world.partition.release_expired(1500)
    world.now_ms = 600
    world.store(is_stored=False)
    assert world.partition.next_lock_ms == 1000
    assert world.partition.release_expired(1500) == 10


def test_a_time_out_releases_the_records_and_stores_it() -> None:
    world = World([0, 10], 20)
    world.fetch(records=10)
    world.now_ms = 500
    world.fetch(B, records=10)
    assert world.partition.release_expired(1000) == 10
    assert world.partition.release_expired(1000) == 0
    assert world.store() == [StateBatch(0, 9, 0, 1)]
    assert world.fetch(B) == [(0, 9, 2)]
    assert world.refused(0, 9)[1] == "Member is not the owner of batch record"


def test_a_renewed_lock_ends_later() -> None:
    world = World([0], 10)
    world.fetch()
    world.now_ms = 900
    world.acknowledge(0, 9, RENEW)
    assert world.partition.writes == []
    assert world.partition.release_expired(1500) == 0
    assert world.partition.release_expired(1900) == 10


def test_renewal_may_be_disabled() -> None:
    world = World([0], 10, limits=LIMITS._replace(can_renew=False))
    world.fetch()
    assert world.refused(0, 9, RENEW) == (
        ErrorCode.INVALID_RECORD_STATE,
        "Renewing acquisition locks is not enabled for the group.",
    )


def test_a_record_is_archived_at_the_limit_of_deliveries() -> None:
    world = World([0], 1, limits=LIMITS._replace(delivery_count_max=3))
    stored = []
    for count in (1, 2, 3):
        assert world.fetch() == [(0, 0, count)]
        world.acknowledge(0, 0, RELEASE)
        stored = world.store()
    assert stored == [StateBatch(0, 0, 4, 3)]
    assert world.fetch() == []
    assert world.partition.start_offset == 1


def test_records_delivered_often_come_in_smaller_portions_and_at_last_alone() -> None:
    world = World([0], 8)
    portions = []
    for _ in range(60):
        got = world.fetch()
        if not got:
            break
        portions.append((sum(last - first + 1 for first, last, _ in got), got[0][2]))
        for first, last, _ in got:
            world.acknowledge(first, last, RELEASE)
        world.store()
    sizes = {count: {size for size, each in portions if each == count} for count in range(1, 6)}
    assert sizes == {1: {8}, 2: {8}, 3: {8}, 4: {4}, 5: {1}}
    assert world.partition.start_offset == 8


def test_no_more_records_are_in_flight_than_allowed() -> None:
    world = World(list(range(0, 300, 10)), 300)
    assert world.fetch() == [(0, 99, 1)]
    assert world.fetch(B) == []
    world.acknowledge(50, 59, RELEASE)
    world.store()
    assert world.fetch(B) == [(50, 59, 2)]
    world.acknowledge(0, 9)
    world.store()
    assert world.fetch(B) == [(100, 109, 1)]


def test_a_session_that_ends_releases_what_its_member_holds() -> None:
    world = World([0, 10], 20)
    world.fetch(records=10)
    world.fetch(B, records=10)
    world.partition.release(A)
    assert world.store() == [StateBatch(0, 9, 0, 1)]
    assert world.fetch(B) == [(0, 9, 2)]


def test_compacted_batches_are_archived_when_they_are_fetched_again() -> None:
    world = World([0, 10, 20], 30)
    world.fetch(size=10)
    world.acknowledge(0, 19, RELEASE)
    world.store()
    del world.batches[0]
    assert world.fetch(B) == [(10, 19, 2)]
    world.acknowledge(10, 19, member=B)
    world.acknowledge(20, 29)
    world.store()
    assert world.partition.start_offset == 30


def test_the_log_start_offset_takes_records_out() -> None:
    world = World([0, 10], 20)
    world.fetch(records=10)
    world.acknowledge(0, 9, RELEASE)
    world.store()
    world.fetch(B, records=20)
    world.partition.log_starts_at(5)
    assert world.partition.start_offset == 5
    world.acknowledge(0, 9, RELEASE, member=B)
    assert world.store() == [StateBatch(5, 9, 0, 2)]
    world.partition.log_starts_at(30)
    assert world.partition.next_fetch_offset() == 30
    world.partition.release_expired(5000)
    world.store()
    assert (world.partition.start_offset, world.partition.next_fetch_offset()) == (30, 30)


def test_aborted_batches_are_acquired_by_nobody_and_finish() -> None:
    world = World([0, 10, 20], 30)
    partition = world.partition
    got = acquire(partition, Acquirer(A, False, 500, 500), 0, world.batches, [LogBatch(10, 19)], 0)
    assert got == [AcquiredBatches(0, 9, 1), AcquiredBatches(20, 29, 1)]
    for first in (0, 20):
        world.acknowledge(first, first + 9)
    world.store()
    assert partition.start_offset == 30


def test_a_group_with_nothing_but_aborted_records_goes_on() -> None:
    world = World(list(range(0, 300, 10)), 300)
    for _ in range(3):
        offset = world.partition.next_fetch_offset()
        fetched = [each for each in world.batches if each.last_offset >= offset]
        assert acquire(world.partition, Acquirer(A, False, 500, 500), offset, fetched, fetched, 0) == []
    assert world.partition.start_offset == 300


def test_a_new_leader_acquires_the_gaps_of_the_stored_state_first() -> None:
    stored = [StateBatch(10, 19, 2, 1), StateBatch(25, 29, 0, 2)]
    world = World([0, 10, 20, 30], 40, stored=stored)
    assert world.fetch(records=10) == [(0, 9, 1)]
    assert world.fetch(records=5) == [(20, 24, 1)]
    assert world.fetch(records=5) == [(25, 29, 3)]
    assert world.fetch() == [(30, 39, 1)]
    world.acknowledge(0, 9)
    world.store()
    assert world.partition.start_offset == 20


def test_the_start_offset_passes_finished_records_behind_a_gap_when_the_gap_is_finished() -> None:
    world = World([0, 10, 20], 30, stored=[StateBatch(10, 19, 2, 1), StateBatch(20, 29, 4, 1)])
    assert world.fetch() == [(0, 9, 1)]
    world.acknowledge(0, 9)
    world.store()
    assert world.partition.start_offset == 30


def test_one_fetch_over_gaps_and_stored_batches_acquires_both() -> None:
    world = World([0, 10, 20, 30], 40, stored=[StateBatch(10, 19, 2, 1), StateBatch(25, 29, 0, 2)])
    assert world.fetch() == [(0, 9, 1), (20, 24, 1), (25, 29, 3), (30, 39, 1)]


@pytest.mark.parametrize("batches", [[(5, 9, 2, 1)], [(10, 19, 2, 1), (15, 25, 2, 1)], [(19, 15, 0, 1)]])
def test_a_stored_state_that_cannot_be_is_refused(batches: list[tuple[int, int, int, int]]) -> None:
    with pytest.raises(InconsistentState):
        SharePartition(10, [StateBatch(*each) for each in batches], LIMITS)


def test_illegal_acknowledgements_are_refused_with_kafkas_words_and_change_nothing() -> None:
    world = World([0, 10, 20], 30)
    world.fetch(records=10)
    world.fetch(B, records=10)
    state, request = ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST
    assert world.refused(10, 19) == (state, "Member is not the owner of batch record")
    assert world.refused(5, 14) == (state, "Member is not the owner of batch record")
    assert world.refused(20, 29) == (
        request,
        "Batch record not found. The first offset in request is past acquired records.",
    )
    assert world.refused(15, 25, member=B) == (
        request,
        "Batch record not found. The last offset in request is past acquired records.",
    )
    world.acknowledge(2, 3)
    world.store()
    assert world.refused(0, 9) == (state, "The offset cannot be acknowledged. The offset is not acquired.")
    world.acknowledge(0, 1)
    assert world.store() == [StateBatch(0, 1, 2, 1)]
    world.acknowledge(10, 19, member=B)
    with pytest.raises(KafkaError) as caught:
        world.acknowledge(10, 19, member=B)
    assert caught.value.message == "The batch cannot be acknowledged. The batch is not in the acquired state."
    world.store(is_stored=False)
    world.acknowledge(10, 19, member=B)


def test_the_offsets_of_a_batch_of_any_length_take_no_memory() -> None:
    world = World([0], 1 << 31)
    world.fetch(records=1 << 30)
    world.acknowledge(5, 5)
    assert world.store() == [StateBatch(5, 5, 2, 1)]
    assert sum(1 for _ in world.partition.in_flight.runs()) == 3


@pytest.mark.parametrize("seed", range(40))
def test_no_record_is_lost_or_delivered_past_its_limit_or_again_after_it_was_accepted(seed: int) -> None:
    """Random members, acknowledgements, failed writes, time-outs and new leaders, against a model of single records."""
    rng = random.Random(seed)
    bases = sorted(rng.sample(range(1, 200), 30))
    limits = LIMITS._replace(in_flight_max=rng.choice([100, 150]), delivery_count_max=rng.choice([2, 3, 5]))
    world = World([0, *bases], 200, limits=limits)
    held: dict[str, list[tuple[int, int, int]]] = {A: [], B: []}
    delivered: Counter[int] = Counter()
    finished: set[int] = set()
    stored: dict[int, StateBatch] = {}
    start = 0

    def store() -> None:
        nonlocal start
        writes, world.partition.writes = world.partition.writes, []
        for write in writes:
            is_stored = rng.random() < 0.9
            if is_stored:
                start = max(start, world.partition.start_offset)
                for batch in write.batches:
                    for offset in range(batch.first_offset, batch.last_offset + 1):
                        stored[offset] = batch
                        if batch.delivery_state:
                            finished.add(offset)
            world.partition.stored(write, world.now_ms, is_stored=is_stored)

    def restart() -> None:
        """A new leader reads what is stored."""
        kept = [
            StateBatch(offset, offset, stored[offset].delivery_state, stored[offset].delivery_count)
            for offset in sorted(stored)
            if offset >= start
        ]
        world.partition = SharePartition(start, kept, world.partition.limits)
        for each in held.values():
            each.clear()
        for offset in range(200):
            if offset not in stored:
                delivered[offset] = 0  # deliveries that were not stored are not counted

    for _ in range(400):
        world.now_ms += rng.randrange(50)
        member = rng.choice([A, B])
        match rng.randrange(8):
            case 0 | 1 | 2:
                for first, last, count in world.fetch(
                    member, rng.randrange(1, 40), limit=rng.random() < 0.5, size=rng.randrange(1, 40)
                ):
                    held[member].append((first, last, count))
                    for offset in range(first, last + 1):
                        delivered[offset] += 1
                        assert offset not in finished
                        assert count <= world.partition.limits.delivery_count_max
            case 3 | 4 | 5 if held[member]:
                first, last, _ = held[member].pop(rng.randrange(len(held[member])))
                types = [rng.choice([ACCEPT, ACCEPT, RELEASE, REJECT, RENEW, GAP]) for _ in range(first, last + 1)]
                try:
                    world.acknowledge(first, last, *(types if rng.random() < 0.5 else types[:1]), member=member)
                except KafkaError as error:
                    assert error.code is ErrorCode.INVALID_RECORD_STATE  # its lock has ended
                if rng.random() < 0.8:
                    store()
            case 6:
                world.partition.release_expired(world.now_ms)
            case 7:
                if rng.random() < 0.3:
                    world.partition.release(member)
                    held[member].clear()
                if rng.random() < 0.05 and not world.partition.writes:
                    restart()
        _check(world.partition)
    while world.partition.writes:
        store()
    world.now_ms += 5000
    for _ in range(4000):
        world.partition.release_expired(world.now_ms)
        world.now_ms += 5000
        for first, last, _ in world.fetch(A):
            assert finished.isdisjoint(range(first, last + 1))
            world.acknowledge(first, last)
        while world.partition.writes:
            store()
        if world.partition.start_offset == 200:
            break
    assert world.partition.start_offset == 200
    assert world.partition.delivery_complete_count == 0


@pytest.mark.parametrize(("log_start", "fetched"), [(3, [(3, 4, 1)]), (5, []), (7, [])])
def test_a_gap_that_has_left_the_log_is_not_fetched(log_start: int, fetched: list[tuple[int, int, int]]) -> None:
    world = World([3, 5], 10, stored=[StateBatch(5, 9, 2, 1)])
    assert world.partition.next_fetch_offset() == 0
    world.partition.log_starts_at(log_start)
    assert world.partition.next_fetch_offset() >= log_start, "the log has nothing below"
    assert world.fetch() == fetched


def test_a_gap_that_compaction_has_emptied_does_not_hold_up_the_group() -> None:
    """Behind the gap are finished records, of which nothing can be acquired."""
    stored = [StateBatch(10, 19, 2, 1), StateBatch(30, 39, 0, 1)]
    world = World([10, 40], 50, stored=stored, limits=LIMITS._replace(in_flight_max=40))
    world.batches[0] = LogBatch(10, 19)  # 20 to 39 were compacted too
    assert world.fetch(bytes_batches=1) == []
    assert world.partition.start_offset == 20
    assert world.fetch() == [(40, 49, 1)]
    world.acknowledge(40, 49)
    world.store()
    assert (world.partition.start_offset, world.partition.next_fetch_offset()) == (50, 50)


def test_a_fetch_of_what_is_finished_gets_nothing() -> None:
    """Compaction has removed the available records, and those behind them are finished."""
    world = World([10, 20], 30, stored=[StateBatch(0, 9, 0, 1), StateBatch(10, 19, 2, 1)])
    assert world.fetch(bytes_batches=1) == []
    assert world.fetch() == [(20, 29, 1)]


def test_a_record_whose_lock_ends_before_a_failed_write_does_not_hold_up_the_group() -> None:
    """It was delivered as often as allowed, and everything behind it up to the limit is finished."""
    world = World([0, 10], 20, limits=ShareLimits(delivery_count_max=1, in_flight_max=10, lock_ms=1000))
    assert world.fetch(records=10) == [(0, 9, 1)]
    world.acknowledge(1, 9)
    world.store()
    world.acknowledge(0, 0)
    world.now_ms = 1500
    assert world.partition.release_expired(world.now_ms) == 0
    world.store(is_stored=False)
    assert world.store() == [StateBatch(0, 0, RecordState.ARCHIVED, 1)]
    assert world.partition.start_offset == 10
    assert world.fetch() == [(10, 19, 1)]


def test_a_failed_write_brings_nothing_back_that_has_left_the_log() -> None:
    world = World([0, 10], 20)
    world.fetch(size=10)
    world.acknowledge(0, 9)
    world.partition.log_starts_at(5)
    world.now_ms = 1500
    world.partition.release_expired(world.now_ms)
    world.store(is_stored=False)
    world.batches = [LogBatch(5, 9), LogBatch(10, 19)]
    assert world.partition.next_fetch_offset() == 5
    _check(world.partition)


def _check(partition: SharePartition) -> None:
    """What holds at any time."""
    at = -1
    for batch in partition.in_flight:
        assert batch.runs[0].first == batch.first > at
        assert batch.runs[-1].last == batch.last
        for one, other in zip(batch.runs, batch.runs[1:], strict=False):
            assert one.last + 1 == other.first
        at = batch.last
        for run in batch.runs:
            assert (run.state is RecordState.ACQUIRED) == (run.member != "")
            if run.state is RecordState.ACQUIRED and run.pending is None:
                assert partition.next_lock_ms is not None
    finished = sum(
        len(run) for run in partition.in_flight.runs() if run.state.is_terminal and run.first >= partition.start_offset
    )
    assert partition.delivery_complete_count == finished
    if partition.in_flight:
        assert partition.end_offset >= partition.in_flight.last_offset
