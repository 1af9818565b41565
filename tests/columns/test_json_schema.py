"""The schema of JSON values that nobody described."""

import pyarrow
import pytest

from headrace.columns.json_columns import JsonDecoder
from headrace.columns.json_schema import infer_json_schema

INT, DOUBLE, TEXT = pyarrow.int64(), pyarrow.float64(), pyarrow.string()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([b'{"a":1,"b":"x"}', None, b'{"c":true}'], {"a": INT, "b": TEXT, "c": pyarrow.bool_()}),
        ([b'{"a":1}', b'{"a":1.5}'], {"a": DOUBLE}),
        ([b'{"a":1}', b'{"a":"x"}', b'{"b":1.5}'], {"a": INT, "b": DOUBLE}),
        ([b'{"a":null}'], {"a": TEXT}),
        ([b'{"a":"2026-02-28"}', b'{"a":"soon"}'], {"a": TEXT}),
        ([b'{"a":"2026-02-28"}'], {"a": TEXT}),
        ([b'{"a":{"b":1}}', b'{"a":{"c":[1,2.5]}}'], {"a": pyarrow.struct([("b", INT), ("c", pyarrow.list_(DOUBLE))])}),
        ([b'{"a":1,"a":2}', b"null", b"{", b"", b"\xff"], {"a": INT}),
        ([b'{"a":12345678901234567890}'], {"a": DOUBLE}),
        ([b'{"a":{},"b":[{}],"c":1}'], {"c": INT}),
        ([b"5", b"[]", None], {}),
        ([], {}),
    ],
)
def test_the_schema_has_every_field(values: list[bytes | None], expected: dict[str, pyarrow.DataType]) -> None:
    found = infer_json_schema(pyarrow.array(values, pyarrow.binary()))
    assert dict(zip(found.names, found.types, strict=True)) == expected
    if expected:
        JsonDecoder(found)


@pytest.mark.parametrize("space", [b"", b"\n"])
def test_deep_nesting_is_text_below_some_level(space: bytes) -> None:
    deep = b'{"z":' + space + b"[" * 100_000 + b"]" * 100_000 + b"}"
    less = b'{"y":' + b"[" * 40 + b"1" + b"]" * 40 + b"}"
    found = infer_json_schema(pyarrow.array([deep, less, b'{"a":1}'], pyarrow.binary()))
    assert found.field("a").type == INT
    assert "z" not in found.names
    JsonDecoder(found)


def test_a_field_that_is_null_everywhere_can_be_left_out() -> None:
    values = pyarrow.array([b'{"a":null,"b":[],"c":[{"d":null}],"e":{"f":null,"g":1}}'], pyarrow.binary())
    assert infer_json_schema(values, nulls_as_text=False) == pyarrow.schema([("e", pyarrow.struct([("g", INT)]))])


def test_blocks_have_one_schema() -> None:
    chunks = [pyarrow.array([b'{"a":1}']), pyarrow.array([b'{"a":1.5,"b":2}'])]
    found = infer_json_schema(pyarrow.chunked_array(chunks))
    assert found == pyarrow.schema([("a", DOUBLE), ("b", INT)])
