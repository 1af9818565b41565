"""The simple consumer against our broker and Apache Kafka: the caller has the state."""

import os
from pathlib import Path

import pytest

from headrace.client.consumer.simple_consumer import FetchRequest, SimpleConsumer
from headrace.client.operations.admin import EARLIEST, LATEST, Admin, NewTopic
from headrace.client.producer.producer import Producer, ProducerSettings
from headrace.errors import ErrorCode, KafkaError, OffsetOutOfRange
from tests.client.brokers import topic_name
from tests.harness import HeadraceServer

COUNT = 50
VALUE_BYTES = 100 << 10
SEGMENT_BYTES = 1 << 20


_topics: dict[str, str] = {}


@pytest.fixture
def topic(broker: str) -> str:
    """A topic of that broker, which no test writes."""
    return topic_of(broker)


def topic_of(broker: str) -> str:
    """Two partitions. Partition 0 has several segments of records of 100 KiB, which begin with their number."""
    if broker not in _topics:
        name = _topics[broker] = topic_name("simple")
        with Admin(broker) as admin:
            admin.create_topics([NewTopic(name, 2, 1, {"segment.bytes": str(SEGMENT_BYTES)})])
        with Producer(broker, ProducerSettings(batch_bytes=1 << 10)) as producer:  # a batch for each record
            for number in range(COUNT):
                producer.send(name, (b"%d" % number).ljust(VALUE_BYTES), partition=0)
            producer.send(name, b"other", b"key", partition=1)
    return _topics[broker]


def test_fetches_go_on_from_the_offset_that_the_caller_keeps(topic: str, broker: str) -> None:
    numbers: list[int] = []
    offset = 7
    with SimpleConsumer(broker) as consumer:
        while offset < COUNT:
            messages = consumer.fetch(FetchRequest(topic, 0, offset, max_bytes=250 << 10))
            numbers += [int(each.value or b"") for each in messages]
            assert messages.high_watermark == COUNT
            assert messages.next_offset > offset
            offset = messages.next_offset
        assert numbers == list(range(7, COUNT))
        assert list(consumer.fetch(FetchRequest(topic, 0, COUNT))) == []
        assert [each.key for each in consumer.fetch(FetchRequest(topic, 1, 0))] == [b"key"]


def test_a_message_longer_than_the_limit_is_returned(topic: str, broker: str) -> None:
    with SimpleConsumer(broker) as consumer:
        assert len(list(consumer.fetch(FetchRequest(topic, 0, 0, max_bytes=10)))) == 1


def test_a_multifetch_answers_each_request_in_turn(topic: str, broker: str) -> None:
    with SimpleConsumer(broker) as consumer:
        places = [(0, 48), (0, 99), (1, 0), (7, 0), (0, 49)]
        requests = [FetchRequest(topic, partition, offset) for partition, offset in places]
        found = consumer.multifetch(requests)
        assert [each.offset for each in found[0]] == [48, 49]
        assert isinstance(found[1].error, OffsetOutOfRange)
        assert [each.value for each in found[2]] == [b"other"]
        assert found[3].error is not None
        assert found[3].error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [each.offset for each in found[4]] == [49]
        with pytest.raises(OffsetOutOfRange, match=f"{topic}-0 at offset 99"):
            list(found[1])
        with pytest.raises(OffsetOutOfRange, match=f"{topic}-0 at offset 99"):
            consumer.fetch(requests[1])


def test_offsets_before_a_time_come_newest_first(topic: str, broker: str) -> None:
    with SimpleConsumer(broker) as consumer:
        assert consumer.get_offsets_before(topic, 0, LATEST) == [COUNT]
        assert consumer.get_offsets_before(topic, 0, EARLIEST, 5) == [0]
        found = consumer.get_offsets_before(topic, 0, LATEST, 100)
        assert found == sorted(found, reverse=True)
        assert (found[0], found[-1]) == (COUNT, 0)
        for offset in found[1:]:
            assert next(iter(consumer.fetch(FetchRequest(topic, 0, offset)))).offset == offset
        assert consumer.get_offsets_before(topic, 0, LATEST, 2) == found[:2]


def test_offsets_before_a_time_of_the_clock(topic: str, broker: str) -> None:
    to_come = 4_102_444_800_000  # 2100
    with SimpleConsumer(broker) as consumer:
        found = consumer.get_offsets_before(topic, 0, to_come, 100)
        assert found == consumer.get_offsets_before(topic, 0, LATEST, 100)
        assert consumer.get_offsets_before(topic, 0, to_come, 1) == [COUNT]
        with pytest.raises(KafkaError) as unknown:
            consumer.get_offsets_before(topic, 7, LATEST)
        assert unknown.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_consumer_keeps_no_position(topic: str, broker: str) -> None:
    with SimpleConsumer(broker) as one, SimpleConsumer(broker) as other:
        for offset in (30, 3, 30, 0):
            for consumer in (one, other):
                assert next(iter(consumer.fetch(FetchRequest(topic, 0, offset)))).offset == offset


def test_a_segment_counts_from_when_it_was_last_written(shared_headrace: HeadraceServer) -> None:
    topic = topic_of(shared_headrace.bootstrap)
    log = shared_headrace.data / f"{topic}-0"
    segments = sorted(log.glob("*.log"))
    for age, segment in enumerate(segments[:-1]):
        os.utime(segment, (1_000_000 + age, 1_000_000 + age))
    starts = [int(each.stem) for each in segments]
    with SimpleConsumer(shared_headrace.bootstrap) as consumer:
        assert consumer.get_offsets_before(topic, 0, 999_999_999, 9) == []
        for newest in range(len(segments) - 1):
            time_ms = (1_000_000 + newest) * 1000
            assert consumer.get_offsets_before(topic, 0, time_ms, 9) == starts[newest::-1]


@pytest.mark.slow
def test_it_connects_again_to_a_broker_that_was_restarted(tmp_path: Path) -> None:
    server = HeadraceServer(tmp_path / "data").start()
    try:
        with Admin(server.bootstrap) as admin, Producer(server.bootstrap) as producer:
            admin.create_topics([NewTopic("restarted", 1, 1)])
            producer.send("restarted", b"x").result()
        with SimpleConsumer(server.bootstrap) as consumer:
            assert consumer.get_offsets_before("restarted", 0, LATEST) == [1]
            server.stop()
            with pytest.raises(KafkaError):
                consumer.fetch(FetchRequest("restarted", 0, 0))
            server.restart()
            assert [each.value for each in consumer.fetch(FetchRequest("restarted", 0, 0))] == [b"x"]
    finally:
        server.stop()


def test_our_broker_answers_with_the_starts_of_segments(shared_headrace: HeadraceServer) -> None:
    topic = topic_of(shared_headrace.bootstrap)
    with SimpleConsumer(shared_headrace.bootstrap) as consumer:
        found = consumer.get_offsets_before(topic, 0, LATEST, 100)
    per_segment = SEGMENT_BYTES // VALUE_BYTES
    assert found == [COUNT, *range((COUNT - 1) // per_segment * per_segment, -1, -per_segment)]


def test_it_knows_whom_to_ask(topic: str, broker: str) -> None:
    with SimpleConsumer(broker) as consumer:
        assert str(consumer.find_leader(topic, 0)).rpartition(":")[2] == broker.rpartition(":")[2]
