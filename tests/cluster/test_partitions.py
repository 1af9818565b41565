"""Brokers that do not hear each other, though clients and ZooKeeper reach them all.

    leader | one follower            the follower leaves the ISR, writes go on, it comes back
    leader | both followers          acks=all is refused; what was acknowledged stays
    follower | follower              nobody notices
    controller | another broker      it serves on, and hears later what has changed

What passes between two brokers goes through a proxy of each, which holds it: to them it is a network that loses
everything.
"""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.client.core.metadata import PartitionInfo
from headrace.protocol import messages as m
from tests import rotation
from tests.asker import Asker
from tests.cluster.conftest import FAST_SESSIONS
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.verifying import VerifyingProducer, verify
from tests.eventually import WITHIN_SECONDS, eventually
from tests.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]

SETTINGS = {**FAST_SESSIONS, "replica.lag.time.max.ms": "2000", "replica.socket.timeout.ms": "5000"}


@pytest.fixture(scope="module")
def parted_cluster(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers that reach each other through proxies."""
    chroot = zookeeper.chroot("parted")
    with LocalCluster(tmp_path_factory.mktemp("parted"), chroot, settings=SETTINGS, proxies=True) as cluster:
        yield cluster


@pytest.fixture
def cluster(parted_cluster: LocalCluster, request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Whole at the beginning of the test, and at its end."""
    parted_cluster.make_whole()
    yield parted_cluster
    if getattr(request.node, "failed", False):
        print(parted_cluster.logs())
    for one, other in ((1, 2), (1, 3), (2, 3)):
        parted_cluster.heal(one, other)


def partition(cluster: LocalCluster, topic: str) -> PartitionInfo:
    """The topic's only one."""
    return cluster.topic(topic)[0]


def isr(cluster: LocalCluster, topic: str) -> set[int]:
    """Who is in sync."""
    return set(partition(cluster, topic).isr)


def assign(cluster: LocalCluster, name: str, *replicas: list[int]) -> None:
    """Makes a topic with these replicas, by a broker that reaches all leaders."""
    bootstrap = cluster.brokers[cluster.controller()].bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, len(replicas), replica_assignment=list(replicas))])[name].result(WITHIN_SECONDS)
    eventually(lambda: name in cluster.view().topics, f"{name} is there")


def test_a_follower_that_its_leader_does_not_hear_leaves_the_isr_and_comes_back(cluster: LocalCluster) -> None:
    topic = f"one-follower-{time.monotonic_ns()}"
    other = cluster.controller()  # the leader must reach it, to take somebody out of the ISR
    lost, leader = sorted({1, 2, 3} - {other})
    assign(cluster, topic, [leader, lost, other])
    epoch = partition(cluster, topic).leader_epoch
    with VerifyingProducer(cluster.bootstrap, topic, partitions=1) as producer:
        producer.wait_for(300)
        cluster.cut(leader, lost)
        eventually(lambda: isr(cluster, topic) == {leader, other}, "an ISR of two")
        producer.wait_for(600)
        cluster.heal(leader, lost)
        eventually(lambda: isr(cluster, topic) == {1, 2, 3}, "an ISR of three")
        producer.wait_for(300)
    assert not producer.failed
    assert (partition(cluster, topic).leader, partition(cluster, topic).leader_epoch) == (leader, epoch)
    assert not verify(cluster.bootstrap, topic, producer).faults()


def test_two_followers_that_do_not_hear_each_other_change_nothing(cluster: LocalCluster) -> None:
    topic = f"followers-{time.monotonic_ns()}"
    leader = cluster.controller()
    one, other = sorted({1, 2, 3} - {leader})
    assign(cluster, topic, [leader, one, other])
    before = partition(cluster, topic)
    with VerifyingProducer(cluster.bootstrap, topic, partitions=1) as producer:
        producer.wait_for(300)
        cluster.cut(one, other)
        begun = time.monotonic()
        while time.monotonic() - begun < 2 * float(SETTINGS["replica.lag.time.max.ms"]) / 1000:
            producer.wait_for(300)
            assert isr(cluster, topic) == {1, 2, 3}
        cluster.heal(one, other)
    assert not producer.failed
    assert partition(cluster, topic) == before
    assert not verify(cluster.bootstrap, topic, producer).faults()


@pytest.mark.parametrize("is_controller", rotation.in_turn(True, False), ids=["the controller leads", "another leads"])
def test_a_leader_that_hears_no_follower_acknowledges_nothing(cluster: LocalCluster, is_controller: bool) -> None:
    controller = cluster.controller()
    leader = controller if is_controller else min({1, 2, 3} - {controller})
    others = sorted({1, 2, 3} - {leader})
    topic, probe = (f"{kind}-{time.monotonic_ns()}" for kind in ("no-follower", "probe"))
    assign(cluster, topic, [leader, *others])
    assign(cluster, probe, [leader, *others])
    with VerifyingProducer(cluster.bootstrap, topic, partitions=1, delivery_seconds=120) as producer:
        producer.wait_for(300)
        for each in others:
            cluster.cut(leader, each)
        # Without its controller a leader cannot take followers out of its ISR: it waits, and nobody hears a yes.
        expected = "NOT_ENOUGH_REPLICAS" if is_controller else "REQUEST_TIMED_OUT"
        eventually(lambda: refusal(cluster, probe) == expected, expected)
        said = len(producer.acknowledged)
        assert refusal(cluster, probe) == expected
        assert len(producer.acknowledged) == said
        for each in others:
            cluster.heal(leader, each)
        eventually(lambda: isr(cluster, topic) == {1, 2, 3}, "an ISR of three")
        producer.wait_for(600)
    assert not producer.failed, next(iter(producer.failed.values()))
    assert not verify(cluster.bootstrap, topic, producer).faults()


def refusal(cluster: LocalCluster, topic: str) -> str:
    """What the leader says to one record with acks=all, by Kafka's name; '' when it takes it."""
    said: list[str] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        said.append(error.name() if error else "")

    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "log_level": 0,
            "acks": "all",
            "retries": 0,
            "request.timeout.ms": 1000,
            "message.timeout.ms": 20_000,
        }
    )
    producer.produce(topic, b"probe", partition=0, on_delivery=delivered)
    producer.flush(30)
    return said[0]


def test_a_broker_that_its_controller_does_not_reach_serves_on_and_hears_later(cluster: LocalCluster) -> None:
    controller = cluster.controller()
    deaf, third = sorted({1, 2, 3} - {controller})
    topic, later = (f"{kind}-{time.monotonic_ns()}" for kind in ("deaf", "later"))
    assign(cluster, topic, [third, deaf, controller], [deaf, third, controller], [controller, third, deaf])
    with VerifyingProducer(cluster.bootstrap, topic, partitions=3, delivery_seconds=120) as producer:
        producer.wait_for(300)
        cluster.cut(controller, deaf)
        assign(cluster, later, [third, controller])
        producer.wait_for(600)
        assert knows(cluster, third, later) and not knows(cluster, deaf, later)
        cluster.heal(controller, deaf)
        eventually(lambda: knows(cluster, deaf, later), f"broker {deaf} to hear of {later}")
        cluster.wait_until_ready()
        producer.wait_for(300)
    assert not producer.failed, next(iter(producer.failed.values()))
    assert not verify(cluster.bootstrap, topic, producer).faults()


def knows(cluster: LocalCluster, broker: int, topic: str) -> bool:
    """Whether this broker, asked itself, has heard of a topic."""
    request = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=topic)])
    request.allow_auto_topic_creation = False
    with Asker(cluster.brokers[broker].bootstrap) as asker:
        (found,) = asker.ask(request, 4).topics
    return bool(found.error_code == 0)
