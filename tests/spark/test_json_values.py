"""Values as JSON in typed columns: what a value becomes, and that none is lost."""

import pytest
from pyspark.sql import SparkSession

from headrace.spark.load.json_values import CORRUPT_COLUMN, TOMBSTONE_COLUMN, with_typed_columns
from headrace.spark.load.load import shape
from tests.json_values import KEPT, WHOLE, Columns

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA = "origin STRING, delay DOUBLE, n STRUCT<a: INT, b: STRING>, `Größe` INT"


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
