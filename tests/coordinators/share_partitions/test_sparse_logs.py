"""A share partition over a log that loses records: compaction removes batches, retention moves the log's start."""

import random

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
from headrace.coordinators.share_partitions.share_partition import ShareLimits, SharePartition
from headrace.coordinators.share_state.batches import merged
from headrace.coordinators.share_state.persister import StateBatch
from headrace.errors import KafkaError

END = 200
MEMBERS = ("member-a", "member-b")
TYPES = (ACCEPT, ACCEPT, RELEASE, REJECT, GAP, RENEW)


class World:
    """A share partition, what the persister has of it, and a log that shrinks."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        bases = sorted({0, *rng.sample(range(1, END), 30)})
        self.log = [LogBatch(a, b - 1) for a, b in zip(bases, [*bases[1:], END], strict=True)]
        self.log_start = 0
        self.limits = ShareLimits(rng.choice([2, 3, 5]), rng.choice([20, 100, 150]), 1000)
        self.now_ms = 0
        self.stored: tuple[StateBatch, ...] = ()
        self.stored_start = 0
        self.accepted: set[int] = set()
        self.held: dict[str, list[AcquiredBatches]] = {each: [] for each in MEMBERS}
        self.partition = SharePartition(0, (), self.limits)

    def restart(self) -> None:
        """A new leader reads what is stored."""
        self.partition = SharePartition(self.stored_start, self.stored, self.limits)
        for held in self.held.values():
            held.clear()

    def shrink(self) -> None:
        """Compaction removes a batch, or retention the first ones. The newest batch stays."""
        if self.rng.random() < 0.5 and len(self.log) > 5:
            self.log.remove(self.rng.choice(self.log[:-1]))
            return
        self.log_start = max(self.log_start, self.rng.randrange(max(1, self.partition.end_offset)))
        self.log = [each for each in self.log if each.last_offset >= self.log_start]
        if self.rng.random() < 0.5:
            self.partition.log_starts_at(self.log_start)

    def fetch(self, acquirer: Acquirer, batches: int) -> list[AcquiredBatches]:
        """As the broker does."""
        partition = self.partition
        if not partition.can_acquire:
            return []
        offset = partition.next_fetch_offset()
        if offset < self.log_start:
            partition.log_starts_at(self.log_start)
            offset = partition.next_fetch_offset()
            assert offset >= self.log_start, "the log has nothing there"
        fetched = [each for each in self.log if each.last_offset >= offset][:batches]
        acquired = acquire(partition, acquirer, offset, fetched, (), self.now_ms)
        for first, last, count in acquired:
            assert first <= last
            assert count <= self.limits.delivery_count_max
            assert self.accepted.isdisjoint(range(first, last + 1))
        return acquired

    def acknowledge(self, member: str) -> None:
        held = self.held[member]
        if held:
            first, last, _ = held.pop(self.rng.randrange(len(held)))
            types = self.rng.choices(TYPES, k=last - first + 1)
            try:
                given = types if self.rng.random() < 0.5 else types[:1]
                acknowledge(self.partition, member, [Acknowledged(first, last, given)], self.now_ms)
            except KafkaError:
                pass  # its lock has ended

    def store(self, *, is_stored: bool = True) -> None:
        """One request to the persister with everything that is to be stored."""
        writes, self.partition.writes = self.partition.writes, []
        if not writes:
            return
        start = self.partition.start_offset
        assert start >= self.stored_start
        if is_stored:
            batches = tuple(batch for write in writes for batch in write.batches)
            self.stored_start = start
            self.stored = merged(self.stored, merged((), batches, start), start)
            for batch in batches:
                if batch.delivery_state == RecordState.ACKNOWLEDGED:
                    self.accepted.update(range(batch.first_offset, batch.last_offset + 1))
        for write in writes:
            self.partition.stored(write, self.now_ms, is_stored=is_stored)

    def step(self) -> None:
        rng, member = self.rng, self.rng.choice(MEMBERS)
        self.now_ms += rng.randrange(120)
        match rng.randrange(12):
            case 0 | 1 | 2:
                acquirer = Acquirer(member, rng.random() < 0.5, rng.randrange(1, 40), rng.randrange(1, 40))
                self.held[member] += self.fetch(acquirer, rng.choice([1, 2, 99]))
            case 3 | 4 | 5:
                self.acknowledge(member)
            case 6:
                self.partition.release_expired(self.now_ms)
            case 7 | 8 if rng.random() < 0.3:
                self.shrink()
            case 9 if rng.random() < 0.1:
                self.partition.release(member)
                self.held[member].clear()
            case 10 if rng.random() < 0.1:
                self.restart()
        if rng.random() < 0.5:
            self.store(is_stored=rng.random() < 0.85)


@pytest.mark.parametrize("seed", range(0, 100, 10))
def test_a_share_group_comes_to_the_end_of_a_log_that_loses_records(seed: int) -> None:
    for number in range(seed, seed + 10):
        _run(World(random.Random(number)))


def _run(world: World) -> None:
    for _ in range(300):
        world.step()
        partition = world.partition
        finished = sum(
            max(0, run.last - max(run.first, partition.start_offset) + 1)
            for run in partition.in_flight.runs()
            if run.state.is_terminal
        )
        assert partition.delivery_complete_count == finished
    acquirer = Acquirer(MEMBERS[0], is_record_limit=False, batch_size=50, max_records=50)
    for _ in range(2000):
        while world.partition.writes:
            world.store()
        if world.partition.start_offset >= END:
            return
        world.now_ms += 5000
        world.partition.release_expired(world.now_ms)
        for first, last, _ in world.fetch(acquirer, world.rng.choice([1, 2, 99])):
            acknowledge(world.partition, acquirer.member, [Acknowledged(first, last, (ACCEPT,))], world.now_ms)
    raise AssertionError(f"the start offset stands still at {world.partition.start_offset}")
