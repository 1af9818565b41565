"""Real processes that die, or seem to: others lead long before a session ends, which here takes half a minute."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import rotation
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.test_controller_failover import Eyes
from tests.cluster.verifying import VerifyingProducer, verify
from tests.eventually import eventually
from tests.harness import unused
from tests.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("fencing")]

SETTINGS = {"zookeeper.session.timeout.ms": "30000", "auto.leader.rebalance.enable": "false"}
LOOK_SECONDS = 3.0
"""How long a broker is looked at that must not be fenced: where it is, that takes some milliseconds."""


class MetadataStore(Eyes):
    """What the brokers know of each other."""

    def leader(self, topic: str) -> int:
        return int(self.json(f"/brokers/topics/{topic}/partitions/0/state")["leader"])

    def controller(self) -> int:
        return int(self.json("/controller")["brokerid"])

    def suspicions(self, broker: int) -> set[int]:
        """Who has seen that this broker refuses."""
        names = [name.split("-") for name in self.client.get_children("/headrace/suspicions")]
        return {int(observer) for seen, _, observer, _ in names if int(seen) == broker}

    def fenced(self, broker: int) -> int:
        """The registration in which a broker is fenced; -1 for none."""
        path = f"/headrace/fenced/{broker}"
        return json.loads(self.client.get(path)[0])["epoch"] if self.client.exists(path) else -1


@pytest.fixture(scope="module")
def patient(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers whose sessions are long."""
    chroot = zookeeper.chroot("patient")
    with LocalCluster(tmp_path_factory.mktemp("patient"), chroot, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def whole(patient: LocalCluster, request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """They are there, and every replica is in sync."""
    patient.make_whole()
    yield patient
    if getattr(request.node, "failed", False):
        print(patient.logs())


@pytest.fixture
def store(whole: LocalCluster) -> Iterator[MetadataStore]:
    with looked_at(whole.zookeeper) as seen:
        yield seen


@contextmanager
def looked_at(address: str) -> Iterator[MetadataStore]:
    seen = MetadataStore(address)
    yield seen
    seen.client.stop()
    seen.client.close()


def topic_led(cluster: LocalCluster, store: MetadataStore, name: str, *, by_controller: bool) -> str:
    """A new topic of one partition whose leader is the controller, or another broker."""
    for attempt in range(30):
        topic = unused(f"{name}-{attempt}")
        cluster.create_topic(topic, 1, 3)
        if (cluster.leader(topic) == store.controller()) is by_controller:
            return topic
    raise AssertionError("the leader is never the one that is wanted")


@pytest.mark.parametrize("is_controller", rotation.in_turn(False, True), ids=("another broker", "the controller"))
def test_a_killed_leader_is_replaced_though_its_session_lives_on(
    whole: LocalCluster, store: MetadataStore, is_controller: bool
) -> None:
    topic = topic_led(whole, store, f"killed-{is_controller}", by_controller=is_controller)
    victim = store.leader(topic)
    registered = store.registration(victim)
    with VerifyingProducer(whole.bootstrap, topic, partitions=1) as producer:
        producer.wait_for(200)
        whole.brokers[victim].kill()
        eventually(lambda: store.leader(topic) != victim, "another leader")
        eventually(lambda: store.controller() != victim, "another controller")
        producer.wait_for(200)
        assert store.registration(victim) == registered, "its session lives on"
        assert store.fenced(victim) == registered
        whole.brokers[victim].restart()
        assert store.registration(victim) > registered
        assert store.fenced(victim) == -1
        whole.wait_until_ready()
        producer.wait_for(200)
    assert not verify(whole.bootstrap, topic, producer).faults()


def test_brokers_that_were_taken_for_dead_come_back_in_another_epoch(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    address = zookeeper.chroot("deceived")
    with LocalCluster(tmp_path, address, settings=SETTINGS, proxies=True) as cluster, looked_at(address) as store:
        cluster.wait_until_ready()
        for is_controller in (False, True):
            deceive_all(cluster, store, is_controller=is_controller)


def deceive_all(cluster: LocalCluster, store: MetadataStore, *, is_controller: bool) -> None:
    """Lets a leader's port refuse everybody while it lives and its clients reach it, and the end of that."""
    topic = topic_led(cluster, store, f"deceived-{is_controller}", by_controller=is_controller)
    victim = store.leader(topic)
    registered = store.registration(victim)
    with VerifyingProducer(cluster.bootstrap, topic, partitions=1) as producer:
        producer.wait_for(200)
        cluster.proxies[victim].refuse()
        eventually(lambda: store.leader(topic) != victim, "another leader")
        eventually(lambda: store.registration(victim) > registered, "its next registration")
        eventually(lambda: store.fenced(victim) == -1, "the mark's end")
        assert store.controller() != victim
        producer.wait_for(200)
        cluster.proxies[victim].accept()
        cluster.wait_until_ready()
        producer.wait_for(200)
    report = verify(cluster.bootstrap, topic, producer)
    assert not report.faults(), f"{report.faults()}\n{cluster.logs()}"


def test_a_leader_that_stands_still_is_not_fenced(whole: LocalCluster, store: MetadataStore) -> None:
    topic = unused("paused")
    whole.create_topic(topic, 1, 3)
    victim = whole.leader(topic)
    whole.pause(victim)
    try:
        time.sleep(LOOK_SECONDS)
        assert not store.suspicions(victim)
        assert store.fenced(victim) == -1
        assert store.leader(topic) == victim
    finally:
        whole.resume(victim)


def test_a_broker_whose_setting_is_off_is_not_fenced(whole: LocalCluster, store: MetadataStore) -> None:
    victim = next(number for number in whole.brokers if number != store.controller())
    server = whole.brokers[victim]
    try:
        server.stop()
        server.settings["headrace.fencing.enable"] = "false"
        server.restart()
        whole.wait_until_ready()
        topic = topic_led(whole, store, "off", by_controller=False)
        while store.leader(topic) != victim:
            topic = topic_led(whole, store, f"{topic}-off", by_controller=False)
        server.kill()
        eventually(lambda: store.suspicions(victim) == {1, 2, 3} - {victim}, "suspicions")
        time.sleep(LOOK_SECONDS)
        assert store.fenced(victim) == -1
        assert store.leader(topic) == victim
    finally:
        del server.settings["headrace.fencing.enable"]
        server.restart()
