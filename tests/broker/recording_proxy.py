"""A proxy before a broker that keeps every request which real clients send through it: the seeds of the fuzzer.

with recorded() as recording:      # broker and proxy; clients only ever see the proxy's address
    recording.run_clients()
recording.frames                   # whole requests, without their size
"""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType
from kafka import KafkaConsumer, KafkaProducer

from tests.harness import HeadraceServer, free_ports, receive_frame

TOPIC = "recorded"


class RecordingProxy:
    """Listens on a loopback port, passes everything on to another, and keeps the frames that clients send."""

    def __init__(self, port: int, broker_port: int) -> None:
        self.frames: list[bytes] = []
        self._broker_port = broker_port
        self._listening = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accepts nobody any more."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            broker = socket.create_connection(("127.0.0.1", self._broker_port))
            threading.Thread(target=self._requests, args=(client, broker), daemon=True).start()
            threading.Thread(target=self._answers, args=(broker, client), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket) -> None:
        with suppress(OSError), broker:
            while True:
                request = receive_frame(client)
                self.frames.append(request)
                broker.sendall(len(request).to_bytes(4, "big") + request)

    def _answers(self, broker: socket.socket, client: socket.socket) -> None:
        with suppress(OSError), client:
            while data := broker.recv(1 << 16):
                client.sendall(data)


@contextmanager
def recorded(server: HeadraceServer) -> Iterator[tuple[RecordingProxy, str]]:
    """Starts the broker, told to advertise the proxy, and the proxy; with it, the address for clients."""
    (port,) = free_ports(1)
    server.settings["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{port}"
    server.start()
    proxy = RecordingProxy(port, server.port)
    try:
        yield proxy, f"127.0.0.1:{port}"
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
