"""What is produced comes back equal: every codec, by rows and by columns, from our broker and from Apache Kafka."""

import threading
from typing import Any

import pyarrow
import pytest

from headrace.client.consumer.arrow import to_record_batch
from headrace.client.consumer.consumer import Consumer, ConsumerSettings
from headrace.client.consumer.fetched_batches import ConsumerRecord
from headrace.client.consumer.fetching import FetchSizes
from headrace.client.consumer.reader import ReadOptions, read_range
from headrace.client.core.cluster import Cluster
from headrace.client.operations.admin import EARLIEST, LATEST, MAX_TIMESTAMP, RESOURCE_TOPIC, Admin
from headrace.client.producer.delivery import RecordMetadata
from headrace.client.producer.producer import Producer, ProducerSettings
from headrace.errors import ErrorCode, InvalidConfig, KafkaError, OffsetOutOfRange, UnknownTopicOrPartition
from headrace.types import TopicPartition
from tests.client.brokers import topic_name
from tests.eventually import WITHIN_SECONDS, eventually

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def read_values(
    cluster: Cluster, partition: TopicPartition, start: int, end: int, *, fetch: int = 8 << 20, **options: Any
) -> list[bytes]:
    how = ReadOptions(sizes=FetchSizes(partition_max_bytes=fetch), **options)
    tables = [
        to_record_batch(columns, *partition, ("value",)) for columns in read_range(cluster, partition, start, end, how)
    ]
    return [value for table in tables for value in table.column(0).to_pylist()]


@pytest.fixture
def topic(admin: Admin) -> str:
    name = topic_name("round-trip")
    admin.create_topic(name, 1, 1)
    return name


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_equal(broker: str, cluster: Cluster, topic: str, codec: str) -> None:
    partition = TopicPartition(topic, 0)
    rows: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
        (b"k", b"v" * 1000, [("h", b"x"), ("n", None), ("h", b"")]),
        (None, b"", []),
        (b"", None, []),
        ("ключ".encode(), bytes(range(256)), [("é", b"\xff")]),
    ]
    with Producer(broker, ProducerSettings(compression=codec)) as producer:
        sent = [
            producer.send(topic, value, key=key, timestamp_ms=1000 + n, headers=headers)
            for n, (key, value, headers) in enumerate(rows)
        ]
        producer.send_columns(topic, None, [b"c%d" % n for n in range(500)], 5000, partition=0)
    assert [one.result().offset for one in sent] == [0, 1, 2, 3]
    with Consumer(broker, ConsumerSettings(auto_offset_reset="earliest")) as consumer:
        consumer.assign([partition])
        records: list[ConsumerRecord] = []
        while len(records) < 504:
            records += consumer.poll(30_000)
    assert [record.offset for record in records] == list(range(504))
    assert (records[0].key, records[0].value) == (b"k", b"v" * 1000)
    assert records[0].headers == (("h", b"x"), ("n", None), ("h", b""))
    assert [(record.key, record.value) for record in records[1:3]] == [(None, b""), (b"", None)]
    assert records[3].headers == (("é", b"\xff"),)
    assert [record.timestamp_ms for record in records[:5]] == [1000, 1001, 1002, 1003, 5000]
    assert read_values(cluster, partition, 4, 504) == [b"c%d" % n for n in range(500)]


def test_columns_go_where_their_keys_send_them(broker: str, admin: Admin, cluster: Cluster) -> None:
    topic = topic_name("keyed")
    admin.create_topic(topic, 3, 1)
    keys = [b"key-%d" % (n % 7) for n in range(1000)]
    values = pyarrow.array([b"%d" % n for n in range(1000)], pyarrow.binary())
    with Producer(broker) as producer:
        producer.send_columns(topic, keys, values, list(range(1000)))
        alone = producer.send(topic, b"one more", key=b"key-3")
    found: dict[bytes, list[int]] = {}
    places: dict[bytes, int] = {}
    for partition, (start, end) in admin.watermarks(admin.partitions_of(topic)).items():
        for columns in read_range(cluster, partition, start, end):
            for row in to_record_batch(columns, *partition).to_pylist():
                if row["value"] != b"one more":
                    found.setdefault(row["key"], []).append(int(row["value"]))
                    assert places.setdefault(row["key"], row["partition"]) == row["partition"]
    assert found == {b"key-%d" % key: list(range(key, 1000, 7)) for key in range(7)}
    assert places[b"key-3"] == alone.result().partition


@pytest.mark.parametrize("fetch", [100, 5000, 8 << 20])
@pytest.mark.parametrize(("start", "end"), [(0, 3000), (1, 2999), (1500, 1501), (7, 7)])
def test_a_range_is_exact_whatever_a_fetch_brings(
    broker: str, cluster: Cluster, topic: str, fetch: int, start: int, end: int
) -> None:
    with Producer(broker, ProducerSettings(batch_bytes=4000)) as producer:
        producer.send_columns(topic, None, [b"%d" % n for n in range(3000)])
    found = read_values(cluster, TopicPartition(topic, 0), start, end, fetch=fetch, batch_rows=500)
    assert found == [b"%d" % n for n in range(start, end)]


def test_many_threads_may_use_one_producer(broker: str, cluster: Cluster, topic: str) -> None:
    with Producer(broker) as producer:

        def send(name: int) -> None:
            for number in range(300):
                producer.send(topic, b"%d %d" % (name, number))

        threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = [tuple(map(int, value.split())) for value in read_values(cluster, TopicPartition(topic, 0), 0, 1200)]
    for name in range(4):
        assert [number for who, number in found if who == name] == list(range(300))


def test_callbacks_tell_where_records_are(broker: str, topic: str) -> None:
    told: list[tuple[RecordMetadata | None, KafkaError | None]] = []
    with Producer(broker) as producer:
        for _ in range(3):
            producer.send(topic, b"x", on_delivery=lambda metadata, error: told.append((metadata, error)))
    assert [metadata.offset for metadata, _ in told if metadata] == [0, 1, 2]
    assert {error for _, error in told} == {None}


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_acknowledgement_delivers(broker: str, admin: Admin, topic: str, acks: int | str) -> None:
    with Producer(broker, ProducerSettings(acks=acks)) as producer:
        sent = producer.send(topic, b"x")
        producer.flush()
        assert sent.result(10).offset == (-1 if acks == 0 else 0)
    partition = TopicPartition(topic, 0)
    while admin.watermarks([partition])[partition][1] < 1:
        assert acks == 0


def test_a_record_that_is_too_large_fails_alone_and_says_what_to_do(broker: str, admin: Admin) -> None:
    topic = topic_name("small")
    admin.create_topic(topic, 1, 1, {"max.message.bytes": "1000"})
    with Producer(broker) as producer:
        first = producer.send(topic, b"fits")
        producer.flush()
        large = producer.send(topic, bytes(5000))
        producer.flush()
        last = producer.send(topic, b"fits too")
    assert first.result().offset == 0
    assert last.result().offset == 1
    with pytest.raises(KafkaError, match=rf"{topic}-0.*max.message.bytes") as failed:
        large.result()
    assert failed.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert large.exception() is failed.value


def test_offsets_are_found_by_time(broker: str, admin: Admin, topic: str) -> None:
    with Producer(broker) as producer:
        for time_ms in (1000, 3000, 2000):
            producer.send(topic, b"x", timestamp_ms=time_ms)
            producer.flush()
    partition = TopicPartition(topic, 0)

    def offset(when: int) -> int:
        return admin.list_offsets({partition: when})[partition].offset

    places = [offset(when) for when in (EARLIEST, LATEST, MAX_TIMESTAMP, 500, 1001, 3000, 3001)]
    assert places == [0, 3, 1, 0, 1, 1, -1]


def test_directories_tell_how_large_their_partitions_are(broker: str, admin: Admin, topic: str) -> None:
    with Producer(broker) as producer:
        producer.send(topic, bytes(5000), partition=0)
    (directory,) = admin.describe_log_dirs()
    assert directory.partition_bytes[TopicPartition(topic, 0)] > 5000
    assert directory.total_bytes == -1 or 0 < directory.usable_bytes <= directory.total_bytes


def test_a_range_that_is_not_there_is_a_typed_error(cluster: Cluster, topic: str) -> None:
    with pytest.raises(OffsetOutOfRange, match=rf"{topic}-0 at offset 5"):
        list(read_range(cluster, TopicPartition(topic, 0), 5, 9))


def test_a_partition_or_topic_that_is_not_there_is_named(broker: str, cluster: Cluster, topic: str) -> None:
    with pytest.raises(
        UnknownTopicOrPartition, match=rf"{topic}-9 does not exist: topic {topic} has partitions 0 to 0"
    ):
        list(read_range(cluster, TopicPartition(topic, 9), 0, 1))
    with pytest.raises(UnknownTopicOrPartition, match="topic nowhere"):
        list(read_range(cluster, TopicPartition("nowhere", 0), 0, 1))
    with Producer(broker) as producer, pytest.raises(UnknownTopicOrPartition, match=rf"{topic}-3"):
        producer.send(topic, b"x", partition=3)


def test_a_partition_that_was_added_is_sent_to_when_it_is_named(broker: str, admin: Admin) -> None:
    topic = topic_name("grown")
    admin.create_topic(topic, 1, 1)
    with Producer(broker) as producer:
        producer.send(topic, b"x", partition=0).result(WITHIN_SECONDS)
        admin.create_partitions(topic, 3)
        eventually(lambda: len(admin.describe_topic(topic).partitions) == 3, "three partitions")
        assert producer.send(topic, b"x", partition=2).result(WITHIN_SECONDS).partition == 2


def test_topics_are_created_described_and_deleted(admin: Admin) -> None:
    name = topic_name("administered")
    admin.create_topic(name, 2, 1, {"retention.ms": "-1"})
    with pytest.raises(KafkaError, match=name) as exists:
        admin.create_topic(name, 2, 1)
    assert exists.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert len(admin.describe_topic(name).partitions) == 2
    assert name in [topic.name for topic in admin.list_topics()]
    configs = {entry.name: entry for entry in admin.describe_configs(RESOURCE_TOPIC, name)}
    assert (configs["retention.ms"].value, configs["retention.ms"].is_default) == ("-1", False)
    admin.delete_topics([name])
    assert name not in [topic.name for topic in admin.list_topics()]
    with pytest.raises(UnknownTopicOrPartition, match=name):
        admin.delete_topics([name])


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (ProducerSettings(acks=2), "acks=2"),
        (ProducerSettings(compression="rar"), "compression='rar'"),
        (ProducerSettings(acks=1, idempotence=True), "acks=1"),
        (ProducerSettings(max_in_flight=6), "max_in_flight=6"),
    ],
)
def test_a_wrong_setting_is_named(settings: ProducerSettings, named: str) -> None:
    with pytest.raises(InvalidConfig, match=named):
        Producer("127.0.0.1:1", settings)


def test_records_of_a_new_topic_keep_their_order(broker: str, admin: Admin) -> None:
    """Apache Kafka's brokers refuse the first batch now and then, because the topic is so new."""
    for _ in range(8):
        name = topic_name("new")
        admin.create_topic(name, 2, 1)
        with Producer(broker, batch_size=2_000) as producer:
            sent = [producer.send(name, b"%d" % number, partition=number % 2) for number in range(1_000)]
        for which in (0, 1):
            offsets = [delivery.result().offset for delivery in sent[which::2]]
            assert offsets == list(range(500))
