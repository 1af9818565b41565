"""JSON values in Arrow columns: what a value becomes, and that every row stays in its place."""

import json
from typing import Any

import pyarrow
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.columns import json_columns
from headrace.columns.decoded import Decoded
from headrace.columns.json_columns import JsonDecoder
from tests.json_values import KEPT, WHOLE, Columns

SCHEMA = pyarrow.schema(
    [
        ("origin", pyarrow.string()),
        ("delay", pyarrow.float64()),
        ("n", pyarrow.struct([("a", pyarrow.int32()), ("b", pyarrow.string())])),
        ("Größe", pyarrow.int32()),
    ]
)
OBJECTS = ['{"origin":"a"}', '{"n":{"a":1}}', '{"a":[{}]}', "{}", '{"origin":"}{"}', '{"origin":"\\"","delay":null}']
PIECES = [
    *OBJECTS,
    "null",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    '"',
    "5",
    " ",
    "\n",
    "\r",
    "\t",
    "\0",
    "\\",
    '"x":',
    "true",
    "n",
]
HOSTILE = st.lists(st.sampled_from(PIECES), max_size=6).map(lambda pieces: "".join(pieces).encode())


def column(values: list[bytes | None]) -> pyarrow.BinaryArray:
    return pyarrow.array(values, pyarrow.binary())


def rows_of(decoded: Decoded) -> list[tuple[Any, ...]]:
    plain = [tuple(row.values()) for row in decoded.columns.to_pylist()]
    return [tuple(tuple(each.values()) if isinstance(each, dict) else each for each in row) for row in plain]


@pytest.mark.parametrize("together", [True, False])
def test_a_value_is_in_the_columns_or_kept_as_it_is(together: bool) -> None:
    decoder = JsonDecoder(SCHEMA)
    expected: dict[bytes, Columns] = {**WHOLE, **KEPT}
    values = list(expected)
    parts = [decoder.decode(column([*values]))] if together else [decoder.decode(column([each])) for each in values]
    rows = [row for part in parts for row in rows_of(part)]
    rescued = [each for part in parts for each in part.rescued.to_pylist()]
    assert dict(zip(values, rows, strict=True)) == expected
    assert rescued == [value if value in KEPT else None for value in values]
    assert sum(part.rescued_count for part in parts) == len(KEPT)


def test_a_tombstone_is_no_empty_object() -> None:
    decoded = JsonDecoder(SCHEMA).decode(column([None, b"{}", None, b'{"delay":1}']))
    assert [row[1] for row in rows_of(decoded)] == [None, None, None, 1.0]
    assert decoded.rescued_count == 0


def test_a_key_given_twice_is_null_and_the_value_kept() -> None:
    value = b'{"origin":"a","origin":"b","delay":2,"extra":1,"extra":2}'
    decoded = JsonDecoder(SCHEMA).decode(column([value, b'{"extra":1,"extra":2}']))
    assert rows_of(decoded)[0] == (None, 2.0, None, None)
    assert decoded.rescued.to_pylist() == [value, None]


def test_the_case_of_keys_is_of_no_interest_where_it_is_told_so() -> None:
    decoded = JsonDecoder(SCHEMA, keeps_other_case=False).decode(column([b'{"Origin":"a","delay":1}']))
    assert (rows_of(decoded), decoded.rescued_count) == ([(None, 1.0, None, None)], 0)


@pytest.mark.parametrize("part_rows", [(1_024, 64), (4, 2)])
@given(values=st.lists(HOSTILE | st.sampled_from([*WHOLE, *KEPT]) | st.none(), max_size=12))
@example(values=[b"null", b"{} null {}", b"{}\nnull", b'{"origin":"a', b'b"}', b"{}{}", b" "])
@example(values=[b'{"a":[{}', b"{}]}", b"{}"])
def test_what_a_value_becomes_does_not_depend_on_the_values_beside_it(
    part_rows: tuple[int, int], values: list[bytes | None]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_columns, "PART_ROWS", part_rows[0])
        patch.setattr(json_columns, "FEW_ROWS", part_rows[1])
        decoder = JsonDecoder(SCHEMA)
        numbered = [each for pair in zip(values, map(_numbered, range(len(values))), strict=True) for each in pair]
        together = decoder.decode(column(numbered))
    alone = [decoder.decode(column([each])) for each in values]
    assert rows_of(together)[::2] == [row for one in alone for row in rows_of(one)]
    assert together.rescued.to_pylist()[::2] == [one.rescued[0].as_py() for one in alone]
    assert [row[3] for row in rows_of(together)[1::2]] == list(range(len(values)))


def _numbered(number: int) -> bytes:
    return json.dumps({"Größe": number}, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (pyarrow.int32(), "2147483648", None),
        (pyarrow.int32(), "1.5", None),
        (pyarrow.uint8(), "255", 255),
        (pyarrow.uint8(), "-1", None),
        (pyarrow.int64(), "true", None),
        (pyarrow.int64(), "9" * 5_000, None),
        (pyarrow.float64(), "1e999", None),
        (pyarrow.float32(), "1", 1.0),
        (pyarrow.bool_(), '"true"', None),
        (pyarrow.string(), "1", None),
        (pyarrow.string(), '"\\ud800"', None),
        (pyarrow.string(), '"\\u0000"', "\0"),
        (pyarrow.decimal128(5, 2), '"1.50"', "1.50"),
        (pyarrow.decimal128(5, 2), "1.5", "1.50"),
        (pyarrow.decimal128(5, 2), "1.555", None),
        (pyarrow.date32(), '"2026-02-28"', "2026-02-28"),
        (pyarrow.date32(), '"2026-02-30"', None),
        (pyarrow.date32(), "5", None),
        (pyarrow.timestamp("us", "UTC"), '"2026-02-28T01:00:00+01:00"', "2026-02-28 00:00:00+00:00"),
        (pyarrow.timestamp("us", "UTC"), '"2026-02-28 00:00:00"', "2026-02-28 00:00:00+00:00"),
        (pyarrow.timestamp("us", "UTC"), '"2026-02-28T00:00:00.123456789Z"', "2026-02-28 00:00:00.123456+00:00"),
        (pyarrow.timestamp("us"), '"yesterday"', None),
        (pyarrow.list_(pyarrow.int64()), "[1,null]", [1, None]),
        (pyarrow.list_(pyarrow.int64()), '[1,"x"]', None),
        (pyarrow.list_(pyarrow.date32()), '["2026-02-28"]', None),
    ],
)
@pytest.mark.parametrize("beside", [[], [b'{"x":1}{"x":1}']])
def test_a_field_fits_its_type_or_is_kept(
    kind: pyarrow.DataType, text: str, expected: Any, beside: list[bytes]
) -> None:
    decoder = JsonDecoder(pyarrow.schema([("x", kind)]))
    value = b'{"x":' + text.encode() + b"}"
    decoded = decoder.decode(column([value, *beside]))
    found = decoded.columns["x"][0].as_py()
    if kind == pyarrow.list_(pyarrow.date32()):
        assert [str(each) for each in found] == ["2026-02-28"]
        return
    assert found == expected or str(found) == expected
    is_kept = expected is None or text.endswith('789Z"')  # the digits that were cut off
    assert decoded.rescued[0].as_py() == (value if is_kept else None)


def test_nesting_costs_no_stack() -> None:
    deep = b'{"zz":' + b"[" * 200_000 + b"]" * 200_000 + b',"delay":1}'
    torn = b'{"origin":' + b"[" * 200_000
    decoded = JsonDecoder(SCHEMA).decode(column([deep, torn, b'{"delay":3}', b""]))
    assert [row[1] for row in rows_of(decoded)] == [1.0, None, 3.0, None]
    assert decoded.rescued.to_pylist() == [None, torn, None, b""]


def test_blocks_are_joined_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_columns, "BLOCK_ROWS", 10)
    monkeypatch.setattr(json_columns, "BLOCK_BYTES_MAX", 100)
    values: list[bytes | None] = [_numbered(number) for number in range(95)]
    values[40], values[41] = b"torn", None
    chunks = pyarrow.chunked_array([column(values[:33]), column(values[33:]).slice(0)])
    decoded = JsonDecoder(SCHEMA).decode(chunks)
    assert [row[3] for row in rows_of(decoded)] == [*range(40), None, None, *range(42, 95)]
    assert decoded.rescued_count == 1


def test_columns_stand_beside_those_of_the_records() -> None:
    place = pyarrow.record_batch({"offset": [7, 8]})
    decoded = JsonDecoder(pyarrow.schema([("x", pyarrow.int64())])).decode(column([b'{"x":1}', b"?"]))
    assert decoded.beside(place).to_pylist() == [
        {"offset": 7, "x": 1, "rescued_value": None},
        {"offset": 8, "x": None, "rescued_value": b"?"},
    ]
    with pytest.raises(ValueError, match="offset"):
        decoded.beside(place, rescued="offset")
    with pytest.raises(ValueError, match="1 rows cannot stand beside 2"):
        decoded.beside(place.slice(1))


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        (
            [("x", pyarrow.map_(pyarrow.string(), pyarrow.int32()))],
            TypeError,
            "column x: JSON cannot be decoded into map",
        ),
        ([("x", pyarrow.list_(pyarrow.binary()))], TypeError, "binary"),
        ([], ValueError, "names of their own"),
        ([("x", pyarrow.int8()), ("x", pyarrow.int8())], ValueError, "names of their own"),
    ],
)
def test_a_schema_that_cannot_be_decoded_is_an_error(fields: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        JsonDecoder(pyarrow.schema(fields))


def test_a_field_that_must_not_be_null_may_be_missing() -> None:
    schema = pyarrow.schema([pyarrow.field("x", pyarrow.int32(), nullable=False)])
    decoded = JsonDecoder(schema).decode(column([b"{}"]))
    decoded.columns.validate(full=True)
    assert decoded.columns.schema.field("x").nullable
