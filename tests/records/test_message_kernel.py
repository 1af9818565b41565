"""The compiled kernel of messages against its own source, on bytes that mean nothing."""

import zlib
from array import array
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.records.codecs.compression import Codec
from headrace.records.legacy import message_kernel
from headrace.records.legacy.message_set import encode_message_set
from tests.examples import examples
from tests.records.message_samples import magics, rows, uncompiled_message_kernel

plain = uncompiled_message_kernel()
INT64_MAX = (1 << 63) - 1
int64s = st.sampled_from([-(1 << 63), -1, 0, 1, 5, 1 << 40, INT64_MAX])


@pytest.mark.parametrize("kernel", [message_kernel, plain], ids=["imported", "plain"])
@given(st.binary(max_size=40), st.integers(1, 12), st.booleans())
def test_its_crc_is_zlibs(kernel: ModuleType, data: bytes, times: int, folding: bool) -> None:
    assert kernel.crc32_of(data * times, folding) == zlib.crc32(data * times)


def _survey(kernel: ModuleType, data: bytes, magic: int, base: int, first: int, last: int) -> object:
    return kernel.survey(data, 0, len(data), magic, base, -1, first, last, 5, 100, True)


def _check(kernel: ModuleType, data: bytes, magic: int, base: int, first: int, last: int) -> object:
    return kernel.check(data, 0, len(data), magic, base > 0, last > 5, 60)


def _place(kernel: ModuleType, data: bytes, magic: int, base: int, first: int, last: int) -> object:
    out = bytearray(data)
    return kernel.place(out, 0, len(out), base & 0xFFFF, 8 * (magic & 1), magic > 0, 77), out


def _fill(kernel: ModuleType, data: bytes, magic: int, base: int, first: int, last: int) -> object:
    offsets, times, types = array("q", bytes(32)), array("q", bytes(32)), bytearray(4)
    columns = (array("i", bytes(20)), bytearray(30), bytearray(1), array("i", bytes(20)), bytearray(20), bytearray(0))
    answer = kernel.fill(
        data, 0, len(data), base & 0xFF, first, last, magic == 1, True, 9, 0, 4, offsets, times, types, *columns
    )
    return answer, offsets, times, types, columns


def _find_time(kernel: ModuleType, data: bytes, magic: int, base: int, first: int, last: int) -> object:
    return kernel.find_time(data, 0, len(data), magic, base, -1, first > 0, 7, first, last, 3)


calls = pytest.mark.parametrize("call", [_survey, _check, _place, _fill, _find_time])


@calls
@settings(max_examples=examples(150))
@given(
    rows,
    magics,
    st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 255)), max_size=4),
    st.integers(0, 20),
    st.integers(-1, 1),
    int64s,
    int64s,
    int64s,
)
def test_compiled_and_plain_answer_the_same_about_damaged_messages(
    call: Callable[..., object],
    records: Any,
    magic: int,
    noise: list[tuple[int, int]],
    cut: int,
    claimed: int,
    base: int,
    first: int,
    last: int,
) -> None:
    data = encode_message_set(records, magic=magic, codec=Codec.NONE)
    for at, byte in noise:
        data[at % len(data)] = byte
    arguments = (bytes(data[: len(data) - cut]), claimed, base, first, last)
    assert call(message_kernel, *arguments) == call(plain, *arguments)


@calls
@given(st.binary(max_size=80), st.integers(-1, 1), int64s, int64s, int64s)
def test_compiled_and_plain_answer_the_same_about_noise(
    call: Callable[..., object], data: bytes, magic: int, base: int, first: int, last: int
) -> None:
    assert call(message_kernel, data, magic, base, first, last) == call(plain, data, magic, base, first, last)


offset_lists = st.lists(st.integers(-2, 12), max_size=5).map(lambda numbers: array("i", numbers))
columns = st.tuples(offset_lists, st.binary(max_size=10), st.sampled_from([b"", b"\x0f", b"\x05", b"\x00"]))


@settings(max_examples=examples(200))
@given(
    columns,
    columns,
    st.lists(st.sampled_from([0, 1, 300, -1, -2, INT64_MAX]), max_size=4),
    st.lists(st.sampled_from([0, 1, 2, 3, -1, INT64_MAX]), max_size=4),
    st.integers(-1, 4),
    st.integers(-1, 5),
    st.integers(-1, 2),
    st.integers(-1, 100),
    st.booleans(),
)
def test_columns_of_all_kinds_are_measured_and_built_the_same(
    keys: Any, values: Any, times: Any, offsets: Any, start: int, stop: int, magic: int, room: int, stamped: bool
) -> None:
    answers = []
    for module in (message_kernel, plain):
        measured = module.measure(*keys, *values, start, stop, 26, room)
        out = bytearray(max(room, 0))
        built = module.build(
            *keys, *values, array("q", times), array("q", offsets), start, stop, magic, 8, 1, stamped, 5, out, 0
        )
        answers.append((measured, built, out))
    assert answers[0] == answers[1]
