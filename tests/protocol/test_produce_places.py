"""The places of a plain Produce are those of its other reading, and its answer is the other's, byte for byte."""

from array import array
from types import ModuleType
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol import messages as m
from headrace.protocol import produce_places as compiled
from headrace.protocol.plain_produce import PlainProduce, read_plain_produce, write_plain_answer
from headrace.protocol.produce_places import (
    ANSWER_BYTES,
    BASE_OFFSET,
    HEAD_FIELDS,
    INDEX,
    LOG_START,
    PLACES,
    RECORDS_AT,
    RECORDS_END,
    ROW_FIELDS,
    ROWS_MAX,
    TOPIC_AT,
    TOPIC_END,
)
from tests.protocol.test_plain_produce import Topics, frame_of, request_of, topics
from tests.uncompiled import uncompiled

FORMS = pytest.mark.parametrize("form", [compiled, uncompiled(compiled)], ids=["compiled", "uncompiled"])
OFFSETS = st.integers(-1, (1 << 63) - 1)
SHIFT = 9
"""How far behind the buffer's beginning the frame lies."""


class Read(NamedTuple):
    """A frame's places."""

    batches: int
    found: memoryview
    buf: memoryview

    def row(self, number: int) -> memoryview:
        start = HEAD_FIELDS + number * ROW_FIELDS
        return self.found[start : start + ROW_FIELDS]


def places(form: ModuleType, frame: memoryview) -> Read:
    buf = memoryview(bytearray(b"?" * SHIFT + bytes(frame) + b"?" * 5))
    found = memoryview(array("q", [-7]) * PLACES)
    return Read(form.read_produce_places(buf, SHIFT, SHIFT + len(frame), found), found, buf)


def assert_same(form: ModuleType, frame: memoryview) -> tuple[PlainProduce | None, Read]:
    plain, read = read_plain_produce(frame), places(form, frame)
    if plain is None:
        assert read.batches == 0
        return plain, read
    assert read.batches == len(plain.batches)
    assert (read.found[0], read.found[1], read.found[2]) == (
        plain.api_version,
        plain.correlation_id,
        len(plain.counts),
    )
    for number, each in enumerate(plain.batches):
        row = read.row(number)
        topic = bytes(read.buf[row[TOPIC_AT] : row[TOPIC_END]])
        assert topic == (each.topic if isinstance(each.topic, bytes) else each.topic.encode())
        assert (row[INDEX], read.buf[row[RECORDS_AT] : row[RECORDS_END]]) == (each.index, each.records)
    return plain, read


@FORMS
@given(version=st.integers(3, 13), topics=topics, acks=st.sampled_from([1, -1]), data=st.data())
def test_the_places_and_the_answer_are_those_of_the_other_reading(
    form: ModuleType, version: int, topics: Topics, acks: int, data: st.DataObject
) -> None:
    plain, read = assert_same(form, frame_of(version, request_of(topics, acks)))
    assert plain is not None
    placed = [(data.draw(OFFSETS), -1, data.draw(OFFSETS)) for _ in plain.batches]
    for number, (base_offset, _, log_start) in enumerate(placed):
        row = read.row(number)
        row[BASE_OFFSET], row[LOG_START] = base_offset, log_start
    bound = read.found[ANSWER_BYTES]
    out = memoryview(bytearray(b"!" * (bound + 6)))
    end = form.write_placed_answer(read.buf, read.found, read.batches, out, 3)
    assert out[3:end] == write_plain_answer(plain, placed)
    assert end <= 3 + bound
    assert bytes(out[:3]) + bytes(out[end:]) == b"!" * (len(out) - (end - 3))


@FORMS
@given(version=st.integers(3, 13), topics=topics, data=st.data())
def test_what_is_damaged_is_plain_to_both_or_to_none(
    form: ModuleType, version: int, topics: Topics, data: st.DataObject
) -> None:
    frame = bytearray(frame_of(version, request_of(topics)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(frame) - 1))
        if data.draw(st.booleans()):
            del frame[at:]
            break
        frame[at] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    if frame:
        assert_same(form, memoryview(frame))


@FORMS
@pytest.mark.parametrize("version", [3, 9, 13])
def test_more_batches_than_rows_are_left_alone(form: ModuleType, version: int) -> None:
    def asked(*counts: int) -> memoryview:
        return frame_of(
            version, request_of([(f"t{n}", bytes([n]) * 16, [(0, b"r")] * count) for n, count in enumerate(counts)])
        )

    for counts in ((ROWS_MAX,), (1,) * ROWS_MAX, (ROWS_MAX - 1, 1)):
        assert_same(form, asked(*counts))
        assert places(form, asked(*counts)).batches == ROWS_MAX
    for counts in ((ROWS_MAX + 1,), (1,) * (ROWS_MAX + 1), (ROWS_MAX, 1), (ROWS_MAX - 1, 2)):
        assert places(form, asked(*counts)).batches == 0


@FORMS
def test_the_bound_of_an_answer_holds_for_the_longest_name(form: ModuleType) -> None:
    for version in range(3, 14):
        read = places(form, frame_of(version, request_of([("x" * 249, bytes(16), [(n, b"r") for n in range(100)])])))
        assert read.batches == 100
        for number in range(100):
            read.row(number)[BASE_OFFSET] = read.row(number)[LOG_START] = (1 << 63) - 1
        out = memoryview(bytearray(read.found[ANSWER_BYTES]))
        end = form.write_placed_answer(read.buf, read.found, read.batches, out)
        response, _ = m.ProduceResponse.decode(version, out[4:end], 5 if version >= 9 else 4)
        assert [each.index for each in response.responses[0].partition_responses] == list(range(100))
