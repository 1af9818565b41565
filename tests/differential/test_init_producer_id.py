"""InitProducerId, asked of headrace and of Apache Kafka.

Not asked: version 6, which Apache Kafka 4.3 serves only with `unstable.api.versions.enable`.
"""

import pytest

from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from tests.differential.conversation import Conversation
from tests.differential.scenario import scenario
from tests.differential.transactions import Transactions, transactions

pytestmark = pytest.mark.slow  # asks Apache Kafka

API = ApiKey.INIT_PRODUCER_ID
KNOWN = range(3, 6)
"""Versions in which a producer names its id and epoch."""


@scenario(API)
def test_gives_idempotent_producers_ids(ask: Conversation) -> None:
    for timeout in (60_000, 0, -1, 2**31 - 1):
        ask(m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=timeout))


@scenario(API)
def test_refuses_an_empty_transactional_id(ask: Conversation) -> None:
    ask(m.InitProducerIdRequest(transactional_id="", transaction_timeout_ms=60_000))


@scenario(API, KNOWN)
def test_gives_an_idempotent_producer_that_names_its_id_a_new_one(ask: Conversation) -> None:
    first = ask(m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1))
    for producer_id, epoch in ((first.producer_id, 0), (first.producer_id, 5), (first.producer_id, -1), (-1, 3)):
        ask(
            m.InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=1, producer_id=producer_id, producer_epoch=epoch
            )
        )


@scenario(API)
def test_initialises_a_transactional_id_and_bumps_its_epoch(ask: Conversation) -> None:
    producer = Transactions(ask, ask.name())
    for _ in range(3):
        ask(producer.init_request())


@scenario(API)
def test_checks_the_transaction_timeout(ask: Conversation) -> None:
    for number, timeout in enumerate((0, -1, 1, 900_000, 900_001, 2**31 - 1, -(2**31))):
        ask(Transactions(ask, ask.name(f"x{number}")).init_request(timeout_ms=timeout))


@scenario(API)
def test_takes_a_new_timeout_at_each_initialisation(ask: Conversation) -> None:
    producer = Transactions(ask, ask.name())
    for timeout in (10_000, 20_000):
        ask(producer.init_request(timeout_ms=timeout))
        ask(producer.describe(), 0)


@scenario(API, KNOWN)
def test_bumps_the_epoch_of_a_producer_that_names_its_own(ask: Conversation) -> None:
    producer = transactions(ask)
    answer = ask(producer.init_request(known=True))
    ask(producer.init_request(known=True))  # again with the old epoch: the answer to the first may be lost
    producer.epoch = answer.producer_epoch
    ask(producer.init_request(known=True))
    producer.epoch -= 1
    ask(producer.init_request(known=True))


@scenario(API, KNOWN)
def test_fences_an_old_epoch(ask: Conversation) -> None:
    old = transactions(ask)
    new = transactions(ask)
    assert (old.producer_id, old.epoch + 1) == (new.producer_id, new.epoch)
    new.init()
    ask(old.init_request(known=True))
    ask(new.init_request(known=True))


@scenario(API, KNOWN)
def test_refuses_a_wrong_producer_id_or_epoch(ask: Conversation) -> None:
    producer = transactions(ask)
    for changes in ({"producer_id": producer.producer_id + 1_000_000}, {"epoch": 7}, {"epoch": 32_767}, {"epoch": -1}):
        ask(producer.with_(**changes).init_request(known=True))
    ask(producer.with_(producer_id=-1).init_request(known=True))
    ask(producer.init_request())


@scenario(API, KNOWN)
def test_gives_an_unknown_transactional_id_with_a_producer_id_a_new_one(ask: Conversation) -> None:
    other = transactions(ask)
    unknown = Transactions(ask, ask.name("unknown"), other.producer_id, 3)
    ask(unknown.init_request(known=True))


@scenario(API)
def test_aborts_the_open_transaction_of_an_earlier_producer_of_version_1(ask: Conversation) -> None:
    _abort_by_initialising(ask, 1)


@scenario(API)
def test_aborts_the_open_transaction_of_an_earlier_producer_of_version_2(ask: Conversation) -> None:
    _abort_by_initialising(ask, 2)


def _abort_by_initialising(ask: Conversation, version: int) -> None:
    topic = ask.topic()
    producer = transactions(ask, version=version)
    producer.produce(topic)
    ask(producer.init_request())
    answer = ask.until(lambda found: found.error_code != 51, producer.init_request())
    ask(producer.end_request(committed=True), 3 + version)
    ask(producer.describe(), 0)
    newest = producer.with_(epoch=answer.producer_epoch)
    ask(newest.end_request(committed=False), 3 + version)


@scenario(API, KNOWN)
def test_aborts_its_own_open_transaction(ask: Conversation) -> None:
    topic = ask.topic()
    producer = transactions(ask, version=1)
    producer.produce(topic)
    ask(producer.init_request(known=True))
    ask.until(lambda found: found.error_code != 51, producer.init_request(known=True))
    ask(producer.describe(), 0)


@scenario(API, KNOWN)
def test_initialises_after_a_commit(ask: Conversation) -> None:
    topic = ask.topic()
    for version in (1, 2):
        producer = transactions(ask, f"x{version}", version)
        producer.produce(topic)
        producer.commit()
        ask(producer.init_request(known=True))
        ask(producer.init_request())
