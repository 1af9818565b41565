"""The coordinator of a consumer group of KIP-848 dies: its members go on, with what they own, at the next one."""

import time

import pytest
from confluent_kafka import Consumer, Producer

from headrace.protocol import messages as m
from tests import rotation
from tests.asker import Asker
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.transactional_clients import FAST, WAIT_S, coordinator
from tests.eventually import eventually

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]

PARTITIONS = 4


@pytest.mark.parametrize("fault", rotation.in_turn("clean stop", "kill"))
def test_members_keep_their_partitions_when_the_coordinator_goes(cluster: LocalCluster, fault: str) -> None:
    topic = f"members-{time.monotonic_ns()}"
    group = f"{topic}-group"
    cluster.create_topic(topic, PARTITIONS, 3)
    settings = {**FAST, "bootstrap.servers": cluster.bootstrap}
    consumers = [
        Consumer({**settings, "group.id": group, "group.protocol": "consumer", "auto.offset.reset": "earliest"})
        for _ in range(2)
    ]
    lost: list[object] = []
    read: list[bytes | None] = []
    for each in consumers:
        each.subscribe([topic], on_lost=lambda _, partitions: lost.append(partitions))

    def poll() -> None:
        for each in consumers:
            message = each.poll(0.1)
            if message is not None and message.error() is None:
                read.append(message.value())

    def is_shared() -> bool:
        poll()
        return [len(each.assignment()) for each in consumers] == [2, 2]

    eventually(is_shared, "two partitions for each", within_s=WAIT_S, state=cluster.logs)
    owned = [sorted(each.partition for each in consumer.assignment()) for consumer in consumers]
    epochs = _epochs(cluster, group)
    gone = cluster.brokers[coordinator(cluster, group, 0)]
    gone.kill() if fault == "kill" else gone.stop()
    producer = Producer(settings)
    for partition in range(PARTITIONS):
        producer.produce(topic, f"{partition}".encode(), partition=partition)
    assert producer.flush(WAIT_S) == 0

    def has_read() -> bool:
        poll()
        return len(read) == PARTITIONS

    eventually(has_read, "every partition is read", within_s=WAIT_S, state=cluster.logs)
    gone.restart()
    cluster.wait_until_ready()

    def are_the_same() -> bool:
        poll()
        return _epochs(cluster, group) == epochs

    eventually(are_the_same, "the same members", within_s=WAIT_S, state=cluster.logs)
    assert [sorted(each.partition for each in consumer.assignment()) for consumer in consumers] == owned
    assert lost == []
    for each in consumers:
        each.close()


def _epochs(cluster: LocalCluster, group: str) -> dict[str, int]:
    """The epoch of each member, as the coordinator of this moment has it."""
    broker = cluster.brokers[coordinator(cluster, group, 0)]
    with Asker(broker.bootstrap) as asker:
        (found,) = asker.ask(m.ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups
    return {each.member_id: each.member_epoch for each in found.members}
