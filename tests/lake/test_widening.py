"""Columns of numbers that get a wider type when values need it."""

from pathlib import Path

import polars
import pytest

from headrace.client.producer.producer import Producer
from headrace.config.lake_definition import LakeDefinition
from headrace.lake.core.plan import Slice
from headrace.lake.core.writer import Action, Commit
from headrace.lake.decoders import make_decoder
from headrace.lake.delta.delta_table import LostRaceError, SchemaChangedError
from headrace.lake.delta.fit import Fit, fit, widest
from headrace.lake.widening import widen
from tests.lake.lakes import offsets_of, opened, rows_of, run_once


def produced(broker: str, topic: str, *values: bytes) -> None:
    with Producer(broker) as producer:
        for value in values:
            producer.send(topic, value, partition=0)


def run(broker: str, topic: str, definition: LakeDefinition, **options: object) -> int:
    """Writes the table; how many values were rescued."""
    path = Path(definition.table)
    options |= {"partition_by": definition.partition_by, "make_decoder": lambda known: make_decoder(definition, known)}
    return sum(one.rescued for one in run_once(broker, topic, path, **options))


def column(definition: LakeDefinition, name: str) -> list[object]:
    return [row[name] for row in rows_of(Path(definition.table))]


@pytest.mark.parametrize("partition_by", [None, "bucket:2"])
def test_whole_numbers_become_others_and_old_rows_stay(
    broker: str, topic: str, table: Path, partition_by: str | None
) -> None:
    definition = LakeDefinition(table=str(table), values="json", partition_by=partition_by)
    produced(broker, topic, b'{"price": 10, "inner": [{"x": 1}], "n": 1}', b'{"s": "no price"}')
    assert run(broker, topic, definition) == 0
    before = opened(table).version
    produced(broker, topic, b'{"price": 10.5, "inner": [{"x": 0.5}], "n": 2, "new": 1}', b'{"price": 7}')
    assert run(broker, topic, definition) == 0
    assert column(definition, "price") == [10.0, None, 10.5, 7.0]
    assert [type(each) for each in column(definition, "price")] == [float, type(None), float, float]
    assert column(definition, "inner") == [[{"x": 1.0}], None, [{"x": 0.5}], None]
    assert (column(definition, "n"), column(definition, "new")) == ([1, None, 2, None], [None, None, 1, None])
    assert polars.read_delta(str(table))["price"].sum() == 27.5
    assert polars.read_delta(str(table), version=before)["price"].to_list().count(10) == 1
    assert set(offsets_of(table).values()) == {1}


def test_numbers_of_both_kinds_in_the_first_round_are_one_column(broker: str, topic: str, table: Path) -> None:
    definition = LakeDefinition(table=str(table), values="json")
    produced(broker, topic, *[b'{"price": 1}'] * 3)
    produced(broker, topic, *[b'{"price": 0.5}'] * 3)
    assert run(broker, topic, definition, round_bytes=1) == 0
    assert column(definition, "price") == [1.0] * 3 + [0.5] * 3


def test_a_number_that_would_be_another_one_prevents_it(broker: str, topic: str, table: Path) -> None:
    definition = LakeDefinition(table=str(table), values="json")
    produced(broker, topic, b'{"n": 9007199254740993}')
    run(broker, topic, definition)
    produced(broker, topic, b'{"n": 0.5}', b'{"n": 3}')
    assert run(broker, topic, definition) == 1
    assert column(definition, "n") == [9007199254740993, None, 3]
    assert column(definition, "corrupt_value") == [None, b'{"n": 0.5}', None]
    named = {path.name for path in opened(table).files}
    assert {path.name for path in table.glob("*.parquet")} == named, "what was written in vain is removed"


def test_a_large_table_is_not_written_anew(broker: str, topic: str, table: Path) -> None:
    definition = LakeDefinition(table=str(table), values="json")
    produced(broker, topic, b'{"n": 1}')
    run(broker, topic, definition)
    produced(broker, topic, b'{"n": 0.5}')
    assert run(broker, topic, definition, widen_bytes=10) == 1
    assert column(definition, "corrupt_value") == [None, b'{"n": 0.5}']
    with pytest.raises(SchemaChangedError, match="allow more, or write to a new table"):
        widen(opened(table), opened(table).schema_json, 10)


def test_a_schema_file_widens_columns_too(broker: str, topic: str, table: Path) -> None:
    def defined(kind: str) -> LakeDefinition:
        fields = [{"name": "n", "type": kind, "nullable": True, "metadata": {}}]
        return LakeDefinition(table=str(table), values="json", schema={"type": "struct", "fields": fields})

    produced(broker, topic, b'{"n": 1}')
    run(broker, topic, defined("integer"))
    for number, kind in enumerate(("long", "double"), 1):
        produced(broker, topic, b'{"n": %d}' % (1 << 40 | number))
        assert run(broker, topic, defined(kind)) == 0
    assert column(defined("double"), "n") == [1.0, float(1 << 40 | 1), float(1 << 40 | 2)]
    produced(broker, topic, b'{"n": 4}')
    with pytest.raises(SchemaChangedError, match="has another type than the schema for n"):
        run(broker, topic, defined("integer"))


def test_a_writer_that_has_decoded_for_the_old_type_decodes_again(broker: str, topic: str, table: Path) -> None:
    definition = LakeDefinition(table=str(table), values="json")
    produced(broker, topic, b'{"n": 1}')
    run(broker, topic, definition)
    produced(broker, topic, b'{"n": 2}')
    done: list[tuple[Slice, ...]] = []

    def widen_before_the_first_commit(action: Action) -> None:
        if isinstance(action, Commit) and not done:
            done.append(action.slices)
            widen(opened(table), wider_of(table))

    assert run(broker, topic, definition, on_action=widen_before_the_first_commit) == 0
    assert done
    assert column(definition, "n") == [1.0, 2.0]
    assert set(offsets_of(table).values()) == {1}


def test_only_the_first_of_two_that_widen_at_once_counts(broker: str, topic: str, table: Path) -> None:
    definition = LakeDefinition(table=str(table), values="json")
    produced(broker, topic, b'{"n": 1}')
    run(broker, topic, definition)
    first, second = opened(table), opened(table)
    wider = wider_of(table)
    widen(first, wider)
    with pytest.raises(LostRaceError):
        widen(second, wider)
    assert column(definition, "n") == [1.0]
    assert {path.name for path in table.glob("*.parquet")} >= {path.name for path in opened(table).files}


def wider_of(table: Path) -> str:
    """The table's columns with another type for n."""
    found = opened(table).schema_json.replace('"name":"n","type":"long"', '"name":"n","type":"double"')
    assert found != opened(table).schema_json
    return found


def test_which_types_are_wider() -> None:
    def struct(**types: object) -> dict[str, object]:
        fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
        return {"type": "struct", "fields": fields}

    assert fit(struct(a="long"), struct(a="double")) is Fit.WIDENS
    assert fit(struct(a="double"), struct(a="long")) is Fit.CLASHES
    assert fit(struct(a="long"), struct(a="double", b="string")) is Fit.WIDENS
    assert fit(struct(a="long", b="string"), struct(a="double", b="long")) is Fit.CLASHES
    inner = {"type": "array", "elementType": struct(x="integer"), "containsNull": True}
    wider = {"type": "array", "elementType": struct(x="long"), "containsNull": True}
    assert fit(struct(a=inner), struct(a=wider)) is Fit.WIDENS
    assert widest(struct(a=inner, b="string", c="float"), struct(c="double", a=wider)) == struct(
        a=wider, b="string", c="double"
    )
