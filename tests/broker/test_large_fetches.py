"""Fetches of thousands of partitions outside of sessions: read in slices, and answered as any fetch."""

from collections.abc import Iterator

import pytest

from headrace.broker.fetch.fetch import SMALL_PARTITIONS_MAX
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.conftest import StartHeadrace
from tests.harness import HeadraceServer
from tests.wire import Wire, batch

pytestmark = pytest.mark.slow  # processes of its own

PARTITIONS = SMALL_PARTITIONS_MAX + 100
LAST = PARTITIONS - 1


@pytest.fixture
def server(headrace_server: StartHeadrace) -> HeadraceServer:
    return headrace_server()


@pytest.fixture
def wire(server: HeadraceServer) -> Iterator[Wire]:
    with Wire(server.bootstrap) as connection:
        connection.create_topic("t", PARTITIONS)
        yield connection


def fetch_all(max_wait_ms: int, min_bytes: int = 1) -> m.FetchRequest:
    parts = [
        m.FetchRequest.FetchPartition(partition=each, fetch_offset=0, partition_max_bytes=1 << 20)
        for each in range(PARTITIONS)
    ]
    topic = m.FetchRequest.FetchTopic(topic="t", partitions=parts)
    return m.FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=1 << 20, topics=[topic])


def filled(answer: m.FetchResponse) -> list[int]:
    (topic,) = answer.responses
    assert [each.partition_index for each in topic.partitions] == list(range(PARTITIONS))
    assert {each.error_code for each in topic.partitions} == {ErrorCode.NONE}
    return [each.partition_index for each in topic.partitions if each.records]


def test_a_large_fetch_is_answered_with_the_records_of_all_partitions(server: HeadraceServer, wire: Wire) -> None:
    for number in (0, 500, LAST):
        wire.produce("t", batch([b"value"]), partition=number)
    with Asker(server.bootstrap) as asker:
        assert filled(asker.ask(fetch_all(0), 12)) == [0, 500, LAST]


def test_a_waiting_large_fetch_is_answered_when_a_record_comes(server: HeadraceServer, wire: Wire) -> None:
    with Wire(server.bootstrap) as reader:
        reader.send(1, 11, fetch_all(60_000).encode(11))
        assert filled_after_end_of_wait(server) == []
        wire.produce("t", batch([b"value"]), partition=LAST)
        _, body = reader.receive()
        assert filled(m.FetchResponse.decode(11, body)[0]) == [LAST]


def filled_after_end_of_wait(server: HeadraceServer) -> list[int]:
    """The answer to a fetch that no record ends. Any fetch that was sent before it waits by then."""
    with Asker(server.bootstrap) as asker:
        return filled(asker.ask(fetch_all(50), 12))


def test_a_large_fetch_for_more_than_there_is_ends_with_what_there_is(server: HeadraceServer, wire: Wire) -> None:
    wire.produce("t", batch([b"value"]), partition=3)
    with Asker(server.bootstrap) as asker:
        assert filled(asker.ask(fetch_all(50, min_bytes=1 << 19), 12)) == [3]
