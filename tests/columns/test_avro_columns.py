"""Avro values in Arrow columns: as fastavro reads each alone, and every row in its place."""

import datetime
import json
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.columns import avro_columns
from headrace.columns.avro_columns import AvroDecoder, FramedAvroDecoder
from headrace.columns.avro_schema import arrow_schema_of
from tests.examples import examples

FLAT: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "item", "type": "string"},
        {"name": "count", "type": "long"},
        {"name": "price", "type": ["null", "double"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "paid", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "size", "type": {"type": "enum", "name": "Size", "symbols": ["S", "M"]}},
        {"name": "line", "type": {"type": "record", "name": "Line", "fields": [{"name": "note", "type": "bytes"}]}},
        {"name": "again", "type": ["null", "Line"]},
    ],
}
NESTED: dict[str, Any] = {
    "type": "record",
    "name": "Basket",
    "fields": [
        {"name": "items", "type": {"type": "array", "items": ["string", "null"]}},
        {"name": "prices", "type": {"type": "map", "values": "float"}},
        {
            "name": "inner",
            "type": {
                "type": "record",
                "name": "Inner",
                "fields": [{"name": "size", "type": {"type": "enum", "name": "Size", "symbols": ["S", "M"]}}],
            },
        },
    ],
}
DAY = datetime.date(2026, 1, 2)


def order(number: int) -> dict[str, Any]:
    return {
        "item": f"tea{number}",
        "count": number,
        "price": None if number % 3 == 0 else number / 2,
        "at": datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
        "day": DAY,
        "paid": Decimal("1.50"),
        "size": "SM"[number % 2],
        "line": {"note": b"\xff" * (number % 4)},
        "again": None if number % 2 else {"note": b""},
    }


def basket(number: int) -> dict[str, Any]:
    return {"items": ["tea", None] * (number % 3), "prices": {"x": 1.5}, "inner": {"size": "M"}}


def written(schema: dict[str, Any], value: Any) -> bytes:
    buffer = BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), value)
    return buffer.getvalue()


def column(values: list[bytes | None]) -> pyarrow.BinaryArray:
    return pyarrow.array(values, pyarrow.binary())


def plain(batch: pyarrow.RecordBatch) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = batch.to_pylist()
    return [{**row, "prices": dict(row["prices"])} if row.get("prices") else row for row in rows]


@pytest.mark.parametrize(("schema", "make"), [(FLAT, order), (NESTED, basket)])
@pytest.mark.parametrize("has_polars", [True, False])
def test_records_come_back_equal(
    schema: dict[str, Any], make: Any, has_polars: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avro_columns, "PART_ROWS", 16)
    if not has_polars:
        monkeypatch.setattr(avro_columns, "_polars", lambda: None)
    expected = [make(number) for number in range(50)]
    values = [written(schema, value) for value in expected]
    decoded = AvroDecoder(json.dumps(schema)).decode(
        pyarrow.chunked_array([column([*values[:7]]), column([*values[7:]])])
    )
    assert plain(decoded.columns) == expected and decoded.rescued_count == 0


def test_whole_parts_are_read_without_an_object_for_each_record(monkeypatch: pytest.MonkeyPatch) -> None:
    alone: list[bytes | None] = []
    record = AvroDecoder._record

    def counted(self: AvroDecoder, value: bytes | None) -> Any:
        alone.append(value)
        return record(self, value)

    monkeypatch.setattr(AvroDecoder, "_record", counted)
    values = [written(FLAT, order(number)) for number in range(1_000)]
    AvroDecoder(FLAT).decode(column([*values]))
    assert alone == values[-1:]


WHOLE = [written(FLAT, order(number)) for number in range(6)]


@settings(max_examples=examples(150))
@given(
    place=st.integers(0, 5),
    damage=st.binary(min_size=1, max_size=12),
    cut=st.tuples(st.integers(0, 40), st.integers(0, 12)),
)
def test_a_damaged_record_moves_no_other_row(place: int, damage: bytes, cut: tuple[int, int]) -> None:
    start, length = cut
    whole = WHOLE[place]
    values: list[bytes | None] = [*WHOLE]
    values[place] = whole[:start] + damage + whole[start + length :]
    decoded = AvroDecoder(FLAT).decode(column(values))
    others = [number for number in range(6) if number != place]
    rows = [plain(decoded.columns.slice(number, 1)) for number in others]
    assert rows == [[order(number)] for number in others]
    assert [decoded.rescued[number].as_py() for number in others] == [None] * 5
    assert decoded.rescued[place].as_py() in (values[place], None)


@pytest.mark.parametrize("place", [0, 3, 5])
@pytest.mark.parametrize(
    "damaged", [lambda each: each + b"\0", lambda each: each[:-1], lambda _: b"", lambda each: each * 2]
)
def test_a_record_of_another_length_is_rescued(place: int, damaged: Any) -> None:
    values: list[bytes | None] = [*WHOLE]
    values[place] = damaged(WHOLE[place])
    decoded = AvroDecoder(FLAT).decode(column(values))
    assert decoded.rescued.to_pylist() == [value if number == place else None for number, value in enumerate(values)]


def test_two_damages_that_cancel_each_other_are_seen() -> None:
    """The first record takes the next one's beginning for its own end."""
    values = [WHOLE[0][:-3], WHOLE[0][-3:] + WHOLE[1], WHOLE[2]]
    decoded = AvroDecoder(FLAT).decode(column([*values]))
    assert decoded.rescued.to_pylist() == [*values[:2], None]
    assert plain(decoded.columns)[2] == order(2)


def test_a_tombstone_is_null_and_not_rescued() -> None:
    decoded = AvroDecoder(FLAT).decode(column([None, WHOLE[1]]))
    assert decoded.rescued_count == 0
    assert decoded.columns["count"].to_pylist() == [None, 1]


def test_framed_records_of_several_schemas_keep_their_order() -> None:
    newer = {
        **FLAT,
        "name": "Newer",
        "fields": [{"name": "count", "type": "long"}, {"name": "colour", "type": "string"}],
    }
    schemas: dict[int, Any] = {7: FLAT, 300: json.dumps(newer)}
    frames = {7: b"\0\0\0\0\7", 300: b"\0\0\0\1\x2c"}
    values: list[bytes | None] = []
    for number in range(40):
        value = frames[7] + written(FLAT, order(number))
        newest = frames[300] + written(newer, {"count": number, "colour": "red"})
        values.append([value, newest, None, b"\0\0\0\0\x09" + value[5:], b"?", frames[300]][number % 6])
    decoded = FramedAvroDecoder(schemas.__getitem__).decode(pyarrow.chunked_array([column(values)]))
    assert decoded.columns["count"].to_pylist() == [number if number % 6 < 2 else None for number in range(40)]
    assert decoded.columns["colour"].to_pylist() == ["red" if number % 6 == 1 else None for number in range(40)]
    assert decoded.rescued.to_pylist() == [value if number % 6 > 2 else None for number, value in enumerate(values)]
    wanted = pyarrow.schema([("count", pyarrow.int32()), ("x", pyarrow.string())])
    chosen = FramedAvroDecoder(schemas.__getitem__, wanted).decode(column(values[:2]))
    assert chosen.columns.to_pylist() == [{"count": 0, "x": None}, {"count": 1, "x": None}]
    assert len(FramedAvroDecoder(schemas.__getitem__).decode(column([])).columns) == 0
    assert FramedAvroDecoder(schemas.__getitem__).decode(column([b"?", None])).rescued.to_pylist() == [b"?", None]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (["string", "long"], "a union of 2 types"),
        (["null", "Node"], "Node refers to itself"),
        ({"type": "array", "items": "Elsewhere"}, "Elsewhere refers to itself, or is not defined"),
    ],
)
def test_a_schema_that_columns_cannot_hold_is_an_error(kind: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        arrow_schema_of({"type": "record", "name": "Node", "fields": [{"name": "x", "type": kind}]})
    with pytest.raises(TypeError, match="only records have columns"):
        AvroDecoder('"string"')
