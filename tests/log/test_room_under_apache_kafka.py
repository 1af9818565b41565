"""Apache Kafka 3.9 starts with the files of a killed broker that end with room, cuts them, and goes on behind them."""

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from headrace.limits import ROOM_BYTES
from tests.eventually import eventually
from tests.harness import HeadraceServer
from tests.peers import kafka
from tests.peers.node import KafkaNode, ZooKeeper, end_session

pytestmark = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.skipif(kafka.missing_tools() is not None, reason=kafka.missing_tools() or ""),
    pytest.mark.xdist_group("logs-of-apache-kafka"),
]
BEFORE, AFTER = 150, 20


def produce(bootstrap: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    for number in numbers:
        producer.produce("room", b"%08d" % number + bytes(15_000))
        producer.flush()  # a batch each


def consumed(bootstrap: str, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition("room", 0, 0)])
    found: list[int] = []

    def are_there() -> bool:
        found.extend(int((each.value() or b"")[:8]) for each in consumer.consume(500, 0.5) if each.error() is None)
        return len(found) >= count

    try:
        eventually(are_there, f"{count} records", state=lambda: len(found))
    finally:
        consumer.close()
    return found


def killed_broker(home: Path) -> Path:
    """The directory of the partition that a killed broker leaves."""
    home.mkdir()
    server = HeadraceServer(home / "data", settings={"headrace.log.preallocate.room": "always"})
    try:
        server.start()
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic("room", 1, 1)])["room"].result()
        produce(server.bootstrap, range(BEFORE))
        server.kill()
    finally:
        server.stop()
    return home / "data" / "room-0"


def test_apache_kafka_takes_room_for_the_end_of_the_log(tmp_path: Path) -> None:
    killed = killed_broker(tmp_path / "ours")
    (log,) = killed.glob("*.log")
    assert log.stat().st_size % ROOM_BYTES == 0 and log.read_bytes().endswith(bytes(1000))
    with ZooKeeper(tmp_path / "zookeeper") as zookeeper:
        node = KafkaNode(tmp_path / "kafka", zookeeper=zookeeper.address)
        try:
            node.start()
            admin = AdminClient({"bootstrap.servers": node.bootstrap})
            # A client that asks a broker without a controller waits a minute before it asks again.
            eventually(lambda: admin.list_topics(timeout=10).controller_id == 1, "a controller")
            admin = AdminClient({"bootstrap.servers": node.bootstrap})
            admin.create_topics([NewTopic("room", 1, 1)])["room"].result()
            produce(node.bootstrap, range(1))
            node.kill()
            client = KazooClient(zookeeper.address)
            client.start()
            end_session(client, 1)
            client.stop()
            theirs = tmp_path / "kafka" / "log" / "room-0"
            for path in (*theirs.glob("*.log"), *theirs.glob("*index"), *theirs.glob("*.snapshot")):
                path.unlink()
            for path in (*killed.glob("*.log"), *killed.glob("*index"), killed / "leader-epoch-checkpoint"):
                shutil.copy(path, theirs)
            node.start()
            assert consumed(node.bootstrap, BEFORE) == list(range(BEFORE))
            size = (theirs / log.name).stat().st_size
            produce(node.bootstrap, range(BEFORE, BEFORE + AFTER))
            assert consumed(node.bootstrap, BEFORE + AFTER) == list(range(BEFORE + AFTER))
            assert (theirs / log.name).stat().st_size > size
            assert size % ROOM_BYTES, "the room was cut"
        finally:
            node.stop()
