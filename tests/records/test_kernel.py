"""The compiled kernel against its own source, and both against Java."""

from array import array
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.records.codecs.crc import crc32c
from headrace.records.format2 import kernel
from headrace.records.format2.batch import HEADER_BYTES, Record, encode_batch
from tests.examples import examples
from tests.records.samples import GOLDEN, records, uncompiled_kernel

plain = uncompiled_kernel()
both = pytest.mark.parametrize("kernel", [kernel, plain], ids=["imported", "plain"])


def test_the_kernel_is_compiled_and_its_reference_is_not() -> None:
    assert kernel.COMPILED, "the kernel would be compared with itself; `make setup` compiles it"
    assert not plain.COMPILED


@both
@pytest.mark.parametrize("key", GOLDEN["murmur2"])
def test_murmur2_is_javas(key: str, kernel: Any) -> None:
    assert kernel.murmur2(key.encode()) == GOLDEN["murmur2"][key]


@given(st.binary(max_size=64))
def test_murmur2_is_the_same_in_both(data: bytes) -> None:
    assert kernel.murmur2(data) == plain.murmur2(data)


def _scan(module: Any, data: bytes, pos: int, end: int, count: int, rows: int, base: int, last: int) -> object:
    offsets, times, spans = array("q", bytes(8 * rows)), array("q", bytes(8 * rows)), array("i", bytes(24 * rows))
    found = module.scan(data, pos, end, count, base, last, 1000, False, 1, 1 << 40, offsets, times, spans, 0)
    lists, header_spans = array("i", bytes(4 * rows + 4)), array("i", bytes(16 * 8))
    headers = module.scan_headers(data, spans, 0, rows, lists, header_spans)
    return found, offsets, times, spans, headers, lists, header_spans


def _find_time(module: Any, data: bytes, pos: int, end: int, count: int, rows: int, base: int, last: int) -> object:
    return module.find_time(data, pos, end, count, base, 1000, bool(rows & 1), 2, 1000 + last)


def _walk(module: Any, data: bytes, pos: int, end: int, count: int, rows: int, base: int, last: int) -> object:
    return module.walk(data, pos, end, count, base, bool(last & 1))


def _refused(module: Any, data: bytes, pos: int, end: int, count: int, rows: int, base: int, last: int) -> object:
    found = array("q", bytes(16 * (rows & 3)))
    earliest, latest = (min(max(base + each, -(2**63)), 2**63 - 1) for each in (1, last))
    counts = module.refused_records(data, pos, end, count, base, bool(last & 1), earliest, latest, found)
    return counts, found


@settings(max_examples=examples(200))
@given(
    rows=records,
    noise=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4),
    pos=st.integers(-1, 3) | st.just(0),
    cut=st.integers(-2, 5) | st.just(0),
    count=st.integers(-1, 22),
    base=st.sampled_from([0, 50, -1, 2**62, 2**63 - 1, -(2**63)]),
    last=st.integers(-1, 30),
    call=st.sampled_from([_scan, _walk, _find_time, _refused]),
)
def test_compiled_and_plain_answer_the_same(
    rows: list[Record],
    noise: list[tuple[int, int]],
    pos: int,
    cut: int,
    count: int,
    base: int,
    last: int,
    call: Callable[..., object],
) -> None:
    data = bytearray(encode_batch(rows)[HEADER_BYTES:])
    for at, byte in noise:
        data[at % len(data)] = byte
    arguments = (bytes(data), pos, len(data) - cut, count, len(rows), base, last)
    assert call(kernel, *arguments) == call(plain, *arguments)


@given(st.binary(max_size=60), st.integers(0, 8))
def test_compiled_and_plain_answer_the_same_about_noise(data: bytes, count: int) -> None:
    for call in (_scan, _walk, _find_time):
        assert call(kernel, data, 0, len(data), count, 8, 5, 9) == call(plain, data, 0, len(data), count, 8, 5, 9)


def _runs(module: Any, data: bytes, pos: int, end: int, first: int, to: int, limits: tuple[int, int, int]) -> object:
    run = array("q", bytes(8 * 3 * 5))
    found = module.plain_run(data, pos, end, first, to, *limits, run)
    rows = 20
    offsets, times, spans = array("q", bytes(8 * rows)), array("q", bytes(8 * rows)), array("i", bytes(24 * rows))
    kinds = bytearray(rows)
    scanned = module.scan_run(data, run, found[0], first, to, offsets, times, kinds, spans, 0)
    damaged = module.first_damaged(memoryview(data), run, found[0], crc32c)
    return found, run, scanned, offsets, times, kinds, spans, damaged


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(
    batches=st.lists(records.map(lambda rows: rows[:4]), min_size=1, max_size=6),
    noise=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3),
    pos=st.integers(-1, 2) | st.just(0),
    cut=st.integers(-1, 70) | st.just(0),
    first=st.integers(0, 12),
    to=st.integers(0, 30),
    limits=st.tuples(st.integers(-1, 20), st.integers(-1, 900), st.integers(0, 1)),
)
def test_runs_are_found_and_scanned_the_same(
    batches: list[list[Record]], noise: list[tuple[int, int]], pos: int, cut: int, first: int, to: int, limits: Any
) -> None:
    data, base_offset = bytearray(), 0
    for batch in batches:
        data += encode_batch(batch, base_offset=base_offset)
        base_offset += len(batch)
    for at, byte in noise:
        data[at % len(data)] = byte
    arguments = (bytes(data), pos, len(data) - cut, first, to, limits)
    assert _runs(kernel, *arguments) == _runs(plain, *arguments)


spans = st.lists(st.integers(-5, 40), min_size=12, max_size=12).map(lambda numbers: array("i", numbers))


@given(
    st.binary(max_size=30),
    spans,
    st.integers(-1, 7),
    st.integers(-1, 6),
    st.integers(-1, 4),
    st.integers(-1, 5),
    st.integers(0, 40),
    st.booleans(),
)
def test_gather_never_leaves_its_buffers(
    data: bytes, spans: "array[int]", stride: int, field: int, start: int, stop: int, room: int, has_validity: bool
) -> None:
    answers = []
    for module in (kernel, plain):
        offsets, out, bits = array("i", bytes(20)), bytearray(room), bytearray(1 if has_validity else 0)
        answers.append((module.gather(data, spans, stride, field, start, stop, offsets, out, bits), offsets, out, bits))
    assert answers[0] == answers[1]


offset_lists = st.lists(st.integers(-2, 12), max_size=5).map(lambda numbers: array("i", numbers))
columns = st.tuples(offset_lists, st.binary(max_size=10), st.sampled_from([b"", b"\x0f", b"\x05", b"\x00"]))


@settings(max_examples=examples(200))
@given(
    columns,
    columns,
    offset_lists,
    columns,
    columns,
    st.lists(st.sampled_from([0, 1, 300, -1, 2**63 - 1, -(2**63)]), max_size=4),
    st.lists(st.integers(-1, 4), max_size=4),
    st.integers(-1, 4),
    st.integers(-1, 5),
    st.integers(-1, 60),
)
def test_columns_of_all_kinds_are_measured_and_built_the_same(
    keys: Any, values: Any, lists: Any, names: Any, contents: Any, times: Any, order: Any, start: int, stop: int,
    limit: int,
) -> None:  # fmt: skip
    flat = (*keys, *values, lists, *names, *contents, array("q", times), array("i", order))
    answers = []
    for module in (kernel, plain):
        sizes = array("i", bytes(16))
        reached, size = module.measure(*flat, start, stop, limit, sizes)
        out = bytearray(max(size, 0) if reached >= 0 else 0)
        built = module.build(*flat, start, reached, sizes, out, 0) if reached > start else None
        if built is not None:
            assert built[0] == size
            assert module.build(*flat, start, reached, sizes, bytearray(size - 1), 0)[0] == -1
        answers.append((reached, size, sizes, out, built))
    assert answers[0] == answers[1]


@both
def test_partitions_outside_the_column_or_none_to_choose_from_are_refused(kernel: Any) -> None:
    offsets, out = array("i", [0, 1, 2]), array("i", bytes(8))
    assert kernel.partitions_of(offsets, b"ab", b"", 0, 2, 3, out) == -1
    assert kernel.partitions_of(offsets, b"a", b"", 0, 2, 3, out) == 1
    assert kernel.partitions_of(offsets, b"ab", b"", 0, 3, 3, out) == 0
    assert kernel.partitions_of(offsets, b"ab", b"", 0, 2, 0, out) == 0


@given(
    st.lists(st.integers(-2, 3), max_size=12),
    st.integers(-1, 5),
    st.integers(-1, 4),
    st.integers(0, 12),
    st.integers(0, 6),
)
def test_scattering_is_the_same_in_both_and_leaves_no_row_out(
    partitions: list[int], first_row: int, keyless: int, room: int, starts_room: int
) -> None:
    answers = []
    for module in (kernel, plain):
        order, starts = array("i", [-7] * room), array("i", [0] * starts_room)
        answers.append((module.scatter(array("i", partitions), first_row, keyless, order, starts), order, starts))
    assert answers[0] == answers[1]
    bad, order, starts = answers[0]
    if bad == -1:
        for partition in range(starts_room - 2):
            rows = [
                first_row + index
                for index, each in enumerate(partitions)
                if (keyless if each == -1 else each) == partition
            ]
            assert list(order[starts[partition] : starts[partition + 1]]) == rows
