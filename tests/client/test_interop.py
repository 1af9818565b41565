"""confluent-kafka reads what we write and we read what it writes, in every codec, with headers and nulls."""

import confluent_kafka
import pytest

from headrace.client.consumer.consumer import Consumer, ConsumerSettings
from headrace.client.consumer.fetched_batches import ConsumerRecord
from headrace.client.operations.admin import Admin
from headrace.client.producer.producer import Producer, ProducerSettings
from headrace.types import TopicPartition
from tests.client.brokers import topic_name

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
RECORDS: list[tuple[bytes | None, bytes, list[tuple[str, bytes | None]]]] = [
    (b"key-%d" % n if n % 3 else None, b"value-%d" % n * 20, [("n", b"%d" % n)] if n % 5 == 0 else [])
    for n in range(300)
]


@pytest.fixture
def topic(admin: Admin) -> str:
    name = topic_name("interop")
    admin.create_topic(name, 3, 1)
    return name


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_kafka_reads_what_we_write(broker: str, topic: str, codec: str) -> None:
    with Producer(broker, ProducerSettings(compression=codec)) as producer:
        for key, value, headers in RECORDS:
            producer.send(topic, value, key, headers=headers)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker, "group.id": "interop", "check.crcs": True, "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(3)])
    found: list[tuple[bytes | None, bytes | None, object]] = []
    while len(found) < len(RECORDS):
        for message in consumer.consume(len(RECORDS) - len(found), 10):
            assert message.error() is None
            found.append((message.key(), message.value(), message.headers() or []))
    consumer.close()
    assert sorted(found, key=lambda record: record[1] or b"") == sorted(RECORDS, key=lambda record: record[1])


@pytest.mark.parametrize("codec", CODECS)
def test_we_read_what_confluent_kafka_writes_where_java_would_put_it(broker: str, topic: str, codec: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker, "compression.type": codec, "partitioner": "murmur2_random", "linger.ms": 20}
    )
    for key, value, headers in RECORDS:
        producer.produce(topic, value, key, headers=[*headers])
    assert producer.flush(20) == 0
    with Consumer(broker, ConsumerSettings(auto_offset_reset="earliest")) as consumer:
        consumer.assign([TopicPartition(topic, partition) for partition in range(3)])
        found: list[ConsumerRecord] = []
        while len(found) < len(RECORDS):
            found += consumer.poll(10_000)
    plain = [(record.key, record.value, list(record.headers)) for record in found]
    assert sorted(plain, key=lambda record: record[1] or b"") == sorted(RECORDS, key=lambda record: record[1])
    places = {record.key: record.partition for record in found if record.key}
    with Producer(broker) as ours:
        sent = {key: ours.send(topic, b"x", key) for key in places}
    assert {key: one.result().partition for key, one in sent.items()} == places


@pytest.mark.slow
def test_a_group_may_mix_us_and_confluent_kafka(broker: str, topic: str) -> None:
    group = topic_name("mixed")
    with Producer(broker) as producer:
        for key, value, _ in RECORDS:
            producer.send(topic, value, key)
    theirs = confluent_kafka.Consumer(
        {"bootstrap.servers": broker, "group.id": group, "partition.assignment.strategy": "range",
         "auto.offset.reset": "earliest", "session.timeout.ms": 6000}
    )  # fmt: skip
    theirs.subscribe([topic])
    values: list[bytes | None] = []
    with Consumer(broker, ConsumerSettings(group_id=group, auto_offset_reset="earliest")) as ours:
        ours.subscribe([topic])
        while len(set(values)) < len(RECORDS) or not (ours.assignment and theirs.assignment()):
            values += [record.value for record in ours.poll(100)]
            values += [message.value() for message in theirs.consume(500, 0.1)]
        shared = {(each.topic, each.partition) for each in ours.assignment}
        assert len(shared | {(each.topic, each.partition) for each in theirs.assignment()}) == 3
    theirs.close()
