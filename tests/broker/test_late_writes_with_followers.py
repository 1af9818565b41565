"""Late writes of partitions with followers, of which the disk refuses some: nobody is told that records are committed
that are not there, whatever is appended in their place."""

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.limits import RECEIVERS_OF_THE_LOOP
from headrace.replication.partition_state import LeaderAndIsr
from headrace.testing import Broker
from headrace.types import BrokerId
from tests.broker.refusing_disk import refusing
from tests.broker.test_late_writes import (
    PARTITIONS,
    TOPIC,
    Setting,
    answered,
    answers_of,
    dispatcher_of,
    end_of,
    many_frame,
)
from tests.eventually import WITHIN_SECONDS
from tests.wire import PRODUCE, Wire, batch, frame, produce_request

FOLLOWER = BrokerId(7)
VERSION = 8
LONG = {"replica.lag.time.max.ms": "3600000"}


def on_loop(setting: Setting, call: Callable[[], Any]) -> Any:
    """Calls it in the broker's event loop."""

    async def called() -> Any:
        return call()

    loop = setting.broker._host._loop  # type: ignore[union-attr]
    return asyncio.run_coroutine_threadsafe(called(), loop).result(WITHIN_SECONDS)


def follow(setting: Setting, number: int) -> None:
    """Gives a partition a follower in its ISR. The test fetches in its place."""
    partition = setting.partition(number)
    state = partition.state
    both = (state.local_id, FOLLOWER)
    led = LeaderAndIsr(state.local_id, state.leader_epoch, both, state.partition_epoch + 1, both)
    on_loop(setting, lambda: partition.apply(led, setting.dispatcher._services.now_ms()))
    fetched(setting, number)


def fetched(setting: Setting, number: int) -> None:
    """The follower has all."""
    partition, services = setting.partition(number), setting.dispatcher._services

    def fetches() -> None:
        partition.state.follower_fetched(FOLLOWER, partition.log.log_end_offset, services.now_ms())
        services.purgatory.touch(partition.key)

    on_loop(setting, fetches)


def silent(client: socket.socket) -> bool:
    """Whether nothing comes."""
    client.settimeout(0.05)
    try:
        return not client.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    finally:
        client.settimeout(WITHIN_SECONDS)


@pytest.fixture(scope="module")
def setting() -> Iterator[Setting]:
    with Broker(settings=LONG) as broker, Wire(broker.bootstrap) as wire:
        assert wire.create_topic(TOPIC, PARTITIONS) == 0
        made = Setting(broker, dispatcher_of(broker))
        for number in range(PARTITIONS):  # the first batch of a log is none to put off
            assert wire.produce(TOPIC, batch([b"first"]), partition=number).error_code == 0
        idle = made.connect(RECEIVERS_OF_THE_LOOP)  # the others are the pass's
        yield made
        for each in idle:
            each.close()


@pytest.fixture
def clients(setting: Setting) -> Iterator[list[socket.socket]]:
    if setting.partition(0).state.followers:
        fetched(setting, 0)
    found = connect(setting, 6)
    follow(setting, 0)
    for number in range(PARTITIONS):
        setting.partition(number).log.writes_at_once = False  # whatever a test before has refused
    yield found
    for each in found:
        each.close()


def connect(setting: Setting, count: int) -> list[socket.socket]:
    host, _, port = setting.broker.bootstrap.rpartition(":")
    found = [socket.create_connection((host, int(port)), WITHIN_SECONDS) for _ in range(count)]
    for each in found:
        each.sendall(to(1, b"hello"))
    for each in found:
        assert answered(each).error_code == 0
    return found


def to(partition: int, *values: bytes, acks: int = -1) -> bytes:
    return frame(PRODUCE, 3, produce_request(TOPIC, batch(list(values)), partition=partition, acks=acks))


def test_a_batch_that_waits_for_followers_and_is_taken_back_is_not_acknowledged_for_one_in_its_place(
    setting: Setting, clients: Sequence[socket.socket]
) -> None:
    end = end_of(setting, 0)
    *lost, last = clients
    with refusing(setting.partition(0).log):
        with setting.held():
            for client in lost:
                client.sendall(to(0, b"lost") + to(0, b"lost too"))
        for client in lost:
            assert [answered(client).error_code for _ in range(2)] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    state = setting.partition(0).state
    assert end_of(setting, 0) == state.log_end_offset == state.high_watermark == end
    last.sendall(to(0, *[b"%d" % n for n in range(20)]))
    assert silent(last), "no follower has it"
    fetched(setting, 0)
    assert answered(last) == (0, end)
    assert setting.values(0, end) == [b"%d" % n for n in range(20)]
    assert all(map(silent, lost))


def test_an_answer_behind_one_that_waits_tells_what_the_disk_did(
    setting: Setting, clients: Sequence[socket.socket]
) -> None:
    ends = [end_of(setting, number) for number in range(PARTITIONS)]
    with refusing(setting.partition(1).log):
        with setting.held():
            for client in clients:
                client.sendall(
                    to(0, b"waits") + to(1, b"lost") + to(2, b"kept") + to(0, b"sent", acks=1) + to(1, b"lost")
                )
        assert all(map(silent, clients))
    fetched(setting, 0)
    for client in clients:
        codes = [answered(client).error_code for _ in range(5)]
        assert codes == [0, ErrorCode.KAFKA_STORAGE_ERROR, 0, 0, ErrorCode.KAFKA_STORAGE_ERROR]
    count = len(clients)
    assert [end_of(setting, n) for n in range(PARTITIONS)] == [ends[0] + 2 * count, ends[1], ends[2] + count]


def test_a_refused_batch_that_only_the_leader_had_to_store_moves_no_high_watermark(
    setting: Setting, clients: Sequence[socket.socket]
) -> None:
    state, end = setting.partition(0).state, end_of(setting, 0)
    with setting.held():
        for client in clients:
            client.sendall(to(0, b"kept", acks=1))
    assert {answered(client).error_code for client in clients} == {0}
    assert state.high_watermark == end
    with refusing(setting.partition(0).log):
        with setting.held():
            for client in clients:
                client.sendall(to(0, b"lost", acks=1))
        assert {answered(client).error_code for client in clients} == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert state.high_watermark == end, "records are committed that no follower has"
    assert state.log_end_offset == end_of(setting, 0) == end + len(clients)
    fetched(setting, 0)
    assert state.high_watermark == end + len(clients)


@pytest.mark.parametrize("refuses", [0, 1])
def test_a_request_of_a_partition_with_followers_and_one_without_tells_both(
    setting: Setting, clients: Sequence[socket.socket], refuses: int
) -> None:
    ends = [end_of(setting, number) for number in range(PARTITIONS)]
    with refusing(setting.partition(refuses).log):
        with setting.held():
            for client in clients:
                client.sendall(many_frame(VERSION, -1, b"", (0, b"followed"), (1, b"alone")))
        with Wire(setting.broker.bootstrap) as wire:  # is behind them
            wire.list_offset(TOPIC, -1, partition=2)
    if not refuses:
        clients[0].sendall(to(0, b"in its place") + to(0, b"and behind"))
    fetched(setting, 0)
    for client in clients:
        found = answers_of(client, VERSION)
        codes = [each.error_code for each in found]
        wanted = [0, 0]
        wanted[refuses] = ErrorCode.KAFKA_STORAGE_ERROR
        assert codes == wanted
        lost, kept = found[refuses], found[1 - refuses]
        assert (lost.base_offset, lost.log_start_offset) == (-1, -1)
        assert "No space left" in (lost.error_message or "")
        assert kept.base_offset >= ends[1 - refuses] and (kept.log_start_offset, kept.error_message) == (0, None)
    assert end_of(setting, 1 - refuses) >= ends[1 - refuses] + len(clients)
    if not refuses:
        fetched(setting, 0)
        assert [answered(clients[0]) for _ in range(2)] == [(0, ends[0]), (0, ends[0] + 1)]


def test_the_rest_of_a_request_is_stored_where_its_followed_part_is_refused(
    setting: Setting, clients: Sequence[socket.socket]
) -> None:
    """The second batch is none to put off, so that the dispatcher appends it."""
    ends = [end_of(setting, number) for number in range(PARTITIONS)]
    client, records = clients[0], setting.partition(2).log.active.records
    plain_fd = records.plain_fd
    with refusing(setting.partition(0).log):
        records.plain_fd = -1
        with setting.held():
            client.sendall(to(1, b"first") + many_frame(VERSION, -1, b"", (0, b"lost"), (2, b"kept")))
        assert answered(client) == (0, ends[1])
        lost, kept = answers_of(client, VERSION)
        records.plain_fd = plain_fd
    assert (lost.error_code, lost.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert (kept.error_code, kept.base_offset) == (0, ends[2])
