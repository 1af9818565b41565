"""The way to another broker over TCP: in order, in lanes, at once when it breaks, and again when it is back."""

import asyncio
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from headrace.errors import UnsupportedVersion
from headrace.limits import PEER_ANSWER_BYTES_MAX
from headrace.network.peers.peer_links import PeerLinks
from headrace.network.peers.peers import PeerAddress, PeerRefused, PeerUnreachable
from headrace.protocol import messages as m
from headrace.protocol.codec.message import Message
from headrace.types import BrokerId
from tests.harness import HeadraceServer, free_ports

Story = Callable[[PeerLinks], Awaitable[None]]
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
TIMEOUT_MS = 20_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    running = HeadraceServer(tmp_path_factory.mktemp("peer") / "data").start()
    yield running
    running.stop()


@pytest.fixture(params=list(LOOPS))
def tell(request: pytest.FixtureRequest) -> Callable[[Story], None]:
    """Runs a story on each kind of event loop."""

    def run(story: Story, answer_bytes_max: int = PEER_ANSWER_BYTES_MAX) -> None:
        async def main() -> None:
            links = PeerLinks("test", answer_bytes_max=answer_bytes_max)
            try:
                await story(links)
            finally:
                await links.close()

        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(main())

    return run


def at(port: int) -> PeerAddress:
    return PeerAddress(BrokerId(1), "127.0.0.1", port)


def test_many_requests_in_flight_are_answered_each_its_own(server: HeadraceServer, tell: Callable[..., None]) -> None:
    async def story(links: PeerLinks) -> None:
        requests = [m.FindCoordinatorRequest(coordinator_keys=[f"g{n}"], key_type=9) for n in range(200)]
        answers = await asyncio.gather(
            *(links.send(at(server.port), each, m.FindCoordinatorResponse, timeout_ms=TIMEOUT_MS) for each in requests)
        )
        assert [each.coordinators[0].key for each in answers] == [f"g{n}" for n in range(200)]

    tell(story)


def test_a_long_poll_in_one_lane_holds_up_nobody_in_another(server: HeadraceServer, tell: Callable[..., None]) -> None:
    async def story(links: PeerLinks) -> None:
        create = m.CreateTopicsRequest(
            topics=[m.CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)],
            timeout_ms=TIMEOUT_MS,
        )
        made = await links.send(at(server.port), create, m.CreateTopicsResponse, timeout_ms=TIMEOUT_MS)
        metadata = await links.send(
            at(server.port),
            m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="t")]),
            m.MetadataResponse,
            timeout_ms=TIMEOUT_MS,
        )
        assert made.topics[0].name == "t"
        wanted = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        topic = m.FetchRequest.FetchTopic(topic_id=metadata.topics[0].topic_id, partitions=[wanted])
        poll = m.FetchRequest(max_wait_ms=15_000, min_bytes=1, topics=[topic])
        polling = asyncio.ensure_future(
            links.send(at(server.port), poll, m.FetchResponse, timeout_ms=TIMEOUT_MS, lane="fetch")
        )
        await links.send(at(server.port), m.ListGroupsRequest(), m.ListGroupsResponse, timeout_ms=TIMEOUT_MS)
        assert not polling.done()
        await links.close()
        with pytest.raises(PeerUnreachable, match="is shutting down"):
            await polling

    tell(story)


def test_a_port_where_nobody_listens_refuses_and_that_is_told_apart(tell: Callable[..., None]) -> None:
    (port,) = free_ports(1)

    async def story(links: PeerLinks) -> None:
        for _ in range(2):
            with pytest.raises(PeerRefused):
                await links.send(at(port), m.ListGroupsRequest(), m.ListGroupsResponse, timeout_ms=TIMEOUT_MS)

    tell(story)


def test_everybody_who_waits_for_a_connection_that_is_refused_hears_of_it_together(tell: Callable[..., None]) -> None:
    (port,) = free_ports(1)

    async def story(links: PeerLinks) -> None:
        asks = (
            links.send(at(port), m.ListGroupsRequest(), m.ListGroupsResponse, timeout_ms=TIMEOUT_MS) for _ in range(100)
        )
        begun = time.monotonic()
        found = await asyncio.gather(*asks, return_exceptions=True)
        assert {type(each) for each in found} == {PeerRefused}
        assert time.monotonic() - begun < TIMEOUT_MS / 1000  # a hundred back-offs would take longer

    tell(story)


def test_silence_ends_when_the_time_is_up(tell: Callable[..., None]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]

        async def story(links: PeerLinks) -> None:
            with pytest.raises(PeerUnreachable) as caught:
                await links.send(at(port), m.ListGroupsRequest(), m.ListGroupsResponse, timeout_ms=100)
            assert not isinstance(caught.value, PeerRefused)

        tell(story)


def test_requests_to_a_broker_that_is_no_longer_live_end_at_once(tell: Callable[..., None]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = at(silent.getsockname()[1])

        async def story(links: PeerLinks) -> None:
            asking = [
                asyncio.ensure_future(
                    links.send(address, m.ListGroupsRequest(), m.ListGroupsResponse, timeout_ms=600_000, lane=lane)
                )
                for lane in ("one", "one", "other")
            ]
            accepted = [await asyncio.to_thread(silent.accept) for _ in range(2)]
            links.disconnect(BrokerId(address.id + 1), "another broker")
            await asyncio.sleep(0.05)
            assert not any(each.done() for each in asking)
            links.disconnect(address.id, "it is no longer live")
            found = await asyncio.gather(*asking, return_exceptions=True)
            assert {type(each) for each in found} == {PeerUnreachable}
            assert all("no longer live" in str(each) for each in found)
            for each, _ in accepted:
                each.close()

        tell(story)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="closed"),
        pytest.param(struct.pack(">i", -5), id="negative size"),
        pytest.param(struct.pack(">i", 1 << 30), id="too large"),
        pytest.param(struct.pack(">ii", 4, 4711), id="not asked for"),
        pytest.param(struct.pack(">iih", 6, 1, 0), id="cut off"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="another protocol"),
    ],
)
def test_who_answers_with_something_else_is_no_peer(answer: bytes, tell: Callable[..., None]) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(answer)
        await writer.drain()
        writer.close()

    async def story(links: PeerLinks) -> None:
        served = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = served.sockets[0].getsockname()[1]
        with pytest.raises(PeerUnreachable):
            await links.send(at(port), m.ListGroupsRequest(), m.ListGroupsResponse, timeout_ms=TIMEOUT_MS)
        served.close()

    tell(story)


@pytest.mark.slow
def test_a_broker_that_is_back_is_reached_again(tmp_path: Path) -> None:
    server = HeadraceServer(tmp_path / "data").start()

    async def story() -> None:
        links = PeerLinks("test")
        address = at(server.port)
        await links.send(address, m.ListGroupsRequest(), m.ListGroupsResponse, timeout_ms=TIMEOUT_MS)
        await asyncio.to_thread(server.kill)
        with pytest.raises(PeerUnreachable):
            await links.send(address, m.ListGroupsRequest(), m.ListGroupsResponse, timeout_ms=TIMEOUT_MS)
        await asyncio.to_thread(server.restart)
        await links.send(address, m.ListGroupsRequest(), m.ListGroupsResponse, timeout_ms=TIMEOUT_MS)
        await links.close()

    try:
        asyncio.run(story())
    finally:
        server.stop()


def test_what_the_peer_does_not_serve_is_not_sent(server: HeadraceServer, tell: Callable[..., None]) -> None:
    async def story(links: PeerLinks) -> None:
        with pytest.raises(UnsupportedVersion):
            await links.send(at(server.port), m.VoteRequest(), m.VoteResponse, timeout_ms=TIMEOUT_MS)
        await links.send(at(server.port), m.ListGroupsRequest(), m.ListGroupsResponse, timeout_ms=TIMEOUT_MS)

    tell(story)


def test_a_broker_alone_lets_nobody_follow_it_nor_control_it(server: HeadraceServer) -> None:
    async def story() -> None:
        links = PeerLinks("test")
        wanted = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        topic = m.FetchRequest.FetchTopic(topic_id=b"\1" * 16, partitions=[wanted])
        fetch = m.FetchRequest(replica_state=m.FetchRequest.ReplicaState(replica_id=5), topics=[topic])
        told: tuple[tuple[Message, type[Any]], ...] = (
            (fetch, m.FetchResponse),
            (m.LeaderAndIsrRequest(controller_epoch=9), m.LeaderAndIsrResponse),
            (m.UpdateMetadataRequest(controller_epoch=9), m.UpdateMetadataResponse),
            (m.StopReplicaRequest(controller_epoch=9), m.StopReplicaResponse),
        )
        for request, answer in told:
            found = await links.send(at(server.port), request, answer, timeout_ms=TIMEOUT_MS)
            if request is fetch:
                found = found.responses[0].partitions[0]
                assert found.error_code == 29  # TOPIC_AUTHORIZATION_FAILED
            else:
                assert found.error_code == 31  # CLUSTER_AUTHORIZATION_FAILED
        await links.close()

    asyncio.run(story())
