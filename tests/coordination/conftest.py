"""One whole broker's coordination without its network: tree, controller, logs, in a data directory."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.coordination.node import Node


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    started = await Node.start(tmp_path)
    yield started
    await started.close()
