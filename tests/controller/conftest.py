"""Fixtures: one whole broker's coordination without its network, in a data directory."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.controller.node import Node
from tests.controller.paper_brokers import Cluster, cluster_in


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    started = await Node.start(tmp_path)
    yield started
    await started.close()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster_in(tmp_path) as started:
        yield started
