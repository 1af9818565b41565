"""The producer's transactions and read_committed consumers, with headrace and with Apache Kafka."""

import threading
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import pairwise
from unittest import mock

import pytest

from headrace.client.consumer.consumer import Consumer, ConsumerSettings
from headrace.client.core.group_metadata import GroupMetadata
from headrace.client.core.timing import Deadline
from headrace.client.operations.admin import Admin, NewTopic
from headrace.client.producer.producer import Producer, ProducerSettings
from headrace.client.producer.producer_identity import ProducerIdentity
from headrace.client.producer.transactions import TransactionError, TransactionState
from headrace.errors import ErrorCode, InvalidConfig, KafkaError
from headrace.types import TopicPartition
from tests.eventually import eventually


@pytest.fixture
def topic(admin: Admin) -> str:
    """A topic of two partitions."""
    name = f"transactions-{uuid.uuid4()}"
    admin.create_topics([NewTopic(name, 2)])
    return name


@contextmanager
def transactional(broker: str, name: str | None = None, *, linger_ms: float = 5) -> Iterator[Producer]:
    """A producer that is ready for its first transaction."""
    chosen = ProducerSettings(transactional_id=name or f"id-{uuid.uuid4()}", linger_ms=linger_ms)
    with Producer(broker, chosen) as producer:
        producer.init_transactions()
        yield producer


def values(broker: str, topic: str, *, isolation: str = "read_committed", group: str | None = None) -> list[bytes]:
    """The values of a topic, up to its end as this isolation sees it, by partition."""
    found: list[bytes] = []
    with Consumer(broker, ConsumerSettings(isolation_level=isolation, group_id=group)) as consumer:
        partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        while records := consumer.poll(300):
            found += [record.value or b"" for record in sorted(records, key=lambda each: each.partition)]
    return found


@pytest.mark.slow
def test_a_committed_transaction_is_seen_and_an_aborted_one_is_not(broker: str, topic: str) -> None:
    with transactional(broker) as producer:
        producer.begin()
        producer.send(topic, b"committed", partition=0)
        producer.send(topic, b"committed, too", partition=1)
        producer.commit()
        producer.begin()
        producer.send(topic, b"aborted", partition=0)
        producer.flush()
        producer.abort()
        producer.begin()
        producer.send(topic, b"open", partition=1)
        producer.flush()
        assert sorted(values(broker, topic)) == [b"committed", b"committed, too"]
        assert b"aborted" in values(broker, topic, isolation="read_uncommitted")
        producer.commit()
        assert sorted(values(broker, topic)) == [b"committed", b"committed, too", b"open"]


def test_the_context_manager_commits_and_aborts_after_an_exception(broker: str, topic: str) -> None:
    with transactional(broker) as producer:
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send(topic, b"aborted", partition=0)
            producer.flush()
            raise ZeroDivisionError
        with producer.transaction():
            producer.send(topic, b"committed", partition=0)
        with producer.transaction():
            pass  # a transaction without records
        with pytest.raises(TransactionError), producer.transaction():
            producer.send(topic, b"aborted", partition=0)
            producer.abort()
        with producer.transaction():
            producer.send(topic, b"committed, too", partition=0)
    assert values(broker, topic) == [b"committed", b"committed, too"]


def test_records_that_wait_when_a_transaction_is_aborted_are_not_sent(broker: str, topic: str) -> None:
    with transactional(broker, linger_ms=60_000) as producer:
        producer.begin()
        delivery = producer.send(topic, b"never sent", partition=0)
        producer.abort()
        assert isinstance(delivery.exception(), TransactionError)
        with producer.transaction():
            producer.send(topic, b"sent", partition=0)
    assert values(broker, topic, isolation="read_uncommitted") == [b"sent"]


@pytest.mark.slow
def test_a_partition_does_not_join_a_transaction_after_its_end(broker: str, topic: str) -> None:
    """It would begin another one. Where transaction.version is 0 in the cluster, InitProducerId would then fence us."""
    joining, ended, joined = threading.Event(), threading.Event(), threading.Event()
    with transactional(broker, linger_ms=0) as producer:
        transactions = producer._transactions
        assert transactions is not None
        transactions.version = 0
        add, initialize = transactions.add, transactions._initialized

        def add_late(partitions: Collection[TopicPartition], deadline: Deadline) -> bool:
            joining.set()
            assert ended.wait(30)
            try:
                return add(partitions, deadline)
            finally:
                joined.set()

        def initialize_after(known: ProducerIdentity, deadline: Deadline) -> ProducerIdentity:
            ended.set()
            assert joined.wait(30)
            return initialize(known, deadline)

        producer.begin()
        producer.send(topic, b"aborted", partition=0)
        producer.flush()
        with (
            mock.patch.object(transactions, "add", add_late),
            mock.patch.object(transactions, "_initialized", initialize_after),
            mock.patch.object(transactions, "_add_partitions", wraps=transactions._add_partitions) as asked,
        ):
            producer.send(topic, b"never sent", partition=1)
            assert joining.wait(30)
            producer.abort()
            assert not asked.called
        with producer.transaction():
            producer.send(topic, b"committed", partition=0)
    assert values(broker, topic) == [b"committed"]
    assert values(broker, topic, isolation="read_uncommitted") == [b"aborted", b"committed"]


def test_the_transaction_version_may_change_between_transactions(broker: str, topic: str) -> None:
    with transactional(broker) as producer:
        transactions = producer._transactions
        assert transactions is not None and transactions.version == 2
        epochs = []
        for number, version in enumerate((2, 0, 0, 2, 0, 2)):
            transactions.version = version
            with producer.transaction():
                producer.send(topic, b"%d" % number, partition=0)
            assert transactions.version == 2  # which the coordinator says
            epochs.append(transactions.identity.epoch)
    # Level 2 bumps the epoch at the end of each transaction, the client before the first one of level 2.
    assert [later - earlier for earlier, later in pairwise(epochs)] == [1, 1, 1, 1, 1]
    assert values(broker, topic) == [b"%d" % number for number in range(6)]


def test_offsets_are_committed_with_the_transaction_and_pending_until_then(broker: str, topic: str) -> None:
    group, place = f"group-{uuid.uuid4()}", TopicPartition(topic, 0)
    with transactional(broker) as producer, Consumer(broker, ConsumerSettings(group_id=group)) as consumer:
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send_offsets({place: 3}, group)
            raise ZeroDivisionError
        assert consumer.committed([place]) == {}
        with producer.transaction():
            producer.send(topic, b"output", partition=1)
            producer.send_offsets({place: 7}, GroupMetadata(group))
        eventually(lambda: consumer.committed([place]) == {place: 7})


def test_a_member_commits_its_offsets_and_a_stranger_is_refused(broker: str, topic: str) -> None:
    group, place = f"group-{uuid.uuid4()}", TopicPartition(topic, 0)
    with transactional(broker) as producer, Consumer(broker, ConsumerSettings(group_id=group)) as consumer:
        consumer.subscribe([topic])
        eventually(lambda: consumer.poll(100) is not None and place in consumer.assignment)
        with producer.transaction():
            producer.send_offsets({place: 5}, consumer.group_metadata())
        eventually(lambda: consumer.committed([place]) == {place: 5})
        stranger = consumer.group_metadata()._replace(member_id="nobody")
        with pytest.raises(KafkaError) as refused, producer.transaction():
            producer.send_offsets({place: 9}, stranger)
        assert refused.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
        with producer.transaction():  # the refused transaction is aborted, the next one works
            producer.send_offsets({place: 6}, consumer.group_metadata())
        eventually(lambda: consumer.committed([place]) == {place: 6})


def test_a_second_producer_fences_the_first_and_aborts_its_transaction(broker: str, topic: str) -> None:
    name = f"id-{uuid.uuid4()}"
    with transactional(broker, name) as first:
        first.begin()
        first.send(topic, b"of the first", partition=0)
        first.flush()
        with transactional(broker, name) as second:
            with second.transaction():
                second.send(topic, b"of the second", partition=0)
            with pytest.raises(KafkaError) as fenced:
                first.commit()
            assert fenced.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
        with pytest.raises(TransactionError, match="the producer must be closed after"):
            first.begin()
    assert values(broker, topic) == [b"of the second"]


def test_a_record_that_cannot_be_delivered_fails_the_transaction_until_it_is_aborted(broker: str, admin: Admin) -> None:
    topic = f"small-{uuid.uuid4()}"
    admin.create_topics([NewTopic(topic, 2, configs={"max.message.bytes": "1000"})])
    with transactional(broker) as producer:
        producer.begin()
        producer.send(topic, b"small", partition=0)
        producer.flush()
        producer.send(topic, bytes(5000), partition=0)
        with pytest.raises(TransactionError, match="must be aborted after: .*MESSAGE_TOO_LARGE"):
            producer.commit()
        with pytest.raises(TransactionError, match="must be aborted"):
            producer.send(topic, b"not now", partition=0)
        producer.abort()
        with producer.transaction():
            producer.send(topic, b"again", partition=0)
    assert values(broker, topic) == [b"again"]


def test_calls_in_the_wrong_order_are_refused_with_the_reason(broker: str, topic: str) -> None:
    with Producer(broker) as plain, pytest.raises(InvalidConfig, match="no transactional_id"):
        plain.begin()
    with Producer(broker, ProducerSettings(transactional_id=f"id-{uuid.uuid4()}")) as producer:
        with pytest.raises(TransactionError, match="begin needs init_transactions"):
            producer.begin()
        producer.init_transactions()
        with pytest.raises(TransactionError, match="init_transactions may be called once"):
            producer.init_transactions()
        with pytest.raises(TransactionError, match="call begin first"):
            producer.send(topic, b"outside", partition=0)
        with pytest.raises(TransactionError, match="no transaction to abort"):
            producer.abort()
        producer.begin()
        with pytest.raises(TransactionError, match="begin needs"):
            producer.begin()
        producer.abort()
        assert producer._transactions is not None
        assert producer._transactions.state is TransactionState.READY


@pytest.mark.parametrize("settings", [{"transactional_id": ""}, {"transactional_id": "x", "acks": 1}])
def test_settings_that_contradict_transactions_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig, match="transactional_id="):
        ProducerSettings(**settings).policy(1000)  # type: ignore[arg-type]


def test_sequences_continue_over_many_transactions_and_partitions(broker: str, topic: str) -> None:
    with transactional(broker) as producer:
        for number in range(20):
            producer.begin()
            producer.send(topic, b"%d" % number, partition=number % 2)
            producer.flush()
            producer.send(topic, b"%d!" % number, partition=number % 2)
            (producer.abort if number % 5 == 4 else producer.commit)()
    kept = [number for number in range(20) if number % 5 != 4]
    wanted = {part: [text for n in kept if n % 2 == part for text in (b"%d" % n, b"%d!" % n)] for part in (0, 1)}
    assert sorted(values(broker, topic)) == sorted(wanted[0] + wanted[1])
