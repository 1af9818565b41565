"""Values as JSON objects in typed columns: what fits, what is rescued, and columns that come later."""

import json
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from headrace.client.producer.producer import Producer
from headrace.columns.json_schema import infer_json_schema
from headrace.config.lake_definition import LakeDefinition
from headrace.lake.compaction import compact
from headrace.lake.core.writer import Action, Commit
from headrace.lake.decoders import make_decoder
from headrace.lake.delta.delta_table import LoadTable, SchemaChangedError
from headrace.lake.delta.fit import Fit, fit
from headrace.lake.json_decoding import JsonTableDecoder
from headrace.lake.json_fields import FIELDS_MAX, column_of, field_of, grown
from headrace.lake.runner import Round
from headrace.records.binary import column_of as column_of_rows
from headrace.records.format2.columns import RecordColumns
from headrace.types import TopicPartition
from tests.lake.lakes import offsets_of, opened, rows_of, run_once

INFER = LakeDefinition(table="t", values="json")
PRICES: dict[str, object] = {
    "type": "struct",
    "fields": [
        {"name": "item", "type": "string", "nullable": True, "metadata": {}},
        {"name": "price", "type": "double", "nullable": True, "metadata": {}},
    ],
}
BY_FILE = LakeDefinition(table="t", values="json", schema=PRICES)


def send(broker: str, topic: str, *values: object) -> None:
    """Each value is bytes as they are, None, or an object as JSON; all in partition 0."""
    with Producer(broker) as producer:
        for value in values:
            raw = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            producer.send(topic, raw, partition=0)


def write(broker: str, topic: str, table: Path, definition: LakeDefinition = INFER, **more: Any) -> list[Round]:
    return run_once(broker, topic, table, make_decoder=lambda schema: make_decoder(definition, schema), **more)


def fields_of(table: Path) -> list[dict[str, object]]:
    """The rows without the columns of every record, and without nulls."""
    own = ("topic", "partition", "offset", "timestamp", "key")
    return [{k: v for k, v in row.items() if k not in own and v is not None} for row in rows_of(table)]


def test_a_schema_chooses_the_fields_and_what_does_not_fit_is_kept(broker: str, topic: str, table: Path) -> None:
    send(broker, topic, {"item": "a", "price": 1.5, "more": 1}, {"item": "b", "price": "dear"}, None, b"\xff{", b"")
    [only] = write(broker, topic, table, BY_FILE)
    assert (only.rows, only.rescued) == (5, 3)
    assert fields_of(table) == [
        {"item": "a", "price": 1.5, "tombstone": False},
        {"item": "b", "corrupt_value": b'{"item": "b", "price": "dear"}', "tombstone": False},
        {"tombstone": True},
        {"corrupt_value": b"\xff{", "tombstone": False},
        {"corrupt_value": b"", "tombstone": False},
    ]


def test_a_key_in_another_case_is_kept_and_its_neighbours_are_typed(broker: str, topic: str, table: Path) -> None:
    send(broker, topic, {"item": "a", "Price": 2.5}, {"item": "b", "price": 1.5, "PRICE": None})
    [only] = write(broker, topic, table, BY_FILE)
    assert only.rescued == 1
    assert [(row["item"], row["price"], row["corrupt_value"]) for row in rows_of(table)] == [
        ("a", None, b'{"item": "a", "Price": 2.5}'),
        ("b", 1.5, None),
    ]


def test_columns_come_with_the_values_and_older_rows_have_null_there(broker: str, topic: str, table: Path) -> None:
    send(broker, topic, {"a": 1})
    write(broker, topic, table)
    send(broker, topic, {"a": 2, "b": "x", "s": {"x": 1}})
    write(broker, topic, table)
    send(broker, topic, {"a": 3, "s": {"x": 2, "y": [1.5]}, "l": [{"p": True}]})
    [last] = write(broker, topic, table)
    assert last.rescued == 0
    rows = pa.table(QueryBuilder().register("t", DeltaTable(str(table))).execute("select a, b, s, l from t order by a"))
    assert rows.to_pylist() == [
        {"a": 1, "b": None, "s": None, "l": None},
        {"a": 2, "b": "x", "s": {"x": 1, "y": None}, "l": None},
        {"a": 3, "b": None, "s": {"x": 2, "y": [1.5]}, "l": [{"p": True}]},
    ]


def test_a_table_whose_columns_grew_can_be_compacted(broker: str, topic: str, table: Path) -> None:
    for value in ({"a": 1}, {"s": {"x": 1}}, {"s": {"y": "u"}}):
        send(broker, topic, value)
        write(broker, topic, table)
    send(broker, topic, {"s": {"y": "v"}})
    write(broker, topic, table)
    before = sorted(rows_of(table), key=str)
    assert compact(opened(table))
    assert opened(table).file_count == 3, "files from before a column came are not mixed with later ones"
    assert sorted(rows_of(table), key=str) == before


@pytest.mark.parametrize(
    "value",
    [
        {"a": "text"},
        {"a": 1, "b c": 1},
        {"a": 1, "A": 2},
        {"a": 1, "": 2},
        {"a": 1.5},
        {"s": {"x": {"y": 1}}},
        {"s": [1]},
        {"s": {"x": 1, "z z": 2}},
        {"l": [{"p": 1, "q;": 1}]},
        {"a": 1 << 70},
        {"x" * 300: 1},
        {"a\u0007": 1},
    ],
)
def test_a_value_that_cannot_have_columns_is_whole_in_the_rescue_column(
    broker: str, topic: str, table: Path, value: dict[str, object]
) -> None:
    send(broker, topic, {"a": 1, "s": {"x": 2}, "l": [{"p": 1}]})
    write(broker, topic, table)
    send(broker, topic, value, {"a": 3})
    [only] = write(broker, topic, table, widen_bytes=0)
    assert only.rescued == 1
    rows = fields_of(table)
    assert [json.loads(row["corrupt_value"]) for row in rows if "corrupt_value" in row] == [value]  # type: ignore[arg-type]
    assert [row.get("a") for row in rows][::2] == [1, 3], "those beside it are not touched"


def test_fields_with_names_of_the_records_own_columns_have_columns_of_their_own(
    broker: str, topic: str, table: Path
) -> None:
    send(broker, topic, {"timestamp": "noon", "key": 1, "value_key": 2, "Offset": 3, "value": 4, "tombstone": "x"})
    [only] = write(broker, topic, table)
    assert only.rescued == 0
    assert fields_of(table) == [
        {
            "value_timestamp": "noon",
            "value_key": 1,
            "value_value_key": 2,
            "value_Offset": 3,
            "value": 4,
            "value_tombstone": "x",
            "tombstone": False,
        }
    ]
    send(broker, topic, {"key": 5})
    write(broker, topic, table)
    assert fields_of(table)[1] == {"value_key": 5, "tombstone": False}, "also by the table that is there"


@pytest.mark.parametrize("name", ["key", "KEY", "value_key", "value_value_key", "value", "price", "value_price", ""])
def test_a_field_is_found_by_its_column(name: str) -> None:
    assert field_of(column_of(name)) == name


def test_nulls_and_empty_values_alone_make_no_column_and_are_no_loss(broker: str, topic: str, table: Path) -> None:
    send(broker, topic, {"a": None, "b": [], "c": {}}, {"a": 1}, {"b": ["x"]})
    [only] = write(broker, topic, table)
    assert only.rescued == 0
    assert fields_of(table) == [
        {"b": [], "tombstone": False},
        {"a": 1, "tombstone": False},
        {"b": ["x"], "tombstone": False},
    ]


@pytest.mark.slow
def test_keys_that_are_data_do_not_make_columns_without_end(broker: str, topic: str, table: Path) -> None:
    send(broker, topic, *({f"user{n}": n} for n in range(FIELDS_MAX + 5)))
    [only] = write(broker, topic, table)
    assert only.rescued == 5
    assert len(fields_of(table)) == FIELDS_MAX + 5


def test_two_writers_that_find_one_field_with_two_types_keep_both_values(broker: str, topic: str, table: Path) -> None:
    send(broker, topic, {"a": 1})
    write(broker, topic, table)
    send(broker, topic, {"n": "text"})
    done: list[Action] = []

    def race(action: Action) -> None:
        if isinstance(action, Commit) and not done:
            done.append(action)
            opened = LoadTable.open(table)
            assert opened is not None
            field = {"name": "n", "type": "long", "nullable": True, "metadata": {}}
            opened.grow(json.dumps({"type": "struct", "fields": [field]}))

    [only] = write(broker, topic, table, on_action=race)
    assert (only.rows, only.rescued) == (1, 1)
    assert fields_of(table)[1] == {"corrupt_value": b'{"n": "text"}', "tombstone": False}
    assert set(offsets_of(table).values()) == {1}


@pytest.mark.slow
def test_statistics_of_fields_let_readers_skip_files(broker: str, topic: str, table: Path) -> None:
    send(broker, topic, {"price": 1.5, "n": 3, "item": "b"}, {"price": 0.5, "item": "a" * 100})
    write(broker, topic, table)
    [action] = pa.table(DeltaTable(str(table)).get_add_actions(flatten=True)).to_pylist()
    assert (action["min.price"], action["max.price"], action["max.n"], action["null_count.n"]) == (0.5, 1.5, 3, 1)
    assert action.get("max.item") is None, "too long"


def test_a_schema_file_that_has_more_grows_the_table_and_another_type_is_refused(
    broker: str, topic: str, table: Path
) -> None:
    send(broker, topic, {"item": "a", "price": 1.5})
    write(broker, topic, table, BY_FILE)
    fields: list[dict[str, object]] = [*PRICES["fields"]]  # type: ignore[misc]
    more = {"name": "count", "type": "long", "nullable": True, "metadata": {}}
    send(broker, topic, {"item": "b", "count": 2})
    write(
        broker,
        topic,
        table,
        LakeDefinition(table="t", values="json", schema={"type": "struct", "fields": [*fields, more]}),
    )
    assert fields_of(table)[1] == {"item": "b", "count": 2, "tombstone": False}
    other = {"type": "struct", "fields": [{**more, "type": "string"}]}
    with pytest.raises(SchemaChangedError, match="has another type than the schema for count"):
        write(broker, topic, table, LakeDefinition(table="t", values="json", schema=other))


def test_a_raw_table_and_a_json_table_are_not_continued_as_the_other(broker: str, topic: str, table: Path) -> None:
    send(broker, topic, {"a": 1})
    run_once(broker, topic, table)
    with pytest.raises(SchemaChangedError, match="has no column corrupt_value"):
        write(broker, topic, table)
    write(broker, topic, table.with_name("json"))
    with pytest.raises(SchemaChangedError, match="not the columns of raw records"):
        write(broker, topic, table.with_name("json"), LakeDefinition(table="t"))


def test_growth_is_told_apart_from_a_clash_at_any_depth() -> None:
    def struct(**fields: object) -> dict[str, object]:
        return {"type": "struct", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}

    def array(element: object) -> dict[str, object]:
        return {"type": "array", "elementType": element, "containsNull": True}

    table = struct(a="long", s=struct(x="long"), l=array(struct(p="string")))
    assert fit(table, struct(a="long")) is Fit.FITS
    assert fit(table, struct(s=struct(y="long"))) is Fit.LACKS_COLUMNS
    assert fit(table, struct(l=array(struct(q="long")))) is Fit.LACKS_COLUMNS
    assert fit(table, struct(l=array(struct(p="long")))) is Fit.CLASHES
    assert fit(table, struct(b="long", a="string")) is Fit.CLASHES
    assert fit(table, struct(A="long")) is Fit.CLASHES
    assert fit(table, struct(s=array("long"))) is Fit.CLASHES


def test_growing_again_with_what_is_known_changes_nothing() -> None:
    known = pa.struct([("a", pa.int64()), ("s", pa.struct([("x", pa.list_(pa.struct([("p", pa.string())])))]))])
    assert grown(known, known) == (known, False)
    assert grown(pa.struct([]), known) == (known, False)


def test_values_with_known_fields_alone_are_decoded_at_once_with_the_same_result(
    broker: str, topic: str, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inferred: list[int] = []

    def counting(values: pa.Array, **more: bool) -> pa.Schema:
        inferred.append(len(values))
        return infer_json_schema(values, **more)

    monkeypatch.setattr("headrace.lake.json_decoding.infer_json_schema", counting)
    fields = pa.struct([("a", pa.int64()), ("s", pa.struct([("x", pa.string())]))])

    def decoded(*values: bytes | None) -> tuple[list[dict[str, object]], int]:
        decoder = JsonTableDecoder(fields, grows=True)
        found = decoder.decode(columns_of(values), TopicPartition("t", 0)).to_pylist()
        kept = [{name: row.get(name) for name in ("a", "s", "b", "A", "corrupt_value", "tombstone")} for row in found]
        return kept, decoder.rescued

    usual = b'{"a": 1, "s": {"x": "y"}}'
    plain = {"a": 1, "s": {"x": "y"}, "b": None, "A": None, "corrupt_value": None, "tombstone": False}
    assert decoded(usual, None, usual)[0][::2] == [plain, plain]
    assert inferred == []
    for odd, rescued in [
        (b'{"a": 2, "b": 3}', 0), (b'{"A": 2}', 1), (b'{"a": "x"}', 1), (b'{"a": 1, "a": 2}', 1),
        (b'{"s": {"x": "y", "z": 1}}', 0), (b"[1]", 1), (b"{", 1), (b"\xff", 1), (b'{"a": 1}{"a": 2}', 1),
    ]:  # fmt: skip
        inferred.clear()
        rows, count = decoded(usual, odd, usual)
        assert inferred == [3], odd
        assert count == rescued, odd
        assert [(rows[n]["a"], rows[n]["s"]["x"], rows[n]["corrupt_value"]) for n in (0, 2)] == [(1, "y", None)] * 2  # type: ignore[index]
        assert rows[1]["corrupt_value"] == (odd if rescued else None)


def test_odd_values_in_each_batch_do_not_make_each_batch_slow() -> None:
    decoder = JsonTableDecoder(pa.struct([("a", pa.int64())]), grows=True)
    tried: list[bool] = []
    assert decoder._known is not None
    whole = decoder._known.whole

    def counting(values: pa.Array) -> pa.RecordBatch | None:
        tried.append(True)
        return whole(values)

    decoder._known.whole = counting  # type: ignore[method-assign]
    for _ in range(64):
        decoder.decode(columns_of([b"no JSON"]), TopicPartition("t", 0))
    assert 4 <= len(tried) <= 10
    for _ in range(40):
        decoder.decode(columns_of([b'{"a": 1}']), TopicPartition("t", 0))
    assert len(tried) >= 24, "it is tried again, and then always"


def columns_of(values: Sequence[bytes | None]) -> RecordColumns:
    """Records with these values, as a fetch has them."""
    count, column = len(values), column_of_rows(list(values))
    times = array("q", [0] * count)
    return RecordColumns(count, array("q", range(count)), times, bytearray(count), None, column, None, count, 0)
