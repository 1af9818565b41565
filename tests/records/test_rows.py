"""Records one at a time, in and out: compiled, plain, and as the batches of others have them."""

import gc
import sys
from array import array
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.records.codecs.compression import Codec
from headrace.records.format2 import rows
from headrace.records.format2.batch import Record, decode_records, encode_batch, headers_at
from headrace.records.format2.columns import SpanTable, batch_of_rows, open_batch
from headrace.records.format2.header import HEADER_BYTES, read_header
from tests.records.samples import CODECS, golden_records, many_records, records, uncompiled

plain = uncompiled("rows")
both = pytest.mark.parametrize("module", [rows, plain], ids=["imported", "plain"])


def filled(module: Any, given: list[Record]) -> Any:
    buffer = module.RowBuffer(HEADER_BYTES)
    for record in given:
        buffer.append(record.key, record.value, record.timestamp_ms, record.headers)
    return buffer


def test_the_rows_are_compiled_and_their_reference_is_not() -> None:
    assert rows.COMPILED, "it would be compared with itself; `make setup` compiles it"
    assert not plain.COMPILED


@given(records)
def test_rows_given_one_by_one_are_the_batch_that_columns_make(given: list[Record]) -> None:
    whole = bytes(encode_batch(given))
    for module in (rows, plain):
        buffer = filled(module, given)
        assert buffer.timestamps_ms == [record.timestamp_ms for record in given]
        assert bytes(batch_of_rows(buffer)) == whole


@both
@pytest.mark.parametrize("codec", CODECS)
def test_rows_are_compressed_and_given_another_header_each_time(module: Any, codec: Codec) -> None:
    given = many_records(500)
    buffer = filled(module, given)
    for sequence in (5, 7):
        batch = batch_of_rows(buffer, codec=codec, producer_id=3, producer_epoch=1, base_sequence=sequence)
        assert decode_records(batch) == given
        header = read_header(batch)
        assert (header.codec, header.producer_id, header.base_sequence) == (codec, 3, sequence)


@both
def test_other_buffers_are_taken_and_what_is_no_record_changes_nothing(module: Any) -> None:
    buffer = filled(module, [Record(0, 5, b"k", b"v")])
    buffer.append(bytearray(b"key"), memoryview(b"value"), 6, [("name", memoryview(b"content"))])
    before = bytes(buffer.data[: buffer.end])
    for wrong in ("text", 7):
        with pytest.raises(TypeError):
            buffer.append(None, wrong, 6, ())
        with pytest.raises(TypeError):
            buffer.append(wrong, None, 6, ())
    with pytest.raises(ValueError, match="too far apart"):
        buffer.append(None, b"", -(2**63), ())
    assert (bytes(buffer.data[: buffer.end]), buffer.count) == (before, 2)
    assert decode_records(batch_of_rows(buffer)) == [
        Record(0, 5, b"k", b"v"),
        Record(1, 6, b"key", b"value", (("name", b"content"),)),
    ]


@both
def test_rows_of_a_scan_become_tuples(module: Any) -> None:
    given = golden_records()
    batch = encode_batch(given, base_offset=1000)
    opened = open_batch(batch, 0, read_header(batch))
    table = SpanTable(len(given))
    table.add(opened)
    scanned = (table.spans, table.offsets, table.timestamps_ms, table.timestamp_types)
    found = module.take(tuple, "t", 3, opened.data, *scanned, 10, 300, headers_at)
    assert found == [("t", 3, r.offset, r.timestamp_ms, 0, r.key, r.value, r.headers) for r in given[10:]]
    with pytest.raises(ValueError, match="not scanned"):
        module.take(tuple, "t", 3, opened.data, *scanned, 0, 301, headers_at)


class Slotted(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: object


class Open(Slotted):
    """Has attributes, so it can be part of a cycle."""


@both
def test_rows_hold_their_fields_and_let_them_go(module: Any) -> None:
    given = golden_records()
    opened = open_batch(encode_batch(given), 0, read_header(encode_batch(given)))
    table = SpanTable(len(given))
    table.add(opened)
    scanned = (table.spans, table.offsets, table.timestamps_ms, table.timestamp_types)
    topic = "a topic of its own " * 2
    before = sys.getrefcount(topic)
    for kind in (Slotted, Open):
        found = module.take(kind, topic, 70_000, opened.data, *scanned, 0, len(given), headers_at)
        assert [type(row) for row in found] == [kind] * len(given)
        assert [(row.key, row.value, row.headers) for row in found] == [(r.key, r.value, r.headers) for r in given]
        assert sys.getrefcount(topic) == before + len(given)
        assert gc.is_tracked(found[0]) == (kind is Open or not module.COMPILED)
        del found
        assert sys.getrefcount(topic) == before
    with pytest.raises(TypeError, match="rows are tuples"):
        module.take(list, topic, 0, opened.data, *scanned, 0, 1, headers_at)


@given(st.binary(max_size=20), st.lists(st.integers(-3, 25), min_size=6, max_size=6), st.integers(-1, 2))
def test_nothing_outside_a_buffer_is_looked_at(data: bytes, span: list[int], start: int) -> None:
    span[5] = 0
    answers = []
    for module in (rows, plain):
        try:
            answers.append(
                module.take(
                    tuple, "", 0, data, array("i", span), array("q", [1]), array("q", [1]), b"\0", start, 1, None
                )
            )
        except ValueError as problem:
            answers.append(str(problem))
    assert answers[0] == answers[1]
