"""Three brokers and a ZooKeeper, shared by the tests of one worker."""

from collections.abc import Iterator

import pytest

from tests.cluster.local_cluster import LocalCluster
from tests.zookeeper_server import ZooKeeperServer, missing_tools

FAST_SESSIONS = {"zookeeper.session.timeout.ms": "2500", "replica.lag.time.max.ms": "4000"}
"""Tests that wait for a session to end wait for this, not for the six seconds of the default."""


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One ZooKeeper server."""
    if reason := missing_tools():
        pytest.skip(reason)
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="session")
def shared_cluster(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers on it; what a test stops it starts again."""
    chroot = zookeeper.chroot("shared")
    with LocalCluster(tmp_path_factory.mktemp("cluster"), chroot, settings=FAST_SESSIONS) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: LocalCluster, request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """The shared cluster, whole at the beginning of the test."""
    shared_cluster.make_whole()
    yield shared_cluster
    if getattr(request.node, "failed", False):
        print(shared_cluster.logs())
