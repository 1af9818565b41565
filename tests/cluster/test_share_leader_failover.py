"""Leaders of share partitions are killed while members take records: none is lost, none comes after it was accepted."""

import time

import pytest
from confluent_kafka import Producer

from headrace.protocol import messages as m
from tests.asker import Asker
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.share_members import PARTITIONS, Group, Member, Record
from tests.cluster.transactional_clients import WAIT_S
from tests.eventually import eventually

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]

DELIVERIES_MAX = 5
RECORDS = 300


def test_no_record_is_lost_or_comes_after_it_was_accepted(cluster: LocalCluster) -> None:
    topic = f"queue-{time.monotonic_ns()}"
    cluster.create_topic(topic, PARTITIONS, 3)
    group = Group(cluster, topic)
    eventually(lambda: group.alter(0), "the first offsets", within_s=WAIT_S, state=cluster.logs)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True})
    members = [Member(cluster, group.name, topic, name) for name in ("one", "two")]
    accepted: set[Record] = set()
    killed = cluster.brokers[_leader(cluster, topic)]
    sent = [str(number) for number in range(RECORDS)]
    for number, value in enumerate(sent):
        producer.produce(topic, value.encode(), partition=number % PARTITIONS)
        if number % 10 == 9:
            producer.flush(WAIT_S)  # batches of some records
        if number == RECORDS // 3:
            for member in members:
                member.take(accepted)
            killed.kill()
    assert producer.flush(WAIT_S) == 0

    def all_came() -> bool:
        for member in members:
            member.take(accepted)
        return len(accepted) == RECORDS

    eventually(all_came, "all records", within_s=2 * WAIT_S, state=lambda: (len(accepted), cluster.logs()))
    values = members[0].values + members[1].values
    assert sorted(values, key=int) == sent
    assert max(max(member.counts.values()) for member in members) <= DELIVERIES_MAX
    assert [member.again for member in members] == [[], []]
    killed.restart()
    cluster.wait_until_ready()


def _leader(cluster: LocalCluster, topic: str) -> int:
    with Asker(cluster.bootstrap.split(",")[0]) as asker:
        wanted = m.MetadataRequest.MetadataRequestTopic(name=topic)
        found = asker.ask(m.MetadataRequest(topics=[wanted], allow_auto_topic_creation=False), 12)
    return int(found.topics[0].partitions[0].leader_id)
