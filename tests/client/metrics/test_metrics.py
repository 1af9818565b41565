"""The metrics of producers and consumers, by what they did, on our broker and on Apache Kafka."""

from __future__ import annotations

import math

import pytest

from headrace import Consumer, Producer
from headrace.client import aio
from headrace.client.core.failures import BufferExhausted
from headrace.client.operations.admin import Admin
from headrace.types import TopicPartition
from tests.client.brokers import topic_name
from tests.eventually import collected


@pytest.fixture
def topic(admin: Admin) -> str:
    name = topic_name("measured")
    admin.create_topic(name, 1, 1)
    return name


def test_a_producer_counts_records_batches_and_requests(broker: str, topic: str) -> None:
    with Producer(broker, linger_ms=60_000, compression_type="gzip") as producer:
        for _ in range(100):
            producer.send(topic, b"tea" * 10)
        assert producer.metrics()["producer-metrics"]["record-send-total"] == 0
        producer.flush()
        found = producer.metrics()
        own, of_topic = found["producer-metrics"], found[f"producer-topic-metrics.{topic}"]
    assert own["record-send-total"] == of_topic["record-send-total"] == 100
    assert own["records-per-request-avg"] == 100
    assert own["batch-size-avg"] == own["batch-size-max"] == of_topic["byte-total"]
    assert 0 < own["compression-rate-avg"] < 0.5
    assert own["record-error-total"] == own["record-retry-total"] == own["requests-in-flight"] == 0
    assert own["buffer-total-bytes"] == own["buffer-available-bytes"] == 64 << 20
    assert own["record-queue-time-max"] > 0
    assert own["request-total"] == own["response-total"] >= 3  # versions, metadata, records
    assert own["outgoing-byte-total"] > own["batch-size-avg"]
    assert own["incoming-byte-total"] > 0
    assert own["connection-creation-total"] == own["connection-count"] + own["connection-close-total"] >= 1
    assert own["request-latency-max"] >= own["request-latency-avg"] > 0
    assert any(name.startswith("producer-node-metrics.node-") for name in found)


def test_records_that_wait_or_fail_are_counted(broker: str, topic: str) -> None:
    with Producer(
        broker, linger_ms=60_000, buffer_memory=10_000, max_block_ms=0, request_timeout_ms=10_000
    ) as producer:
        producer.send(topic, bytes(9_000)).add_done_callback(lambda *_: None)
        assert producer.metrics()["producer-metrics"]["buffer-available-bytes"] < 1_000
        with pytest.raises(BufferExhausted):
            producer.send(topic, bytes(9_000))
        assert producer.metrics()["producer-metrics"]["buffer-exhausted-total"] == 1
        producer.flush()
        refused = producer.send(topic, bytes(2 << 20))
        producer.flush()
        assert refused.exception() is not None
        found = producer.metrics()
    assert found["producer-metrics"]["record-error-total"] == 1
    assert found[f"producer-topic-metrics.{topic}"]["record-error-total"] == 1


def test_a_closed_producer_has_no_connection(broker: str, topic: str) -> None:
    with Producer(broker) as producer:
        producer.send(topic, b"tea").result()
    own = producer.metrics()["producer-metrics"]
    assert own["connection-close-total"] == own["connection-creation-total"] > 0
    assert own["connection-count"] == 0


def test_a_consumer_counts_fetches_records_commits_and_rebalances(broker: str, topic: str) -> None:
    with Producer(broker) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number)
    with Consumer(broker, group_id=topic, auto_offset_reset="earliest", max_poll_records=4) as consumer:
        before = consumer.metrics()
        assert math.isnan(before["consumer-fetch-manager-metrics"]["records-lag-max"])
        assert before["consumer-coordinator-metrics"]["last-rebalance-seconds-ago"] == -1
        consumer.subscribe([topic])
        while not consumer.poll(200):
            pass
        assert consumer.metrics()["consumer-fetch-manager-metrics"]["records-lag-max"] == 6
        assert len(collected(lambda _: consumer.poll(200), 6)) == 6
        consumer.commit()
        found = consumer.metrics()
    fetches, group, own = (
        found[f"consumer-{name}"] for name in ("fetch-manager-metrics", "coordinator-metrics", "metrics")
    )
    assert fetches["records-consumed-total"] == 10
    assert fetches["records-lag-max"] == 0
    assert fetches["bytes-consumed-total"] > 10
    assert fetches["fetch-total"] >= 1 and fetches["fetch-latency-max"] > 0
    assert group["commit-total"] == 1 and group["commit-latency-avg"] > 0
    assert group["assigned-partitions"] == 1
    assert group["rebalance-total"] == 1 and group["rebalance-latency-avg"] > 0
    assert group["last-rebalance-seconds-ago"] >= 0
    assert own["connection-count"] >= 1
    assert 0 < own["poll-idle-ratio-avg"] <= 1
    assert own["last-poll-seconds-ago"] >= 0


def test_columns_are_counted_too(broker: str, topic: str) -> None:
    with Producer(broker) as producer:
        producer.send_columns(topic, None, [b"tea", b"bun"]).result()
        assert producer.metrics()["producer-metrics"]["record-send-total"] == 2
    with Consumer(broker, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while not consumer.poll_columns(200):
            pass
        assert consumer.metrics()["consumer-fetch-manager-metrics"]["records-consumed-total"] == 2


async def test_tasks_have_the_same_metrics(broker: str, topic: str) -> None:
    async with aio.Producer(broker) as producer:
        await producer.send_and_wait(topic, b"tea")
        assert producer.metrics()["producer-metrics"]["record-send-total"] == 1
    async with aio.Consumer(broker, auto_offset_reset="earliest") as consumer:
        await consumer.assign([TopicPartition(topic, 0)])
        await consumer.getone()
        assert consumer.metrics()["consumer-fetch-manager-metrics"]["records-consumed-total"] == 1
