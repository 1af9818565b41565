"""Records as Arrow batches with the columns of Spark's Kafka source."""

from datetime import UTC, datetime

import pyarrow
import pytest

from headrace.client.consumer.arrow import COLUMNS, arrow_schema, to_record_batch
from headrace.records.format2.batch import Record, encode_batch
from headrace.records.format2.columns import scan_batches

MS = 1_357_016_400_123
BATCH = encode_batch(
    [
        Record(0, MS, b"k", b"v", (("h", b"1"), ("n", None))),
        Record(1, MS + 1, None, b"", ()),
        Record(2, MS + 2, b"", None, ()),
    ],
    base_offset=5,
)


def test_every_column_holds_what_the_records_held() -> None:
    batch = to_record_batch(scan_batches(BATCH, headers=True), "t", 3, (*COLUMNS, "headers"))
    batch.validate(full=True)
    assert batch.to_pylist()[0] == {
        "key": b"k",
        "value": b"v",
        "topic": "t",
        "partition": 3,
        "offset": 5,
        "timestamp": datetime.fromtimestamp(MS // 1000, UTC).replace(microsecond=123_000),
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "n", "value": None}],
    }
    assert batch.column("key").to_pylist() == [b"k", None, b""]
    assert batch.column("value").to_pylist() == [b"v", b"", None]
    assert batch.column("headers").to_pylist()[1:] == [[], []]


@pytest.mark.parametrize("names", [("offset",), ("value", "key"), COLUMNS])
def test_only_the_columns_that_are_asked_for_come_in_that_order(names: tuple[str, ...]) -> None:
    batch = to_record_batch(scan_batches(BATCH), "t", 0, names)
    assert batch.schema == arrow_schema(names)


def test_a_column_that_was_not_decoded_is_null() -> None:
    batch = to_record_batch(scan_batches(BATCH, keys=False), "t", 0, ("key", "headers"))
    assert batch.column("key").null_count == batch.column("headers").null_count == 3


def test_values_share_the_memory_that_they_were_decoded_to() -> None:
    columns = scan_batches(BATCH)
    assert columns.values is not None
    batch = to_record_batch(columns, "t", 0, ("value",))
    assert batch.column(0).buffers()[2].address == pyarrow.py_buffer(columns.values.data).address


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(KeyError, match="colour"):
        to_record_batch(scan_batches(BATCH), "t", 0, ("colour",))


def test_no_records_are_an_empty_batch() -> None:
    assert to_record_batch(scan_batches(b"", headers=True), "t", 0, (*COLUMNS, "headers")).num_rows == 0
