"""Values as JSON in typed columns: what a value becomes, and that none is lost."""

from typing import TypeAlias

import pytest
from pyspark.sql import SparkSession

from headrace.spark.load.json_values import CORRUPT_COLUMN, TOMBSTONE_COLUMN, with_typed_columns
from headrace.spark.load.load import shape

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA = "origin STRING, delay DOUBLE, n STRUCT<a: INT, b: STRING>, `Größe` INT"
Columns: TypeAlias = "tuple[str | None, float | None, tuple[int | None, str | None] | None, int | None]"
NONE: Columns = (None, None, None, None)

WHOLE: dict[bytes, Columns] = {
    b'{"origin":"EWR","delay":2.5}': ("EWR", 2.5, None, None),
    b"{}": NONE,
    b' {"origin":"a"}\n': ("a", None, None, None),
    b'{"origin":"a","extra":[1]}': ("a", None, None, None),
    b'{"n":{"a":1,"b":"x"}}': (None, None, (1, "x"), None),
    '{"Größe":7}'.encode(): (None, None, None, 7),
    b'{"origin":"\\"Origin\\":"}': ('"Origin":', None, None, None),
}
"""Values that are in the columns, and nowhere else."""

KEPT: dict[bytes, Columns] = {
    b"": NONE,
    b" ": NONE,
    b"null": NONE,
    b"not JSON": NONE,
    b"5": NONE,
    b"[]": NONE,
    b'[{"origin":"a"}]': NONE,
    b'{"origin":"a"': NONE,
    b'{"origin":"a"}{"origin":"b"}': NONE,
    b'{"origin":"a"} {"origin":"b"}': NONE,
    b'{"origin":"a"},{"origin":"b"}': NONE,
    b'{"origin":"a"},"x":{"origin":"b"}': NONE,
    b'{"origin":"a"} trailing': NONE,
    b'{"origin":"a"}}': NONE,
    b'{"origin":"a"}] x': NONE,
    b'{"origin":"a"}} x': NONE,
    b'{"origin":"\xff"}': NONE,
    b'\xed\xa0\x80{"origin":"a"}': NONE,
    b'{"origin":"a","delay":"late"}': ("a", None, None, None),
    b'{"origin":"a","n":5}': ("a", None, None, None),
    b'{"Origin":"a","delay":1}': (None, 1.0, None, None),
    b'{"n":{"A":1,"b":"x"}}': (None, None, (None, "x"), None),
    '{"GRÖSSE":1,"GRÖßE":7}'.encode(): NONE,
}
"""Values that are in `corrupt_value`, whatever of them is in the columns."""


@pytest.mark.parametrize(("values", "is_kept"), [(WHOLE, False), (KEPT, True)])
def test_a_value_is_in_the_columns_or_kept_as_it_is(
    spark: SparkSession, values: dict[bytes, Columns], is_kept: bool
) -> None:
    origin = ("t", 0, 0, None, None)
    columns = "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY"
    rows = spark.createDataFrame([(*origin, bytearray(value)) for value in values], columns).coalesce(1)
    found = with_typed_columns(rows, SCHEMA).drop(*columns.replace(",", "").split()[::2]).collect()
    for value, row in zip(values, found, strict=True):
        assert tuple(row)[:4] == values[value], value
        assert row[CORRUPT_COLUMN] == (value if is_kept else None), value
        assert row[TOMBSTONE_COLUMN] is False


def test_a_tombstone_is_no_empty_object(spark: SparkSession) -> None:
    columns = "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY"
    rows = spark.createDataFrame([("t", 0, 0, None, b"k", None)], columns)
    (row,) = with_typed_columns(rows, "a INT").collect()
    assert (row.a, row[CORRUPT_COLUMN], row[TOMBSTONE_COLUMN]) == (None, None, True)


@pytest.mark.parametrize("schema", [None, "a INT"])
def test_names_of_headers_become_text_that_every_reader_takes(spark: SparkSession, schema: str | None) -> None:
    rows = spark.sql(
        "SELECT 't' AS topic, 0 AS partition, 0L AS offset, current_timestamp() AS timestamp, x'' AS key,"
        " x'7B7D' AS value, array(struct(CAST(x'61FF' AS STRING) AS key, x'FF' AS value)) AS headers"
    )
    (row,) = shape(rows, schema).collect()
    assert [tuple(header) for header in row.headers] == [("a\ufffd", b"\xff")]
