"""A record that is alone: the thread that waits for it sends it and receives the answer, and nothing else changes."""

import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from headrace import Admin, Consumer, Producer, TopicPartition
from headrace.client.core.connection import Connection
from headrace.client.core.failures import ClientClosed, DeadlineExceeded
from headrace.client.producer.delivery import RecordMetadata
from headrace.client.producer.encoded_batches import produce_request
from headrace.client.producer.producer import ProducerSettings
from headrace.client.producer.short_way import ProduceForm
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import response_header, write_request_header
from headrace.testing import Broker
from tests.client.brokers import topic_name
from tests.eventually import WITHIN_SECONDS, collected, eventually
from tests.harness import HeadraceServer

POLICY = ProducerSettings().policy(30_000)


# -- the bytes


class Encoded:
    """As much of a batch as a request has."""

    def __init__(self, partition: TopicPartition, data: bytes) -> None:
        self.partition, self.encoded = partition, bytearray(data)


@pytest.mark.parametrize("version", range(9, 13))
@pytest.mark.parametrize("size", [1, 61, 126, 127, 128, 200, 16_383, 70_000])
def test_a_request_is_the_same_as_the_long_way(version: int, size: int) -> None:
    partition, data = TopicPartition("täglich", 3), bytes(size)
    form = ProduceForm(partition, version, POLICY, "me")
    pieces: Any = produce_request([Encoded(partition, data)], POLICY, None).encode_chunks(version)  # type: ignore[list-item]
    body = b"".join(piece if isinstance(piece, bytes) else bytes(piece.data) for piece in pieces)
    wanted = write_request_header(ApiKey.PRODUCE, version, 77, "me") + body
    assert form.frame(77, bytearray(data)) == len(wanted).to_bytes(4, "big") + wanted


def answer(version: int, topic: str = "t", throttle_ms: int = 0, **fields: Any) -> memoryview:
    part = m.ProduceResponse.PartitionProduceResponse(**{"index": 3, "base_offset": 7, "log_start_offset": 5, **fields})
    those = [m.ProduceResponse.TopicProduceResponse(name=topic, partition_responses=[part])]
    body = m.ProduceResponse(responses=those, throttle_time_ms=throttle_ms).encode(version)
    return memoryview(response_header(ApiKey.PRODUCE, version, 99) + body)


@pytest.mark.parametrize("version", range(9, 13))
def test_an_answer_that_says_more_than_a_place_is_left_to_the_long_way(version: int) -> None:
    form = ProduceForm(TopicPartition("t", 3), version, POLICY, "me")
    assert form.place(answer(version)) == (7, -1)
    assert form.place(answer(version, base_offset=1 << 40, log_append_time_ms=1_700_000_000_000)) == (
        1 << 40,
        1_700_000_000_000,
    )
    for other in (
        answer(version, error_code=2),
        answer(version, index=4),
        answer(version, topic="u"),
        answer(version, topic="tt"),
        answer(version, throttle_ms=1),
        answer(version, error_message="no"),
    ):
        assert form.place(other) is None


# -- with a broker


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    """One that may be stopped for a while."""
    server = HeadraceServer(tmp_path_factory.mktemp("short") / "data").start()
    yield server
    server.stop()


@pytest.fixture
def topic(server: HeadraceServer) -> str:
    name = topic_name("alone")
    with Admin(server.bootstrap) as admin:
        admin.create_topic(name, 1, 1, {"max.message.bytes": "5000"})
    return name


@pytest.fixture
def shortly(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads that have sent a record the short way, one for each."""
    found: list[int] = []
    send_frame: Callable[..., Any] = Connection.send_frame

    def noted(self: Connection, *others: Any) -> Any:
        found.append(threading.get_ident())
        return send_frame(self, *others)

    monkeypatch.setattr(Connection, "send_frame", noted)
    return found


@pytest.fixture
def producer(server: HeadraceServer) -> Iterator[Producer]:
    with Producer(server.bootstrap, linger_ms=0) as opened:
        yield opened


def go_shortly(producer: Producer, topic: str, shortly: list[int], value: bytes = b"x") -> None:
    """Send and wait until that goes the short way: until the sender's thread has seen that records are waited for."""

    def went() -> bool:
        before = len(shortly)
        producer.send(topic, value).result(WITHIN_SECONDS)
        return len(shortly) > before

    eventually(went, "a record that goes the short way")


def stored(server: HeadraceServer, topic: str, count: int) -> list[bytes | None]:
    with Consumer(server.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return [each.value for each in collected(lambda _: consumer.poll(200), count)]


def test_the_thread_that_waits_does_the_work(producer: Producer, topic: str, shortly: list[int]) -> None:
    go_shortly(producer, topic, shortly)
    assert set(shortly) == {threading.get_ident()}
    first = producer.send(topic, b"y").result(WITHIN_SECONDS)
    found = [producer.send(topic, b"y").result(WITHIN_SECONDS).offset for _ in range(50)]
    assert found == [*range(first.offset + 1, first.offset + 51)]
    metrics = producer.metrics()["producer-metrics"]
    assert metrics["record-send-total"] == first.offset + 51
    assert metrics["response-total"] >= first.offset + 51


def test_every_broker_is_talked_to_so(broker: str, admin: Admin, shortly: list[int]) -> None:
    name = topic_name("alone")
    admin.create_topic(name, 1, 1)
    with Producer(broker, linger_ms=0) as producer:
        go_shortly(producer, name, shortly)
        found = [producer.send(name, b"y").result(WITHIN_SECONDS).offset for _ in range(20)]
    assert found == [*range(found[0], found[0] + 20)]


def test_a_secured_broker_is_talked_to_so(shortly: list[int]) -> None:
    with Broker(security="SSL") as secured:
        with Admin(secured.bootstrap, secured.client_settings()) as admin:
            admin.create_topic("t", 1, 1)
        with Producer(secured.bootstrap, ProducerSettings(linger_ms=0), secured.client_settings()) as producer:
            go_shortly(producer, "t", shortly)
            found = [producer.send("t", b"y").result(WITHIN_SECONDS).offset for _ in range(20)]
    assert found == [*range(found[0], found[0] + 20)]


def test_a_record_that_nobody_waits_for_is_acknowledged_all_the_same(
    producer: Producer, topic: str, shortly: list[int]
) -> None:
    go_shortly(producer, topic, shortly)
    for _ in range(5):
        eventually(producer.send(topic, b"y").done, "the acknowledgement")


@pytest.mark.slow
def test_no_two_threads_use_one_connection(
    server: HeadraceServer, producer: Producer, topic: str, shortly: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    users: dict[int, threading.RLock] = defaultdict(threading.RLock)
    overlaps: list[str] = []

    def guarded(name: str) -> None:
        method: Callable[..., Any] = getattr(Connection, name)

        def call(self: Connection, *others: Any) -> Any:
            if not users[id(self)].acquire(blocking=False):
                overlaps.append(name)
                return method(self, *others)
            try:
                return method(self, *others)
            finally:
                users[id(self)].release()

        monkeypatch.setattr(Connection, name, call)

    go_shortly(producer, topic, shortly, b"first")
    before = len(stored(server, topic, 1))
    for name in ("send_frame", "_write", "pump", "close"):
        guarded(name)
    told: list[tuple[RecordMetadata | None, KafkaError | None]] = []

    def work(number: int) -> None:
        for count in range(60):
            value = b"%d %d" % (number, count)
            if number == 3:  # does not wait
                producer.send(topic, value, on_delivery=lambda *outcome: told.append(outcome))
            else:
                producer.send(topic, value).result(WITHIN_SECONDS)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.flush()
    assert overlaps == []
    eventually(lambda: len(told) == 60)
    assert all(error is None for _, error in told)
    values = [each for each in stored(server, topic, before + 240) if each != b"first"]
    for number in range(4):
        mine = [int((each or b"").split()[1]) for each in values if (each or b"").startswith(b"%d " % number)]
        assert mine == [*range(60)], number


def test_callbacks_are_called_in_the_senders_thread(producer: Producer, topic: str, shortly: list[int]) -> None:
    go_shortly(producer, topic, shortly)
    names: list[str] = []
    for _ in range(5):
        delivery = producer.send(topic, b"y", on_delivery=lambda *_: names.append(threading.current_thread().name))
        delivery.result(WITHIN_SECONDS)
        producer.send(topic, b"y").result(WITHIN_SECONDS)
    eventually(lambda: len(names) == 5)
    assert set(names) == {"headrace-sender"}


def test_a_refused_record_is_told_and_the_next_one_goes(producer: Producer, topic: str, shortly: list[int]) -> None:
    go_shortly(producer, topic, shortly)
    for _ in range(3):
        with pytest.raises(KafkaError) as refused:
            producer.send(topic, bytes(6_000)).result(WITHIN_SECONDS)
        assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
        producer.send(topic, b"y").result(WITHIN_SECONDS)
    go_shortly(producer, topic, shortly)


@pytest.mark.slow
def test_a_lost_connection_costs_no_record(
    server: HeadraceServer, producer: Producer, topic: str, shortly: list[int]
) -> None:
    go_shortly(producer, topic, shortly, b"first")
    for count in range(5):
        for connection in [*producer._cluster._data.values()]:
            connection.interrupt()
        producer.send(topic, b"%d" % count).result(WITHIN_SECONDS)
        go_shortly(producer, topic, shortly, b"first")
    values = stored(server, topic, 7)
    assert [each for each in values if each != b"first"] == [b"%d" % count for count in range(5)][: len(values)]


def test_an_interrupt_costs_no_record(
    server: HeadraceServer, producer: Producer, topic: str, shortly: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    go_shortly(producer, topic, shortly, b"first")
    pump = Connection.pump
    interrupted: list[int] = []

    def stopped(self: Connection) -> None:
        pump(self)
        if threading.current_thread() is threading.main_thread() and not interrupted:
            interrupted.append(1)
            raise KeyboardInterrupt

    monkeypatch.setattr(Connection, "pump", stopped)

    def was_interrupted() -> bool:
        delivery = producer.send(topic, b"second")
        try:
            delivery.result(WITHIN_SECONDS)
        except KeyboardInterrupt:
            delivery.result(WITHIN_SECONDS)
            return True
        return False

    eventually(was_interrupted, "an interrupt in the short way")
    last = producer.send(topic, b"last").result(WITHIN_SECONDS)
    assert len(stored(server, topic, last.offset + 1)) == last.offset + 1  # none twice: idempotence


@pytest.fixture
def silent(server: HeadraceServer) -> Iterator[Callable[[bool], None]]:
    """Has the broker stop, and go on."""
    assert server.process is not None
    process = server.process

    def be(is_silent: bool) -> None:
        process.send_signal(signal.SIGSTOP if is_silent else signal.SIGCONT)
        if is_silent:
            eventually(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED, "the stop")

    yield be
    be(False)


def test_who_stops_waiting_leaves_the_rest_to_the_sender(
    producer: Producer, topic: str, shortly: list[int], silent: Callable[[bool], None]
) -> None:
    go_shortly(producer, topic, shortly)
    silent(True)
    delivery = producer.send(topic, b"late")
    with pytest.raises(DeadlineExceeded):
        delivery.result(0.01)
    others = [producer.send(topic, b"%d" % count) for count in range(3)]
    assert not delivery.done()
    silent(False)
    places = [each.result(WITHIN_SECONDS).offset for each in (delivery, *others)]
    assert places == [*range(places[0], places[0] + 4)]


def test_a_thread_that_waits_lets_the_records_of_others_go(
    producer: Producer, topic: str, shortly: list[int], silent: Callable[[bool], None]
) -> None:
    go_shortly(producer, topic, shortly)
    silent(True)
    delivery = producer.send(topic, b"first")
    waiting = threading.Thread(target=delivery.result)
    waiting.start()
    other = producer.send(topic, b"second")
    eventually(lambda: len(producer._sender._flights) == 2, "the second request, while a thread waits for the first")
    silent(False)
    assert other.result(WITHIN_SECONDS).offset == delivery.result(WITHIN_SECONDS).offset + 1
    waiting.join()


def test_the_end_of_the_producer_ends_the_wait(
    server: HeadraceServer, topic: str, shortly: list[int], silent: Callable[[bool], None]
) -> None:
    producer = Producer(server.bootstrap, linger_ms=0)
    go_shortly(producer, topic, shortly)
    silent(True)
    delivery = producer.send(topic, b"lost")
    errors: list[KafkaError | None] = []
    waiting = threading.Thread(target=lambda: errors.append(delivery.exception()))
    waiting.start()
    producer.close(0)
    waiting.join(WITHIN_SECONDS)
    assert [type(each) for each in errors] == [ClientClosed]
    with pytest.raises(ClientClosed):
        producer.send(topic, b"y")


@pytest.mark.parametrize("options", [{"linger_ms": 1}, {"linger_ms": 0, "compression_type": "gzip"}])
def test_other_producers_go_the_long_way(
    options: dict[str, Any], server: HeadraceServer, topic: str, shortly: list[int], tmp_path: Path
) -> None:
    with Producer(server.bootstrap, **options) as producer:
        for _ in range(20):
            producer.send(topic, b"x").result(WITHIN_SECONDS)
    assert shortly == []
