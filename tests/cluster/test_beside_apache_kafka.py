"""One broker of ours in a cluster of Apache Kafka 3.9: replica, leader, controller, and the one that stays at last."""

import json
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.coordinators.groups.partitioning import partition_for
from headrace.protocol import messages as m
from headrace.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.asker import Asker
from tests.broker.quota_requests import Client, set_quota
from tests.broker.test_quotas import produce
from tests.cluster.counting_transactions import CountingTransactions
from tests.cluster.exchanged_cluster import BROKERS, ExchangedCluster
from tests.cluster.mixed_cluster import OURS, MixedCluster
from tests.cluster.pipeline import ConfluentPipeline
from tests.cluster.transactional_clients import asked_again, committed_offset
from tests.cluster.verifying import VerifyingProducer, verify
from tests.eventually import WITHIN_SECONDS, eventually
from tests.harness import unused
from tests.peers import kafka
from tests.peers.node import ZooKeeper

pytestmark = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.skipif(kafka.missing_tools() is not None, reason=kafka.missing_tools() or ""),
    pytest.mark.xdist_group("beside-apache-kafka"),
]
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="module")
def shared(zookeeper: ZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    with MixedCluster(tmp_path_factory.mktemp("mixed"), zookeeper.chroot("shared")) as cluster:
        cluster.assign("__consumer_offsets", [1, OURS], [OURS, 1], [2, OURS], cleanup_policy="compact")
        yield cluster


@pytest.fixture
def mixed(shared: MixedCluster) -> MixedCluster:
    shared.make_whole()
    return shared


def send(cluster: MixedCluster, topic: str, *values: str) -> None:
    """To partition 0, acknowledged by all who are in sync."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for value in values:
        producer.produce(topic, value.encode(), partition=0)
    assert producer.flush(WITHIN_SECONDS) == 0


def read(cluster: MixedCluster, topic: str, isolation: str = "read_uncommitted") -> list[str]:
    """What partition 0 holds."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = []
    while (message := consumer.poll(WITHIN_SECONDS)) is not None and message.error() is None:
        value = message.value()
        assert value is not None
        values.append(value.decode())
    consumer.close()
    assert message is not None, f"{topic} cannot be read to its end"
    return values


def test_replicas_hold_the_same_bytes_whoever_led_and_whoever_died(mixed: MixedCluster) -> None:
    topic = unused("same")
    mixed.have_control(1)
    mixed.assign(topic, [1, OURS, 2], [OURS, 1, 2], [2, OURS, 1], min_insync_replicas="2")
    with VerifyingProducer(mixed.bootstrap, topic, partitions=3) as producer:
        producer.wait_for(300)
        mixed.kill(OURS)
        mixed.until(lambda: all(OURS not in mixed.state(topic, p)["isr"] for p in range(3)), "others lead")
        producer.wait_for(300)
        mixed.ours.restart()
        mixed.until(lambda: mixed.is_in_sync(topic), "in sync again")
        mixed.tool(ELECT, "--election-type", "preferred", "--all-topic-partitions")
        mixed.until(lambda: mixed.state(topic, 1)["leader"] == OURS, "ours leads again")
        producer.wait_for(300)
        mixed.ours.stop()
        assert all(OURS not in mixed.state(topic, p)["isr"] for p in range(3))
        producer.wait_for(300)
        mixed.ours.restart()
        mixed.until(lambda: mixed.is_in_sync(topic), "in sync again")
    assert not verify(mixed.bootstrap, topic, producer).faults()
    assert not producer.failed
    mixed.until(lambda: mixed.have_same_logs(topic), "the same bytes and epochs")


def test_who_comes_back_with_epochs_that_were_not_taken_drops_them_either_way(mixed: MixedCluster) -> None:
    """KIP-279: each of two replicas has epochs that the other has not, since each was elected alone and uncleanly."""
    topic = unused("torn")
    mixed.have_control(2)
    kafka_broker = mixed.theirs[1]
    mixed.assign(topic, [OURS, 1], unclean_leader_election_enable="true", min_insync_replicas="1")
    send(mixed, topic, "both")

    def alone(leader: int, *values: str) -> None:
        """The other is down already; this one is elected, takes the values and is killed."""
        mixed.until(lambda: mixed.state(topic)["leader"] == leader, f"{leader} leads")
        mixed.until(lambda: mixed.state(topic)["isr"] == [leader], f"{leader} is alone")
        send(mixed, topic, *values)
        mixed.kill(leader)

    mixed.kill(1)
    alone(OURS, "ours 1", "ours 2")
    kafka_broker.start()
    alone(1, "theirs 1", "theirs 2", "theirs 3")
    mixed.ours.restart()
    mixed.until(lambda: mixed.state(topic)["leader"] == OURS, "ours leads")
    send(mixed, topic, "ours 3")
    kafka_broker.start()  # follows ours, and drops 'theirs'
    mixed.until(lambda: mixed.is_in_sync(topic), "in sync again")
    assert read(mixed, topic) == ["both", "ours 1", "ours 2", "ours 3"]
    mixed.until(lambda: mixed.have_same_logs(topic), "the same bytes and epochs")

    mixed.kill(1)
    alone(OURS, "ours 4", "ours 5")
    kafka_broker.start()
    mixed.until(lambda: mixed.state(topic)["leader"] == 1, "1 leads")
    send(mixed, topic, "theirs 4")
    mixed.ours.restart()  # follows Apache Kafka's, and drops 'ours 4' and 'ours 5'
    mixed.until(lambda: mixed.is_in_sync(topic), "in sync again")
    assert read(mixed, topic) == ["both", "ours 1", "ours 2", "ours 3", "theirs 4"]
    mixed.until(lambda: mixed.have_same_logs(topic), "the same bytes and epochs")


def test_apache_kafkas_brokers_obey_our_controller(mixed: MixedCluster) -> None:
    topic = unused("obeyed")
    mixed.have_control(OURS)
    mixed.assign(topic, [1, OURS, 2], [OURS, 1, 2], [2, OURS, 1], min_insync_replicas="2")
    with VerifyingProducer(mixed.bootstrap, topic, partitions=3) as producer:
        producer.wait_for(300)
        mixed.theirs[2].stop()  # asks our controller to lead elsewhere first
        assert all(2 not in mixed.state(topic, p)["isr"] for p in range(3))
        producer.wait_for(300)
        mixed.theirs[2].start()
        mixed.until(lambda: mixed.is_in_sync(topic), "in sync again")
        mixed.tool(ELECT, "--election-type", "preferred", "--all-topic-partitions")
        mixed.until(lambda: mixed.state(topic, 2)["leader"] == 2, "2 leads again")
        producer.wait_for(300)
    assert not verify(mixed.bootstrap, topic, producer).faults()
    assert mixed.controller() == OURS
    with Asker(mixed.theirs[1].bootstrap) as asker:  # which asks our controller for a block
        wish = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        mixed.until(lambda: asker.ask(wish, 4).error_code == 0, "a producer id")
    assert mixed.read("/latest_producer_id_block")["broker"] in (1, 2, OURS)
    admin = mixed.admin()
    admin.delete_topics([topic])[topic].result(WITHIN_SECONDS)
    mixed.until(lambda: topic not in mixed.children("/brokers/topics"), "deleted")
    homes = [mixed.ours.data, *(node.directory / "log" for node in mixed.theirs.values())]
    assert not [each for home in homes for each in home.glob(f"{topic}-?")]


def test_groups_and_transactions_of_apache_kafka_go_on(mixed: MixedCluster) -> None:
    topic = unused("transfers")
    mixed.assign("__transaction_state", [1], [1], [1], cleanup_policy="compact")
    mixed.assign(topic, [1, OURS])
    names = {partition_for(f"group-{number}", 3): f"group-{number}" for number in range(30)}
    ids = [f"transfer-{number}" for number in range(4)]
    with Asker(mixed.ours.bootstrap) as asker:  # our broker names the coordinators, all of Apache Kafka
        answer = asker.ask(m.FindCoordinatorRequest(key_type=1, coordinator_keys=ids), 4)
    assert [(each.key, each.node_id, each.error_code) for each in answer.coordinators] == [(each, 1, 0) for each in ids]
    for name, is_kept in ((ids[0], True), (ids[1], False)):
        producer = Producer({"bootstrap.servers": mixed.bootstrap, "transactional.id": name, "log_level": 0})
        producer.init_transactions(WITHIN_SECONDS)
        producer.begin_transaction()
        producer.produce(topic, name.encode(), partition=0)
        producer.flush(WITHIN_SECONDS)
        producer.commit_transaction(WITHIN_SECONDS) if is_kept else producer.abort_transaction(WITHIN_SECONDS)
    for name in names.values():
        commit(mixed, name, 2, topic)
    mixed.until(lambda: mixed.is_in_sync(topic) and mixed.is_in_sync("__consumer_offsets"), "in sync")
    mixed.kill(OURS)  # groups that it coordinated go to Apache Kafka's
    mixed.until(lambda: OURS not in mixed.state(topic)["isr"], "ours gone")
    assert [committed(mixed, name, topic) for name in names.values()] == [2, 2, 2]
    mixed.make_whole()
    mixed.kill(1)  # and those of 1 to ours, which leads the transfers too
    mixed.until(lambda: mixed.state(topic)["leader"] == OURS, "ours leads")
    assert [committed(mixed, name, topic) for name in names.values()] == [2, 2, 2]
    assert read(mixed, topic, "read_committed") == [ids[0]]
    assert read(mixed, topic) == ids[:2]


def commit(cluster: MixedCluster, group: str, offset: int, topic: str = "transfers") -> None:
    """Commits for partition 0 of the topic."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    offsets = [TopicPartition(topic, 0, offset)]
    asked_again(lambda: consumer.commit(offsets=offsets, asynchronous=False), f"the commit of {group}")
    consumer.close()


def committed(cluster: MixedCluster, group: str, topic: str = "transfers") -> int:
    """What `commit` left."""
    return committed_offset(cluster.bootstrap, group, topic)


def test_a_cluster_moves_over_while_it_is_written_to(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    """By a producer that counts, and by a pipeline with transactions, whose coordinators move as well."""
    with MixedCluster(tmp_path, zookeeper.chroot("move"), theirs=1) as cluster:
        for topic in ("transfers", "source", "target"):
            cluster.assign(topic, [1], [1])
        with (
            VerifyingProducer(cluster.bootstrap, "transfers", partitions=2) as producer,
            ConfluentPipeline(cluster.bootstrap, "source", "target", partitions=2) as pipeline,
        ):
            producer.wait_for(300)
            pipeline.wait_for(5)
            commit(cluster, "g", 100)
            plan = tmp_path / "plan.json"
            keys = [(t, number) for t in cluster.children("/brokers/topics") for number in cluster.replicas(t)]
            assert {topic for topic, _ in keys} > {OFFSETS_TOPIC, TRANSACTIONS_TOPIC}
            partitions = [{"topic": topic, "partition": number, "replicas": [OURS]} for topic, number in keys]
            plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
            moved = ("--reassignment-json-file", str(plan))
            cluster.tool(REASSIGN, *moved, "--execute", "--throttle", "50000000")
            cluster.until(
                lambda: all(cluster.state(*key)["isr"] == [OURS] for key in keys),
                "everything is on ours",
            )
            told = cluster.tool(REASSIGN, *moved, "--verify")
            assert told.count("is completed.") == len(partitions)
            pipeline.wait_for(5)
            cluster.theirs[1].stop()
            cluster.until(lambda: cluster.controller() == OURS, "ours is controller")
            producer.wait_for(300)
            pipeline.wait_for(5)
            assert committed(cluster, "g") == 100
        print(f"longest pause {pipeline.longest_pause():.2f} s, {pipeline.state()}")
        assert not producer.failed
        assert not verify(cluster.ours.bootstrap, "transfers", producer).faults()
        assert not pipeline.faults(), pipeline.state()
        assert cluster.children("/brokers/ids") == [str(OURS)]


@pytest.mark.soak
def test_brokers_are_exchanged_where_they_are_and_back_while_transactions_run(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    """Each broker of Apache Kafka is replaced by one of headrace with its id and its files; then all the way back."""
    with ExchangedCluster(tmp_path, zookeeper.chroot("exchanged")) as cluster:
        for topic in ("transfers", "counted", "source", "target"):
            cluster.create_topic(topic, 3)
        with (
            VerifyingProducer(cluster.bootstrap, "transfers", partitions=3, per_second=200) as producer,
            CountingTransactions(cluster.bootstrap, "counted", partitions=3) as counting,
            ConfluentPipeline(cluster.bootstrap, "source", "target", partitions=3) as pipeline,
        ):
            for number in BROKERS * 2:
                producer.wait_for(100)
                counting.wait_for(10)
                pipeline.wait_for(10)
                began = time.monotonic()
                cluster.exchange(number)
                ends = [began, *(each for each in pipeline.ends if each > began), time.monotonic()]
                pause = max(later - earlier for earlier, later in pairwise(ends))
                print(f"broker {number} exchanged in {ends[-1] - began:.1f} s, longest pause {pause:.1f} s")
                pipeline.bootstrap = counting.bootstrap = cluster.bootstrap
            producer.wait_for(100)
            counting.wait_for(10)
            pipeline.wait_for(10)
        print(f"longest pause {pipeline.longest_pause():.2f} s, {pipeline.state()}; {counting.state()}")
        assert not counting.faults(), counting.state()
        assert counting.versions == {0, 2}
        assert not producer.failed
        assert not verify(cluster.bootstrap, "transfers", producer).faults()
        assert not pipeline.faults(), pipeline.state()


def test_quotas_set_through_either_kind_of_broker_apply_on_both(mixed: MixedCluster) -> None:
    topics = {number: unused(f"quota-{number}") for number in (1, OURS)}
    for number, topic in topics.items():
        mixed.assign(topic, [number])
    addresses = {1: mixed.theirs[1].bootstrap, OURS: mixed.ours.bootstrap}
    for setter in addresses:
        name = unused(f"client-{setter}")
        with Asker(addresses[setter]) as asker:
            set_quota(asker, {"client_id": name}, producer_byte_rate=100_000)
        for number, topic in topics.items():

            def is_throttled(number: int = number, topic: str = topic, name: str = name) -> bool:
                with Client(addresses[number], name) as client:
                    answer = client.ask(produce(topic, 600_000), 9)
                    assert answer.responses[0].partition_responses[0].error_code == 0
                    return bool(answer.throttle_time_ms > 0)

            eventually(is_throttled, f"broker {number} to apply the quota that was set through broker {setter}")
