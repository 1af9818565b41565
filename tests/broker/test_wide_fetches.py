"""Answers of several mebibytes, from several files, come whole, however fast their client reads."""

import socket
import time

import pytest

from headrace.protocol import messages as m
from headrace.protocol.headers import write_request_header
from headrace.records.format2.batch import Record, encode_batch
from headrace.testing import Broker
from tests.broker.test_plain_fetch import dispatcher_of
from tests.eventually import WITHIN_SECONDS
from tests.harness import receive_frame
from tests.wire import Wire

TOPIC, PARTITIONS, RECEIVE_BYTES = "wide", 3, 8 << 10
Wanted = m.FetchRequest.FetchPartition


def fetch_frame() -> bytes:
    parts = [Wanted(partition=n, fetch_offset=n, partition_max_bytes=(1 << 20) + n * 1_000) for n in range(PARTITIONS)]
    topics = [m.FetchRequest.FetchTopic(topic=TOPIC, partitions=parts)]
    request = m.FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=50 << 20, topics=topics)
    body = write_request_header(m.FetchRequest.API_KEY, 12, 7, "wide") + request.encode(12)
    return len(body).to_bytes(4, "big") + body


def read_slowly(client: socket.socket) -> bytes:
    """A frame, in small pieces between pauses, so that it is cut in many places."""
    found, size = bytearray(), 4
    while len(found) < size:
        found += client.recv(min(RECEIVE_BYTES, size - len(found)))
        if size == 4 and len(found) >= 4:
            size = 4 + int.from_bytes(found[:4], "big")
        if len(found) % 7 == 0:
            time.sleep(0.001)
    assert len(found) == size
    return bytes(found[4:])


@pytest.mark.parametrize("partition_batches", [40, 90])
def test_an_answer_from_several_files_is_the_same_by_all_ways_however_it_is_read(partition_batches: int) -> None:
    with Broker() as broker, Wire(broker.bootstrap) as wire:
        assert wire.create_topic(TOPIC, PARTITIONS) == 0
        for number in range(partition_batches * PARTITIONS):
            records = [Record(n, 1, None, bytes([number % 251]) * 2_000, ()) for n in range(8)]
            assert wire.produce(TOPIC, bytes(encode_batch(records)), partition=number % PARTITIONS).error_code == 0
        host, _, port = broker.bootstrap.rpartition(":")
        dispatcher = dispatcher_of(broker)

        def connected(receive_bytes: int | None = None) -> socket.socket:
            client = socket.socket()
            client.settimeout(WITHIN_SECONDS)
            if receive_bytes is not None:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            client.connect((host, int(port)))
            return client

        shortcut = dispatcher.shortcut
        assert shortcut is not None
        with connected() as fast, connected(RECEIVE_BYTES) as slow:
            taken = shortcut.fetches.taken  # type: ignore[attr-defined]
            fast.sendall(fetch_frame() * 3)
            slow.sendall(fetch_frame() * 2)
            by_shortcut = [receive_frame(fast) for _ in range(3)] + [read_slowly(slow) for _ in range(2)]
            # Those that come while an answer waits for its socket go the general way.
            assert shortcut.fetches.taken - taken >= 2  # type: ignore[attr-defined]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dispatcher, "shortcut", None)
            with connected() as general:
                general.sendall(fetch_frame())
                answer = receive_frame(general)
        assert len(answer) > 2 * (1 << 20) or partition_batches == 40
        assert [each == answer for each in by_shortcut] == [True] * 5
