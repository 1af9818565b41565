"""Records through a broker with serializers, in both faces, beside kafka-python, aiokafka and confluent-kafka."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest

from headrace.client import aio
from headrace.client.consumer.consumer import Consumer
from headrace.client.operations.admin import Admin
from headrace.client.producer.producer import Producer
from headrace.client.serializers import DeadLetters, RecordDeserializationError, SerializationError
from headrace.types import TopicPartition
from tests.client.brokers import topic_name
from tests.harness import HeadraceServer


@dataclass
class Order:
    item: str
    count: int = 1


@pytest.fixture
def address(shared_headrace: HeadraceServer) -> str:
    return shared_headrace.bootstrap


@pytest.fixture
def topic(address: str) -> str:
    name = topic_name("serializers")
    with Admin(address) as admin:
        admin.create_topic(name, 1, 1)
    return name


@pytest.fixture
def consumer(address: str, topic: str) -> Iterator[Consumer]:
    """A consumer of orders at the beginning of the topic."""
    with Consumer(address, key_deserializer=str, value_deserializer=Order, auto_offset_reset="earliest") as made:
        made.assign([TopicPartition(topic, 0)])
        yield made


def polled(consumer: Consumer) -> list[Any]:
    """The records of a poll; waits for some."""
    for _ in range(60):
        if records := consumer.poll(timeout_ms=1_000):
            return records
    raise AssertionError("nothing came")


def test_objects_come_back_equal_and_null_stays_null(address: str, topic: str, consumer: Consumer) -> None:
    with Producer(address, key_serializer="string", value_serializer="json") as producer:
        producer.send(topic, Order("tea", 2), key="anna", headers={"shop": b"north"})
        producer.send(topic, None, key="anna")
        producer.send_columns(topic, [b"ben"], [b'{"item":"bun"}'])
    records: list[Any] = []
    while len(records) < 3:
        records += polled(consumer)
    found = [(each.key, each.value, each.headers) for each in records]
    assert found == [("anna", Order("tea", 2), (("shop", b"north"),)), ("anna", None, ()), ("ben", Order("bun"), ())]


def test_the_key_chooses_the_partition_by_its_bytes(address: str) -> None:
    name = topic_name("by-key")
    with Admin(address) as admin:
        admin.create_topic(name, 8, 1)
    with Producer(address) as plain, Producer(address, key_serializer="long") as producer:
        for number in range(20):
            place = producer.send(name, b"", key=number).result()
            assert place.partition == plain.send(name, b"", key=number.to_bytes(8, "big")).result().partition


def test_a_value_that_cannot_be_serialized_is_not_sent(address: str, topic: str) -> None:
    with Producer(address, value_serializer="json") as producer:
        with pytest.raises(SerializationError, match=f"{topic}: the value cannot be serialized"):
            producer.send(topic, object())
        assert producer.send(topic, {}).result().offset == 0
    with (
        Producer(address, value_serializer=json.dumps) as producer,
        pytest.raises(Exception, match="give value.encode"),
    ):
        producer.send(topic, {})


@pytest.mark.slow
def test_a_consumer_can_go_past_a_poison_record(address: str, topic: str, consumer: Consumer) -> None:
    values = [b'{"item":"tea"}', b"\xff", b"{}", b'{"item":"bun"}', None]
    with Producer(address) as producer:
        producer.send_columns(topic, [b"k"] * 5, values).result()
    partition = TopicPartition(topic, 0)
    assert [record.offset for record in polled(consumer)] == [0]
    for _ in range(2):  # the same until somebody goes past it
        with pytest.raises(RecordDeserializationError) as poison:
            polled(consumer)
        assert (poison.value.partition, poison.value.offset, poison.value.record.value) == (partition, 1, b"\xff")
    assert consumer.position(partition) == 1
    consumer.seek(partition, 2)
    with pytest.raises(RecordDeserializationError) as poison:
        next(iter(consumer))
    assert (poison.value.offset, poison.value.origin, poison.value.record.key) == (2, "value", b"k")
    consumer.seek(poison.value.partition, poison.value.offset + 1)
    assert [(record.offset, record.value) for record in polled(consumer)] == [(3, Order("bun")), (4, None)]


def test_columns_are_bytes_also_of_poison_records(address: str, topic: str, consumer: Consumer) -> None:
    with Producer(address) as producer:
        producer.send_columns(topic, None, [b'{"item":"tea"}', b"\xff"]).result()
    ((_, columns),) = consumer.poll_columns(timeout_ms=30_000)
    assert bytes(columns.values.data) == b'{"item":"tea"}\xff' if columns.values else False


def test_poison_records_go_to_a_topic_of_dead_letters(address: str, topic: str) -> None:
    values = [b"{", b'{"item":"tea"}', b"", b'{"item":"bun"}', b"["]
    with Producer(address, value_serializer="json") as producer:
        with Admin(address) as admin:
            admin.create_topic(f"{topic}.dead-letters", 1, 1)
        producer.send_columns(topic, [b"k"] * 5, values, 1_000_000_000_000, headers=[[("a", b"b")]] * 5).result()
        settings: dict[str, Any] = {"value_deserializer": Order, "auto_offset_reset": "earliest"}
        with Consumer(address, on_deserialization_error=DeadLetters(producer), **settings) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            found: list[Any] = []
            while len(found) < 2:
                found += polled(consumer)
            assert consumer.poll(timeout_ms=100) == []
            assert [(record.offset, record.value) for record in found] == [(1, Order("tea")), (3, Order("bun"))]
            assert consumer.position(TopicPartition(topic, 0)) == 5
    with Consumer(address, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(f"{topic}.dead-letters", 0)])
        dead: list[Any] = []
        while len(dead) < 3:
            dead += polled(consumer)
    assert [(record.key, record.value, record.timestamp_ms) for record in dead] == [
        (b"k", values[place], 1_000_000_000_000) for place in (0, 2, 4)
    ]
    told = dict(dead[1].headers)
    assert (told["a"], told["__connect.errors.topic"], told["__connect.errors.offset"]) == (b"b", topic.encode(), b"2")
    assert told["__connect.errors.stage"] == b"VALUE_CONVERTER" and told["__connect.errors.exception.message"]


def test_a_handler_that_fails_leaves_the_consumer_before_the_record(address: str, topic: str) -> None:
    def refuse(error: RecordDeserializationError) -> None:
        raise OSError("no room")

    with Producer(address) as producer:
        producer.send_columns(topic, None, [b"1", b"{", b"2"]).result()
    settings: dict[str, Any] = {"value_deserializer": "json", "auto_offset_reset": "earliest"}
    with Consumer(address, on_deserialization_error=refuse, **settings) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [record.value for record in polled(consumer)] == [1]
        with pytest.raises(OSError, match="no room"):
            polled(consumer)
        assert consumer.position(TopicPartition(topic, 0)) == 1


@pytest.mark.slow
async def test_the_asyncio_face_has_the_same_serializers(address: str, topic: str) -> None:
    calls: list[str] = []

    class Slow:
        """Asks another server the first time, as a registry's does."""

        def may_wait(self, topic: str, field: str) -> bool:
            return not calls

        def serialize(self, topic: str, value: Order) -> bytes:
            try:
                asyncio.get_running_loop()
                calls.append("loop")
            except RuntimeError:
                calls.append("thread")
            return json.dumps({"item": value.item, "count": value.count}).encode()

    async with aio.Producer(address, key_serializer=str, value_serializer=Slow()) as producer:
        for count in range(3):
            await producer.send_and_wait(topic, Order("tea", count), key="anna")
        with pytest.raises(SerializationError, match="the key"):
            await producer.send(topic, Order("tea"), key=5)
    assert calls == ["thread", "loop", "loop"]  # the key that failed came before its value
    with Producer(address) as plain:
        plain.send_columns(topic, None, [b"{", b'{"item":"bun"}']).result()
    async with aio.Consumer(
        address, key_deserializer=str, value_deserializer=Order, auto_offset_reset="earliest"
    ) as consumer:
        await consumer.assign([TopicPartition(topic, 0)])
        records = [await consumer.getone() for _ in range(3)]
        assert [(each.key, each.value) for each in records] == [("anna", Order("tea", count)) for count in range(3)]
        with pytest.raises(RecordDeserializationError) as poison:
            await consumer.getone()
        assert poison.value.offset == 3
        await consumer.seek(poison.value.partition, poison.value.offset + 1)
        async for record in consumer:
            assert (record.offset, record.value) == (4, Order("bun"))
            break


async def test_other_clients_read_the_same_with_the_same_functions(address: str, topic: str) -> None:
    async with aio.Producer(
        address, key_serializer=str.encode, value_serializer=lambda value: json.dumps(value).encode()
    ) as producer:
        await producer.send_and_wait(topic, {"item": "tea"}, key="anna")
    expected = ("anna", {"item": "tea"})
    theirs = kafka.KafkaConsumer(
        topic, bootstrap_servers=address, key_deserializer=bytes.decode, value_deserializer=json.loads,
        auto_offset_reset="earliest", group_id=None, consumer_timeout_ms=60_000,
    )  # fmt: skip
    try:
        record = next(theirs)
        assert (record.key, record.value) == expected
    finally:
        theirs.close()
    async with aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=address, key_deserializer=bytes.decode, value_deserializer=json.loads,
        auto_offset_reset="earliest",
    ) as other:  # fmt: skip
        record = await other.getone()
        assert (record.key, record.value) == expected
    settings = {
        "bootstrap.servers": address,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "key.deserializer": lambda data, context: data.decode(),
        "value.deserializer": lambda data, context: json.loads(data),
    }
    third = confluent_kafka.DeserializingConsumer(settings)
    try:
        third.subscribe([topic])
        message = third.poll(60.0)
        assert message is not None
        found: object = (message.key(), message.value())
        assert found == expected
    finally:
        third.close()
