"""Serializers with a schema registry, beside confluent-kafka's own through the same registry.

With HEADRACE_TEST_SCHEMA_REGISTRY the address of another registry is used (Karapace and Confluent's have no guids of
schemas in their older versions: then nothing is kept in headers).
"""

import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import jsonschema
import pydantic
import pytest
from confluent_kafka import schema_registry as confluent
from confluent_kafka.schema_registry.avro import AvroDeserializer as TheirAvroDeserializer
from confluent_kafka.schema_registry.avro import AvroSerializer as TheirAvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer as TheirJsonDeserializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer as TheirJsonSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer as TheirProtobufDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer as TheirProtobufSerializer
from confluent_kafka.serialization import MessageField
from confluent_kafka.serialization import SerializationContext as TheirContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.consumer.consumer import Consumer
from headrace.client.operations.admin import Admin
from headrace.client.producer.producer import Producer
from headrace.client.serializers import RecordDeserializationError, SerializationContext
from headrace.client.serializers.errors import RegistryError, RegistryUnavailable
from headrace.client.serializers.registry import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Reference,
    RegistryOptions,
    Schema,
    SchemaRegistry,
)
from headrace.client.serializers.registry.schemas import PROTOBUF, frame_of
from headrace.errors import InvalidConfig
from headrace.types import TopicPartition
from tests.client.brokers import topic_name
from tests.harness import HeadraceServer
from tests.schema_registry import Registry, serving

pytestmark = pytest.mark.slow  # a registry, and the serializers of another client

OTHER = os.environ.get("HEADRACE_TEST_SCHEMA_REGISTRY")

ORDER_AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "item", "type": "string"},
            {"name": "count", "type": "int", "default": 1},
            {
                "name": "price",
                "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
            },
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
        ],
    }
)
ORDER_JSON = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {"item": {"type": "string"}, "count": {"type": "integer", "minimum": 0}},
        "required": ["item"],
    }
)
ORDER = {"item": "tea", "count": 2, "price": None, "at": None}


@dataclasses.dataclass
class Order:
    item: str
    count: int = 1
    price: Any = None
    at: Any = None


class Served:
    """A registry with our client and theirs."""

    def __init__(self, url: str, registry: Registry | None) -> None:
        self.url = url
        self.registry = registry
        self.ours = SchemaRegistry(url)
        self.theirs = confluent.SchemaRegistryClient({"url": url})


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    if OTHER:
        yield Served(OTHER, None)
        return
    with serving() as (url, registry):
        yield Served(url, registry)


@pytest.fixture
def topic() -> str:
    return topic_name("registry")


def ours_of(topic: str, field: str = "value") -> SerializationContext:
    return SerializationContext(topic, field)


def theirs_of(topic: str, headers: Any = None) -> Any:
    return TheirContext(topic, MessageField.VALUE, headers)


def compiled(name: str, text: dict[str, Any], *needed: str) -> Any:
    """The messages of a proto3 file: {message: {field: type}}, with nested messages as dictionaries."""
    file = descriptor_pb2.FileDescriptorProto(name=name, package="shop", syntax="proto3", dependency=needed)
    for message, fields in text.items():
        _add_message(file.message_type.add(name=message), fields)
    pool = descriptor_pool.Default()
    return pool.AddSerializedFile(file.SerializeToString())


def _add_message(message: Any, fields: dict[str, Any]) -> None:
    for number, (name, kind) in enumerate(fields.items(), 1):
        if isinstance(kind, dict):
            _add_message(message.nested_type.add(name=name), kind)
        elif kind.startswith("."):
            message.field.add(name=name, number=number, type=11, label=1, type_name=kind)
        else:
            message.field.add(name=name, number=number, type={"string": 9, "int32": 5}[kind], label=1)


_ITEM = compiled("headrace_tests/item.proto", {"Item": {"name": "string"}})
_ORDERS = compiled(
    "headrace_tests/orders.proto",
    {
        "First": {"name": "string"},
        "Order": {
            "item": ".shop.Item",
            "count": "int32",
            "Line": {"Deep": {"note": "string"}},
            "line": ".shop.Order.Line",
        },
    },
    "headrace_tests/item.proto",
)
First, OrderMessage = map(message_factory.GetMessageClass, _ORDERS.message_types_by_name.values())
Deep = message_factory.GetMessageClass(_ORDERS.message_types_by_name["Order"].nested_types[0].nested_types[0])


def protobuf_values() -> list[Any]:
    order = OrderMessage(count=2)
    order.item.name = "tea"
    return [First(name="x"), order, Deep(note="hm")]


def test_avro_has_the_bytes_of_confluents_serializer(served: Served, topic: str) -> None:
    ours, theirs = AvroSerializer(served.ours, ORDER_AVRO), TheirAvroSerializer(served.theirs, ORDER_AVRO)
    data = ours(ORDER, ours_of(topic))
    assert data == theirs(ORDER, theirs_of(topic))
    assert data[0] == 0 and ours(Order("tea", 2), ours_of(topic)) == data
    assert TheirAvroDeserializer(served.theirs)(data, theirs_of(topic)) == ORDER
    assert AvroDeserializer(served.ours)(data, ours_of(topic)) == ORDER
    assert AvroDeserializer(served.ours, model=Order)(data, ours_of(topic)) == Order("tea", 2)


@pytest.mark.parametrize(("schema", "value"), [('"string"', "tea"), ('{"type":"long"}', 5), ('"bytes"', b"\0\1")])
def test_avro_of_a_primitive_is_the_same(served: Served, topic: str, schema: str, value: Any) -> None:
    data = AvroSerializer(served.ours, schema)(value, ours_of(topic))
    assert data == TheirAvroSerializer(served.theirs, schema)(value, theirs_of(topic))
    assert AvroDeserializer(served.ours)(data, ours_of(topic)) == value
    assert TheirAvroDeserializer(served.theirs)(data, theirs_of(topic)) == value


def test_avro_of_another_version_is_resolved_to_the_readers_schema(served: Served, topic: str) -> None:
    fields = [{"name": "item", "type": "string"}, {"name": "colour", "type": "string", "default": "red"}]
    newer = json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": fields})
    data = AvroSerializer(served.ours, ORDER_AVRO)(ORDER, ours_of(topic))
    assert AvroDeserializer(served.ours, newer)(data, ours_of(topic)) == {"item": "tea", "colour": "red"}
    assert TheirAvroDeserializer(served.theirs, newer)(data, theirs_of(topic)) == {"item": "tea", "colour": "red"}


def test_avro_may_refer_to_other_schemas(served: Served, topic: str) -> None:
    item = Schema('{"type":"record","name":"Item","namespace":"shop","fields":[{"name":"name","type":"string"}]}')
    version = served.ours.lookup(f"{topic}-item", served.ours.register(f"{topic}-item", item).schema).version
    assert version == 1
    text = '{"type":"record","name":"Basket","fields":[{"name":"items","type":{"type":"array","items":"shop.Item"}}]}'
    basket = Schema(text, references=(Reference("shop.Item", f"{topic}-item", 1),))
    value = {"items": [{"name": "tea"}, {"name": "bun"}]}
    data = AvroSerializer(served.ours, basket)(value, ours_of(topic))
    references = [confluent.SchemaReference("shop.Item", f"{topic}-item", 1)]
    theirs = TheirAvroSerializer(served.theirs, confluent.Schema(text, "AVRO", references))
    assert data == theirs(value, theirs_of(topic))
    assert AvroDeserializer(served.ours)(data, ours_of(topic)) == value
    assert TheirAvroDeserializer(served.theirs)(data, theirs_of(topic)) == value


def test_json_schema_is_read_by_both(served: Served, topic: str) -> None:
    value = {"item": "té", "count": 2}
    theirs = TheirJsonSerializer(ORDER_JSON, served.theirs)
    ours = JsonSchemaSerializer(served.ours, ORDER_JSON)
    assert ours(value, ours_of(topic)) == theirs(value, theirs_of(topic))
    escaped = JsonSchemaSerializer(served.ours, ORDER_JSON, json_encode=json.dumps)(value, ours_of(topic))
    assert escaped[5:] == b'{"item": "t\\u00e9", "count": 2}'
    for data in (escaped, theirs(value, theirs_of(topic))):
        assert JsonSchemaDeserializer(served.ours, Order)(data, ours_of(topic)) == Order("té", 2)
        assert TheirJsonDeserializer(None, None, served.theirs)(data, theirs_of(topic)) == value


def test_json_that_does_not_fit_its_schema_is_refused_in_both_directions(served: Served, topic: str) -> None:
    with pytest.raises(jsonschema.ValidationError, match="'item' is a required property"):
        JsonSchemaSerializer(served.ours, ORDER_JSON)({"count": 1}, ours_of(topic))
    data = JsonSchemaSerializer(served.ours, ORDER_JSON, validate=False)({"count": 1}, ours_of(topic))
    with pytest.raises(jsonschema.ValidationError):
        JsonSchemaDeserializer(served.ours)(data, ours_of(topic))
    assert JsonSchemaDeserializer(served.ours, validate=False)(data, ours_of(topic)) == {"count": 1}


def test_json_schema_of_a_model(served: Served, topic: str) -> None:
    class Basket(pydantic.BaseModel):
        items: list[str]

    data = JsonSchemaSerializer(served.ours, Basket)(Basket(items=["tea"]), ours_of(topic))
    assert JsonSchemaDeserializer(served.ours, Basket)(data, ours_of(topic)) == Basket(items=["tea"])
    assert TheirJsonDeserializer(None, None, served.theirs)(data, theirs_of(topic)) == {"items": ["tea"]}


def test_a_schema_names_no_address_that_is_asked(served: Served, topic: str) -> None:
    """A reference to a URL would let whoever registers schemas send requests from every consumer."""
    with serving() as (elsewhere, asked):
        schema = json.dumps({"type": "object", "properties": {"a": {"$ref": f"{elsewhere}/schemas/ids/1"}}})
        with pytest.raises(Exception, match="Unresolvable"):
            JsonSchemaSerializer(served.ours, schema)({"a": 1}, ours_of(topic))
        assert asked.requests == []


@pytest.mark.skipif(bool(OTHER), reason="this registry may not take descriptors in base64")
@pytest.mark.parametrize("place", [0, 1, 2])
def test_protobuf_has_the_bytes_of_confluents_serializer(served: Served, topic: str, place: int) -> None:
    value = protobuf_values()[place]
    data = ProtobufSerializer(served.ours, type(value))(value, ours_of(topic))
    theirs = TheirProtobufSerializer(type(value), served.theirs, {"use.deprecated.format": False})
    assert data == theirs(value, theirs_of(topic))
    assert frame_of(data, ours_of(topic), PROTOBUF).indexes == [[0], [1], [1, 0, 0]][place]
    assert ProtobufDeserializer(type(value))(data, ours_of(topic)) == value
    their_reader = TheirProtobufDeserializer(type(value), {"use.deprecated.format": False}, served.theirs)
    assert their_reader(data, theirs_of(topic)) == value
    dynamic = ProtobufDeserializer(registry=served.ours)(data, ours_of(topic))
    assert dynamic.SerializeToString() == value.SerializeToString()
    assert dynamic.DESCRIPTOR.full_name == value.DESCRIPTOR.full_name


@pytest.mark.skipif(bool(OTHER), reason="this registry may give no guids")
@pytest.mark.parametrize("format", ["avro", "protobuf"])
def test_the_schemas_id_may_be_in_a_header(served: Served, topic: str, format: str) -> None:
    options, kept = RegistryOptions(schema_id_in="header"), confluent.header_schema_id_serializer
    context, their_headers = ours_of(topic), list[Any]()
    if format == "avro":
        data = AvroSerializer(served.ours, ORDER_AVRO, options)(ORDER, context)
        theirs = TheirAvroSerializer(served.theirs, ORDER_AVRO, conf={"schema.id.serializer": kept})
        assert theirs(ORDER, theirs_of(topic, their_headers)) == data
        assert TheirAvroDeserializer(served.theirs)(data, theirs_of(topic, context.headers)) == ORDER
        assert AvroDeserializer(served.ours)(data, context) == ORDER
    else:
        value = protobuf_values()[2]
        data = ProtobufSerializer(served.ours, Deep, options)(value, context)
        conf = {"schema.id.serializer": kept, "use.deprecated.format": False}
        assert TheirProtobufSerializer(Deep, served.theirs, conf)(value, theirs_of(topic, their_headers)) == data
        assert data == value.SerializeToString()
        assert ProtobufDeserializer(registry=served.ours)(data, context).note == "hm"
    assert context.headers == their_headers
    assert context.headers[0][0] == "__value_schema_id"


@pytest.mark.parametrize(
    ("strategy", "their_strategy", "subject"),
    [
        ("topic", confluent.topic_subject_name_strategy, "{topic}-value"),
        ("record", confluent.record_subject_name_strategy, "shop.Order"),
        ("topic_record", confluent.topic_record_subject_name_strategy, "{topic}-shop.Order"),
        (lambda context, record: f"{context.topic}/ü {record}", None, "{topic}/ü shop.Order"),
    ],
)
def test_subjects_have_confluents_names(
    served: Served, topic: str, strategy: Any, their_strategy: Any, subject: str
) -> None:
    ours = AvroSerializer(served.ours, ORDER_AVRO, RegistryOptions(subject_name_strategy=strategy))
    data = ours(ORDER, ours_of(topic))
    name = subject.format(topic=topic)
    assert served.ours.latest(name).id == int.from_bytes(data[1:5], "big")
    if their_strategy is not None:
        conf = {"auto.register.schemas": False, "subject.name.strategy": their_strategy}
        assert TheirAvroSerializer(served.theirs, ORDER_AVRO, conf=conf)(ORDER, theirs_of(topic)) == data


def test_without_auto_registration_an_unknown_schema_is_an_error(served: Served, topic: str) -> None:
    ours = AvroSerializer(served.ours, ORDER_AVRO, RegistryOptions(auto_register_schemas=False))
    with pytest.raises(RegistryError, match="404"):
        ours(ORDER, ours_of(topic))
    assert served.ours.register(f"{topic}-key", Schema(ORDER_AVRO)).id > 0
    assert ours(ORDER, ours_of(topic, "key"))[5:] == AvroSerializer(served.ours, ORDER_AVRO)(ORDER, ours_of(topic))[5:]


def test_the_newest_schema_writes_where_it_is_told_so(served: Served, topic: str) -> None:
    served.ours.register(f"{topic}-value", Schema(ORDER_AVRO))
    options = RegistryOptions(auto_register_schemas=False, use_latest_version=True)
    data = AvroSerializer(served.ours, None, options)(ORDER, ours_of(topic))
    conf = {"auto.register.schemas": False, "use.latest.version": True}
    assert TheirAvroSerializer(served.theirs, ORDER_AVRO, conf=conf)(ORDER, theirs_of(topic)) == data


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: RegistryOptions(use_latest_version=True), InvalidConfig, "auto_register_schemas=False"),
        (lambda: RegistryOptions(subject_name_strategy="topik"), InvalidConfig, "topic, record, topic_record"),
        (lambda: RegistryOptions(schema_id_in="footer"), InvalidConfig, "prefix or header"),
        (lambda: SchemaRegistry("127.0.0.1:8081"), InvalidConfig, "http://HOST:PORT"),
        (lambda: AvroSerializer(SchemaRegistry("http://127.0.0.1:1")), ValueError, "a schema is needed"),
        (lambda: ProtobufDeserializer(), ValueError, "or a registry"),
    ],
)
def test_a_wrong_option_is_told(make: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        make()


@given(data=st.binary(max_size=24), kind=st.sampled_from(["AVRO", PROTOBUF]))
def test_bytes_without_a_frame_are_a_value_error(data: bytes, kind: str) -> None:
    for prefix in (b"", b"\0", b"\1", b"\0\0\0\0\1", b"\1" + bytes(16)):
        try:
            frame = frame_of(prefix + data, ours_of("t"), kind)
        except ValueError:
            continue
        assert (prefix + data).endswith(frame.payload)


def test_the_registry_is_asked_once_for_each_schema() -> None:
    with serving() as (url, registry):
        client = SchemaRegistry(url)
        serializer = AvroSerializer(client, ORDER_AVRO)
        assert serializer.may_wait("t", "value")
        sent = [serializer(ORDER, ours_of("t")) for _ in range(5)]
        assert not serializer.may_wait("t", "value") and serializer.may_wait("t", "key")
        deserializer = AvroDeserializer(client)
        assert [deserializer(data, ours_of("t")) for data in sent] == [ORDER] * 5
        assert registry.requests == ["POST /subjects/t-value/versions?normalize=false", "GET /schemas/ids/1"]
        for _ in range(5):
            with pytest.raises(RegistryError, match="404 to GET .*ids/77: Schema 77 not found"):
                deserializer(b"\0\0\0\0\x4d\0", ours_of("t"))
        assert len(registry.requests) == 3


@pytest.mark.slow
def test_a_registry_that_is_not_there_is_tried_again_and_then_another() -> None:
    with serving() as (url, registry):
        registry.failing = 2
        client = SchemaRegistry(f"http://127.0.0.1:1,{url.replace('//', '//u:secret@')}", basic_auth=("anna", "pass"))
        assert client.register("s", Schema('"string"')).id == 1
        assert registry.requests == ["POST /subjects/s/versions?normalize=false"] * 3
        assert set(registry.authorizations) == {"Basic YW5uYTpwYXNz"}
        assert "pass" not in repr(client) and "secret" not in repr(client)
        SchemaRegistry(url, bearer_token=lambda: "t0k").schema(1)
        assert registry.authorizations[-1] == "Bearer t0k"
    with pytest.raises(RegistryUnavailable, match=r"no registry answers at http://127.0.0.1:1") as error:
        SchemaRegistry("http://u:secret@127.0.0.1:1").schema(1)
    assert "secret" not in str(error.value)


@pytest.mark.slow
@pytest.mark.skipif(bool(OTHER), reason="it must fail when told so")
def test_a_registry_that_is_away_makes_no_record_a_poison(shared_headrace: HeadraceServer, served: Served) -> None:
    name, address, registry = topic_name("away"), shared_headrace.bootstrap, served.registry
    assert registry is not None
    with Admin(address) as admin:
        admin.create_topic(name, 1, 1)
    with Producer(address, value_serializer=AvroSerializer(served.ours, ORDER_AVRO)) as producer:
        producer.send(name, ORDER).result()
        producer.send_columns(name, None, [b"no frame"]).result()
    refused: list[RecordDeserializationError] = []
    with Consumer(
        address,
        value_deserializer=AvroDeserializer(SchemaRegistry(served.url)),
        on_deserialization_error=refused.append,
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.assign([TopicPartition(name, 0)])
        registry.failing = 4
        with pytest.raises(RegistryUnavailable, match="503"):
            consumer.poll(timeout_ms=60_000)
        assert refused == [] and registry.failing == 0
        found = consumer.poll(timeout_ms=60_000)
    assert [record.value for record in found] == [ORDER]
    assert [(each.offset, each.record.value) for each in refused] == [(1, b"no frame")]
    assert "name no schema of a registry" in str(refused[0])


@pytest.mark.skipif(bool(OTHER), reason="this registry may give no guids")
def test_records_go_both_ways_with_confluents_serializers_in_our_clients(
    shared_headrace: HeadraceServer, served: Served
) -> None:
    name, address = topic_name("both"), shared_headrace.bootstrap
    with Admin(address) as admin:
        admin.create_topic(name, 1, 1)
    ours = AvroSerializer(served.ours, ORDER_AVRO, RegistryOptions(schema_id_in="header"))
    theirs = TheirAvroSerializer(served.theirs, ORDER_AVRO)
    for serializer in (ours, theirs):
        with Producer(address, key_serializer="string", value_serializer=serializer) as producer:
            producer.send(name, ORDER, key="k").result()
    for deserializer in (AvroDeserializer(served.ours), TheirAvroDeserializer(served.theirs)):
        with Consumer(address, value_deserializer=deserializer, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(name, 0)])
            found: list[Any] = []
            while len(found) < 2:
                found += consumer.poll(timeout_ms=60_000)
        assert [record.value for record in found] == [ORDER] * 2
        assert [len(record.headers) for record in found] == [1, 0]


def test_a_payload_that_ends_early_is_an_error(served: Served, topic: str) -> None:
    data = AvroSerializer(served.ours, ORDER_AVRO)(ORDER, ours_of(topic))
    with pytest.raises((EOFError, ValueError, IndexError)):
        AvroDeserializer(served.ours)(data[:-3], ours_of(topic))


def test_json_schema_may_refer_to_other_schemas(served: Served, topic: str) -> None:
    item = Schema('{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}', "JSON")
    served.ours.register(f"{topic}-item", item)
    text = '{"type":"object","properties":{"item":{"$ref":"item.json"}}}'
    basket = Schema(text, "JSON", (Reference("item.json", f"{topic}-item", 1),))
    ours = JsonSchemaSerializer(served.ours, basket)
    value = {"item": {"name": "tea"}}
    data = ours(value, ours_of(topic))
    references = [confluent.SchemaReference("item.json", f"{topic}-item", 1)]
    theirs = TheirJsonSerializer(confluent.Schema(text, "JSON", references), served.theirs)
    assert data == theirs(value, theirs_of(topic))
    assert JsonSchemaDeserializer(served.ours)(data, ours_of(topic)) == value
    with pytest.raises(jsonschema.ValidationError, match="'name' is a required property"):
        ours({"item": {}}, ours_of(topic))


@pytest.mark.parametrize(
    ("library", "make", "extra"),
    [
        ("urllib3", lambda: SchemaRegistry("http://127.0.0.1:1"), "registry"),
        ("fastavro", lambda: AvroDeserializer(SchemaRegistry("http://127.0.0.1:1")), "avro"),
        ("jsonschema", lambda: JsonSchemaDeserializer(SchemaRegistry("http://127.0.0.1:1")), "jsonschema"),
        ("google.protobuf.message_factory", lambda: ProtobufDeserializer(First), "protobuf"),
    ],
)
def test_a_library_that_is_missing_is_named_with_its_extra(
    library: str, make: Any, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InvalidConfig, match=rf"install headrace\[{extra}\]"):
        make()
