"""EndTxn, asked of headrace and of Apache Kafka."""

import pytest

from headrace.protocol.apis import ApiKey
from tests.differential.conversation import Conversation
from tests.differential.deliberate import Differs
from tests.differential.requests import fetch_request, offset_request
from tests.differential.scenario import scenario
from tests.differential.transactions import Transactions, transactions

pytestmark = pytest.mark.slow  # asks Apache Kafka

API = ApiKey.END_TXN
FENCED = Differs(
    "EndTxn.error_code",
    "a commit of an aborted transaction is fenced, as from KAFKA-20785 on: Kafka Streams gives up otherwise",
    ours="PRODUCER_FENCED",
    theirs="INVALID_TXN_STATE",
    at="committed=True",
)


def _producer(ask: Conversation) -> Transactions:
    return transactions(ask, version=2 if ask.version >= 5 else 1)


@scenario(API)
def test_commits_and_tells_what_is_read(ask: Conversation) -> None:
    _end_and_read(ask, committed=True)


@scenario(API)
def test_aborts_and_tells_what_is_read(ask: Conversation) -> None:
    _end_and_read(ask, committed=False)


def _end_and_read(ask: Conversation, *, committed: bool) -> None:
    topic = ask.topic()
    producer = _producer(ask)
    producer.produce(topic, "a", "b")
    for isolation in (0, 1):
        ask(fetch_request(topic, isolation_level=isolation), 12)
        ask(offset_request(topic, isolation_level=isolation), 9)
    ask(producer.end_request(committed=committed))
    producer.complete()
    ask(producer.describe(), 0)
    for isolation in (0, 1):
        ask(fetch_request(topic, isolation_level=isolation), 12)
        ask(offset_request(topic, isolation_level=isolation), 9)


@scenario(API, differs=[FENCED])
def test_ends_an_empty_transaction(ask: Conversation) -> None:
    for number, committed in enumerate((True, False)):
        producer = transactions(ask, f"x{number}")
        answer = ask(producer.end_request(committed=committed))
        producer.complete()
        ask(producer.describe(), 0)
        ask(producer.end_request(committed=committed))
        if ask.version >= 5 and not committed:
            producer.epoch = answer.producer_epoch
            ask(producer.end_request(committed=False))
            producer.complete()
            ask(producer.end_request(committed=True))
            ask(producer.describe(), 0)


@scenario(API, differs=[FENCED])
def test_ends_a_transaction_twice(ask: Conversation) -> None:
    topic = ask.topic()
    for committed in (True, False):
        for again in (True, False):
            producer = transactions(ask, f"x{committed}{again}", version=2 if ask.version >= 5 else 1)
            producer.produce(topic)
            answer = ask(producer.end_request(committed=committed))
            producer.complete()
            ask(producer.end_request(committed=again))
            producer.complete()
            if ask.version >= 5:
                producer.epoch = answer.producer_epoch
                ask(producer.end_request(committed=again))
                producer.complete()
                ask(producer.describe(), 0)


@scenario(API)
def test_refuses_an_end_by_wrong_producers(ask: Conversation) -> None:
    topic = ask.topic()
    producer = _producer(ask)
    producer.init()
    for is_open in (False, True):
        if is_open:
            producer.produce(topic)
        for committed in (True, False):
            for wrong in (
                producer.with_(producer_id=producer.producer_id + 1_000_000),
                producer.with_(producer_id=-1),
                producer.with_(epoch=producer.epoch - 1),
                producer.with_(epoch=producer.epoch + 1),
                producer.with_(epoch=-1),
                Transactions(ask, ask.name("unknown"), producer.producer_id, producer.epoch),
                Transactions(ask, "", producer.producer_id, producer.epoch),
            ):
                ask(wrong.end_request(committed=committed))
    ask(producer.describe(), 0)


@scenario(API)
def test_starts_again_after_an_end(ask: Conversation) -> None:
    topic = ask.topic(partitions=2)
    producer = _producer(ask)
    for committed in (True, False, True):
        producer.produce(topic, "a", partition=0)
        producer.produce(topic, "b", partition=1)
        answer = ask(producer.end_request(committed=committed))
        producer.complete()
        ask(producer.describe(), 0)
        if ask.version >= 5:
            producer._bump(answer.producer_id, answer.producer_epoch)
    ask(fetch_request(topic), 12)
    ask(fetch_request(topic, 3), 12)
    ask(fetch_request(topic, partition=1), 12)


@scenario(API)
def test_an_old_producer_ends_with_the_new_request_and_back(ask: Conversation) -> None:
    """A transaction begun by one kind of client and ended by the other."""
    topic = ask.topic()
    producer = transactions(ask, version=1 if ask.version >= 5 else 2)
    producer.produce(topic)
    ask(producer.end_request(committed=True))
    producer.complete()
    ask(producer.describe(), 0)


@scenario(API, differs=[FENCED])
def test_aborts_a_transaction_that_takes_too_long(ask: Conversation) -> None:
    topic = ask.topic()
    producer = transactions(ask, version=2 if ask.version >= 5 else 1, timeout_ms=200)
    producer.produce(topic)
    ask(offset_request(topic), 9)
    ask.until(lambda found: found.topics[0].partitions[0].offset == 2, offset_request(topic), 9)
    producer.complete()
    ask(producer.describe(), 0)
    ask(fetch_request(topic), 12)
    for committed in (True, False):
        ask(producer.end_request(committed=committed))
    request = producer.init_request(known=True)
    answer = ask(request, 4)
    producer._bump(answer.producer_id, answer.producer_epoch)
    producer.produce(topic)
    ask(producer.end_request(committed=True))
