"""A consumer with a rack reads from the replica there (KIP-392), and from the leader while there is none."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import Admin, Consumer, Producer, TopicPartition
from headrace.client.consumer.fetching import FetchSizes
from headrace.client.consumer.reader import ReadOptions, read_range
from headrace.client.core.cluster import Cluster
from headrace.types import BrokerId
from tests.cluster.local_cluster import LocalCluster
from tests.eventually import collected, eventually
from tests.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]

LEADER, FOLLOWER = BrokerId(1), BrokerId(2)
SETTINGS = {
    "min.insync.replicas": "1",
    "default.replication.factor": "2",
    "offsets.topic.replication.factor": "1",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "zookeeper.session.timeout.ms": "2500",
    "replica.lag.time.max.ms": "4000",
}


@pytest.fixture
def two(zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[LocalCluster]:
    """Broker 1, the leader, in rack east, and broker 2 in rack west."""
    cluster = LocalCluster(tmp_path / "two", zookeeper.chroot("near"), brokers=2, settings=SETTINGS)
    for number, rack in ((1, "east"), (2, "west")):
        cluster.brokers[number].settings["broker.rack"] = rack
    with cluster:
        cluster.wait_until_ready()
        with Admin(cluster.bootstrap) as admin:
            admin.create_topic("near", 2, 2)
        yield cluster


@pytest.fixture
def place(two: LocalCluster) -> TopicPartition:
    """The partition that broker 1 leads."""
    with Admin(two.bootstrap) as admin:
        leaders = eventually(lambda: [each.leader for each in admin.describe_topic("near").partitions])
    assert sorted(leaders) == [LEADER, FOLLOWER]
    return TopicPartition("near", leaders.index(LEADER))


def source(consumer: Consumer, place: TopicPartition) -> BrokerId:
    return consumer._fetcher._sources.broker(place, consumer._cluster.deadline())


def test_reads_from_the_replica_in_its_rack_and_from_the_leader_when_that_is_gone(
    two: LocalCluster, place: TopicPartition
) -> None:
    with Producer(two.bootstrap, acks=1) as producer, Consumer(two.bootstrap, client_rack="west") as near:
        near.assign([place])
        near.seek_to_beginning()
        for number in range(20):
            producer.send(place.topic, b"%d" % number, partition=place.partition).result()
        assert len(collected(lambda _: near.poll(200), 20)) == 20
        eventually(lambda: source(near, place) == FOLLOWER or near.poll(50))
        assert source(near, place) == FOLLOWER
        two.brokers[2].kill()
        producer.send(place.topic, b"20", partition=place.partition).result()
        (last,) = collected(lambda _: near.poll(200), 1)
        assert last.value == b"20"
        assert source(near, place) == LEADER


def test_a_consumer_without_a_rack_or_in_another_reads_from_the_leader(
    two: LocalCluster, place: TopicPartition
) -> None:
    with Producer(two.bootstrap) as producer:
        producer.send(place.topic, b"0", partition=place.partition).result()
    for rack in (None, "east", "north"):
        with Consumer(two.bootstrap, client_rack=rack) as consumer:
            consumer.assign([place])
            consumer.seek_to_beginning()
            assert len(collected(lambda _, each=consumer: each.poll(200), 1)) == 1  # type: ignore[misc]
            assert source(consumer, place) == LEADER


def test_a_range_is_read_from_the_replica_in_the_rack_and_from_the_leader_when_that_is_gone(
    two: LocalCluster, place: TopicPartition
) -> None:
    """As tasks of Spark do."""
    with Producer(two.bootstrap, acks=-1) as producer:
        for number in range(20):
            producer.send(place.topic, b"%0512d" % number, partition=place.partition).result()
    west = ReadOptions(rack="west", batch_rows=1, sizes=FetchSizes(partition_max_bytes=600))

    def is_read_from_the_replica() -> bool:
        """Once the leader knows that the replica has all."""
        with Cluster(two.bootstrap) as cluster:
            assert sum(columns.count for columns in read_range(cluster, place, 0, 20, west)) == 20
            return cluster.held(FOLLOWER) is not None and cluster.held(LEADER) is not None

    eventually(is_read_from_the_replica)
    with Cluster(two.bootstrap) as cluster:
        chunks = read_range(cluster, place, 0, 20, west)
        found = next(chunks).count
        assert cluster.held(FOLLOWER) is not None
        two.brokers[2].kill()
        assert found + sum(columns.count for columns in chunks) == 20
    with Cluster(two.bootstrap) as cluster:
        assert sum(columns.count for columns in read_range(cluster, place, 0, 20, ReadOptions(rack="east"))) == 20
        assert cluster.held(FOLLOWER) is None
