"""A broker of ours, and Apache Kafka, for tests that say of both the same."""

from collections.abc import Iterator

import pytest

from tests.asker import Asker

PEER = [pytest.mark.peer, pytest.mark.slow, pytest.mark.xdist_group("apache-kafka")]


@pytest.fixture(params=["headrace", pytest.param("Apache Kafka", marks=PEER)])
def either_broker(request: pytest.FixtureRequest) -> str:
    """The address of one or the other: what holds of both is Kafka's behaviour, and not only ours."""
    if request.param == "Apache Kafka":
        return str(request.getfixturevalue("apache_kafka"))
    started = request.getfixturevalue("headrace_server")(settings={"offsets.topic.num.partitions": "3"})
    return str(started.bootstrap)


@pytest.fixture
def asker(either_broker: str) -> Iterator[Asker]:
    """A connection to one or the other."""
    with Asker(either_broker) as connection:
        yield connection
