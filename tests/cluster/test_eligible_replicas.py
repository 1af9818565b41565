"""An eligible leader replica leads (KIP-966): it left the ISR before the ISR's last member died."""

import pytest
from confluent_kafka import Producer

from headrace.protocol import messages as m
from tests.asker import Asker
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.test_operation import new_topic, partitions
from tests.eventually import eventually
from tests.topic_reader import TopicReader

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]


def eligible(bootstrap: str, topic: str) -> list[int] | None:
    """As a broker answers DescribeTopicPartitions."""
    with Asker(bootstrap) as asker:
        request = m.DescribeTopicPartitionsRequest(
            topics=[m.DescribeTopicPartitionsRequest.TopicRequest(name=topic)], response_partition_limit=10
        )
        found: list[int] | None = asker.ask(request, 0).topics[0].partitions[0].eligible_leader_replicas
        return found


def isr(cluster: LocalCluster, topic: str) -> set[int]:
    return set(partitions(cluster, topic)[0].isr)


def test_an_eligible_replica_leads_when_the_last_member_of_the_isr_dies(cluster: LocalCluster) -> None:
    topic = new_topic(cluster, "eligible", [2, 3])
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    written = [str(number) for number in range(100)]
    for value in written:
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    assert eligible(cluster.brokers[1].bootstrap, topic) == []
    cluster.brokers[3].stop()
    eventually(lambda: isr(cluster, topic) == {2}, "broker 3 left the ISR")
    assert eligible(cluster.brokers[1].bootstrap, topic) == [3]
    cluster.brokers[2].kill()
    eventually(lambda: partitions(cluster, topic)[0].leader < 0, "the partition is offline")
    cluster.brokers[3].restart()
    assert cluster.leader(topic) == 3
    assert eligible(cluster.brokers[1].bootstrap, topic) == [2]
    cluster.brokers[2].restart()
    eventually(lambda: isr(cluster, topic) == {2, 3}, "both in sync")
    assert eligible(cluster.brokers[1].bootstrap, topic) == []
    with TopicReader(cluster.bootstrap, topic, 1, "read_uncommitted") as reader:
        eventually(lambda: len(reader.values()) >= len(written), "the records are there")
        assert reader.values() == written
