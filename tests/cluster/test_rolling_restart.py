"""Brokers are restarted one after the other while a producer writes under acks=all: the part of the fault grid in which
nothing may even pause. A follower that stops holds nothing back, and leaders are elsewhere before they stop."""

import time
from collections.abc import Iterator

import pytest

from tests import rotation
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.verifying import VerifyingProducer, verify
from tests.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]

PARTITIONS = 6
PATIENCE_S = 60
"""What a stopped follower costs that is waited for, or a stopped leader whose session is."""
SETTINGS = {key: str(PATIENCE_S * 1000) for key in ("zookeeper.session.timeout.ms", "replica.lag.time.max.ms")}


@pytest.fixture(scope="module")
def patient(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers that wait for each other much longer than a restart takes on the slowest machine."""
    chroot = zookeeper.chroot("rolled")
    with LocalCluster(tmp_path_factory.mktemp("rolled"), chroot, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def cluster(patient: LocalCluster, request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """The cluster, whole at the beginning of the test."""
    patient.make_whole()
    yield patient
    if getattr(request.node, "failed", False):
        print(patient.logs())


@pytest.mark.parametrize("is_idempotent", rotation.in_turn(True, False), ids=["idempotent", "plain"])
def test_no_partition_pauses_while_each_broker_is_restarted(cluster: LocalCluster, is_idempotent: bool) -> None:
    topic = f"rolled-{is_idempotent}-{time.monotonic_ns()}"
    cluster.create_topic(topic, PARTITIONS, 3)
    pauses: dict[int, float] = {}
    with VerifyingProducer(
        cluster.bootstrap, topic, partitions=PARTITIONS, per_second=600, is_idempotent=is_idempotent
    ) as producer:
        producer.wait_for(600)
        controller = cluster.controller()
        for broker in sorted(cluster.brokers, key=lambda each: (each == controller, each)):
            began = time.monotonic()
            assert cluster.brokers[broker].stop() == 0
            producer.wait_for(300)
            cluster.brokers[broker].restart()
            cluster.wait_until_ready()
            producer.wait_for(300)
            pauses[broker] = producer.longest_silence(began)
            print(f"broker {broker}{' (controller)' if broker == controller else ''}: {pauses[broker]:.2f} s")
    assert not producer.failed, f"{len(producer.failed)} values failed: {next(iter(producer.failed.values()))}"
    report = verify(cluster.bootstrap, topic, producer)
    assert not report.faults(), f"{report.faults()}\n{cluster.logs()}"
    assert max(pauses.values()) < PATIENCE_S / 2, pauses
