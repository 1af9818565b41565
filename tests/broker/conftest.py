"""A broker of ours, and Apache Kafka, for tests that say of both the same."""

from collections.abc import Iterator

import pytest

from tests.asker import Asker
from tests.harness import HeadraceServer

PEER = [pytest.mark.peer, pytest.mark.slow, pytest.mark.xdist_group("apache-kafka")]


@pytest.fixture(scope="session")
def shared_headrace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one `headrace serve` for all tests that stand beside others on Apache Kafka, too."""
    settings = {"offsets.topic.num.partitions": "3"}
    server = HeadraceServer(tmp_path_factory.mktemp("either-broker") / "data", settings)
    server.start()
    yield server.bootstrap
    server.stop()


@pytest.fixture(params=["headrace", pytest.param("Apache Kafka", marks=PEER)])
def either_broker(request: pytest.FixtureRequest) -> str:
    """The address of one or the other: what holds of both is Kafka's behaviour, and not only ours.

    Other tests use it too, so topics and groups have names of their own.
    """
    if request.param == "Apache Kafka":
        return str(request.getfixturevalue("apache_kafka"))
    return str(request.getfixturevalue("shared_headrace"))


@pytest.fixture
def asker(either_broker: str) -> Iterator[Asker]:
    """A connection to one or the other."""
    with Asker(either_broker) as connection:
        yield connection
