"""The broker under test and the clients that ask it."""

import os
import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.conformance.cases import NEED_ALL
from tests.conformance.model import CLASSIC_STREAMS, STREAMS, Client
from tests.conformance.streaming import StreamingClient
from tests.conformance.with_programs import PROGRAMS, ProgramClient
from tests.eventually import eventually
from tests.harness import HeadraceServer, tail
from tests.wire import Wire

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "300",
    "group.share.assignment.interval.ms": "0",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.heartbeat.interval.ms": "300",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The broker under test: headrace, or whatever HEADRACE_CONFORMANCE_BOOTSTRAP names."""
    if address := os.environ.get("HEADRACE_CONFORMANCE_BOOTSTRAP"):
        yield address
        return
    server = HeadraceServer(tmp_path_factory.mktemp("conformance") / "data", SETTINGS).start()
    try:
        yield server.bootstrap
    finally:
        status = server.stop()
        assert status == 0, tail(server.stderr_file)


@pytest.fixture
def cell(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> tuple[Client, str]:
    """Client and column of the grid that this test fills. Where the client is not installed, the test is skipped:
    the only skip of the grid, but for secured listeners of another broker."""
    client, column = request.param
    record_property("grid_row", client.name)
    record_property("grid_column", column)
    if reason := client.missing():
        pytest.skip(reason)
    if isinstance(client, ProgramClient):  # here and not in the test, whose time is limited
        client.prepare()
    if column in (STREAMS, CLASSIC_STREAMS) and isinstance(client, StreamingClient):
        client.build_word_count()
    for program in PROGRAMS:
        if column in NEED_ALL and not program.missing():
            program.prepare()
    return client, column


@pytest.fixture
def client(cell: tuple[Client, str]) -> Client:
    """The client under test."""
    return cell[0]


@pytest.fixture
def codec(cell: tuple[Client, str]) -> str:
    """The codec under test, where the columns are codecs."""
    return cell[1]


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A new topic of one partition that keeps old records."""
    return new_topic(bootstrap)


def new_name() -> str:
    """A name that nothing has yet."""
    return f"grid-{uuid.uuid4().hex[:12]}"


def new_topic(bootstrap: str, partitions: int = 1) -> str:
    """Created by hand-written bytes, so that no client's own way is in the picture."""
    name = new_name()
    with Wire(bootstrap) as wire:
        assert wire.create_topic(name, partitions, {"retention.ms": "-1"}) == 0
    for partition in range(partitions):
        end_of_topic(bootstrap, name, partition)
    return name


def end_of_topic(bootstrap: str, topic: str, partition: int = 0) -> int:
    """The end of a partition that may not have a leader yet: Apache Kafka takes some 100 ms for that."""
    answer = (-1, -1, -1)
    with Wire(bootstrap) as wire:

        def is_known() -> bool:
            nonlocal answer
            answer = wire.list_offset(topic, -1, partition=partition)
            return answer[0] == 0

        eventually(is_known, f"the end of {topic}", every_s=0.05, state=lambda: f"error code {answer[0]}")
    return answer[2]
