"""Fixtures: one whole broker's coordination without its network, in a data directory; and a real ZooKeeper."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.coordination.node import Node
from tests.coordination.paper_brokers import Cluster, cluster_in
from tests.zookeeper_server import ZooKeeperServer, missing_tools


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    started = await Node.start(tmp_path)
    yield started
    await started.close()


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper that no test stops; each uses a chroot of its own."""
    if reason := missing_tools():
        pytest.skip(reason)
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster_in(tmp_path) as started:
        yield started
