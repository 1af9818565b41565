"""The client over TLS: what it sends and receives is what it is without."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.client.core.cluster import Cluster
from headrace.client.core.failures import BrokerUnreachable
from headrace.client.core.settings import Address, ClientSettings
from headrace.protocol import messages as m
from headrace.records.format2.batch import Record, encode_batch
from tests.broker.test_connection import certificate
from tests.client.brokers import topic_name
from tests.harness import HeadraceServer

__all__ = ["certificate"]


def carry(source: socket.socket, target: socket.socket) -> None:
    """Bytes of one direction, until it ends."""
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


@pytest.fixture
def port(certificate: Path, shared_headrace: HeadraceServer) -> Iterator[int]:
    """A port where TLS is taken off in front of the broker."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    open_sockets: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            while True:
                try:
                    secured = context.wrap_socket(listening.accept()[0], server_side=True)
                except ssl.SSLError:
                    continue
                except OSError:
                    return
                plain = socket.create_connection(("127.0.0.1", shared_headrace.port))
                open_sockets.extend((secured, plain))
                for pair in ((secured, plain), (plain, secured)):
                    threading.Thread(target=carry, args=pair, daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
    for each in open_sockets:
        each.close()


def test_a_client_produces_and_fetches_over_tls(port: int, certificate: Path, shared_headrace: HeadraceServer) -> None:
    topic = topic_name("tls")
    settings = ClientSettings(tls=ssl.create_default_context(cafile=f"{certificate}.crt"))
    with Cluster(shared_headrace.bootstrap) as plain:
        plain.topic(topic, create=True)
    records = bytes(encode_batch([Record(0, 1, None, bytes([n]) * 100_000, ()) for n in range(9)]))
    produced = m.ProduceRequest.PartitionProduceData(index=0, records=records)
    wanted = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 24)
    with Cluster(f"localhost:{port}", settings) as cluster:
        deadline = cluster.deadline()
        with closing(cluster.dial(Address("localhost", port), deadline)) as connection:
            data = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[produced])
            produce = m.ProduceRequest(acks=1, timeout_ms=9000, topic_data=[data])
            answer = connection.call(produce, m.ProduceResponse, deadline)
            assert answer.responses[0].partition_responses[0].error_code == 0
            asked = m.FetchRequest.FetchTopic(topic=topic, partitions=[wanted])
            fetch = m.FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 24, topics=[asked])
            pending = [connection.send(fetch, m.FetchResponse, deadline) for _ in range(3)]
            for each in pending:
                fetched = connection.wait(each, deadline).responses[0].partitions[0]
                assert len(fetched.records or b"") == len(records)


def test_a_broker_whose_certificate_is_not_known_is_not_spoken_to(port: int) -> None:
    settings = ClientSettings(tls=ssl.create_default_context())
    with Cluster(f"localhost:{port}", settings) as cluster, pytest.raises(BrokerUnreachable, match="certificate"):
        cluster.dial(Address("localhost", port), cluster.deadline())
