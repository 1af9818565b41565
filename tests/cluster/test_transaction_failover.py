"""Brokers go in the states of a transaction: while it is ongoing, and once its outcome is decided."""

import time

import pytest
from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.topics import TRANSACTIONS_TOPIC
from tests import rotation
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.transactional_clients import FAST, WAIT_S, coordinator, keys_by_leader, read_committed
from tests.eventually import WITHIN_SECONDS, eventually

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]

PARTITIONS = 3


def elect_preferred_leaders(cluster: LocalCluster) -> None:
    """Has the coordinators stay where they are: if one moves while it writes the decision, the client asks again, and
    is answered when the markers are written."""
    coordinators = [
        TopicPartition(TRANSACTIONS_TOPIC, number) for number in range(len(cluster.topic(TRANSACTIONS_TOPIC)))
    ]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.elect_leaders(ElectionType.PREFERRED, coordinators).result(WITHIN_SECONDS)
    eventually(
        lambda: all(each.leader == each.replicas[0] for each in cluster.topic(TRANSACTIONS_TOPIC)), "preferred leaders"
    )


def test_the_next_coordinator_writes_the_markers_of_a_prepared_transaction(cluster: LocalCluster) -> None:
    """The leader of one partition is down, so its marker cannot be written; then the coordinator is killed as well."""
    topic = f"prepared-{time.monotonic_ns()}"
    cluster.create_topic(topic, PARTITIONS, 1, min_insync_replicas="1")
    leader = cluster.leader(topic)
    warm = Producer({**FAST, "bootstrap.servers": cluster.bootstrap, "transactional.id": f"{topic}-warm"})
    warm.init_transactions(WAIT_S)  # creates the topic of the coordinators
    cluster.wait_until_ready()
    elect_preferred_leaders(cluster)
    ids = keys_by_leader(cluster.view(), TRANSACTIONS_TOPIC, topic)
    first = next(each for each in ids if each != leader)
    producer = Producer({**FAST, "bootstrap.servers": cluster.bootstrap, "transactional.id": ids[first]})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce(topic, b"decided", partition=partition)
    assert producer.flush(WAIT_S) == 0
    cluster.brokers[leader].kill()
    producer.commit_transaction(WAIT_S)  # the decision is stored
    cluster.brokers[first].kill()
    cluster.brokers[leader].restart()
    eventually(lambda: cluster.leader(topic) == leader, "the leader", within_s=WAIT_S)
    cluster.brokers[first].restart()
    wanted = {number: ["decided"] for number in range(PARTITIONS)}
    eventually(
        lambda: read_committed(cluster.bootstrap, topic, PARTITIONS) == wanted,
        "the markers",
        within_s=WAIT_S,
        state=cluster.logs,
    )
    again = Producer({**FAST, "bootstrap.servers": cluster.bootstrap, "transactional.id": ids[first]})
    again.init_transactions(WAIT_S)  # refused until the transaction is complete


@pytest.mark.parametrize("fault", rotation.in_turn("kill", "clean stop"))
def test_an_ongoing_transaction_outlives_its_coordinator(cluster: LocalCluster, fault: str) -> None:
    topic = f"ongoing-{time.monotonic_ns()}"
    cluster.create_topic(topic, PARTITIONS, 3)
    name = f"{topic}-id"
    settings = {**FAST, "bootstrap.servers": cluster.bootstrap}
    producer = Producer({**settings, "transactional.id": name})
    producer.init_transactions(WAIT_S)
    gone = coordinator(cluster, name, 1)
    producer.begin_transaction()
    producer.produce(topic, b"before", partition=0)
    assert producer.flush(WAIT_S) == 0
    server = cluster.brokers[gone]
    server.kill() if fault == "kill" else server.stop()
    producer.produce(topic, b"after", partition=0)
    producer.produce(topic, b"after", partition=1)
    producer.commit_transaction(WAIT_S)
    server.restart()
    cluster.wait_until_ready()
    wanted = {0: ["before", "after"], 1: ["after"], 2: []}
    eventually(
        lambda: read_committed(cluster.bootstrap, topic, PARTITIONS) == wanted,
        "the markers",
        within_s=WAIT_S,
        state=cluster.logs,
    )
