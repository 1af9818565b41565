"""Produces of many connections that arrive in one turn are written together, and answered when they are written."""

import gc
import os
import random
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from headrace.broker.partitions.partition import Partition
from headrace.broker.request.dispatch import Dispatcher
from headrace.limits import RECEIVERS_OF_THE_LOOP
from headrace.records.format2.batch import decode_records, iter_headers
from headrace.testing import Broker
from tests.eventually import WITHIN_SECONDS
from tests.harness import receive_frame
from tests.wire import FETCH, PRODUCE, Produced, Wire, batch, fetch_request, frame, produce_request, produced

TOPIC, PARTITIONS = "late", 3


class Setting(NamedTuple):
    """A broker in this process."""

    broker: Broker
    dispatcher: Dispatcher

    def connect(self, count: int) -> list[socket.socket]:
        """Connections that have been accepted, and asked something."""
        host, _, port = self.broker.bootstrap.rpartition(":")
        found = [socket.create_connection((host, int(port)), WITHIN_SECONDS) for _ in range(count)]
        for each in found:
            each.sendall(produce_frame(0, b"first"))
        for each in found:
            assert answered(each).error_code == 0
        return found

    def partition(self, number: int) -> Partition:
        return self.dispatcher._services.replicas.partitions[(TOPIC, number)]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the event loop, so that all that is sent meanwhile is there in its next turn."""
        begun, ends = threading.Event(), threading.Event()

        def wait() -> None:
            begun.set()
            ends.wait(WITHIN_SECONDS)

        loop = self.broker._host._loop  # type: ignore[union-attr]
        loop.call_soon_threadsafe(wait)
        assert begun.wait(WITHIN_SECONDS)
        try:
            yield
        finally:
            ends.set()

    def values(self, number: int, start: int) -> list[bytes]:
        """What a partition has from an offset on."""
        found: list[bytes] = []
        with Wire(self.broker.bootstrap) as wire:
            _, _, end = wire.list_offset(TOPIC, -1, partition=number)
            while start + len(found) < end:
                records = wire.fetch(TOPIC, start + len(found), partition=number).records
                for position, header in iter_headers(memoryview(records)):
                    part = memoryview(records)[position : position + header.size_bytes]
                    found += [bytes(each.value or b"") for each in decode_records(part, header)]
        return found


@pytest.fixture(scope="module")
def setting() -> Iterator[Setting]:
    with Broker() as broker, Wire(broker.bootstrap) as wire:
        assert wire.create_topic(TOPIC, PARTITIONS) == 0
        dispatchers = [each for each in gc.get_objects() if type(each) is Dispatcher]
        (found,) = (each for each in dispatchers if each._services.config.log_dirs == (str(broker.data),))
        made = Setting(broker, found)
        idle = made.connect(RECEIVERS_OF_THE_LOOP)  # the others are the pass's
        yield made
        for each in idle:
            each.close()


@pytest.fixture
def clients(setting: Setting) -> Iterator[list[socket.socket]]:
    found = setting.connect(24)
    yield found
    for each in found:
        each.close()


def produce_frame(partition: int, *values: bytes) -> bytes:
    return frame(PRODUCE, 3, produce_request(TOPIC, batch(list(values)), partition=partition))


def fetch_frame(partition: int, offset: int, max_wait_ms: int) -> bytes:
    return frame(FETCH, 4, fetch_request(TOPIC, offset, partition=partition, max_wait_ms=max_wait_ms))


def answered(client: socket.socket) -> Produced:
    return produced(TOPIC, receive_frame(client)[4:])


def end_of(setting: Setting, number: int) -> int:
    return int(setting.partition(number).log.log_end_offset)


@pytest.mark.parametrize("seed", range(3))
def test_all_are_stored_and_answered_each_with_its_offset(
    setting: Setting, clients: Sequence[socket.socket], seed: int
) -> None:
    chance = random.Random(seed)
    starts = [end_of(setting, number) for number in range(PARTITIONS)]
    wanted: list[dict[int, bytes]] = [{}, {}, {}]
    for turn in range(5):
        sent: list[list[tuple[int, list[bytes]]]] = []
        with setting.held():
            for number, client in enumerate(clients):
                mine = []
                for request in range(chance.choice((1, 1, 1, 3))):
                    values = [f"{turn} {number} {request} {n}".encode() * 9 for n in range(chance.choice((1, 1, 4)))]
                    mine.append((chance.randrange(PARTITIONS), values))
                if chance.random() < 0.1:
                    mine[-1][1][0] += bytes(100_000)  # written by itself
                client.sendall(b"".join(produce_frame(partition, *values) for partition, values in mine))
                sent.append(mine)
        for client, mine in zip(clients, sent, strict=True):
            last: dict[int, int] = {}
            for partition, values in mine:
                answer = answered(client)
                assert answer.error_code == 0
                assert answer.base_offset > last.get(partition, -1), "of one connection, in their order"
                last[partition] = answer.base_offset
                wanted[partition] |= {answer.base_offset + n: value for n, value in enumerate(values)}
    for number, start in enumerate(starts):
        stored = setting.values(number, start)
        assert {start + n: value for n, value in enumerate(stored)} == wanted[number]
        state = setting.partition(number).state
        assert state.high_watermark == state.log_end_offset == end_of(setting, number)


def test_a_fetch_behind_a_produce_finds_the_record(setting: Setting, clients: Sequence[socket.socket]) -> None:
    base = end_of(setting, 1)
    with setting.held():
        for client in clients[1:]:
            client.sendall(produce_frame(0, b"other"))
        clients[0].sendall(produce_frame(1, b"mine") + fetch_frame(1, base, 0) + produce_frame(1, b"next"))
    assert answered(clients[0]).base_offset == base
    assert b"mine" in receive_frame(clients[0])
    assert answered(clients[0]).base_offset == base + 1
    assert {answered(client).error_code for client in clients[1:]} == {0}


def test_a_fetch_that_waits_is_woken(setting: Setting, clients: Sequence[socket.socket]) -> None:
    base = end_of(setting, 2)
    clients[0].sendall(fetch_frame(2, base, 100_000))
    with setting.held():  # behind the fetch
        for client in clients[1:]:
            client.sendall(produce_frame(2, b"awaited"))
    found = receive_frame(clients[0])
    assert b"awaited" in found
    assert {answered(client).error_code for client in clients[1:]} == {0}


def test_what_a_client_sent_before_it_left_is_stored(setting: Setting) -> None:
    leaving = setting.connect(9)
    base = end_of(setting, 0)
    with setting.held():
        for number, client in enumerate(leaving):
            client.sendall(produce_frame(0, b"%d" % number))
            client.close()
    with Wire(setting.broker.bootstrap) as wire:
        wire.produce(TOPIC, batch([b"last"]))
    stored = setting.values(0, base)
    assert stored[-1] == b"last"
    assert sorted(stored[:-1]) == [b"%d" % number for number in range(9)]


def test_a_disk_that_fails_ends_the_connections_of_its_partition(
    setting: Setting, clients: Sequence[socket.socket]
) -> None:
    ends = [end_of(setting, number) for number in range(PARTITIONS)]
    records = setting.partition(1).log.active.records
    full, plain_fd = os.open("/dev/full", os.O_WRONLY), records.plain_fd
    records.plain_fd = full
    with setting.held():
        for number, client in enumerate(clients):
            client.sendall(produce_frame(number % PARTITIONS, b"%d" % number))
    stored = []
    for number, client in enumerate(clients):
        if number % PARTITIONS != 1:
            assert answered(client).error_code == 0
        elif client.recv(1, socket.MSG_PEEK):  # behind the first write that failed: by the general way
            assert answered(client).error_code == 0
            stored.append(b"%d" % number)
    records.plain_fd = plain_fd
    os.close(full)
    assert len(stored) < len(clients) // PARTITIONS, "no write was put off"
    state = setting.partition(1).state
    assert end_of(setting, 1) == state.high_watermark == ends[1] + len(stored)
    assert sorted(setting.values(1, ends[1])) == sorted(stored)
    assert [end_of(setting, number) - ends[number] for number in (0, 2)] == [len(clients) // PARTITIONS] * 2
    assert setting.partition(1).log.writes_at_once
    with Wire(setting.broker.bootstrap) as wire:
        assert wire.produce(TOPIC, batch([b"again"]), partition=1).error_code == 0
    assert setting.values(1, ends[1])[-1] == b"again"
    setting.partition(1).log.writes_at_once = False
