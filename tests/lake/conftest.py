"""One broker for all tests of lake tables, and topics of their own for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client.operations.admin import Admin, NewTopic
from tests.harness import HeadraceServer, unused


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a headrace broker of this session's own, which soon gives up on members that are killed."""
    soon_gone = {
        f"group.consumer.{bound}{name}.ms": value
        for bound in ("", "min.")
        for name, value in (("session.timeout", "1500"), ("heartbeat.interval", "300"))
    }
    server = HeadraceServer(
        tmp_path_factory.mktemp("lake-broker") / "data", {**soon_gone, "log.cleaner.backoff.ms": "50"}
    )
    try:
        yield server.start().bootstrap
    finally:
        server.stop()


@pytest.fixture
def topic(broker: str) -> str:
    """A new topic with two partitions."""
    name = unused("lake")
    with Admin(broker) as admin:
        admin.create_topics([NewTopic(name, 2)])
    return name


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Where a test's table will be."""
    return tmp_path / "table"
