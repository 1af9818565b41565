"""AddPartitionsToTxn, asked of headrace and of Apache Kafka.

Not asked: a batch without transactions, which Apache Kafka never answers.
"""

from typing import Any

import pytest

from headrace.protocol.apis import ApiKey
from tests.differential.conversation import Conversation
from tests.differential.scenario import scenario
from tests.differential.transactions import Transactions, transactions

pytestmark = pytest.mark.slow  # asks Apache Kafka

API = ApiKey.ADD_PARTITIONS_TO_TXN
CLIENTS = range(4)
BROKERS = range(4, 6)


def _wrong_producers(producer: Transactions) -> list[Transactions]:
    """A stranger's id, old and future epochs, an unknown transactional id, an empty one."""
    ask = producer.ask
    return [
        producer.with_(producer_id=producer.producer_id + 1_000_000),
        producer.with_(producer_id=-1),
        producer.with_(epoch=producer.epoch - 1),
        producer.with_(epoch=producer.epoch + 1),
        Transactions(ask, ask.name("unknown"), producer.producer_id, producer.epoch),
        Transactions(ask, "", producer.producer_id, producer.epoch),
    ]


@scenario(API, CLIENTS)
def test_adds_partitions_once_and_again(ask: Conversation) -> None:
    topic, other = ask.topic(partitions=3), ask.topic("b")
    producer = transactions(ask)
    ask(producer.add_request((topic, 0)))
    ask(producer.describe(), 0)
    ask(producer.add_request((topic, 0), (topic, 2), (other, 0)))
    ask(producer.add_request((topic, 0)))
    ask(producer.describe(), 0)


@scenario(API, CLIENTS)
def test_adds_nothing_if_one_partition_is_unknown(ask: Conversation) -> None:
    topic = ask.topic()
    producer = transactions(ask)
    ask(producer.add_request((topic, 0), (ask.name("missing"), 0)))
    ask(producer.add_request((topic, 0), (topic, 1)))
    ask(producer.add_request((topic, -1)))
    ask(producer.add_request(("not legal", 0)))
    ask(producer.add_request(("", 0)))
    ask(producer.describe(), 0)


@scenario(API, CLIENTS)
def test_adds_no_partitions(ask: Conversation) -> None:
    topic = ask.topic()
    producer = transactions(ask)
    ask(producer.add_request())
    ask(producer.describe(), 0)
    request = producer.add_request((topic, 0))
    request.v3_and_below_topics[0].partitions = []
    ask(request)
    request.v3_and_below_topics[0].partitions = [0, 0]
    ask(request)


@scenario(API, CLIENTS)
def test_refuses_wrong_producers(ask: Conversation) -> None:
    topic = ask.topic()
    producer = transactions(ask)
    producer.init()
    for wrong in _wrong_producers(producer):
        ask(wrong.add_request((topic, 0)))
    ask(producer.describe(), 0)


@scenario(API, CLIENTS)
def test_refuses_wrong_producers_of_an_open_transaction(ask: Conversation) -> None:
    topic = ask.topic(partitions=2)
    producer = transactions(ask)
    producer.init()
    producer.add((topic, 0))
    for wrong in _wrong_producers(producer):
        ask(wrong.add_request((topic, 0)))
        ask(wrong.add_request((topic, 1)))


@scenario(API, CLIENTS)
def test_adds_partitions_to_internal_topics(ask: Conversation) -> None:
    producer = transactions(ask)
    ask(producer.add_request(("__consumer_offsets", 0)))
    ask(producer.add_request(("__transaction_state", 0)))


@scenario(API, BROKERS)
def test_adds_partitions_of_several_transactions(ask: Conversation) -> None:
    topic = ask.topic(partitions=2)
    first, second = transactions(ask, "x1"), transactions(ask, "x2")
    request = first.batched_add_request((topic, 0))
    request.transactions += second.batched_add_request((topic, 1), (ask.name("missing"), 0)).transactions
    ask(request)
    ask(first.describe(), 0)


@scenario(API, BROKERS)
def test_verifies_partitions(ask: Conversation) -> None:
    topic = ask.topic(partitions=2)
    producer = transactions(ask, version=1)
    ask(producer.batched_add_request((topic, 0), verify_only=True))
    producer.add((topic, 0))
    ask(producer.batched_add_request((topic, 0), verify_only=True))
    ask(producer.batched_add_request((topic, 0), (topic, 1), verify_only=True))
    ask(producer.batched_add_request((ask.name("missing"), 0), verify_only=True))
    for wrong in _wrong_producers(producer):
        ask(wrong.batched_add_request((topic, 0), verify_only=True))
    producer.commit()
    ask(producer.batched_add_request((topic, 0), verify_only=True))


@scenario(API, BROKERS)
def test_adds_partitions_in_batches(ask: Conversation) -> None:
    topic = ask.topic(partitions=2)
    producer = transactions(ask)
    ask(producer.batched_add_request())
    ask(producer.batched_add_request((topic, 0)))
    ask(producer.describe(), 0)
    for wrong in _wrong_producers(producer):
        ask(wrong.batched_add_request((topic, 0)))
        ask(wrong.batched_add_request((topic, 1)))
    twice: Any = producer.batched_add_request((topic, 0))
    twice.transactions *= 2
    ask(twice)
