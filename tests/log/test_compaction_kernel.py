"""The compiled loops of compaction against their own source, and both against dictionaries."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.log.cleaning import compaction_kernel as compiled
from headrace.log.cleaning.offset_map import OffsetMap
from headrace.records.format2.batch import HEADER_BYTES, Record, decode_records, encode_batch, read_header
from headrace.records.format2.header import pack_header
from tests.examples import examples


def uncompiled() -> ModuleType:
    """The same source, run as plain Python."""
    source = Path(compiled.__file__).with_name("compaction_kernel.py")
    spec = importlib.util.spec_from_file_location("headrace_uncompiled_compaction_kernel", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


plain = uncompiled()
both = pytest.mark.parametrize("kernel", [compiled, plain], ids=["imported", "plain"])
KEY0, KEY1 = 0x0706050403020100, 0x0F0E0D0C0B0A0908


def test_the_kernel_is_compiled_and_its_reference_is_not() -> None:
    assert compiled.COMPILED, "it would be compared with itself; `make setup` compiles it"
    assert not plain.COMPILED


# From the reference implementation's vectors of 128 bits: the messages 00 01 02 … of these lengths.
@both
@pytest.mark.parametrize(
    ("length", "expected"), [(0, "a3817f04ba25a8e66df67214c7550293"), (1, "da87c1d86b99af44347659119b22fc45")]
)
def test_the_hash_is_siphash(kernel: ModuleType, length: int, expected: str) -> None:
    low, high = kernel.siphash(bytes(range(length)), KEY0, KEY1)
    assert (low.to_bytes(8, "little") + high.to_bytes(8, "little")).hex() == expected


@given(st.binary(max_size=80), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_the_hash_is_the_same_in_both(data: bytes, key0: int, key1: int) -> None:
    assert compiled.siphash(data, key0, key1) == plain.siphash(data, key0, key1)


keys = st.none() | st.sampled_from([b"", b"a", b"b", b"c" * 8, b"d" * 9, b"e" * 200])
values = st.none() | st.binary(max_size=20)
times = st.integers(-(2**62), 2**62 - 1)  # a batch keeps what lies between two of them, in 64 bits
rows = st.lists(st.tuples(keys, values, times), min_size=1, max_size=20)


def table_of(slots: int) -> memoryview:
    return memoryview(bytearray(24 * slots)).cast("Q")


def batch_of(records: list[tuple[bytes | None, bytes | None, int]]) -> bytearray:
    return encode_batch([Record(0, time, key, value, (("h", b"x"),)) for key, value, time in records])


@both
@settings(max_examples=examples(60))
@given(records=rows, base=st.integers(0, 2**40), skip=st.integers(0, 5), drop=st.booleans(), latest=st.integers(0, 25))
def test_what_stays_is_what_a_dictionary_says(
    kernel: ModuleType,
    records: list[tuple[bytes | None, bytes | None, int]],
    base: int,
    skip: int,
    drop: bool,
    latest: int,
) -> None:
    batch = batch_of(records)
    table = table_of(16)
    reached, entries = kernel.index(
        batch, HEADER_BYTES, len(batch), len(records), base, base + skip, table, 16, 0, 15, KEY0, KEY1
    )
    known = {key: base + at for at, (key, _, _) in enumerate(records) if key is not None and at >= skip}
    assert (reached, entries) == (-1, len(known))
    for key, offset in known.items():
        assert kernel.get(table, 16, key, KEY0, KEY1) == offset
    assert kernel.get(table, 16, b"never put", KEY0, KEY1) == -1
    keep = bytearray(len(records))
    kept, tombstones, newest, keyless = kernel.mark(
        batch, HEADER_BYTES, len(batch), len(records), base, base + latest, drop, table, 16, KEY0, KEY1, keep
    )
    stay = [
        at > latest or (key is not None and known.get(key, -1) <= base + at and not (drop and value is None))
        for at, (key, value, _) in enumerate(records)
    ]
    assert [bool(each) for each in keep] == stay
    assert kept == sum(stay)
    assert tombstones == sum(stay[at] and records[at][1] is None for at in range(len(records)))
    assert keyless == sum(key is None for key, _, _ in records[: latest + 1])
    if kept:
        assert newest == max(time for at, (_, _, time) in enumerate(records) if stay[at]) - records[0][2]


@both
@settings(max_examples=examples(60))
@given(records=rows, marks=st.lists(st.booleans(), min_size=20, max_size=20), shift=st.integers(-(2**40), 2**40))
def test_what_is_copied_reads_back_with_its_times(
    kernel: ModuleType, records: list[tuple[bytes | None, bytes | None, int]], marks: list[bool], shift: int
) -> None:
    batch = batch_of(records)
    keep = bytes(marks[: len(records)])
    out = bytearray(len(batch) + kernel.GROWTH_BYTES_MAX * (len(records) + 1))
    end = kernel.copy(batch, HEADER_BYTES, len(batch), len(records), keep, shift, out, HEADER_BYTES)
    deltas = [time - records[0][2] for _, _, time in records]
    if any(keep[at] and not -(2**63) <= delta + shift < 2**63 for at, delta in enumerate(deltas)):
        assert end == kernel.OUT_OF_RANGE
        return
    del out[end:]
    header = read_header(batch)
    pack_header(
        out,
        0,
        header._replace(
            batch_length=len(out) - 12, record_count=sum(keep), base_timestamp=header.base_timestamp - shift
        ),
    )
    before = decode_records(batch)
    assert decode_records(out) == [record for at, record in enumerate(before) if keep[at]]


@given(st.binary(max_size=60), st.integers(0, 10), st.integers(-3, 70), st.integers(-3, 70))
def test_on_nonsense_both_answer_the_same_and_touch_nothing_else(data: bytes, count: int, pos: int, end: int) -> None:
    answers = []
    for kernel in (compiled, plain):
        table, keep, out = table_of(8), bytearray(10), bytearray(200)
        indexed = kernel.index(data, pos, end, count, 0, 0, table, 8, 0, 7, KEY0, KEY1)
        marked = kernel.mark(data, pos, end, count, 0, 10**9, False, table, 8, KEY0, KEY1, keep)
        copied = kernel.copy(data, pos, end, count, b"\1" * 10, 5, out, 0)
        answers.append((indexed, marked[0], copied, bytes(table), out[: max(0, copied)]))
    assert answers[0] == answers[1]


@both
def test_a_full_table_says_which_record_it_could_not_take(kernel: ModuleType) -> None:
    batch = batch_of([(b"%d" % at, b"v", 0) for at in range(10)])
    table = table_of(6)
    assert kernel.index(batch, HEADER_BYTES, len(batch), 10, 100, 0, table, 6, 0, 5, KEY0, KEY1) == (105, 5)
    assert kernel.put(table, 6, b"3", 200, True, KEY0, KEY1) == 0, "what is known is brought up to date all the same"
    assert kernel.put(table, 6, b"77", 200, True, KEY0, KEY1) == -1
    assert kernel.get(table, 6, b"3", KEY0, KEY1) == 200


def test_a_map_takes_no_more_memory_than_its_keys_or_its_bound() -> None:
    assert OffsetMap(24 * 1000, 0.9, 10**9).slots == 1000
    assert OffsetMap(24 * 1000, 0.9, 10**9).entries_max == 900
    assert OffsetMap(1 << 30, 0.9, 90).slots == 101
    assert OffsetMap(1, 0.9, 10**9).entries_max == 1


def test_a_map_knows_how_far_it_got() -> None:
    known = OffsetMap(24 * 5, 0.9, 100)
    batch = batch_of([(b"%d" % at, b"v", 0) for at in range(10)])
    assert known.index(batch, read_header(batch), 0)
    assert known.is_full
    assert known.latest_offset == known.entries - 1
