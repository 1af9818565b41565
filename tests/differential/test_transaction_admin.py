"""WriteTxnMarkers, DescribeTransactions, ListTransactions and DescribeProducers, asked of both."""

from typing import Any

import pytest

from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from tests.differential.conversation import Conversation, batch
from tests.differential.deliberate import Differs
from tests.differential.requests import fetch_request, offset_request
from tests.differential.scenario import scenario
from tests.differential.transactions import Transactions, transactions

pytestmark = pytest.mark.slow  # asks Apache Kafka

MARKERS, DESCRIBE, LIST = ApiKey.WRITE_TXN_MARKERS, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS
PRODUCERS = ApiKey.DESCRIBE_PRODUCERS
Marker = m.WriteTxnMarkersRequest.WritableTxnMarker
Topic = m.WriteTxnMarkersRequest.WritableTxnMarkerTopic


def _marker(producer: Transactions, *partitions: tuple[str, int], **how: Any) -> m.WriteTxnMarkersRequest:
    topics = [Topic(name=name, partition_indexes=[number]) for name, number in partitions]
    values = {"transaction_result": False, "coordinator_epoch": 0, **how}
    marker = Marker(producer_id=producer.producer_id, producer_epoch=producer.epoch, topics=topics, **values)
    return m.WriteTxnMarkersRequest(markers=[marker])


@scenario(MARKERS)
def test_writes_markers_that_a_client_asks_for(ask: Conversation) -> None:
    topic = ask.topic(partitions=2)
    producer = transactions(ask, version=1)
    producer.produce(topic)
    ask(_marker(producer, (topic, 0)))
    ask(fetch_request(topic), 12)
    ask(_marker(producer, (topic, 0)))
    ask(_marker(producer, (topic, 1)))
    ask(_marker(producer, (topic, 7), (ask.name("missing"), 0)))
    ask(offset_request(topic), 9)


@scenario(MARKERS)
def test_checks_the_epochs_of_markers(ask: Conversation) -> None:
    topic = ask.topic()
    producer = transactions(ask, version=1).init()
    producer.produce(topic)
    ask(_marker(producer.with_(epoch=producer.epoch - 1), (topic, 0)))
    ask(_marker(producer, (topic, 0), coordinator_epoch=5))
    ask(_marker(producer, (topic, 0), coordinator_epoch=4))
    ask(_marker(producer.with_(epoch=producer.epoch + 2), (topic, 0), coordinator_epoch=-1))
    ask(m.WriteTxnMarkersRequest(markers=[]))
    ask(offset_request(topic), 9)


@scenario(MARKERS, range(2, 3))
def test_checks_the_epoch_of_markers_of_version_2(ask: Conversation) -> None:
    topic = ask.topic()
    producer = transactions(ask)
    producer.produce(topic)
    ask(_marker(producer, (topic, 0), transaction_version=2))
    ask(_marker(producer.with_(epoch=producer.epoch + 1), (topic, 0), transaction_version=2))
    ask(_marker(producer.with_(epoch=producer.epoch + 1), (topic, 0), transaction_version=2))
    ask(offset_request(topic), 9)


@scenario(DESCRIBE)
def test_describes_transactions_in_every_state(ask: Conversation) -> None:
    topic = ask.topic(partitions=2)
    for version in (1, 2):
        producer = transactions(ask, f"x{version}", version, timeout_ms=45_000)
        ask(producer.describe())
        producer.produce(topic, partition=1)
        ask(producer.describe())
        producer.produce(topic, partition=0)
        ask(producer.describe())
        producer.commit()
        ask(producer.describe())
        producer.produce(topic)
        producer.abort()
        ask(producer.describe())


@scenario(
    DESCRIBE,
    differs=[
        Differs(
            "DescribeTransactions.transaction_states[]",
            "headrace describes an id once: an id with thousands of partitions could be repeated thousands of times",
            ours="(absent)",
            at="transactional_ids=['x', 'x']",
        )
    ],
)
def test_describes_unknown_ids(ask: Conversation) -> None:
    known = transactions(ask)
    ask(m.DescribeTransactionsRequest(transactional_ids=[]))
    ask(m.DescribeTransactionsRequest(transactional_ids=[ask.name("unknown")]))
    ask(m.DescribeTransactionsRequest(transactional_ids=[""]))
    ask(m.DescribeTransactionsRequest(transactional_ids=[known.transactional_id, ask.name("unknown")]))
    ask(m.DescribeTransactionsRequest(transactional_ids=[known.transactional_id] * 2))


def _listed(ask: Conversation, **filters: Any) -> None:
    """Record the scenario's own transactions."""
    request = m.ListTransactionsRequest(**{"state_filters": [], "producer_id_filters": [], **filters})
    answer = ask.quietly(request)
    answer.transaction_states = [each for each in answer.transaction_states if ask.run in each.transactional_id]
    ask.record(request, ask.version, answer)


def _three(ask: Conversation) -> list[Transactions]:
    topic = ask.topic()
    empty, open_, done = (transactions(ask, text) for text in ("empty", "open", "done"))
    open_.produce(topic)
    done.produce(topic)
    done.commit()
    return [empty, open_, done]


@scenario(LIST)
def test_lists_transactions_by_state_and_producer(ask: Conversation) -> None:
    empty, open_, _ = _three(ask)
    _listed(ask)
    for state in ("Empty", "Ongoing", "CompleteCommit", "PrepareCommit", "Dead", "Unheard", "ongoing", ""):
        _listed(ask, state_filters=[state])
    _listed(ask, state_filters=["Ongoing", "Unheard", "Empty"])
    _listed(ask, producer_id_filters=[empty.producer_id])
    _listed(ask, producer_id_filters=[empty.producer_id, open_.producer_id, -1])
    _listed(ask, producer_id_filters=[open_.producer_id + 1_000_000])
    _listed(ask, producer_id_filters=[empty.producer_id], state_filters=["Ongoing"])


@scenario(LIST, range(1, 3))
def test_lists_transactions_by_duration(ask: Conversation) -> None:
    _three(ask)
    for duration in (-1, 0, -2, 3_600_000):
        _listed(ask, duration_filter=duration)


@scenario(LIST, range(2, 3))
def test_lists_transactions_by_pattern(ask: Conversation) -> None:
    _three(ask)
    for pattern in (None, "", "open.*", "open", ".*", "(", f"done-{ask.run}", "^e", ".*" + ask.run):
        _listed(ask, transactional_id_pattern=pattern)


def _producers(topic: str, *partitions: int) -> m.DescribeProducersRequest:
    wanted = m.DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=list(partitions))
    return m.DescribeProducersRequest(topics=[wanted])


@scenario(PRODUCERS)
def test_describes_producers(ask: Conversation) -> None:
    topic = ask.topic(partitions=2)
    ask(_producers(topic, 0))
    for version in (1, 2):
        producer = transactions(ask, f"x{version}", version)
        producer.produce(topic, "a", "b")
        ask(_producers(topic, 0, 1))
        producer.commit()
        ask(_producers(topic, 0))
        producer.produce(topic)
        producer.abort()
        ask(_producers(topic, 0))


@scenario(PRODUCERS)
def test_describes_idempotent_producers(ask: Conversation) -> None:
    topic = ask.topic()
    given = ask.quietly(m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4)
    ask.produce(topic, batch(("a", "b"), producer_id=given.producer_id, producer_epoch=0, base_sequence=0))
    ask(_producers(topic, 0))
    ask.produce(topic, batch(producer_id=given.producer_id, producer_epoch=0, base_sequence=2))
    ask(_producers(topic, 0))


@scenario(PRODUCERS)
def test_describes_producers_of_unknown_partitions(ask: Conversation) -> None:
    topic = ask.topic()
    ask(_producers(topic, 7))
    ask(_producers(topic, -1))
    ask(_producers(topic))
    ask(_producers(ask.name("missing"), 0))
    ask(_producers("", 0))
    ask(_producers("not legal", 0))
    ask(m.DescribeProducersRequest(topics=[]))
