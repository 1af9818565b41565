"""What Windows lacks: the client works without poll and sendmsg, on event loops that are not asyncio's own, too."""

import socket

import pytest
import uvloop

from headrace.client import aio
from headrace.client.consumer.consumer import Consumer
from headrace.client.core import connection
from headrace.client.operations.admin import Admin
from headrace.client.producer.producer import Producer
from headrace.network.transport import PlainTransport
from headrace.types import TopicPartition
from tests.client.brokers import topic_name
from tests.eventually import collected


class SocketWithoutSendmsg(socket.socket):
    """As on Windows."""

    def __getattribute__(self, name: str) -> object:
        if name == "sendmsg":
            raise AttributeError(name)
        return super().__getattribute__(name)


def test_records_come_and_go_by_select(broker: str, admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_poll", connection._by_select)
    topic = topic_name("select")
    admin.create_topic(topic, 1, 1)
    with Producer(broker) as producer:
        for number in range(500):
            producer.send(topic, b"%d" % number * 1000)
    with Consumer(broker, auto_offset_reset="earliest", group_id=topic) as consumer:
        consumer.subscribe([topic])
        found = collected(lambda _: consumer.poll(200), 500)
    assert [record.offset for record in found] == list(range(500))


def test_pieces_are_sent_one_by_one_where_they_cannot_be_sent_together() -> None:
    ours, theirs = socket.socketpair()
    with SocketWithoutSendmsg(fileno=ours.detach()) as alone, theirs:
        assert PlainTransport(alone).send_parts([memoryview(b"tea"), memoryview(b"bun")]) == 3
        assert theirs.recv(10) == b"tea"


def test_the_asyncio_face_runs_on_uvloop(broker: str, admin: Admin) -> None:
    topic = topic_name("uvloop")
    admin.create_topic(topic, 1, 1)

    async def main() -> list[int]:
        async with aio.Producer(broker) as producer:
            sent = [await producer.send(topic, b"%d" % number) for number in range(1_000)]
            places = [await delivery for delivery in sent]
        found = []
        async with aio.Consumer(broker, auto_offset_reset="earliest") as consumer:
            await consumer.assign([TopicPartition(topic, 0)])
            async for record in consumer:
                found.append(record.offset)
                if len(found) == len(places):
                    break
        return found

    assert uvloop.run(main()) == list(range(1_000))
