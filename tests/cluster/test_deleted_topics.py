"""A topic is deleted, and made anew under its name: no broker keeps anything of the one before."""

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.client.core.cluster import Cluster
from headrace.client.operations.replica_admin import ReplicaAdmin
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.cluster.local_cluster import LocalCluster
from tests.eventually import WITHIN_SECONDS, eventually, eventually_equal
from tests.harness import unused

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]

GROUP = 0


def coordinator(cluster: LocalCluster, group: str) -> int:
    """The broker that coordinates a group."""
    found: list[int] = []

    def is_found() -> bool:
        with Asker(cluster.brokers[1].bootstrap) as asker:
            answer = asker.ask(m.FindCoordinatorRequest(key=group, key_type=GROUP), 3)
        found.append(answer.node_id)
        return bool(answer.error_code == 0)

    eventually(is_found, f"a coordinator of {group}")
    return found[-1]


def told_by(cluster: LocalCluster, broker: int, topic: str) -> list[int]:
    """The numbers of a topic's partitions, as one broker tells clients."""
    request = m.MetadataRequest(
        topics=[m.MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    with Asker(cluster.brokers[broker].bootstrap) as asker:
        (found,) = asker.ask(request, 8).topics
    return sorted(each.partition_index for each in found.partitions)


def test_offsets_go_with_the_topic_on_the_coordinator_of_each_group_whoever_served_the_deletion(
    cluster: LocalCluster,
) -> None:
    topic = unused("renewed")
    cluster.create_topic(topic, 1, 3)
    coordinator(cluster, topic)  # makes the topic of the coordinators
    cluster.wait_until_ready()
    with Cluster(cluster.bootstrap) as client:
        ReplicaAdmin(client).elect_leaders()  # earlier tests may have left all of them to one broker
    groups = {coordinator(cluster, f"{topic}-{number}"): f"{topic}-{number}" for number in range(12)}
    assert len(groups) > 1, "one broker coordinates every group"
    partition = TopicPartition(topic, 0)
    consumers = {
        group: Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group}) for group in groups.values()
    }
    for consumer in consumers.values():
        consumer.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
        assert consumer.committed([partition])[0].offset == 5
    with cluster.admin() as admin:
        admin.delete_topics([topic])
    cluster.create_topic(topic, 1, 3)
    eventually(lambda: all(told_by(cluster, each, topic) for each in cluster.brokers), "a new topic")
    found = {group: each.committed([partition])[0].offset for group, each in consumers.items()}
    assert found == dict.fromkeys(consumers, OFFSET_INVALID)
    for consumer in consumers.values():
        consumer.close()


def test_a_broker_that_missed_a_deletion_and_a_new_topic_of_the_name_tells_of_the_new_one_alone(
    cluster: LocalCluster,
) -> None:
    away = next(number for number in cluster.brokers if number != cluster.controller())
    others = [number for number in cluster.brokers if number != away]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    missed, gone = unused("missed"), unused("gone")
    for name in (missed, gone):
        admin.create_topics([NewTopic(name, 3, replica_assignment=[others] * 3)])[name].result(WITHIN_SECONDS)
    for name in (missed, gone):
        eventually(lambda name=name: told_by(cluster, away, name) == [0, 1, 2], f"{name} on every broker")  # type: ignore[misc]
    cluster.pause(away)
    cluster.wait_until_present(others)  # its session has ended, and what it was to be told is dropped
    for deleted in admin.delete_topics([missed, gone]).values():
        deleted.result(WITHIN_SECONDS)
    admin.create_topics([NewTopic(missed, 1, replica_assignment=[others])])[missed].result(WITHIN_SECONDS)
    cluster.resume(away)
    cluster.wait_until_ready()
    # Until its controller reaches it, a broker that is resumed knows all brokers still, and the old topics.
    told = {missed: [0], gone: list[int]()}
    eventually_equal(lambda: {name: told_by(cluster, away, name) for name in told}, told)
