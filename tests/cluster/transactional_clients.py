"""What tests of transactions in a cluster ask and read."""

from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from headrace.client.core.metadata import ClusterView
from headrace.coordinators.groups.partitioning import partition_for
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.cluster.local_cluster import LocalCluster
from tests.eventually import WITHIN_SECONDS, eventually

Answer = TypeVar("Answer")

WAIT_S = WITHIN_SECONDS
MOVING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
FAST = {
    "log_level": 0,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 200,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 2000,
    "socket.timeout.ms": 5000,
}
"""confluent-kafka's settings with short pauses after errors."""


def keys_by_leader(view: ClusterView, topic: str, prefix: str) -> dict[int, str]:
    """A transactional id or group for each broker that leads a partition of its coordinators' topic."""
    partitions = view.topics[topic].partitions
    names = {partition_for(f"{prefix}-{number}", len(partitions)): f"{prefix}-{number}" for number in range(50)}
    return {partitions[number].leader: name for number, name in sorted(names.items())}


def asked_again(ask: Callable[[], Answer], what: str) -> Answer:
    """What a coordinator answers; librdkafka does not always ask again by itself where it has just moved."""
    answers: list[Answer] = []

    def has_answered() -> bool:
        try:
            answers.append(ask())
        except KafkaException as error:
            if error.args[0].code() not in MOVING:
                raise
        return bool(answers)

    eventually(has_answered, what)
    return answers[0]


def committed_offset(bootstrap: str, group: str, topic: str) -> int:
    """The offset that a group committed for partition 0."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        (found,) = asked_again(lambda: consumer.committed([TopicPartition(topic, 0)], WAIT_S), f"offsets of {group}")
        return found.offset
    finally:
        consumer.close()


def read_committed(bootstrap: str, topic: str, partitions: int) -> dict[int, list[str]]:
    """The committed values, by partition."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "reader",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 20,  # the end of a partition is known after a fetch that waited in vain
    }
    consumer = Consumer(settings)
    values: dict[int, list[str]] = {number: [] for number in range(partitions)}
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in values])
        unread = set(values)
        while unread:
            message = consumer.poll(WAIT_S)
            assert message is not None, f"{topic}: partitions {unread} cannot be read to their ends"
            partition, error = message.partition(), message.error()
            assert partition is not None
            if error is None:
                value = message.value()
                assert value is not None
                values[partition].append(value.decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(partition)
    finally:
        consumer.close()
    return values


def coordinator(cluster: LocalCluster, key: str, kind: int) -> int:
    """The coordinator of a group (0) or transactional id (1)."""
    with Asker(cluster.brokers[1].bootstrap) as asker:
        (found,) = asker.ask(m.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4).coordinators
    assert found.error_code == 0, found
    return int(found.node_id)
