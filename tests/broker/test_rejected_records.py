"""Records that their topic does not take are named to their producer (KIP-467), as Apache Kafka names them."""

import re
import time
from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka import KafkaError, Message, Producer

from headrace.errors import ErrorCode
from headrace.limits import RECORD_ERRORS_PER_PRODUCE_MAX
from headrace.protocol import messages as m
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, encode_batch
from tests.asker import Asker
from tests.broker.lies import lying
from tests.eventually import eventually
from tests.harness import HeadraceServer, stop_process
from tests.wire import Wire

DAY_MS = 86_400_000
COMPACTED = "compacted"
TIMELY = "timely"
CONFIGS = {
    COMPACTED: {"cleanup.policy": "compact", "message.timestamp.before.max.ms": "3600000"},
    TIMELY: {"message.timestamp.before.max.ms": "3600000"},
}
KEYLESS = "Compacted topic cannot accept message without key in topic partition compacted-0"

Rejection = tuple[int, int, str | None, list[tuple[int, str]]]
"""Error code, base offset, message, and the records by name."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    running = HeadraceServer(tmp_path_factory.mktemp("rejected-records") / "data").start()
    create_topics(running.bootstrap)
    yield running
    assert running.process is not None
    stop_process(running.process)


def create_topics(bootstrap: str) -> None:
    with Wire(bootstrap) as wire:
        for name, configs in CONFIGS.items():
            assert wire.create_topic(name, configs=configs) == 0
            keyed = bytes(encode([(b"k", 0)]))
            # A leader of Apache Kafka learns of its topic a little later.
            eventually(partial(is_written, wire, name, keyed), f"a leader of {name}")


def is_written(wire: Wire, topic: str, records: bytes) -> bool:
    return wire.produce(topic, records).error_code == 0


def encode(rows: list[tuple[bytes | None, int | None]], codec: Codec = Codec.NONE) -> bytearray:
    """A batch of records with these keys and these distances from now, None for no timestamp."""
    now_ms = round(time.time() * 1000)
    records = [
        Record(0, -1 if distance_ms is None else now_ms + distance_ms, key, b"value") for key, distance_ms in rows
    ]
    return encode_batch(records, codec=codec)


def produce(bootstrap: str, topic: str, *batches: bytes | bytearray, version: int = 9) -> list[Rejection]:
    """What is answered for a batch in each of the topic's partitions."""
    request = m.ProduceRequest(
        acks=-1,
        timeout_ms=5_000,
        topic_data=[
            m.ProduceRequest.TopicProduceData(
                name=topic,
                partition_data=[
                    m.ProduceRequest.PartitionProduceData(index=index, records=bytes(records))
                    for index, records in enumerate(batches)
                ],
            )
        ],
    )
    with Asker(bootstrap) as asker:
        answers = asker.ask(request, version).responses[0].partition_responses
    return [
        (
            answer.error_code,
            answer.base_offset,
            answer.error_message,
            [(each.batch_index, each.batch_index_error_message) for each in answer.record_errors],
        )
        for answer in answers
    ]


ROWS: dict[str, tuple[str, list[tuple[bytes | None, int | None]]]] = {
    "ten of a hundred without a key": (COMPACTED, [(b"k" if at % 10 else None, 0) for at in range(100)]),
    "one without a key": (COMPACTED, [(b"k", 0), (None, 0)]),
    "no key, and out of range": (
        COMPACTED,
        [(b"k", 0), (None, 0), (b"k", 2 * DAY_MS), (None, 2 * DAY_MS), (b"k", -2 * DAY_MS), (b"k", None)],
    ),
    "one ahead of the clock": (TIMELY, [(b"k", 0), (b"k", 2 * DAY_MS)]),
    "one behind the clock": (TIMELY, [(b"k", 0), (None, -2 * DAY_MS), (None, 0)]),
}
CODECS = pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4], ids=["plain", "lz4"])


@CODECS
def test_names_the_records_without_a_key_that_a_compacted_topic_rejects(server: HeadraceServer, codec: Codec) -> None:
    _, rows = ROWS["ten of a hundred without a key"]
    ((code, base_offset, message, named),) = produce(server.bootstrap, COMPACTED, encode(rows, codec))
    assert (code, base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert named == [(at, KEYLESS) for at in range(0, 100, 10)]
    shown = ", ".join(f"RecordError(batchIndex={at}, message='{KEYLESS}')" for at in (0, 10, 20))
    assert message == (
        "One or more records have been rejected due to 10 record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )


@CODECS
def test_names_every_rejected_record_and_its_reason(server: HeadraceServer, codec: Codec) -> None:
    _, rows = ROWS["no key, and out of range"]
    ((code, _, message, named),) = produce(server.bootstrap, COMPACTED, encode(rows, codec))
    assert code == ErrorCode.INVALID_TIMESTAMP
    assert message == "One or more records have been rejected due to invalid timestamp"
    assert [at for at, _ in named] == [1, 2, 3, 4]
    assert [text == KEYLESS for _, text in named] == [True, False, True, False]
    assert "of message with offset 2 is out of range. The timestamp should be within [" in named[1][1]


def test_looks_at_each_timestamp_and_not_the_first_alone(server: HeadraceServer) -> None:
    topic, rows = ROWS["one behind the clock"]
    ((code, _, _, named),) = produce(server.bootstrap, topic, encode(rows))
    assert code == ErrorCode.INVALID_TIMESTAMP
    assert [at for at, _ in named] == [1]


def test_older_producers_get_the_code_alone(server: HeadraceServer) -> None:
    _, rows = ROWS["one without a key"]
    assert produce(server.bootstrap, COMPACTED, encode(rows), version=7) == [(ErrorCode.INVALID_RECORD, -1, None, [])]


def test_damage_behind_a_rejected_record_comes_first(server: HeadraceServer) -> None:
    liar = lying(record_count=3, last_offset_delta=2)
    ((code, _, message, named),) = produce(server.bootstrap, COMPACTED, liar)
    assert (code, named) == (ErrorCode.INVALID_RECORD, [])
    assert message is not None and "record errors in total" not in message


def test_bounds_the_records_that_an_answer_names(server: HeadraceServer) -> None:
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic("bounded", partitions=3, configs={"cleanup.policy": "compact"}) == 0
    keyless = encode([(None, 0)] * (RECORD_ERRORS_PER_PRODUCE_MAX - 100), Codec.LZ4)
    answers = produce(server.bootstrap, "bounded", keyless, keyless, keyless)
    assert [code for code, *_ in answers] == [ErrorCode.INVALID_RECORD] * 3
    assert [len(named) for *_, named in answers] == [RECORD_ERRORS_PER_PRODUCE_MAX - 100, 100, 0]
    assert all(message and "due to 900 record errors" in message for _, _, message, _ in answers)


def test_confluent_kafka_fails_the_bad_records_by_their_own_error(server: HeadraceServer) -> None:
    """librdkafka makes a difference where more than one record is named."""
    codes: dict[bytes, int] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        value = message.value()
        assert isinstance(value, bytes)
        codes[value] = error.code() if error is not None else 0

    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 200})
    for at in range(5):
        producer.produce(COMPACTED, key=None if at in (1, 3) else b"k", value=b"%d" % at, on_delivery=delivered)
    assert producer.flush(30) == 0
    bad, other = KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD
    assert codes == {b"0": other, b"1": bad, b"2": other, b"3": bad, b"4": other}


@pytest.mark.peer
def test_apache_kafka_names_the_same_records_in_the_same_words(server: HeadraceServer, apache_kafka: str) -> None:
    create_topics(apache_kafka)
    for name, (topic, rows) in ROWS.items():
        for codec in (Codec.NONE, Codec.LZ4):
            sent = encode(rows, codec)
            ours, theirs = (produce(each, topic, sent) for each in (server.bootstrap, apache_kafka))
            assert without_range(ours) == without_range(theirs), name


def without_range(answers: list[Rejection]) -> list[Rejection]:
    """The answers less the bounds of the timestamps, which go with the clock."""
    return [
        (code, offset, message, [(at, re.sub(r"\[\d+, \d+\]", "[]", text)) for at, text in named])
        for code, offset, message, named in answers
    ]
