"""What can happen to a broker or to ZooKeeper while clients work, and its end."""

import time

from tests.cluster.local_cluster import LocalCluster
from tests.cluster.verifying import VerifyingProducer
from tests.zookeeper_server import ZooKeeperServer

FAULTS = ("clean stop", "kill", "bounce", "pause")

AWAY_SECONDS = 1.0
PAUSE_SECONDS = 4.0
"""Longer than a session: who is paused loses it, and learns when it goes on that it leads no more."""


def find_victim(cluster: LocalCluster, victim: str, topic: str) -> int:
    """The broker that is meant."""
    if victim == "controller":
        return cluster.controller()
    return cluster.leader(topic) if victim == "leader" else cluster.follower(topic)


def do_to_broker(cluster: LocalCluster, broker: int, fault: str, producer: VerifyingProducer) -> None:
    """The fault, and its end."""
    server = cluster.brokers[broker]
    if fault == "pause":
        cluster.pause(broker)
        time.sleep(PAUSE_SECONDS)
        producer.wait_for(300)  # the others go on without it
        cluster.resume(broker)
        return
    if fault == "kill":
        server.kill()
    else:
        assert server.stop() == 0
    if fault != "bounce":
        time.sleep(AWAY_SECONDS)
        producer.wait_for(300)
    server.restart()


def do_to_zookeeper(zookeeper: ZooKeeperServer, fault: str) -> None:
    """The fault, and its end. Leaders lead on meanwhile, with the followers that they have."""
    if fault == "pause":
        zookeeper.pause()
        time.sleep(PAUSE_SECONDS)
        zookeeper.resume()
        return
    if fault == "kill":
        zookeeper.kill()
    else:
        zookeeper.stop()
    if fault != "bounce":
        time.sleep(AWAY_SECONDS)
    zookeeper.start()
