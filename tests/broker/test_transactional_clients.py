"""Transactions of librdkafka: consume, transform, produce, against a broker of ours."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.conftest import StartHeadrace
from tests.eventually import WITHIN_SECONDS
from tests.wire import Wire

pytestmark = pytest.mark.slow  # processes of its own


@pytest.fixture
def bootstrap(headrace_server: StartHeadrace) -> Iterator[str]:
    """A broker with a topic t of two partitions."""
    settings = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}
    server = headrace_server(settings=settings)
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic("t", partitions=2) == 0
    yield server.bootstrap


def transactional(bootstrap: str, name: str = "x") -> Producer:
    """An initialised producer."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(WITHIN_SECONDS)
    return producer


def consumer(bootstrap: str, group: str, isolation: str) -> Consumer:
    """A consumer of t from its beginning."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )


def values(bootstrap: str, isolation: str) -> list[list[bytes]]:
    """The values of both partitions, up to where a consumer of this isolation level gets."""
    found: list[list[bytes]] = [[], []]
    reader = consumer(bootstrap, "reader", isolation)
    reader.assign([TopicPartition("t", number, 0) for number in (0, 1)])
    ended: set[int] = set()
    while len(ended) < 2:
        message = reader.poll(WITHIN_SECONDS)
        assert message is not None
        partition = message.partition()
        assert partition is not None
        if message.error() is not None:
            ended.add(partition)
        else:
            value = message.value()
            assert isinstance(value, bytes)
            found[partition].append(value)
    reader.close()
    return found


def test_a_reader_of_committed_records_sees_whole_transactions_only(bootstrap: str) -> None:
    producer = transactional(bootstrap)
    for number in range(6):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce("t", f"{number}".encode(), partition=partition)
        if number % 3 == 2:
            producer.flush(WITHIN_SECONDS)
            producer.abort_transaction(WITHIN_SECONDS)
        else:
            producer.commit_transaction(WITHIN_SECONDS)
    producer.begin_transaction()
    producer.produce("t", b"open", partition=1)
    producer.flush(WITHIN_SECONDS)
    assert values(bootstrap, "read_committed") == [[b"0", b"1", b"3", b"4"]] * 2
    everything = [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert values(bootstrap, "read_uncommitted") == [everything, [*everything, b"open"]]
    producer.commit_transaction(WITHIN_SECONDS)
    assert values(bootstrap, "read_committed")[1][-1] == b"open"


def test_offsets_are_committed_with_their_transaction_or_not_at_all(bootstrap: str) -> None:
    producer, reader = transactional(bootstrap), consumer(bootstrap, "g", "read_committed")
    committed = [TopicPartition("t", 0)]
    for offset, ends in ((5, producer.abort_transaction), (7, producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce("t", b"output", partition=1)
        offsets = [TopicPartition("t", 0, offset)]
        producer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), WITHIN_SECONDS)
        ends(WITHIN_SECONDS)
        (found,) = reader.committed(committed, WITHIN_SECONDS)
        assert found.offset == (7 if offset == 7 else -1001)
    reader.close()


def test_a_second_producer_of_an_id_fences_the_first(bootstrap: str) -> None:
    zombie = transactional(bootstrap)
    zombie.begin_transaction()
    zombie.produce("t", b"late", partition=0)
    zombie.flush(WITHIN_SECONDS)
    heir = transactional(bootstrap)
    zombie.produce("t", b"later", partition=1)
    with pytest.raises(KafkaException):
        zombie.commit_transaction(WITHIN_SECONDS)
    heir.begin_transaction()
    heir.produce("t", b"new", partition=0)
    heir.commit_transaction(WITHIN_SECONDS)
    assert values(bootstrap, "read_committed") == [[b"new"], []]
