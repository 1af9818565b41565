"""Fixtures of the client's tests: `broker` is an address, once of ours and once of Apache Kafka."""

from collections.abc import Iterator

import pytest

from headrace.client.core.cluster import Cluster
from headrace.client.operations.admin import Admin
from tests.client.brokers import BROKERS, address_of
from tests.harness import HeadraceServer
from tests.peers import kafka


@pytest.fixture(scope="session")
def shared_headrace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    """One `headrace serve` for all tests that do not stop it."""
    settings = {name: value for name, value in kafka.SHARED_SETTINGS.items() if name.startswith("group.")}
    settings |= {"group.share.min.heartbeat.interval.ms": "100", "group.share.heartbeat.interval.ms": "200"}
    settings["offsets.topic.num.partitions"] = "3"
    server = HeadraceServer(tmp_path_factory.mktemp("headrace") / "data", settings)
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=BROKERS)
def broker(request: pytest.FixtureRequest) -> str:
    """A broker's address."""
    return address_of(request)


@pytest.fixture
def cluster(broker: str) -> Iterator[Cluster]:
    """A cluster on that broker."""
    with Cluster(broker) as opened:
        yield opened


@pytest.fixture
def admin(cluster: Cluster) -> Admin:
    """Administration on that broker."""
    return Admin(cluster)
