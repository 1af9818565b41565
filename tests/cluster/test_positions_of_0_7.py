"""Positions of Kafka 0.7 on three brokers: whoever leads, they are the same."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client import Admin, NewTopic, Producer, TopicPartition
from headrace.protocol.wire_07 import ErrorCode07
from headrace.records.codecs.compression import Codec
from headrace.records.legacy.format_07 import encode_entry, encode_set
from tests.client_07 import ENABLED, Client07, sizes
from tests.cluster.conftest import FAST_SESSIONS
from tests.cluster.local_cluster import LocalCluster
from tests.eventually import eventually, eventually_equal
from tests.harness import free_ports
from tests.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
TOPIC, LATEST, EARLIEST = "clicks", -1, -2


@pytest.fixture(scope="module")
def ports() -> dict[int, int]:
    """Where each broker listens for clients of 0.7."""
    return dict(enumerate(free_ports(3), 1))


@pytest.fixture(scope="module")
def old_cluster(
    zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory, ports: dict[int, int]
) -> Iterator[LocalCluster]:
    settings = {
        **FAST_SESSIONS,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OLD:KAFKA07",
        "log.retention.check.interval.ms": "300",
    }
    made = LocalCluster(tmp_path_factory.mktemp("old"), zookeeper.chroot("old"), settings=settings)
    for number, server in made.brokers.items():
        server.listen = f"PLAINTEXT://{server.listen},OLD://127.0.0.1:{ports[number]}"
    with made as cluster:
        cluster.wait_until_ready()
        yield cluster


def leader_of(cluster: LocalCluster) -> int:
    with Admin(alive(cluster)) as admin:
        return int(admin.describe_topic(TOPIC).partitions[0].leader)


def alive(cluster: LocalCluster) -> str:
    running = [each for each in cluster.brokers.values() if each.process is not None and each.process.poll() is None]
    return ",".join(each.bootstrap for each in running)


def are_in_sync(cluster: LocalCluster, count: int) -> bool:
    with Admin(alive(cluster)) as admin:
        return len(admin.describe_topic(TOPIC).partitions[0].isr) == count


def test_positions_stay_over_failovers_deleted_records_and_a_new_replica(
    old_cluster: LocalCluster, ports: dict[int, int], tmp_path: Path
) -> None:
    cluster = old_cluster
    with Admin(cluster.bootstrap) as admin:
        configs = {**ENABLED, "segment.bytes": "4000", "file.delete.delay.ms": "0", "min.insync.replicas": "1"}
        admin.create_topics([NewTopic(TOPIC, 1, 3, configs=configs)])
    eventually(lambda: are_in_sync(cluster, 3), "three replicas")
    values = [b"%04d" % number * 15 for number in range(400)]
    with Client07(ports[leader_of(cluster)]) as old, Producer(cluster.bootstrap, linger_ms=0) as producer:
        for start in range(0, 400, 20):
            for value in values[start : start + 10]:
                producer.send(TOPIC, value, key=b"key")
            producer.flush()
            old.produce(TOPIC, encode_set(values[start + 10 : start + 20], codec=Codec.GZIP))
            eventually_equal(lambda: old.offsets(TOPIC, LATEST, 1), [sizes(values[: start + 20])])
    with Admin(cluster.bootstrap) as admin:
        admin.delete_records({TopicPartition(TOPIC, 0): 205})
    logs = [server.data / f"{TOPIC}-0" / "00000000000000000000.log" for server in cluster.brokers.values()]
    eventually(lambda: not any(log.exists() for log in logs), "the first segments to go")

    whole, first = b"".join(encode_entry(value) for value in values), sizes(values[:205])

    def check(broker: int) -> None:
        with Client07(ports[broker]) as old:
            assert (old.offsets(TOPIC, EARLIEST), old.offsets(TOPIC, LATEST, 1)) == ([first], [len(whole)])
            for count in (205, 206, 300, 399, 400):
                offset = sizes(values[:count])
                assert old.fetch(TOPIC, offset, 1000) == (ErrorCode07.NO_ERROR, whole[offset : offset + 1000])
            assert old.fetch(TOPIC, first - 70)[0] is ErrorCode07.OFFSET_OUT_OF_RANGE

    before = leader_of(cluster)
    check(before)
    cluster.brokers[before].kill()
    eventually(lambda: leader_of(cluster) not in (before, -1), "another leader")
    check(leader_of(cluster))

    shutil.rmtree(cluster.brokers[before].data / f"{TOPIC}-0")  # its new replica starts behind what was deleted
    cluster.brokers[before].restart()
    eventually(lambda: are_in_sync(cluster, 3), "three replicas again", state=cluster.logs)
    assert not (cluster.brokers[before].data / f"{TOPIC}-0" / "00000000000000000000.log").exists()
    for number in ports.keys() - {before}:
        cluster.brokers[number].stop()
    eventually(lambda: leader_of(cluster) == before, "the new replica to lead", state=cluster.logs)
    eventually(lambda: _is_served(ports[before]), "the new leader to answer")
    check(before)
    cluster.make_whole()


def _is_served(port: int) -> bool:
    with Client07(port) as old:
        return old.fetch(TOPIC, 0, 10).error is ErrorCode07.OFFSET_OUT_OF_RANGE
