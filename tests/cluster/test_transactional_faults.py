"""Faults while transactions run: the output is exactly once, and nothing hangs.

    {confluent-kafka, Java} x {clean stop, kill -9, bounce, SIGSTOP}
        x {transaction coordinator, group coordinator, leader, controller, ZooKeeper}

Every run draws some cells from its seed; the whole grid is marked `soak`.
"""

import time
from collections.abc import Callable
from itertools import product
from random import Random

import pytest

from tests.cluster.local_cluster import LocalCluster
from tests.cluster.pipeline import PIPELINES, ConfluentPipeline, JavaPipeline, Pipeline
from tests.cluster.transactional_clients import coordinator
from tests.rotation import seed
from tests.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.xdist_group("cluster")

FAULTS = ("clean stop", "kill", "bounce", "pause")
VICTIMS = ("transaction coordinator", "group coordinator", "leader", "controller", "ZooKeeper")
GRID = list(product(PIPELINES, FAULTS, VICTIMS))
PARTITIONS = 3


def cells_of_this_run() -> list[tuple[str, str, str]]:
    """A cell of each client, with different faults and victims."""
    chance = Random(f"{seed()}/transactional faults")
    faults, victims = chance.sample(FAULTS, len(PIPELINES)), chance.sample(VICTIMS, len(PIPELINES))
    return list(zip(PIPELINES, faults, victims, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("client", "fault", "victim"), cells_of_this_run())
def test_a_pipeline_writes_exactly_once(
    cluster: LocalCluster, zookeeper: ZooKeeperServer, client: str, fault: str, victim: str
) -> None:
    go_through(cluster, zookeeper, client, fault, victim)


@pytest.mark.soak
@pytest.mark.parametrize(("client", "fault", "victim"), GRID)
def test_the_whole_grid_of_transactions(
    cluster: LocalCluster, zookeeper: ZooKeeperServer, client: str, fault: str, victim: str
) -> None:
    go_through(cluster, zookeeper, client, fault, victim)


def new_topics(cluster: LocalCluster) -> tuple[str, str]:
    """A source and a target."""
    now = time.monotonic_ns()
    for name in (f"source-{now}", f"target-{now}"):
        cluster.create_topic(name, PARTITIONS, 3)
    return f"source-{now}", f"target-{now}"


def go_through(cluster: LocalCluster, zookeeper: ZooKeeperServer, client: str, fault: str, victim: str) -> None:
    """One cell of the grid."""
    if client == "java" and (reason := JavaPipeline.missing()):
        pytest.skip(reason)
    source, target = new_topics(cluster)
    with PIPELINES[client](cluster.bootstrap, source, target, partitions=PARTITIONS) as pipeline:
        pipeline.wait_for(10)
        if victim == "ZooKeeper":
            recover = break_zookeeper(zookeeper, fault)
        else:
            recover = break_broker(cluster, find_victim(cluster, victim, pipeline), fault)
        try:
            if fault != "bounce":
                pipeline.wait_for(10)  # without the victim
        finally:
            recover()
        pipeline.wait_for(10)
        cluster.wait_until_ready()
        pipeline.wait_for(10)
    print(f"{client}, {fault} of {victim}: longest pause {pipeline.longest_pause():.2f} s, {pipeline.state()}")
    assert not pipeline.faults(), f"{pipeline.faults()} {pipeline.state()}\n{cluster.logs()}"


def break_broker(cluster: LocalCluster, broker: int, fault: str) -> Callable[[], object]:
    """Does the fault to a broker; returns what ends it."""
    server = cluster.brokers[broker]
    if fault == "pause":
        cluster.pause(broker)
        return lambda: cluster.resume(broker)
    if fault == "kill":
        server.kill()
    else:
        assert server.stop() == 0
    return server.restart


def break_zookeeper(zookeeper: ZooKeeperServer, fault: str) -> Callable[[], object]:
    """Does the fault to ZooKeeper; returns what ends it."""
    if fault == "pause":
        zookeeper.pause()
        return zookeeper.resume
    if fault == "kill":
        zookeeper.kill()
    else:
        zookeeper.stop()
    return zookeeper.start


def find_victim(cluster: LocalCluster, victim: str, pipeline: Pipeline) -> int:
    """The broker that is meant."""
    if victim == "controller":
        return cluster.controller()
    if victim == "leader":
        return cluster.leader(pipeline.target)
    return (
        coordinator(cluster, pipeline.group, 0)
        if victim == "group coordinator"
        else coordinator(cluster, pipeline.transactional_id, 1)
    )


@pytest.mark.slow
def test_a_pipeline_goes_on_while_each_broker_is_restarted(cluster: LocalCluster) -> None:
    source, target = new_topics(cluster)
    with ConfluentPipeline(cluster.bootstrap, source, target, partitions=PARTITIONS) as pipeline:
        pipeline.wait_for(10)
        for server in cluster.brokers.values():
            assert server.stop() == 0
            pipeline.wait_for(5)
            server.restart()
            cluster.wait_until_ready()
            pipeline.wait_for(5)
    print(f"rolling restart: longest pause {pipeline.longest_pause():.2f} s, {pipeline.state()}")
    assert not pipeline.faults(), f"{pipeline.faults()} {pipeline.state()}\n{cluster.logs()}"
