"""Produce with a transactional id, asked of headrace and of Apache Kafka."""

import pytest

from headrace.protocol.apis import ApiKey
from tests.differential.conversation import Conversation, batch, produce_request
from tests.differential.requests import fetch_request, offset_request
from tests.differential.scenario import scenario
from tests.differential.transactions import Transactions, transactions

pytestmark = pytest.mark.slow  # asks Apache Kafka

API = ApiKey.PRODUCE
TRANSACTIONAL = range(9, 13)
"""Version 13 names topics by id, and is the same otherwise; the old ones differ in their bytes alone."""


@scenario(API, TRANSACTIONAL, alone=True)
def test_produces_without_adding_the_partition(ask: Conversation) -> None:
    topic = ask.topic()
    producer = transactions(ask, version=1)
    ask(producer.produce_request(topic))
    ask(producer.describe(), 0)
    ask(offset_request(topic, isolation_level=0), 9)


@scenario(API, TRANSACTIONAL, alone=True)
def test_produces_after_adding_the_partition(ask: Conversation) -> None:
    topic = ask.topic(partitions=2)
    producer = transactions(ask, version=1)
    producer.add((topic, 0))
    ask(producer.produce_request(topic))
    ask(producer.produce_request(topic))
    ask(producer.produce_request(topic, partition=1))
    ask(producer.describe(), 0)


@scenario(API, TRANSACTIONAL, alone=True)
def test_refuses_batches_of_wrong_producers(ask: Conversation) -> None:
    topic = ask.topic(partitions=2)
    producer = transactions(ask, version=1).init()
    producer.add((topic, 0))
    for is_open in (False, True):
        if is_open:
            ask(producer.produce_request(topic))
        for wrong in (
            producer.with_(producer_id=producer.producer_id + 1_000_000),
            producer.with_(epoch=producer.epoch - 1),
            producer.with_(epoch=producer.epoch + 1),
            Transactions(ask, ask.name("unknown"), producer.producer_id, producer.epoch),
        ):
            wrong.sequences = {(topic, 0): 1} if is_open else {}
            ask(wrong.produce_request(topic))
    ask(offset_request(topic, isolation_level=0), 9)


@scenario(API, TRANSACTIONAL, alone=True)
def test_refuses_an_old_epoch_after_the_id_was_initialised_again(ask: Conversation) -> None:
    topic = ask.topic()
    old = transactions(ask, version=1)
    old.produce(topic)
    old.commit()
    old.with_().init()
    ask(old.produce_request(topic))


@scenario(API, TRANSACTIONAL, alone=True)
def test_mixes_transactional_and_other_batches(ask: Conversation) -> None:
    topic = ask.topic(partitions=4)
    producer = transactions(ask, version=1)
    own = producer.transactional_id
    plain = producer.batch(is_transactional=False)
    ask(produce_request(topic, plain, transactional_id=own))
    ask(produce_request(topic, producer.batch(), partition=1))
    ask(produce_request(topic, producer.batch(), partition=1, transactional_id=""))
    ask(produce_request(topic, batch(), partition=2, transactional_id=own))
    producer.add((topic, 3))
    ask(producer.produce_request(topic, partition=3))
    ask(producer.produce_request(topic, partition=3))
    later = producer.batch(sequence=2, is_transactional=False)
    ask(produce_request(topic, later, partition=3, transactional_id=own))
    ask(produce_request(topic, later, partition=3))
    ask(produce_request(topic, batch(), partition=3))
    ask(offset_request(topic), 9)


@scenario(API, TRANSACTIONAL, alone=True)
def test_refuses_a_batch_after_the_end(ask: Conversation) -> None:
    topic = ask.topic()
    for version in (1, 2):
        producer = transactions(ask, f"x{version}", version=version)
        producer.produce(topic)
        old = producer.with_()
        producer.commit()
        ask(old.produce_request(topic))
        ask(old.describe(), 0)
        ask(producer.produce_request(topic))
        ask(producer.describe(), 0)


@scenario(API, TRANSACTIONAL, alone=True)
def test_checks_sequences_in_a_transaction(ask: Conversation) -> None:
    topic = ask.topic()
    producer = transactions(ask, version=1)
    producer.add((topic, 0))
    producer.sequences = {(topic, 0): 5}
    ask(producer.produce_request(topic))
    producer.sequences = {}
    ask(producer.produce_request(topic))
    producer.sequences = {}
    ask(producer.produce_request(topic))
    producer.sequences = {(topic, 0): 3}
    ask(producer.produce_request(topic))


@scenario(API, TRANSACTIONAL, alone=True)
def test_produces_to_unknown_partitions_in_a_transaction(ask: Conversation) -> None:
    topic = ask.topic()
    producer = transactions(ask, version=1)
    for partition in (7, -1):
        ask(producer.produce_request(topic, partition=partition))
    ask(producer.produce_request(ask.name("missing")))
    ask(producer.describe(), 0)


@scenario(API, TRANSACTIONAL, alone=True)
def test_requires_acks_of_all_replicas_in_a_transaction(ask: Conversation) -> None:
    topic = ask.topic()
    producer = transactions(ask, version=1)
    producer.add((topic, 0))
    request = producer.produce_request(topic)
    request.acks = 1
    ask(request)


@scenario(API, TRANSACTIONAL, alone=True)
def test_refuses_a_control_batch_of_a_client(ask: Conversation) -> None:
    topic = ask.topic()
    producer = transactions(ask, version=1)
    producer.add((topic, 0))
    marker = batch(
        ("a",), producer_id=producer.producer_id, producer_epoch=producer.epoch, is_transactional=True, is_control=True
    )
    ask(produce_request(topic, marker, transactional_id=producer.transactional_id))


@scenario(API, range(12, 13))
def test_a_produce_opens_the_next_transaction(ask: Conversation) -> None:
    topic = ask.topic()
    producer = transactions(ask)
    for committed in (True, False, True):
        ask(producer.produce_request(topic))
        ask(producer.describe(), 0)
        producer.end(committed=committed)
        producer.complete()  # Apache Kafka writes the marker after it has answered, headrace may do so before
        ask(offset_request(topic), 9)
    ask(fetch_request(topic), 12)
