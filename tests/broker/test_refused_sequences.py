"""Batches of an idempotent producer behind one that was refused: none is lost, none changes places, in any way of
refusing, on both ways of a produce."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from headrace.broker.produce.plain_produce import Uncommitted, append_plainly
from headrace.broker.request import dispatch
from headrace.broker.services import Services
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.plain_produce import PlainProduce
from headrace.records.format2.batch import decode_records, iter_headers
from headrace.testing import Broker
from tests.asker import Asker
from tests.broker.frame_proxy import FrameProxy, Requests, as_sent
from tests.eventually import eventually
from tests.harness import free_ports
from tests.wire import Wire, batch

PRODUCER = 4711
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def produced(wire: Wire, topic: str, sequence: int, count: int = 10, **more: object) -> int:
    """The error code of a batch of the producer."""
    records = batch([b"%d" % n for n in range(sequence, sequence + count)], producer=(PRODUCER, 0, sequence))
    change = more.get("change")
    return wire.produce(topic, change(records) if callable(change) else records).error_code


def stored(wire: Wire, topic: str) -> list[bytes]:
    data = wire.fetch(topic, 0).records
    return [
        record.value or b""
        for at, header in iter_headers(data)
        for record in decode_records(data[at : at + header.size_bytes], header)
    ]


def flipped(at: int) -> Callable[[bytes], bytes]:
    return lambda records: records[:at] + bytes([records[at] ^ 1]) + records[at + 1 :]


def test_sequences_before_the_first_one_of_a_producer_are_out_of_order(either_broker: str) -> None:
    with Wire(either_broker) as wire:
        topic = f"begins-anywhere-{os.getpid()}"
        wire.create_topic(topic, 1)
        eventually(lambda: produced(wire, topic, 10) == 0, "a leader, which Apache Kafka does not wait for")
        assert produced(wire, topic, 0) == OUT_OF_ORDER
        assert produced(wire, topic, 10) == 0, "it is there"
        assert len(stored(wire, topic)) == 10


@pytest.fixture(params=["the short way", "the long way"])
def wire(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    if request.param == "the long way":
        monkeypatch.setattr(dispatch, "append_plainly", lambda *_: None)
    with Broker() as broker, Wire(broker.bootstrap) as found:
        yield found


@pytest.mark.parametrize("at", [20, 43 + 7, 53 + 3, 57 + 3, 70], ids=["CRC", "id", "sequence", "count", "records"])
def test_what_follows_a_damaged_batch_waits_for_it(wire: Wire, at: int) -> None:
    wire.create_topic("t", 1)
    assert produced(wire, "t", 0, change=flipped(at)) == ErrorCode.CORRUPT_MESSAGE
    assert produced(wire, "t", 10) == OUT_OF_ORDER
    assert produced(wire, "t", 0) == 0
    assert produced(wire, "t", 10) == 0
    assert stored(wire, "t") == [b"%d" % n for n in range(20)]


def test_what_follows_a_batch_that_came_before_its_topic_waits_for_it(wire: Wire) -> None:
    assert produced(wire, "t", 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wire.create_topic("t", 1)
    assert [produced(wire, "t", sequence) for sequence in (10, 0, 10)] == [OUT_OF_ORDER, 0, 0]
    assert stored(wire, "t") == [b"%d" % n for n in range(20)]


def test_what_follows_a_batch_that_its_client_gives_up_does_not_wait(wire: Wire) -> None:
    wire.create_topic("t", 1, {"cleanup.policy": "compact"})
    assert produced(wire, "t", 0) == ErrorCode.INVALID_RECORD
    keyed = batch([b"v"], keys=[b"k"], producer=(PRODUCER, 0, 10))
    assert wire.produce("t", keyed).error_code == 0


def test_what_follows_a_batch_that_can_be_split_waits_for_the_halves(wire: Wire) -> None:
    wire.create_topic("t", 1, {"max.message.bytes": "100"})
    assert produced(wire, "t", 0) == ErrorCode.MESSAGE_TOO_LARGE
    assert produced(wire, "t", 10, 1) == OUT_OF_ORDER
    assert [produced(wire, "t", sequence, 1) for sequence in range(3)] == [0, 0, 0]


def test_what_follows_a_batch_for_a_topic_id_that_is_not_known_yet_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[Services] = []

    def seen(parts: Services, request: PlainProduce, *how: Any) -> bytes | Uncommitted | None:
        found.append(parts)
        return append_plainly(parts, request, *how)

    monkeypatch.setattr(dispatch, "append_plainly", seen)
    with Broker() as broker, Asker(broker.bootstrap) as asker, Wire(broker.bootstrap) as wire:
        wire.create_topic("t", 1)
        asked = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="t")])
        topic_id = asker.ask(asked, 12).topics[0].topic_id

        def send(sequence: int) -> int:
            records = batch([b"v"], producer=(PRODUCER, 0, sequence))
            data = m.ProduceRequest.TopicProduceData(
                topic_id=topic_id,
                partition_data=[m.ProduceRequest.PartitionProduceData(index=0, records=records)],
            )
            answer = asker.ask(m.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 13)
            return int(answer.responses[0].partition_responses[0].error_code)

        assert wire.produce("t", batch([b"v"])).error_code == 0
        names = found[0].metadata.snapshot.names_by_id
        assert isinstance(names, dict)
        name = names.pop(topic_id)  # as before the controller has told this broker of the topic
        assert send(0) == ErrorCode.UNKNOWN_TOPIC_ID
        names[topic_id] = name
        assert [send(1), send(0), send(1)] == [OUT_OF_ORDER, 0, 0]


class Spoiler:
    """Damages one byte of the first batch that has certain bytes, and sends it with the request behind it."""

    def __init__(self, spoil: bytes) -> None:
        self._spoil = spoil
        self.has_spoiled = False

    def connected(self) -> Requests:
        """For one connection."""
        held = b""

        def instead(frame: bytes) -> bytes:
            nonlocal held
            request = as_sent(frame)
            if frame[:2] == b"\0\0" and not self.has_spoiled and self._spoil in request:  # a produce
                self.has_spoiled = True
                held = request.replace(self._spoil, b"?" + self._spoil[1:], 1)
                return b""
            both, held = held + request, b""  # the next one is in flight behind the damaged one, whatever the timing
            return both

        return instead


@pytest.mark.slow
def test_a_damaged_produce_costs_librdkafka_no_record_and_no_order() -> None:
    own_port, port = free_ports(2)
    spoiler = Spoiler(b"value 1 ")
    proxy = FrameProxy(port, own_port, spoiler.connected)
    acknowledged: list[bytes] = []
    with Broker(port=own_port, settings={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}):
        producer = Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{port}",
                "enable.idempotence": True,
                "batch.num.messages": 2,  # with more, librdkafka waits for the first answer
                "linger.ms": 20,
                "retry.backoff.ms": 10,
            }
        )
        with Wire(f"127.0.0.1:{own_port}") as wire:
            wire.create_topic("t", 1)
            values = [b"value %d of a few" % number for number in range(200)]
            for value in values:
                producer.produce(
                    "t", value, partition=0,
                    on_delivery=lambda error, message: None if error else acknowledged.append(message.value() or b""),
                )  # fmt: skip
            assert producer.flush(20) == 0
            assert spoiler.has_spoiled
            assert stored(wire, "t") == values
            assert acknowledged == values
    proxy.close()
