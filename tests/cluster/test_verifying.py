"""The verifying producer and consumer see what they are there to see, and the proxy cuts whom it is told to."""

import socket
import threading
from collections.abc import Callable

import pytest

from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import write_request_header
from tests.cluster.tcp_proxy import CLIENT, TcpProxy, source_of
from tests.cluster.verifying import Acknowledged, VerifyingProducer, compare, verify
from tests.conftest import StartHeadrace
from tests.eventually import WITHIN_SECONDS
from tests.harness import free_ports, receive_exactly

SENT = range(6)
ACKNOWLEDGED = {value: Acknowledged(0, value, 0.0) for value in range(5)}
READ = [(0, value, value) for value in range(6)]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda reads: reads.pop(2), {"lost": [2], "moved": None}),
        (lambda reads: reads.append((0, 6, 3)), {"doubled": [3], "disordered": [3]}),
        (lambda reads: reads.append((0, 6, 99)), {"invented": [99]}),
        (lambda reads: reads.__setitem__(5, (0, 5, 4)), {"doubled": [4]}),
        (lambda reads: reads.__setitem__(4, (0, 9, 4)), {"moved": [4]}),
    ],
)
def test_every_fault_is_seen(
    change: Callable[[list[tuple[int, int, int]]], object], fault: dict[str, list[int] | None]
) -> None:
    assert not compare(SENT, ACKNOWLEDGED, READ, is_idempotent=True).faults()
    reads = list(READ)
    change(reads)
    found = compare(SENT, ACKNOWLEDGED, reads, is_idempotent=True).faults()
    assert found == {kind: values for kind, values in fault.items() if values is not None}


def test_a_retry_without_idempotence_may_write_twice() -> None:
    twice = [*READ, (0, 6, 3)]
    assert not compare(SENT, ACKNOWLEDGED, twice, is_idempotent=False).faults()


def test_a_broker_that_is_killed_and_comes_back_loses_nothing(headrace_server: StartHeadrace) -> None:
    server = headrace_server(settings={"num.partitions": "2"})
    with VerifyingProducer(server.bootstrap, "t", partitions=2) as producer:
        producer.wait_for(300)
        server.kill()
        server.restart()
        producer.wait_for(300)
    report = verify(server.bootstrap, "t", producer)
    assert report.read >= report.acknowledged >= 600
    assert not report.faults()


def _request(client_id: str) -> bytes:
    header = write_request_header(ApiKey.API_VERSIONS, 0, 1, client_id)
    return len(header).to_bytes(4, "big") + header


def test_the_proxy_cuts_one_broker_and_lets_the_others_pass() -> None:
    assert source_of(_request("broker-12-fetcher")[4:]) == source_of(_request("headrace-12")[4:]) == 12
    assert source_of(_request("rdkafka")[4:]) == source_of(_request("headrace")[4:]) == CLIENT
    target, listening = free_ports(2)
    with socket.create_server(("127.0.0.1", target)) as server:
        threading.Thread(target=_echo, args=(server, 2), daemon=True).start()
        proxy = TcpProxy(listening, target).start()
        try:
            one, other = (socket.create_connection(("127.0.0.1", listening)) for _ in range(2))
            with one, other:
                for connection, name in ((one, "broker-1-control"), (other, "broker-2-control")):
                    connection.sendall(_request(name))
                    assert receive_exactly(connection, len(_request(name))) == _request(name)
                proxy.cut(1)
                one.sendall(b"held")
                other.sendall(b"pass")
                assert receive_exactly(other, 4) == b"pass"
                one.settimeout(0.3)
                with pytest.raises(TimeoutError):
                    one.recv(4)
                proxy.heal(1)
                one.settimeout(WITHIN_SECONDS)
                assert receive_exactly(one, 4) == b"held"
        finally:
            proxy.stop()


def _echo(server: socket.socket, connections: int) -> None:
    def answer(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(4096):
                connection.sendall(data)

    for _ in range(connections):
        threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()
