"""Runs of plain batches are cleaned to the byte as if each had been looked at by itself, compiled and uncompiled."""

import importlib.util
import random
from array import array
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.log.cleaning import compaction_runs as compiled
from headrace.log.cleaning import offset_map
from headrace.log.cleaning.compaction import CleanedGroup, CleaningJob, Compaction
from headrace.log.cleaning.compaction_writer import ENTRIES_MAX, OUT_BYTES
from headrace.log.filenames import CLEANED
from headrace.log.files import LocalFiles
from headrace.log.partition_log import PartitionLog
from headrace.log.recovery.recovery_kernel import new_state
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, encode_batch
from headrace.records.format2.control import ABORT, COMMIT
from tests.examples import examples
from tests.log.cleaning import clean, compacted, keyed, left, put
from tests.log.support import NOW_MS, append_batch, append_marker, batch_of, open_log


def uncompiled() -> ModuleType:
    """The same source, run as plain Python."""
    source = Path(compiled.__file__).with_name("compaction_runs.py")
    spec = importlib.util.spec_from_file_location("headrace_uncompiled_compaction_runs", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


plain = uncompiled()


class OneByOne:
    """No runs: the caller looks at every batch."""

    @staticmethod
    def learn(buf: object, pos: int, expected: int, next_base: int, from_offset: int, table: object, slots: int,
              entries: int, *_: object) -> tuple[int, int, int, int]:  # fmt: skip
        return pos, expected, entries, -1

    @staticmethod
    def sift(*arguments: object) -> tuple[object, ...]:
        pos, expected, placed, timed, at = (arguments[number] for number in (1, 2, 13, 15, 18))
        return pos, expected, at, placed, timed, 0, 0, 0


def test_the_loops_are_compiled_and_their_reference_is_not() -> None:
    assert compiled.COMPILED, "it would be compared with itself; `make setup` compiles it"
    assert not plain.COMPILED


def fill(directory: Path, chance: random.Random) -> PartitionLog:
    """A log of everything that a compacted topic may hold."""
    log = open_log(directory, compacted(segment_bytes=chance.choice([5000, 80_000]), index_interval_bytes=200))
    sequences = dict.fromkeys(range(4), 0)
    for _ in range(chance.randrange(20, 120)):
        keys = [chance.choice("abcdefgh") for _ in range(chance.choice([1, 1, 1, 1, 2, 5]))]
        pairs = [(key, None if chance.random() < 0.05 else "v" * chance.randrange(40)) for key in keys]
        what, producer = chance.random(), chance.randrange(4)
        codec = Codec.ZSTD if chance.random() < 0.1 else Codec.NONE
        now_ms = NOW_MS + chance.randrange(-1000, 1000)
        if what < 0.5:
            put(log, *pairs, codec=codec, now_ms=now_ms)
        elif what < 0.85:
            is_transactional = producer > 1
            batch = keyed(*pairs, codec=codec, now_ms=now_ms, producer_id=producer, sequence=sequences[producer],
                          is_transactional=is_transactional)  # fmt: skip
            append_batch(log, batch)
            sequences[producer] += len(pairs)
            if is_transactional and chance.random() < 0.7:
                append_marker(log, chance.choice([ABORT, COMMIT]), producer)
        elif what < 0.9:
            append_batch(log, batch_of(b"no key"))
        elif what < 0.95:
            put(log, (keys[0], "x" * (log.config.segment_bytes - 200)))
        else:
            log.roll(NOW_MS)
    log.roll(NOW_MS)
    log.restore_high_watermark(log.log_end_offset)
    return log


def job_of(log: PartitionLog, chance: random.Random) -> CleaningJob:
    bases = [segment.base_offset for segment in log.segments]
    entries = log.producers.entries.values()
    return CleaningJob(
        directory=str(log.directory),
        sizes={segment.base_offset: segment.size for segment in log.segments},
        first_dirty=chance.choice([0, 0, bases[len(bases) // 2], bases[len(bases) // 2] + 1]),
        first_uncleanable=bases[-1],
        producers={e.producer_id: (e.batches[-1].last_offset if e.batches else -1, e.epoch) for e in entries},
        now_ms=NOW_MS + chance.choice([0, 10**10]),
        delete_retention_ms=1000,
        segment_bytes=100_000,
        segment_index_bytes=10_000,
        index_interval_bytes=chance.choice([0, 200, 4096]),
        map_bytes_max=chance.choice([100, 1 << 20]),
        load_factor=0.9,
        read_bytes=1,
        io_bytes_per_second=1e12,
    )


def cleaned(log: PartitionLog, job: CleaningJob) -> tuple[object, list[CleanedGroup], dict[str, bytes]]:
    """The plan, what is told of the groups, and the files."""
    worker = Compaction(LocalFiles())
    plan = worker.plan(job)
    groups = [worker.clean(group)._replace(largest_read=0) for group in plan.groups]
    files = {path.name: path.read_bytes() for path in log.directory.glob(f"*{CLEANED}")}
    for path in log.directory.glob(f"*{CLEANED}"):
        path.unlink()
    return plan, groups, files


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 1 << 32))
def test_runs_leave_what_one_batch_after_the_other_leaves(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    chance = random.Random(seed)
    log = fill(tmp_path_factory.mktemp("log") / "flights-0", chance)
    job = job_of(log, chance)
    with pytest.MonkeyPatch.context() as patch:
        expected = None
        for way in (OneByOne, compiled, plain):
            patch.setattr(offset_map, "runs", way)
            found = cleaned(log, job)
            expected = found if expected is None else expected
            assert found == expected
    assert expected is not None and expected[2]


def test_more_small_batches_than_a_write_or_an_index_takes_at_once(tmp_path: Path) -> None:
    log = open_log(tmp_path / "flights-0", compacted(index_interval_bytes=0, segment_index_bytes=10 << 20))
    count = 2 * ENTRIES_MAX + 100
    for number in range(count):
        put(log, (f"key {number}", "v" * (OUT_BYTES // 1000)))
    put(log, ("large", "v" * (OUT_BYTES + 1)))
    clean(log)
    assert [each.offset for each in left(log)] == list(range(count + 1))
    assert len(log.segments[0].indexes.offset_index) == count


rows = st.lists(
    st.tuples(st.sampled_from([None, b"a", b"b", b"c"]), st.none() | st.binary(max_size=9)), min_size=1, max_size=4
)


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(st.tuples(rows, st.integers(-1, 2), st.sampled_from([0, 0, 0, 1, 3])), min_size=1, max_size=8),
    st.integers(0, 10),
    st.integers(0, 3000),
    st.binary(max_size=3),
)
def test_both_come_equally_far_in_whatever_bytes(
    batches: list[tuple[list[tuple[bytes | None, bytes | None]], int, int]], skip: int, cut: int, noise: bytes
) -> None:
    data, base = bytearray(), 5
    for records, producer, gap in batches:
        base += gap
        made = [Record(0, NOW_MS, key, value, ()) for key, value in records]
        data += encode_batch(made, base_offset=base, producer_id=producer, base_sequence=0 if producer >= 0 else -1)
        base += len(records)
    data[cut % len(data) : cut % len(data) + len(noise)] = noise
    results = []
    for module in (compiled, plain):
        table = memoryview(bytearray(24 * 8)).cast("Q")
        learned = module.learn(data, 0, 5, base, skip, table, 8, 0, 2, 11, 12)
        state, places, times = new_state(0, 1 << 60, 100, -1), array("q", bytes(96)), array("q", bytes(96))
        out = bytearray(300)
        sifted = module.sift(data, 0, 5, base, 9, table, 8, 11, 12, bytearray(3), array("q", [6, 8]), state, places, 0,
                             times, 0, 1000, out, 0)  # fmt: skip
        results.append((learned, sifted, list(table), state, places, times, out))
    assert results[0] == results[1]
