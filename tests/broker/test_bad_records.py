"""Record batches that lie, and batches out of turn: refused with Kafka's code, nothing stored, everyone else served.

What is wrong with a batch on its own is tested case by case in tests/records/test_validation.py; here it comes to a
live broker, and to an Apache Kafka where there is one, which has to answer the same.
"""

import struct
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import pytest

from headrace.errors import ErrorCode
from headrace.records.codecs.compression import Codec
from tests.broker.lies import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, bomb, lying
from tests.broker.siege import MIB, Bystander, assert_unharmed
from tests.eventually import eventually
from tests.harness import HeadraceServer
from tests.wire import INIT_PRODUCER_ID, PRODUCE, Wire, batch, stored_batches, string

MESSAGE_BYTES_MAX = 100_000


class Lie(NamedTuple):
    """A batch, the code that it is refused with, and Apache Kafka's code where that is another."""

    records: bytes
    error_code: int
    error_code_of_kafka: int | None = None


def fitting(batch_bytes: int) -> bytes:
    """The value that makes a batch of so many bytes."""
    guess = b"x" * 90_000
    return b"x" * (batch_bytes - len(batch([guess])) + len(guess))


def with_wrong_crc() -> bytes:
    """The checksum alone is wrong."""
    good = batch([b"one", b"two"])
    return good[:17] + bytes([good[17] ^ 1]) + good[18:]


LIES = {
    "wrong CRC": Lie(with_wrong_crc(), ErrorCode.CORRUPT_MESSAGE),
    "count too high": Lie(lying(record_count=3, last_offset_delta=2), ErrorCode.INVALID_RECORD),
    "count too low": Lie(lying(record_count=1, last_offset_delta=0), ErrorCode.INVALID_RECORD),
    "count and last offset delta disagree": Lie(lying(last_offset_delta=7), ErrorCode.INVALID_RECORD),
    "negative count": Lie(lying(record_count=-1, last_offset_delta=-2), ErrorCode.INVALID_RECORD),
    "no records": Lie(lying(records=b"", record_count=0, last_offset_delta=-1), ErrorCode.INVALID_RECORD),
    "control bit": Lie(lying(attributes=CONTROL), ErrorCode.INVALID_RECORD),
    "transaction nobody began": Lie(
        lying(attributes=TRANSACTIONAL, producer_id=4, producer_epoch=0, base_sequence=0),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    "log append time": Lie(
        lying(attributes=LOG_APPEND_TIME), ErrorCode.INVALID_TIMESTAMP, ErrorCode.NONE
    ),  # stored with it
    "codec 5": Lie(lying(attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.UNKNOWN_SERVER_ERROR),
    "magic 3": Lie(lying(magic=3), ErrorCode.CORRUPT_MESSAGE),
    "not compressed, says gzip": Lie(
        lying(attributes=Codec.GZIP), ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR
    ),
    "length too long": Lie(lying(length=1_000), ErrorCode.INVALID_RECORD),
    "length too short": Lie(lying(length=50), ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE),
    "two batches": Lie(batch([b"one"]) + batch([b"two"]), ErrorCode.INVALID_RECORD),
    "one byte too large": Lie(batch([fitting(MESSAGE_BYTES_MAX + 1)]), ErrorCode.MESSAGE_TOO_LARGE),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    """One broker for the file, with a bystander who is looked at by every test's end."""
    running = HeadraceServer(tmp_path_factory.mktemp("bad-records") / "data").start()
    with Bystander(running.bootstrap):
        yield running
    assert_unharmed(running)


def topic_for(wire: Wire, name: str, **configs: str) -> str:
    """A topic of this test's own."""
    name = "".join(each if each.isalnum() else "-" for each in name)
    settings = {"max.message.bytes": str(MESSAGE_BYTES_MAX)} | {k.replace("_", "."): v for k, v in configs.items()}
    assert wire.create_topic(name, configs=settings) == 0
    return name


@pytest.mark.parametrize("lie", LIES)
def test_a_batch_that_lies_is_refused_and_not_stored(server: HeadraceServer, lie: str) -> None:
    with Wire(server.bootstrap) as wire:
        topic = topic_for(wire, lie)
        assert wire.produce(topic, LIES[lie].records) == (LIES[lie].error_code, -1)
        assert wire.list_offset(topic, -1)[2] == 0
        assert wire.produce(topic, batch([b"the truth"])) == (0, 0)


def is_written(wire: Wire, topic: str, records: bytes) -> bool:
    return wire.produce(topic, records).error_code == 0


@pytest.mark.peer
def test_apache_kafka_refuses_the_same_or_the_difference_is_known(apache_kafka: str) -> None:
    codes = {}
    with Wire(apache_kafka) as wire:
        for name, lie in LIES.items():
            topic = topic_for(wire, f"lies-{name}")
            # The leader learns of its topic a little later.
            eventually(partial(is_written, wire, topic, batch([b"ready"])), f"a leader of {topic}")
            codes[name] = wire.produce(topic, lie.records).error_code
    expected = {
        name: lie.error_code if lie.error_code_of_kafka is None else lie.error_code_of_kafka
        for name, lie in LIES.items()
    }
    assert codes == expected


def test_the_largest_message_that_is_allowed_is_taken(server: HeadraceServer) -> None:
    largest = fitting(MESSAGE_BYTES_MAX)
    with Wire(server.bootstrap) as wire:
        topic = topic_for(wire, "largest")
        assert len(batch([largest])) == MESSAGE_BYTES_MAX
        assert wire.produce(topic, batch([largest])) == (0, 0)


def producer_id(wire: Wire) -> int:
    """A new idempotent producer's."""
    answer = wire.ask(INIT_PRODUCER_ID, 0, string(None) + struct.pack(">i", 60_000))
    error_code, found = struct.unpack_from(">hq", answer, 4)
    assert error_code == 0
    return int(found)


def test_a_producer_out_of_turn_is_told_so(server: HeadraceServer) -> None:
    with Wire(server.bootstrap) as wire:
        topic, me = topic_for(wire, "in-turn"), producer_id(wire)
        first = batch([b"a", b"b"], producer=(me, 1, 0))
        assert wire.produce(topic, first) == (0, 0)
        assert (
            wire.produce(topic, batch([b"gap"], producer=(me, 1, 9))).error_code
            == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        )
        assert wire.produce(topic, batch([b"old"], producer=(me, 0, 0))).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert wire.produce(topic, first) == (0, 0), "a duplicate has the offset that it had"
        assert wire.produce(topic, batch([b"c"], producer=(me, 1, 2))) == (0, 2)
        assert [each.record_count for each in stored_batches(wire.fetch(topic, 0).records)] == [2, 1]


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_small_bomb_is_refused(server: HeadraceServer, codec: Codec) -> None:
    with Wire(server.bootstrap) as wire:
        topic = topic_for(wire, f"bomb-{codec.name}", max_message_bytes=str(MIB))
        assert wire.produce(topic, bomb(codec, 16 * MIB)).error_code in (
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.INVALID_RECORD,
        )
        assert wire.list_offset(topic, -1)[2] == 0


@pytest.mark.slow
def test_one_bad_batch_does_not_keep_the_others_of_its_request_out(server: HeadraceServer) -> None:
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic("neighbours", partitions=3) == 0
        parts = [batch([b"good"]), LIES["wrong CRC"].records, batch([b"good too"])]
        body = string(None) + struct.pack(">hii", -1, 5_000, 1) + string("neighbours") + struct.pack(">i", len(parts))
        body += b"".join(struct.pack(">ii", index, len(part)) + part for index, part in enumerate(parts))
        wire.ask(PRODUCE, 3, body)
        assert [wire.list_offset("neighbours", -1, partition=index)[2] for index in range(3)] == [1, 0, 1]
