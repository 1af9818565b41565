"""Brokers that vanish, come back, are old, or are no brokers."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing

import pytest

from headrace.client.consumer.consumer import Consumer, ConsumerSettings
from headrace.client.consumer.fetched_batches import ConsumerRecord
from headrace.client.core.cluster import Cluster
from headrace.client.core.failures import BrokerUnreachable, BufferExhausted, ClientClosed, DeadlineExceeded
from headrace.client.core.settings import ClientSettings
from headrace.client.operations.admin import Admin
from headrace.client.producer.delivery import Delivery
from headrace.client.producer.producer import Producer, ProducerSettings
from headrace.errors import CorruptMessage, KafkaError
from headrace.types import TopicPartition
from tests.eventually import WITHIN_SECONDS, eventually
from tests.harness import HeadraceServer

StartHeadrace = Callable[..., HeadraceServer]
P = TopicPartition("t", 0)


@pytest.fixture
def server(headrace_server: StartHeadrace) -> HeadraceServer:
    started = headrace_server()
    with Admin(started.bootstrap) as admin:
        admin.create_topic("t", 1, 1)
    return started


def test_a_refused_connection_names_the_address_at_once(free_port: int) -> None:
    with pytest.raises(BrokerUnreachable, match=rf"127.0.0.1:{free_port}: Connection refused"):
        Admin(f"127.0.0.1:{free_port}").list_topics()


def test_a_client_that_waits_for_brokers_reaches_one_that_starts_later(server: HeadraceServer) -> None:
    server.kill()
    restart = threading.Timer(1, server.restart)
    restart.start()
    with Cluster(server.bootstrap, ClientSettings(waits_for_brokers=True)) as cluster:
        assert [topic.name for topic in Admin(cluster).list_topics()] == ["t"]
    restart.join()


def test_a_client_that_waits_for_brokers_ends_in_time_and_names_the_address(free_port: int) -> None:
    settings = ClientSettings(waits_for_brokers=True, api_timeout_ms=300)
    with pytest.raises(DeadlineExceeded, match=rf"in time; .*127.0.0.1:{free_port}: Connection refused"):
        Admin(Cluster(f"127.0.0.1:{free_port}", settings)).list_topics()


def test_the_next_bootstrap_address_is_tried(server: HeadraceServer, free_port: int) -> None:
    with Admin(f"127.0.0.1:{free_port},{server.bootstrap}") as admin:
        assert [topic.name for topic in admin.list_topics()] == ["t"]


def test_a_producer_lives_through_kill_9_without_loss_or_doubles(server: HeadraceServer) -> None:
    stop = threading.Event()
    sent: list[Delivery] = []
    with Producer(server.bootstrap, ProducerSettings(linger_ms=1)) as producer:

        def send() -> None:
            while not stop.is_set():
                sent.append(producer.send("t", b"%d" % len(sent)))
                time.sleep(0.0005)

        thread = threading.Thread(target=send)
        thread.start()
        for _ in range(2):
            time.sleep(0.3)
            server.kill()
            server.restart()
        time.sleep(0.3)
        stop.set()
        thread.join()
    assert [one.result().partition for one in sent] == [0] * len(sent)
    with Consumer(server.bootstrap, ConsumerSettings(auto_offset_reset="earliest")) as consumer:
        consumer.assign([P])
        found: list[int] = []
        while len(found) < len(sent) and (records := consumer.poll(30_000)):
            found += [int(record.value or b"") for record in records]
        assert consumer.poll(100) == []
    assert found == list(range(len(sent)))


def test_a_consumer_goes_on_after_a_restart(server: HeadraceServer) -> None:
    with Consumer(server.bootstrap, ConsumerSettings(auto_offset_reset="earliest")) as consumer:
        consumer.assign([P])
        for turn in range(3):
            with Producer(server.bootstrap) as producer:
                producer.send("t", b"%d" % turn)
            found: list[ConsumerRecord] = []
            while not found:
                found = consumer.poll(30_000)
            assert [record.value for record in found] == [b"%d" % turn]
            server.stop()
            server.restart()


def test_back_pressure_ends_in_an_error_that_says_so(server: HeadraceServer) -> None:
    settings = ProducerSettings(buffer_memory_bytes=10_000, max_block_ms=200, delivery_timeout_ms=100_000)
    producer = Producer(server.bootstrap, settings)
    producer.send("t", b"first").result()
    server.stop()
    with pytest.raises(BufferExhausted, match=r"t-0.*10000 bytes"):
        for _ in range(100):
            producer.send("t", bytes(1000))
    producer.close(0)


@pytest.mark.parametrize("as_columns", [False, True])
def test_a_send_that_waits_for_the_buffer_is_told_that_the_producer_is_closed(
    server: HeadraceServer, as_columns: bool
) -> None:
    producer = Producer(server.bootstrap, ProducerSettings(buffer_memory_bytes=1_000, max_block_ms=10_000_000))
    producer.send("t", b"first").result()
    server.stop()
    producer.send("t", bytes(900))
    said: list[KafkaError] = []

    def send() -> None:
        try:
            if as_columns:
                producer.send_columns("t", None, [bytes(900)])
            else:
                producer.send("t", bytes(900))
        except KafkaError as error:
            said.append(error)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    eventually(lambda: producer._sender.flushing, "the send to wait")
    producer.close(0)
    thread.join(WITHIN_SECONDS)
    assert [type(error) for error in said] == [ClientClosed]


def test_what_cannot_be_delivered_in_time_fails_with_the_reason(server: HeadraceServer) -> None:
    with Producer(server.bootstrap, ProducerSettings(delivery_timeout_ms=3_000)) as producer:
        eventually(lambda: _is_delivered(producer.send("t", b"first")), "a delivery within that time")
        server.stop()
        late = producer.send("t", b"late")
        with pytest.raises(DeadlineExceeded, match="t-0: not delivered within 3000 ms"):
            late.result(WITHIN_SECONDS)


def _is_delivered(delivery: Delivery) -> bool:
    try:
        delivery.result(WITHIN_SECONDS)
    except DeadlineExceeded:  # a busy machine
        return False
    return True


def test_damage_is_told_again_by_polls_of_columns_which_skip_nothing(server: HeadraceServer) -> None:
    with Producer(server.bootstrap, ProducerSettings(linger_ms=0)) as producer:
        for value in (b"good", b"to be damaged", b"good, too"):
            producer.send("t", value).result(WITHIN_SECONDS)
    server.stop()
    (segment,) = (server.data / "t-0").glob("*.log")
    segment.write_bytes(segment.read_bytes().replace(b"to be damaged", b"TO be damaged"))
    server.restart()
    with Consumer(server.bootstrap, ConsumerSettings(auto_offset_reset="earliest")) as consumer:
        consumer.assign([P])
        for _ in range(3):
            with pytest.raises(CorruptMessage, match="t-0: the batch at offset 1 does not match its CRC"):
                while not consumer.poll_columns(WITHIN_SECONDS * 1000):
                    pass
            assert consumer.position(P) == 0
        consumer.seek(P, 2)
        ((_, columns),) = consumer.poll_columns(WITHIN_SECONDS * 1000)
        assert list(columns.offsets) == [2]


def test_a_closed_client_says_so(server: HeadraceServer) -> None:
    producer, consumer = Producer(server.bootstrap), Consumer(server.bootstrap)
    producer.close()
    consumer.close()
    with pytest.raises(ClientClosed, match="producer"):
        producer.send("t", b"x")
    with pytest.raises(ClientClosed, match="consumer"):
        consumer.poll()


# -- peers of a few lines, to see what real brokers of another age do


def serve(answers: list[bytes]) -> tuple[str, list[bytes]]:
    """A peer that answers each request with the next bytes, on any number of connections; and what it was asked."""
    listener = socket.create_server(("127.0.0.1", 0))
    asked: list[bytes] = []

    def run() -> None:
        with listener:
            while answers:
                connection, _ = listener.accept()
                with connection:
                    while answers and (size := connection.recv(4)):
                        request = connection.recv(int.from_bytes(size, "big"))
                        asked.append(request)
                        answer = request[4:8] + answers.pop(0)
                        connection.sendall(len(answer).to_bytes(4, "big") + answer)

    threading.Thread(target=run, daemon=True).start()
    return f"127.0.0.1:{listener.getsockname()[1]}", asked


API_VERSIONS_ONLY_0_TO_2 = bytes.fromhex("0023 00000001 0012 0000 0002")
METADATA_4_ONLY = bytes.fromhex("0000 00000001 0003 0004 0004")
EMPTY_METADATA = bytes.fromhex("00000000 00000000 ffff ffffffff 00000000")


def test_asks_again_in_the_version_that_an_older_broker_lists() -> None:
    address, asked = serve([API_VERSIONS_ONLY_0_TO_2, METADATA_4_ONLY + bytes(4), EMPTY_METADATA])
    with Cluster(address) as cluster:
        assert cluster.refresh(None).topics == {}
    assert [(request[1], request[3]) for request in asked] == [(18, 4), (18, 2), (3, 4)]


def test_asks_in_version_0_where_a_broker_lists_nothing() -> None:
    address, asked = serve([bytes.fromhex("0023 00000000"), METADATA_4_ONLY, EMPTY_METADATA])
    with Cluster(address) as cluster:
        assert cluster.refresh(None).topics == {}
    assert [(request[1], request[3]) for request in asked] == [(18, 4), (18, 0), (3, 4)]


@pytest.mark.parametrize("noise", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x00\x00\x04abcd", b""])
def test_a_peer_that_speaks_something_else_is_an_error_and_not_a_hang(noise: bytes) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def run() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(noise)

        threading.Thread(target=run, daemon=True).start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with Cluster(address, ClientSettings(request_timeout_ms=2000)) as cluster, pytest.raises(KafkaError):
            cluster.refresh(None)


def test_a_silent_peer_is_given_up_in_time_and_the_next_one_asked(server: HeadraceServer) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        silent = f"127.0.0.1:{listener.getsockname()[1]}"
        settings = ClientSettings(request_timeout_ms=2_000)
        with Cluster(silent, settings) as cluster, pytest.raises(BrokerUnreachable, match=f"{silent} did not answer"):
            cluster.refresh(None)
        with Cluster(f"{silent},{server.bootstrap}", settings) as cluster:
            assert list(cluster.refresh(None).topics) == ["t"]
