"""Our consumers of every kind of group when the broker that leads their partitions and coordinates them is killed."""

from collections.abc import Iterator

import pytest

from headrace import Admin, Producer, ShareConsumer, TopicPartition
from headrace.client.operations.admin import RESOURCE_GROUP
from tests.client.brokers import topic_name
from tests.client.groups.members import Polling
from tests.cluster.local_cluster import LocalCluster
from tests.eventually import eventually

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]

KINDS: dict[str, dict[str, object]] = {
    "eager": {"heartbeat_interval_ms": 300},
    "cooperative": {"heartbeat_interval_ms": 300, "partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.fixture
def topic(cluster: LocalCluster) -> Iterator[str]:
    name = topic_name("failover")
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic(name, 3, 3)
    yield name


def test_members_follow_leaders_and_coordinators(cluster: LocalCluster, topic: str) -> None:
    members = {
        kind: Polling(cluster.bootstrap, [topic], group_id=f"{topic}-{kind}", **how) for kind, how in KINDS.items()
    }
    shared: set[int] = set()
    group = f"{topic}-share"
    with Admin(cluster.bootstrap) as admin:
        admin.alter_configs(RESOURCE_GROUP, group, {"share.auto.offset.reset": "earliest"})
    try:
        with Producer(cluster.bootstrap) as producer, ShareConsumer(cluster.bootstrap, group_id=group) as sharing:
            sharing.subscribe([topic])

            def all_have(end: int) -> bool:
                shared.update(int(record.value or b"") for record in sharing.poll(100))
                sharing.commit()
                return all(len(set(each.values)) >= end for each in members.values()) and len(shared) >= end

            for end in (30, 60):
                for number in range(end - 30, end):
                    producer.send(topic, b"%d" % number, partition=number % 3)
                producer.flush()
                eventually(
                    lambda end=end: all_have(end),  # type: ignore[misc]
                    state=lambda: {kind: (len(each.values), each.failure) for kind, each in members.items()},
                )
                if end == 30:
                    with Admin(cluster.bootstrap) as admin:
                        victim = admin.cluster.leader(TopicPartition(topic, 0))
                    cluster.brokers[victim].kill()
    finally:
        for member in members.values():
            member.stop()
    assert {kind: member.failure for kind, member in members.items()} == dict.fromkeys(KINDS)
    assert shared == set(range(60))
