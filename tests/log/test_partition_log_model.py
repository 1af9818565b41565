"""A partition's log against a list in memory: whatever is done to it, crashes included, both hold the same."""

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.errors import OutOfOrderSequence
from headrace.log import truncation, upkeep
from headrace.log.segment import file_records, preallocation
from headrace.records.format2.batch import Record, encode_batch
from tests.examples import examples
from tests.log.cleaning import cleaner_of, compacted
from tests.log.support import (
    NOW_MS,
    SimulatedDisk,
    Stored,
    append_batch,
    batch_of,
    offset_for_time,
    open_log,
    purge,
    read_all,
)

DIRECTORY = Path("/data/flights-0")
PRODUCERS = 3


class LogAgainstList(RuleBasedStateMachine):
    """The log on a disk that forgets what was not synced; the list of records; the sequences of three producers."""

    preallocate, room = False, "never"

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk()
        self.settings = compacted(
            segment_bytes=700, index_interval_bytes=150, file_delete_delay_ms=0, preallocate=self.preallocate,
            preallocate_room=self.room,
        )  # fmt: skip
        self.log = open_log(DIRECTORY, self.settings, self.disk)
        self.records: list[Stored] = []
        self.batches: list[tuple[int, int, int, int]] = []  # producer, first sequence, first offset, last offset
        self.start = 0
        self.checkpointed = 0
        self.leader_epoch = 0
        self.epochs: dict[int, int] = {}
        self.keys: dict[int, bytes] = {}
        self.superseded: set[int] = set()  # offsets of records that compaction has taken away, or was about to
        self.compacted_to = 0

    @property
    def end(self) -> int:
        return self.records[-1].offset + 1 if self.records else self.empty_at

    empty_at = 0

    def next_sequence(self, producer: int) -> int:
        return sum(last - first + 1 for who, _, first, last in self.batches if who == producer)

    @rule(
        producer=st.integers(0, PRODUCERS - 1),
        count=st.integers(1, 4),
        size=st.integers(0, 120),
        time=st.integers(0, 50),
        keys=st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), min_size=4, max_size=4),
    )
    def append(self, producer: int, count: int, size: int, time: int, keys: list[bytes]) -> None:
        sequence = self.next_sequence(producer)
        first = self.end
        values = [b"%d/" % (first + number) + b"x" * size for number in range(count)]
        times = [NOW_MS + time + number for number in range(count)]
        batch = encode_batch(
            [Record(0, times[n], keys[n], values[n]) for n in range(count)],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
        )
        result = append_batch(self.log, batch, epoch=self.leader_epoch)
        assert (result.base_offset, result.last_offset, result.is_duplicate) == (first, first + count - 1, False)
        self.records += [Stored(first + n, times[n], values[n]) for n in range(count)]
        self.batches.append((producer, sequence, first, first + count - 1))
        self.keys |= {first + number: keys[number] for number in range(count)}
        self.epochs |= {first + number: self.leader_epoch for number in range(count)}

    @rule(which=st.integers(1, 5))
    def append_again(self, which: int) -> None:
        """The last batch of each producer is known even after a crash, when there is only its snapshot."""
        mine = [batch for batch in self.batches if batch[0] == which % PRODUCERS]
        if mine and mine[-1][2] >= self.start:
            producer, sequence, first, last = mine[-1]
            batch = batch_of(*[b"again"] * (last - first + 1), producer_id=producer, sequence=sequence)
            result = append_batch(self.log, batch)
            assert (result.base_offset, result.last_offset, result.is_duplicate) == (first, last, True)

    @rule()
    def append_with_a_gap(self) -> None:
        if self.batches and self.batches[-1][2] >= self.start:
            sequence = self.next_sequence(self.batches[-1][0]) + 1
            with pytest.raises(OutOfOrderSequence):
                append_batch(self.log, batch_of(b"gap", producer_id=self.batches[-1][0], sequence=sequence))

    @rule()
    def elect_a_leader(self) -> None:
        self.leader_epoch += 1

    @rule()
    def flush(self) -> None:
        self.log.flusher.flush(NOW_MS)

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @rule()
    def compact(self) -> None:
        """Of the records below the active segment, the newest of each key stay: after a restart too, no more and no
        less, whatever a crash has undone of earlier cleanings."""
        self.log.restore_high_watermark(self.end)
        self.checkpointed = self.log.flusher.recovery_point
        cleaner_of(self.log).tick(NOW_MS)
        purge(self.log, NOW_MS)
        self.compacted_to = max(self.compacted_to, self.log.cleaned_to)
        newest: dict[bytes, int] = {}
        for record in self.records:
            if record.offset < self.log.cleaned_to:
                if self.keys[record.offset] in newest:
                    self.superseded.add(newest[self.keys[record.offset]])
                newest[self.keys[record.offset]] = record.offset
        assert read_all(self.log) == self.kept(), "nothing that was superseded is left"

    def kept(self) -> list[Stored]:
        """What has to be there."""
        return [r for r in self.records if r.offset >= self.start and r.offset not in self.superseded]

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        """To the beginning of a batch; what is compacted is committed, and never truncated."""
        lowest = max(self.start, self.compacted_to)
        boundaries = [batch[2] for batch in self.batches if batch[2] >= lowest] or [self.end]
        self.forget_from(boundaries[min(int(part * len(boundaries)), len(boundaries) - 1)])
        truncation.truncate_to(self.log, self.end, NOW_MS)
        self.checkpointed = min(self.checkpointed, self.end)

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        self.log.restore_high_watermark(self.end)
        self.start = max(self.start, self.start + int(part * (self.end - self.start)))
        upkeep.delete_records_before(self.log, self.start, NOW_MS)
        purge(self.log, NOW_MS)
        if not [record for record in self.records if record.offset >= self.start]:
            self.empty_at = self.end

    @rule()
    def checkpoint(self) -> None:
        self.checkpointed = self.log.flusher.recovery_point

    @rule()
    def reopen(self) -> None:
        self.log.close(NOW_MS)
        self.log = open_log(DIRECTORY, self.settings, self.disk, was_clean=True, log_start_offset=self.start)
        self.checkpointed = self.log.flusher.recovery_point

    @rule(seed=st.integers(0, 2**32))
    def crash(self, seed: int) -> None:
        safe = self.log.flusher.recovery_point
        self.disk = self.disk.after_crash(random.Random(seed))
        self.log = open_log(
            DIRECTORY, self.settings, self.disk, recovery_point=self.checkpointed, log_start_offset=self.start
        )
        assert safe <= self.log.log_end_offset <= max(self.end, self.start), "what was flushed is there"
        self.forget_from(self.log.log_end_offset)

    def forget_from(self, offset: int) -> None:
        self.empty_at = offset
        self.records = [record for record in self.records if record.offset < offset]
        self.batches = [batch for batch in self.batches if batch[3] < offset]

    @invariant()
    def holds_what_the_list_holds(self) -> None:
        assert self.log.log_end_offset == self.end
        found, kept = read_all(self.log), self.kept()
        if found != kept:  # a crash may undo a cleaning
            live = [record for record in self.records if record.offset >= self.start]
            assert [record for record in live if record in found or record in kept] == found

    @invariant()
    def knows_its_producers(self) -> None:
        for producer in {batch[0] for batch in self.batches if batch[2] >= self.start}:
            assert self.log.producers.entries[producer].last_sequence == self.next_sequence(producer) - 1

    @invariant()
    def knows_its_leaders(self) -> None:
        """Of what is there: after a crash epochs may have been made again from the batches that were left."""
        for record in read_all(self.log):
            assert self.log.leader_epochs.epoch_for(record.offset) == self.epochs[record.offset]

    @invariant()
    def finds_times(self) -> None:
        live = read_all(self.log)
        for time_ms in (NOW_MS, NOW_MS + 25, NOW_MS + 49):
            expected = next((record for record in live if record.timestamp_ms >= time_ms), None)
            found = offset_for_time(self.log, time_ms, self.end)
            assert (found and found.offset) == (expected and expected.offset)


class LogMadeInAdvance(LogAgainstList):
    """The same with segment files that are longer than what is in them."""

    preallocate = True


class LogWithRoom(LogAgainstList):
    """The same with room behind the last batch of segments that are small, as they all are here."""

    room = "always"

    def __init__(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(preallocation, "ROOM_FROM_BYTES", 200)
        for module in (preallocation, file_records):
            self.patch.setattr(module, "ROOM_BYTES", 256)
        super().__init__()

    def teardown(self) -> None:
        self.patch.undo()


TestLogAgainstList = LogAgainstList.TestCase
TestLogAgainstList.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLogMadeInAdvance = LogMadeInAdvance.TestCase
TestLogMadeInAdvance.settings = settings(TestLogAgainstList.settings, max_examples=examples(30))
TestLogWithRoom = LogWithRoom.TestCase
TestLogWithRoom.settings = settings(TestLogAgainstList.settings, max_examples=examples(30))
