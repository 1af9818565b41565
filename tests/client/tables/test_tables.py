"""Ranges of topics as tables, and columns from and to data frames."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pandas
import polars
import pyarrow
import pytest

from headrace.client import table
from headrace.client.consumer.consumer import Consumer
from headrace.client.operations.admin import Admin
from headrace.client.producer.producer import Producer
from headrace.client.serializers.errors import RegistryUnavailable
from headrace.client.serializers.registry import AvroSerializer, SchemaRegistry
from headrace.client.tables.reading import duration_ms
from headrace.client.tables.record_table import RecordTable
from headrace.client.tables.registry_values import avro_values
from headrace.columns.json_columns import JsonDecoder
from headrace.errors import InvalidConfig, InvalidRecord, UnknownTopicOrPartition
from headrace.types import TopicPartition
from tests.client.brokers import topic_name
from tests.harness import HeadraceServer
from tests.schema_registry import serving

VALUES = [b'{"item":"tea","count":2}', b'{"item":"bun"}', None, b"?", b'{"item":"cake","offset":7}']


@pytest.fixture
def address(shared_headrace: HeadraceServer) -> str:
    return shared_headrace.bootstrap


@pytest.fixture
def topic(address: str) -> str:
    """A topic of two partitions; partition 0 has the values, each a minute after the other, the last one now."""
    name = topic_name("tables")
    now = int(time.time() * 1_000)
    with Admin(address) as admin:
        admin.create_topic(name, 2, 1)
    with Producer(address) as producer:
        times = [now - 60_000 * (len(VALUES) - 1 - place) for place in range(len(VALUES))]
        producer.send_columns(name, [b"k\xff", None, b"k", b"k", b"k"], VALUES, times, partition=0).result()
    return name


def test_everything_of_a_topic_is_a_table(address: str, topic: str) -> None:
    found = table(address, topic)
    assert found.schema.names == ["partition", "offset", "timestamp", "key", "value"]
    rows = found.to_arrow().to_pylist()
    assert [(row["partition"], row["offset"], row["value"]) for row in rows] == [
        (0, offset, value) for offset, value in enumerate(VALUES)
    ]
    assert (rows[0]["key"], rows[1]["key"]) == (b"k\xff", None)


@pytest.mark.parametrize(
    ("bounds", "offsets"),
    [
        ({"last": "2m30s"}, [2, 3, 4]),
        ({"last": timedelta(minutes=1, seconds=30)}, [3, 4]),
        ({"last": "1d"}, [0, 1, 2, 3, 4]),
        ({"since": datetime.now(tz=UTC) + timedelta(hours=1)}, []),
        ({"offsets": {0: (1, 3)}}, [1, 2]),
        ({"offsets": {0: (1, 1), 1: (0, 0)}}, []),
    ],
)
def test_a_range_is_of_time_or_of_offsets(address: str, topic: str, bounds: dict[str, Any], offsets: list[int]) -> None:
    assert table(address, topic, **bounds).to_arrow()["offset"].to_pylist() == offsets


def test_a_time_leaves_out_older_records_that_came_later(address: str, topic: str) -> None:
    with Producer(address) as producer:
        producer.send(topic, b"late", partition=0, timestamp_ms=1_000_000_000_000).result()
        producer.send(topic, b"new", partition=0).result()
    since = int((time.time() - 30) * 1_000)
    found = table(address, topic, since=since, value="string", names=["topic", "offset"])
    assert found.to_arrow().drop_columns(["key"]).to_pylist() == [
        {"topic": topic, "offset": 4, "value": VALUES[4].decode() if VALUES[4] else None},
        {"topic": topic, "offset": 6, "value": "new"},
    ]


def test_json_is_decoded_beside_the_place_of_each_record(address: str, topic: str) -> None:
    found = table(address, topic, value="json", key="string")
    assert found.rescued_count == 1 and len(found) == 5
    names = ["offset", "key", "item", "count", "value_offset", "rescued_value"]
    assert [tuple(row.values()) for row in found.to_arrow().select(names).to_pylist()] == [
        (0, "k\ufffd", "tea", 2, None, None),
        (1, None, "bun", None, None, None),
        (2, "k", None, None, None, None),
        (3, "k", None, None, None, b"?"),
        (4, "k", "cake", None, 7, None),
    ]
    schema = pyarrow.schema([("count", pyarrow.int8())])
    for value in (schema, JsonDecoder(schema)):
        assert table(address, topic, value=value).to_arrow()["count"].to_pylist() == [2, None, None, None, None]


def test_values_without_an_object_are_all_rescued(address: str, topic: str) -> None:
    found = table(address, topic, value="json", offsets={0: (2, 4)})
    assert found.schema.names == ["partition", "offset", "timestamp", "key", "rescued_value"]
    assert (found.to_arrow()["rescued_value"].to_pylist(), found.rescued_count) == ([None, b"?"], 1)
    assert len(table(address, topic, value="json", offsets={1: (0, 0)})) == 0


def test_data_frames_take_the_table(address: str, topic: str) -> None:
    found = table(address, topic, value="json")
    assert found.to_polars().filter(polars.col("count") == 2)["item"].to_list() == ["tea"]
    assert polars.DataFrame(found)["offset"].to_list() == [0, 1, 2, 3, 4]
    assert pyarrow.table(found).num_rows == 5
    frame = found.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and list(frame["item"].dropna()) == ["tea", "bun", "cake"]
    assert found.to_duckdb().filter("item > 'c'").order("item").project("item").fetchall() == [("cake",), ("tea",)]
    with duckdb.connect() as connection:
        assert found.to_duckdb(connection).aggregate("count(item)").fetchall() == [(3,)]


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ({"last": "10 minutes"}, InvalidConfig, "expected a duration such as 10m"),
        ({"last": "1m", "since": 1_700_000_000_000}, InvalidConfig, "exclude each other"),
        ({"since": 1_700_000_000}, InvalidRecord, "seconds"),
        ({"offsets": {7: (0, 1)}}, UnknownTopicOrPartition, "has no partition 7"),
        ({"value": "avro"}, InvalidConfig, "bytes, string, json"),
        ({"key": "json"}, InvalidConfig, "bytes or string"),
        ({"isolation_level": "none"}, InvalidConfig, "read_uncommitted or read_committed"),
    ],
)
def test_a_wrong_bound_is_told(
    address: str, topic: str, wrong: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        table(address, topic, **wrong)


def test_a_topic_that_is_not_there_is_told(address: str) -> None:
    with pytest.raises(UnknownTopicOrPartition):
        table(address, "no-such-topic-of-tables", default_api_timeout_ms=1_000)


def test_durations_have_units() -> None:
    assert [duration_ms(text) for text in ("10m", "1h30m", "1.5s", "250ms", "2d")] == [
        600_000, 5_400_000, 1_500, 250, 172_800_000,
    ]  # fmt: skip


def test_what_was_polled_is_a_table(address: str, topic: str) -> None:
    with Consumer(address, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found = RecordTable.of(consumer.poll_columns(timeout_ms=60_000), "json", names=["offset"])
    assert found.to_polars()["item"].drop_nulls().to_list() == ["tea", "bun", "cake"]
    assert len(RecordTable.of([], "json")) == 0


@pytest.mark.parametrize("library", ["polars", "pandas", "pyarrow", "large", "view"])
def test_columns_of_data_frames_are_sent(address: str, library: str) -> None:
    keys, values = ["a", None, "ü"], [b"1", b"", None]
    given: dict[str, tuple[Any, Any]] = {
        "polars": (polars.Series(keys), polars.Series(values)),
        "pandas": (pandas.Series(keys), pandas.Series(values)),
        "pyarrow": (pyarrow.array(keys), pyarrow.array(values)),
        "large": (pyarrow.array(keys, pyarrow.large_string()), pyarrow.array(values, pyarrow.large_binary())),
        "view": (pyarrow.array(keys, pyarrow.string_view()), pyarrow.array(values, pyarrow.binary_view())),
    }
    name = topic_name("frames")
    with Admin(address) as admin:
        admin.create_topic(name, 1, 1)
    with Producer(address) as producer:
        producer.send_columns(name, *given[library]).result()
        with pytest.raises(InvalidRecord, match="one column of a data frame"):
            producer.send_columns(name, None, polars.DataFrame({"a": keys}))
    found = table(address, name).to_arrow()
    assert (found["key"].to_pylist(), found["value"].to_pylist()) == ([b"a", None, "ü".encode()], values)


def test_columns_of_duckdb_and_of_any_exporter_are_sent(address: str) -> None:
    class Exporter:
        """Knows Arrow, and no other library."""

        def __init__(self, column: Any) -> None:
            self._column = column

        def __len__(self) -> int:
            return len(self._column)

        def __arrow_c_array__(self, requested_schema: object = None) -> object:
            return self._column.__arrow_c_array__(requested_schema)

    name = topic_name("exporters")
    with Admin(address) as admin:
        admin.create_topic(name, 1, 1)
    rows: Any = duckdb.sql("SELECT 'k' || i AS key, i AS number FROM range(3) AS t(i)")
    read = rows.arrow()
    read = read.read_all() if hasattr(read, "read_all") else read
    with Producer(address) as producer:
        producer.send_columns(name, read["key"], Exporter(pyarrow.array(["x", "y", "z"]))).result()
    assert table(address, name, value="string", key="string", names=[]).to_arrow().to_pylist() == [
        {"key": "k0", "value": "x"},
        {"key": "k1", "value": "y"},
        {"key": "k2", "value": "z"},
    ]


@pytest.mark.slow
def test_avro_of_a_registry_is_decoded_into_columns(address: str) -> None:
    name = topic_name("avro-table")
    schema = {"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}]}
    with Admin(address) as admin:
        admin.create_topic(name, 1, 1)
    with serving() as (url, _):
        registry = SchemaRegistry(url)
        with Producer(address, value_serializer=AvroSerializer(registry, schema)) as producer:
            for item in ("tea", "bun"):
                producer.send(name, {"item": item})
            producer.flush()
            producer.send_columns(name, None, [b"\0\0\0\0\x63\0", b"?"]).result()
        found = table(address, name, value=avro_values(registry))
    assert found.to_arrow()["item"].to_pylist() == ["tea", "bun", None, None]
    assert found.to_arrow()["rescued_value"].to_pylist() == [None, None, b"\0\0\0\0\x63\0", b"?"]
    with pytest.raises(RegistryUnavailable):
        table(address, name, value=avro_values(SchemaRegistry(url)))
