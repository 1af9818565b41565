"""Lake tables of values with a schema of a registry: Avro, Protobuf, JSON Schema."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.client.core.cluster import Cluster
from headrace.client.producer.producer import Producer
from headrace.client.serializers.context import SerializationContext
from headrace.client.serializers.errors import RegistryUnavailable
from headrace.client.serializers.registry.avro import AvroSerializer
from headrace.client.serializers.registry.client import SchemaRegistry
from headrace.client.serializers.registry.json_schema import JsonSchemaSerializer
from headrace.client.serializers.registry.protobuf import ProtobufSerializer
from headrace.config.lake_definition import LakeDefinition, decode_definition
from headrace.lake import whole_topic
from headrace.lake.decoders import make_decoder
from headrace.lake.definitions import Definitions
from tests.eventually import eventually
from tests.lake.lakes import following, opened, rows_of, run_once
from tests.schema_registry import Registry, serving

FIRST = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "item", "type": "string"}, {"name": "n", "type": "int"}],
}
SECOND = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "item", "type": ["null", "string"]},
        {"name": "n", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "tags", "type": {"type": "map", "values": "double"}},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}}},
    ],
}  # fmt: skip
CLASHING = {"type": "record", "name": "Order", "fields": [{"name": "n", "type": "string"}]}
NO_COLUMNS = {"type": "record", "name": "Order", "fields": [{"name": "x", "type": ["int", "string"]}]}


@pytest.fixture
def registry() -> Iterator[tuple[Registry, str]]:
    with serving() as (url, known):
        yield known, url


@pytest.fixture
def definition(registry: tuple[Registry, str], table: Path) -> LakeDefinition:
    return LakeDefinition(table=str(table), values="registry", registry=registry[1])


def written(topic: str, broker: str, *values: bytes | None) -> None:
    with Producer(broker) as producer:
        for value in values:
            producer.send(topic, value, partition=0)


def avro(topic: str, url: str, schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    serializer = AvroSerializer(SchemaRegistry(url), json.dumps(schema))
    return serializer(value, SerializationContext(topic, "value"))


def run(broker: str, topic: str, definition: LakeDefinition) -> int:
    """Writes the table; how many values were rescued."""
    path = Path(definition.table)
    return sum(
        one.rescued for one in run_once(broker, topic, path, make_decoder=lambda known: make_decoder(definition, known))
    )


def fields_of(definition: LakeDefinition, *columns: str) -> list[tuple[object, ...]]:
    return [tuple(row[name] for name in columns) for row in rows_of(Path(definition.table))]


def test_columns_are_those_of_the_schemas_and_grow_with_them(
    broker: str, topic: str, registry: tuple[Registry, str], definition: LakeDefinition
) -> None:
    url = registry[1]
    written(
        topic, broker, avro(topic, url, SECOND, second("a", 1 << 40)), avro(topic, url, FIRST, {"item": "b", "n": 2})
    )
    assert run(broker, topic, definition) == 0
    wider = {**SECOND, "fields": [*SECOND["fields"], {"name": "new", "type": "boolean"}]}
    written(topic, broker, avro(topic, url, wider, {**second("c", 3), "new": True}), None)
    assert run(broker, topic, definition) == 0
    assert fields_of(definition, "item", "n", "tombstone") == [
        ("a", 1 << 40, False),
        ("b", 2, False),
        ("c", 3, False),
        (None, None, True),
    ]
    rows = rows_of(Path(definition.table))
    assert [row["new"] for row in rows] == [None, None, True, None]
    assert (rows[0]["lines"], dict(rows[0]["tags"])) == ([{"sku": "s1"}, {"sku": "s2"}], {"x": 0.5})  # type: ignore[call-overload]
    assert str(rows[0]["at"]) == "1970-01-01 00:00:01.500000+00:00"
    assert rows[0]["local"] == "1970-01-01 00:00:01.500"
    assert opened(Path(definition.table)).arrow_schema.field("n").type == "int64"


def second(item: str, n: int) -> dict[str, Any]:
    lines = [{"sku": "s1"}, {"sku": "s2"}]
    return {"item": item, "n": n, "at": 1500, "local": 1500, "tags": {"x": 0.5}, "lines": lines}


def test_what_cannot_be_in_the_columns_is_kept_whole_and_counted(
    broker: str, topic: str, registry: tuple[Registry, str], definition: LakeDefinition
) -> None:
    url = registry[1]
    good = avro(topic, url, FIRST, {"item": "a", "n": 1})
    odd = [
        b"", b"no frame", b"\0\0\0\x03\xe7payload", good[:-1], good + b"x",
        avro(topic, url, CLASHING, {"n": "seven"}), avro(topic, url, NO_COLUMNS, {"x": 1}),
    ]  # fmt: skip
    written(topic, broker, good)
    assert run(broker, topic, definition) == 0
    written(topic, broker, *odd, good)
    assert run(broker, topic, definition) == len(odd)
    assert fields_of(definition, "item", "n", "corrupt_value") == [
        ("a", 1, None),
        *((None, None, value) for value in odd),
        ("a", 1, None),
    ]


def test_the_topic_and_its_table_have_the_same_columns(
    broker: str, topic: str, registry: tuple[Registry, str], definition: LakeDefinition
) -> None:
    url = registry[1]
    with Cluster(broker) as cluster:
        Definitions(cluster).put(topic, definition)
    for _ in range(2):
        written(topic, broker, avro(topic, url, SECOND, second("a", 1)), b"odd", None)
        if not Path(definition.table).exists():
            run(broker, topic, definition)
    found = whole_topic.table(broker, topic)
    rows = [{name: row[name] for name in ("item", "n", "lines", "tags", "corrupt_value", "tombstone")}
            for row in sorted(found.to_arrow().to_pylist(), key=lambda row: row["offset"])]  # fmt: skip
    assert rows[:3] == rows[3:]
    assert (rows[0]["n"], rows[1]["corrupt_value"], found.rescued_count) == (1, b"odd", 2)


def test_protobuf_messages_become_columns(
    broker: str, topic: str, registry: tuple[Registry, str], definition: LakeDefinition
) -> None:
    order, tree = message_classes()
    value = order(name="a", count=3, huge=2**64 - 1, kind=1, codes=[1, 2])
    value.prices["x"] = 0.5
    value.inner.at.seconds = 1
    context = SerializationContext(topic, "value")
    serialize = ProtobufSerializer(SchemaRegistry(registry[1]), order)
    recursive = ProtobufSerializer(SchemaRegistry(registry[1]), tree)(tree(name="t"), context)
    frame = serialize(order(), context)
    written(topic, broker, serialize(value, context), frame, frame + b"\xff", recursive)
    assert run(broker, topic, definition) == 2
    first, empty, cut, kept = rows_of(Path(definition.table))
    assert {name: first[name] for name in ("name", "count", "huge", "kind", "codes")} == {
        "name": "a", "count": 3, "huge": 2**64 - 1, "kind": "SECOND", "codes": [1, 2],
    }  # fmt: skip
    assert dict(first["prices"]) == {"x": 0.5}  # type: ignore[call-overload]
    assert str(first["inner"]["at"]) == "1970-01-01 00:00:01+00:00"  # type: ignore[index]
    assert (empty["name"], empty["count"], empty["inner"], empty["kind"]) == ("", None, None, "FIRST")
    assert (cut["name"], cut["corrupt_value"], kept["corrupt_value"]) == (None, frame + b"\xff", recursive)


def message_classes() -> tuple[Any, Any]:
    """Classes of a file that nobody compiled."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="orders.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="FIRST", number=0)
    kind.value.add(name="SECOND", number=1)
    order = file.message_type.add(name="Order")
    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    order.field.add(name="name", number=1, type=field.TYPE_STRING, label=one)
    order.oneof_decl.add(name="_count")
    order.field.add(name="count", number=2, type=field.TYPE_INT32, label=one, proto3_optional=True, oneof_index=0)
    order.field.add(name="huge", number=3, type=field.TYPE_UINT64, label=one)
    order.field.add(name="kind", number=4, type=field.TYPE_ENUM, label=one, type_name=".shop.Kind")
    order.field.add(name="codes", number=5, type=field.TYPE_INT32, label=many)
    entry = order.nested_type.add(name="PricesEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=one)
    entry.field.add(name="value", number=2, type=field.TYPE_DOUBLE, label=one)
    order.field.add(name="prices", number=6, type=field.TYPE_MESSAGE, label=many, type_name=".shop.Order.PricesEntry")
    inner = order.nested_type.add(name="Inner")
    inner.field.add(name="at", number=1, type=field.TYPE_MESSAGE, label=one, type_name=".google.protobuf.Timestamp")
    order.field.add(name="inner", number=7, type=field.TYPE_MESSAGE, label=one, type_name=".shop.Order.Inner")
    tree = file.message_type.add(name="Tree")
    tree.field.add(name="name", number=1, type=field.TYPE_STRING, label=one)
    tree.field.add(name="next", number=2, type=field.TYPE_MESSAGE, label=one, type_name=".shop.Tree")
    pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())
    found = pool.FindFileByName("orders.proto").message_types_by_name
    return message_factory.GetMessageClass(found["Order"]), message_factory.GetMessageClass(found["Tree"])


def test_json_with_a_schema_becomes_columns(
    broker: str, topic: str, registry: tuple[Registry, str], definition: LakeDefinition
) -> None:
    schema = json.dumps({"type": "object", "title": "Order", "properties": {"n": {"type": "integer"}}})
    serialize = JsonSchemaSerializer(SchemaRegistry(registry[1]), schema)
    context = SerializationContext(topic, "value")
    written(topic, broker, serialize({"n": 1}, context), serialize({"n": 2, "more": {"x": "y"}}, context))
    assert run(broker, topic, definition) == 0
    assert fields_of(definition, "n", "more") == [(1, None), (2, {"x": "y"})]


@pytest.mark.slow
def test_a_registry_that_is_away_is_waited_for_and_nothing_is_rescued(
    broker: str, topic: str, registry: tuple[Registry, str], definition: LakeDefinition
) -> None:
    known, url = registry
    written(topic, broker, avro(topic, url, FIRST, {"item": "a", "n": 1}))
    known.failing = 5  # more than the client asks by itself
    with following(
        broker, topic, Path(definition.table), make_decoder=lambda known: make_decoder(definition, known)
    ) as running:
        eventually(lambda: bool(running.rounds), "the table to be written")
    assert any(isinstance(one, RegistryUnavailable) for one in running.troubles)
    assert fields_of(definition, "item", "corrupt_value") == [("a", None)]


def test_a_definition_has_the_registry_without_a_password(definition: LakeDefinition) -> None:
    assert decode_definition(definition.encoded()) == definition
    for wrong in (
        LakeDefinition("/t", values="registry"),
        LakeDefinition("/t", registry="http://a:1"),
        LakeDefinition("/t", values="registry", registry="http://user:secret@a:1"),
    ):
        with pytest.raises(ValueError, match="address of a registry, without a password"):
            decode_definition(wrong.encoded())
