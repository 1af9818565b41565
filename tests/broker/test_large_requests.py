"""Large requests, which are decoded and answered in slices: their order, their ends, and other clients meanwhile."""

from collections.abc import Iterator

import pytest

from headrace.limits import INLINE_REQUEST_BYTES_MAX, INLINE_RESPONSE_ELEMENTS_MAX
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from tests.conftest import StartHeadrace
from tests.harness import HeadraceServer
from tests.wire import Wire

pytestmark = pytest.mark.slow  # processes of its own

TOPICS = 20_000


@pytest.fixture
def server(headrace_server: StartHeadrace) -> HeadraceServer:
    return headrace_server()


@pytest.fixture
def wire(server: HeadraceServer) -> Iterator[Wire]:
    with Wire(server.bootstrap) as connection:
        yield connection


def unknown_topics(count: int) -> bytes:
    names = [m.MetadataRequest.MetadataRequestTopic(name=f"unknown{each}") for each in range(count)]
    return m.MetadataRequest(topics=names, allow_auto_topic_creation=False).encode(8)


def test_requests_behind_a_large_one_are_answered_after_it(wire: Wire) -> None:
    large, small = (ApiKey.METADATA, 8, unknown_topics(TOPICS)), (ApiKey.API_VERSIONS, 0, b"")
    assert len(large[2]) > INLINE_REQUEST_BYTES_MAX and TOPICS > INLINE_RESPONSE_ELEMENTS_MAX
    sent = [wire.send(*each) for each in (small, large, small, large, small)]
    answers = [wire.receive() for _ in sent]
    assert [correlation for correlation, _ in answers] == sent
    for _, body in (answers[1], answers[3]):
        found, _ = m.MetadataResponse.decode(8, body)
        assert [each.name for each in found.topics] == [f"unknown{each}" for each in range(TOPICS)]


def test_a_large_request_that_cannot_be_decoded_ends_its_connection_only(server: HeadraceServer, wire: Wire) -> None:
    with Wire(server.bootstrap) as other:
        other.send(ApiKey.METADATA, 8, unknown_topics(TOPICS)[:-100])
        with pytest.raises(ConnectionError):
            other.receive()
    wire.ask(ApiKey.API_VERSIONS, 0, b"")


def test_a_client_that_leaves_during_a_large_request_disturbs_no_other(server: HeadraceServer, wire: Wire) -> None:
    for _ in range(5):
        with Wire(server.bootstrap) as other:
            other.send(ApiKey.METADATA, 8, unknown_topics(TOPICS))
    wire.ask(ApiKey.API_VERSIONS, 0, b"")
    assert "ERROR" not in server.stderr_file.read_text()
