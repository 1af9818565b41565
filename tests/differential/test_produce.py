"""Produce without transactions, asked of headrace and of Apache Kafka.

Not asked: null records, which Apache Kafka never answers.
"""

from typing import Any

import pytest

from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from tests.differential.conversation import Conversation, batch, produce_request
from tests.differential.deliberate import Differs
from tests.differential.scenario import scenario

pytestmark = pytest.mark.slow  # asks Apache Kafka

API = ApiKey.PRODUCE
BATCHES = range(3, 14)
"""Versions of record batches; older ones carry message sets."""


def _request(ask: Conversation, topic: str, records: bytes | None, **more: Any) -> m.ProduceRequest:
    """By name, or by id from version 13 on."""
    return produce_request(topic if ask.version < 13 else ask.topic_id(topic), records, **more)


@scenario(API, BATCHES)
def test_appends_batches(ask: Conversation) -> None:
    topic = ask.topic(partitions=2)
    ask(_request(ask, topic, batch(("a", "b"))))
    ask(_request(ask, topic, batch(("a",))))
    ask(_request(ask, topic, batch(("a",)), partition=1, acks=1))


@scenario(API, BATCHES)
def test_produces_to_unknown_partitions(ask: Conversation) -> None:
    topic = ask.topic()
    for partition in (1, -1):
        ask(_request(ask, topic, batch(), partition=partition))
    if ask.version < 13:
        for name in (ask.name("missing"), "not legal", ""):
            ask(_request(ask, name, batch()))
    else:
        for topic_id in (b"nobody has this.", bytes(16)):
            ask(produce_request(topic_id, batch()))


@scenario(API, BATCHES)
def test_refuses_other_acks(ask: Conversation) -> None:
    topic = ask.topic()
    for acks in (2, -2, 7):
        ask(_request(ask, topic, batch(), acks=acks))


@scenario(
    API,
    BATCHES,
    differs=[
        Differs(
            f"Produce.responses[].partition_responses[].{field}",
            "bytes after the batch are refused, where Apache Kafka drops them silently",
            ours=ours,
        )
        for field, ours in (("error_code", "INVALID_RECORD"), ("base_offset", "-1"))
    ],
)
def test_refuses_records_that_are_no_batch(ask: Conversation) -> None:
    topic = ask.topic()
    whole = batch(("a", "b"))
    flipped = whole[:-1] + bytes([whole[-1] ^ 1])
    for records in (
        flipped,
        whole[:-1],
        whole[:30],
        whole[:10],
        whole + whole,
        whole + b"\0",
        whole[:16] + b"\x03" + whole[17:],
    ):
        ask(_request(ask, topic, records))


@scenario(API, BATCHES)
def test_refuses_empty_records(ask: Conversation) -> None:
    ask(_request(ask, ask.topic(), b""))


@scenario(API, BATCHES)
def test_refuses_a_batch_that_is_too_large(ask: Conversation) -> None:
    topic = ask.topic(max_message_bytes="200")
    for size in (10, 100, 200, 500):
        ask(_request(ask, topic, batch(("a" * size,))))


@scenario(API, BATCHES)
def test_refuses_records_without_keys_in_a_compacted_topic(ask: Conversation) -> None:
    topic = ask.topic(cleanup_policy="compact")
    ask(_request(ask, topic, batch(("a", "b"))))


@scenario(API, BATCHES)
def test_sets_the_time_of_the_append(ask: Conversation) -> None:
    topic = ask.topic(message_timestamp_type="LogAppendTime")
    ask(_request(ask, topic, batch()))


@scenario(API, BATCHES)
def test_refuses_times_far_from_now(ask: Conversation) -> None:
    topic = ask.topic(message_timestamp_before_max_ms="1000")
    ask(_request(ask, topic, batch()))


@scenario(API, BATCHES)
def test_checks_sequences(ask: Conversation) -> None:
    topic = ask.topic()
    given = ask.quietly(m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4).producer_id
    for epoch, sequence in ((0, 0), (0, 1), (0, 1), (0, 5), (0, 0), (0, -1), (1, 5), (1, 0), (0, 2), (1, 1)):
        records = batch(producer_id=given, producer_epoch=epoch, base_sequence=sequence)
        ask(_request(ask, topic, records))


@scenario(API, BATCHES)
def test_takes_any_producer_and_sequence_first(ask: Conversation) -> None:
    topic = ask.topic(partitions=2)
    ask(_request(ask, topic, batch(producer_id=2**60, producer_epoch=7, base_sequence=42)))
    ask(_request(ask, topic, batch(producer_id=2**60, producer_epoch=7, base_sequence=43)))
    ask(_request(ask, topic, batch(producer_id=5, producer_epoch=-1, base_sequence=0), partition=1))
    ask(_request(ask, topic, batch(producer_id=-1, producer_epoch=3, base_sequence=3), partition=1))


@scenario(API, BATCHES)
def test_answers_each_partition(ask: Conversation) -> None:
    topic = ask.topic(partitions=2)
    request = _request(ask, topic, batch())
    Part = m.ProduceRequest.PartitionProduceData
    request.topic_data[0].partition_data += [Part(index=7, records=batch()), Part(index=1, records=batch())]
    ask(request)


@scenario(
    API,
    BATCHES,
    differs=[Differs("Produce.responses[]", "both batches are appended and answered; Apache Kafka loses one silently")],
)
def test_takes_no_partition_twice(ask: Conversation) -> None:
    topic = ask.topic()
    request = _request(ask, topic, batch())
    request.topic_data[0].partition_data *= 2
    ask(request)
    request = _request(ask, topic, batch())
    request.topic_data *= 2
    ask(request)


@scenario(
    API,
    BATCHES,
    differs=[Differs("Produce.responses[]", "a topic without partitions is answered; Apache Kafka leaves it out")],
)
def test_produces_nothing(ask: Conversation) -> None:
    topic = ask.topic()
    ask(m.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[]))
    request = _request(ask, topic, None)
    request.topic_data[0].partition_data = []
    ask(request)


@scenario(API, BATCHES)
def test_produces_to_internal_topics(ask: Conversation) -> None:
    ask(_request(ask, "__consumer_offsets", batch()))


@scenario(API, BATCHES)
def test_requires_enough_replicas(ask: Conversation) -> None:
    topic = ask.topic(min_insync_replicas="2")
    ask(_request(ask, topic, batch(), acks=-1))
    ask(_request(ask, topic, batch(), acks=1))


@scenario(API, BATCHES)
def test_produces_with_other_timeouts(ask: Conversation) -> None:
    topic = ask.topic()
    for timeout in (0, -1, 2**31 - 1):
        request = _request(ask, topic, batch())
        request.timeout_ms = timeout
        ask(request)
