"""Every request that real clients send to a broker: the seeds of the fuzzer.

with recorded(server) as (frames, address):    # clients only ever see the proxy's address
    run_clients(address)
frames                                         # whole requests, without their size
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType
from kafka import KafkaConsumer, KafkaProducer

from tests.broker.frame_proxy import FrameProxy, as_sent
from tests.harness import HeadraceServer, free_ports

TOPIC = "recorded"


@contextmanager
def recorded(server: HeadraceServer) -> Iterator[tuple[list[bytes], str]]:
    """Starts the broker, which advertises a proxy, and the proxy; gives the frames so far and the clients' address."""
    (port,) = free_ports(1)
    server.settings["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{port}"
    server.start()
    frames: list[bytes] = []

    def record(frame: bytes) -> bytes:
        frames.append(frame)
        return as_sent(frame)

    proxy = FrameProxy(port, server.port, lambda: record)
    try:
        yield frames, f"127.0.0.1:{port}"
    finally:
        proxy.close()


def run_clients(bootstrap: str) -> None:
    """What three client libraries do in ordinary life; enough of each to send most of the requests they know."""
    _confluent(bootstrap)
    _kafka_python(bootstrap)
    asyncio.run(_aiokafka(bootstrap))


def _confluent(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 2, 1, config={"retention.ms": "86400000"})])[TOPIC].result(20)
    admin.create_partitions([NewPartitions(TOPIC, 3)])[TOPIC].result(20)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC)
    admin.describe_configs([resource])[resource].result(20)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": codec == "none"}
        )
        for number in range(20):
            producer.produce(TOPIC, b"value %d " % number * 20, key=b"key", headers={"of": b"record"})
        assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "confluent", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    assert len(consumer.consume(100, 20)) == 100
    consumer.commit(asynchronous=False)
    consumer.close()
    admin.list_consumer_groups().result(20)
    admin.describe_consumer_groups(["confluent"])["confluent"].result(20)
    admin.delete_consumer_groups(["confluent"])["confluent"].result(20)


def _kafka_python(bootstrap: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    producer.send(TOPIC, b"from kafka-python", key=b"k", headers=[("h", b"v")]).get(20)
    producer.close()
    consumer = KafkaConsumer(
        TOPIC, bootstrap_servers=bootstrap, group_id="kafka-python", auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )  # fmt: skip
    next(iter(consumer))
    consumer.commit()
    consumer.close()


async def _aiokafka(bootstrap: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
        await producer.send_and_wait(TOPIC, b"from aiokafka")
    consumer = AIOKafkaConsumer(
        TOPIC, bootstrap_servers=bootstrap, group_id="aiokafka", auto_offset_reset="earliest"
    )  # fmt: skip
    async with consumer:
        await consumer.getone()
        await consumer.commit()
