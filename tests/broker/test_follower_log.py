"""A follower's comparison with its leader's records ends where the logs do, or at the first batch that differs."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.broker.partitions.partition import Partition
from headrace.broker.replication import follower_log
from headrace.errors import CorruptMessage, StorageError
from headrace.log import appending, truncation, upkeep
from headrace.log.partition_log import PartitionLog
from headrace.protocol import messages as m
from headrace.records.any_format import iter_any_headers
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, encode_batch
from headrace.records.format2.header import set_base_offset
from headrace.records.legacy.message_set import encode_message_set
from headrace.replication.partition_state import PartitionState
from headrace.types import BrokerId
from tests.examples import examples
from tests.log.support import NOW_MS, PARTITION, Background, config, open_log

OLD, WRAPPED, NEW = "message", "wrapper", "batch"


def entry(kind: str, offset: int, *values: bytes) -> bytes:
    """A message, a wrapper or a batch, as a log stores it, whose first record has this offset."""
    records = [Record(at, NOW_MS, None, value, ()) for at, value in enumerate(values, offset)]
    if kind == NEW:
        batch = encode_batch(records)
        set_base_offset(memoryview(batch), offset, 0)
        return bytes(batch)
    codec = Codec.GZIP if kind == WRAPPED else Codec.NONE
    return bytes(encode_message_set(records, magic=1, codec=codec, base_offset=offset))


def entries(shapes: Sequence[tuple[str, int, int]], offset: int = 0) -> list[bytes]:
    """One after the other, from (kind, number of records, size of each)."""
    made = []
    for kind, count, size in shapes:
        count = 1 if kind == OLD else count
        made.append(entry(kind, offset, *(b"%d." % at + bytes(size) for at in range(offset, offset + count))))
        offset += count
    return made


def log_of(directory: Path, stored: Sequence[bytes], segment_bytes: int = 1 << 20) -> PartitionLog:
    log = open_log(directory, config(segment_bytes=segment_bytes))
    for each in stored:
        appending.append_replicated(log, memoryview(each), now_ms=NOW_MS)
    return log


def read_all(log: PartitionLog, from_offset: int) -> bytes:
    data, offset = b"", from_offset
    while offset < log.log_end_offset:
        found = log.read_bytes(log.read(offset, 1 << 20, end_offset=log.log_end_offset, at_least_one=True))
        data += found
        for _, header in iter_any_headers(found):
            offset = header.next_offset
    return data


def compared(log: PartitionLog, offset: int, records: bytes) -> tuple[int, bool, int]:
    """The end of what is the same, whether the log differs there, and how many bytes are left behind its end."""
    partition = Partition(PARTITION, log, PartitionState(BrokerId(1)))
    left = memoryview(records)
    while left and offset < log.log_end_offset:
        offset, left, differs = follower_log.compare(partition, offset, left)
        if differs:
            return offset, True, len(left)
    return offset, False, len(left)


SHAPES = st.lists(
    st.tuples(st.sampled_from([OLD, OLD, WRAPPED, NEW]), st.integers(1, 4), st.sampled_from([0, 20, 300])), max_size=8
)


@settings(deadline=None, max_examples=examples(60))
@given(
    shared=SHAPES,
    own=SHAPES,
    theirs=SHAPES,
    start=st.integers(0, 3),
    own_segment=st.sampled_from([2000, 1 << 20]),
    piece=st.sampled_from([1, 500, 256 << 10]),
)
def test_ends_with_the_first_batch_that_is_not_the_same_in_both(
    shared: list[tuple[str, int, int]],
    own: list[tuple[str, int, int]],
    theirs: list[tuple[str, int, int]],
    start: int,
    own_segment: int,
    piece: int,
) -> None:
    common = entries(shared)
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(follower_log, "PIECE_BYTES", piece)
        known = log_of(Path(directory) / "known", common).log_end_offset
        mine = [*common, *entries(own, known)]
        leaders = [*common, *entries(theirs, known)]
        here = log_of(Path(directory) / "here", mine, own_segment)
        there = log_of(Path(directory) / "there", leaders)
        first = log_of(Path(directory) / "first", common[:start]).log_end_offset
        same = 0
        while same < min(len(mine), len(leaders)) and mine[same] == leaders[same]:
            same += 1
        at = log_of(Path(directory) / "same", mine[:same]).log_end_offset
        records = read_all(there, first)
        assert compared(here, first, records) == (
            at,
            same < min(len(mine), len(leaders)),
            len(records) - sum(map(len, leaders[min(start, len(common)) : same])),
        )


def test_what_the_leader_cut_off_is_not_compared(tmp_path: Path) -> None:
    stored = entries([(OLD, 1, 50), (OLD, 1, 50), (OLD, 1, 50)])
    log, data = log_of(tmp_path / "log", stored), b"".join(stored)
    assert compared(log, 0, data[:-1]) == (2, False, 0)
    assert compared(log, 1, stored[1][:-1]) == (1, False, 0)


def test_a_damaged_record_of_the_leader_is_no_difference(tmp_path: Path) -> None:
    stored = entries([(OLD, 1, 50), (OLD, 1, 50)])
    log, data = log_of(tmp_path / "log", stored), bytearray(b"".join(stored))
    data[-1] ^= 1
    with pytest.raises(CorruptMessage):
        compared(log, 0, bytes(data))


def test_records_that_compaction_took_from_the_leaders_log_are_a_difference(tmp_path: Path) -> None:
    stored = entries([(OLD, 1, 50)] * 4)
    log = log_of(tmp_path / "log", stored)
    assert compared(log, 0, stored[0] + stored[2]) == (1, True, len(stored[2]))


def test_a_log_that_ends_with_a_gap_is_cut_behind_its_last_record(tmp_path: Path) -> None:
    """So that what the leader has in the gap can be appended."""
    stored = entries([(OLD, 1, 50)] * 4)
    log = log_of(tmp_path / "log", [*stored[:2], *stored[3:]])
    log.cut(log.segments, 4, is_empty=False)
    log.active.truncate_to(3)
    assert compared(log, 0, b"".join(stored)) == (2, True, len(stored[2]) + len(stored[3]))


def test_a_log_that_begins_inside_the_first_batch_takes_the_batch_without_waiting_for_the_background(
    tmp_path: Path,
) -> None:
    """To fetch it again is no way out: the follower's offset is below the leader's log start offset by then."""
    background = Background()
    log = open_log(tmp_path / "t-0", config(), scheduling=background.scheduling)
    truncation.truncate_fully(log, 5, NOW_MS)
    background.waits = True
    partition = Partition(PARTITION, log, PartitionState(BrokerId(1), log_end_offset=log.log_end_offset))
    batch = entry(NEW, 3, *[b"value"] * 6)
    answer = m.FetchResponse.PartitionData(high_watermark=9, log_start_offset=5)
    assert not follower_log.append_piece(partition, answer, memoryview(bytearray(batch)), NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, log.is_truncating) == (5, 9, False)
    background.run_all()
    assert read_all(log, 5) == batch


class TestRestart:
    """The leader's log starts beyond the end of this log, so that all records go."""

    @pytest.fixture(autouse=True)
    def short_slices(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(upkeep, "SEGMENTS_PER_SLICE", 4)

    def partition(self, directory: Path, high_watermark: int) -> Partition:
        """A log of 18 segments with a record each."""
        log = open_log(directory, config())
        for number, each in enumerate(entries([(NEW, 1, 20)] * 18)):
            if number:
                log.roll(NOW_MS)
            appending.append_replicated(log, memoryview(each), now_ms=NOW_MS)
        partition = Partition(PARTITION, log, PartitionState(BrokerId(1)))
        partition.state.on_replicated(18, high_watermark)
        return partition

    @pytest.mark.parametrize(("high_watermark", "slices"), [(18, 4), (9, 3), (3, 1), (0, 0)])
    def test_each_slice_leaves_a_whole_log(self, tmp_path: Path, high_watermark: int, slices: int) -> None:
        partition = self.partition(tmp_path / "log", high_watermark)
        log, count, made = partition.log, 18, 0
        for made, _ in enumerate(follower_log.restart(partition, 40, NOW_MS), 1):
            assert 0 < count - len(log.segments) <= 4
            count = len(log.segments)
            assert (
                [segment.base_offset for segment in log.segments] == list(range(18 - count, 18)) == bases_on_disk(log)
            )
            shutil.copytree(log.directory, tmp_path / f"killed {made}")
            again = open_log(tmp_path / f"killed {made}", config())
            assert read_all(again, 18 - count) == b"".join(entries([(NEW, 1, 20)] * 18)[18 - count :])
        assert made == slices
        assert (log.log_start_offset, log.log_end_offset, bases_on_disk(log)) == (40, 40, [40])

    def test_a_log_that_fails_between_two_slices_loses_no_further_segment(self, tmp_path: Path) -> None:
        partition = self.partition(tmp_path / "log", 18)
        work = follower_log.restart(partition, 40, NOW_MS)
        next(work)
        partition.log.fail("a test")
        with pytest.raises(StorageError):
            next(work)
        assert bases_on_disk(partition.log) == list(range(4, 18))


def bases_on_disk(log: PartitionLog) -> list[int]:
    return sorted(int(path.stem) for path in log.directory.glob("*.log"))
