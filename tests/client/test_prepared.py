"""Prepared transactions: a producer leaves one open, another client ends it. With headrace and with Apache Kafka."""

import uuid

import pytest

from headrace.client.core.cluster import Cluster
from headrace.client.core.failures import DeadlineExceeded
from headrace.client.core.group_metadata import OffsetAndMetadata
from headrace.client.core.settings import ClientSettings
from headrace.client.operations.admin import Admin, NewTopic
from headrace.client.operations.group_admin import GroupAdmin
from headrace.client.operations.transaction_admin import TransactionAdmin
from headrace.client.producer.prepared import NOT_OPEN, PreparedTransaction, end_all_prepared, end_prepared
from headrace.client.producer.producer import Producer, ProducerSettings
from headrace.client.producer.transactions import TransactionError
from headrace.errors import KafkaError
from headrace.types import TopicPartition
from tests.client.test_transactions import values
from tests.eventually import eventually, eventually_equal


@pytest.fixture
def topic(admin: Admin) -> str:
    """A topic of two partitions."""
    name = f"prepared-{uuid.uuid4()}"
    admin.create_topics([NewTopic(name, 2)])
    return name


@pytest.fixture(params=["newest", "0"], ids=lambda version: f"transaction.version {version}")
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The level of transaction.version: that of the broker, or 0, as in a cluster that has no such feature."""
    if request.param == "0":
        monkeypatch.setattr("headrace.client.core.versions._TRANSACTION_VERSION", "not a feature")
    chosen: str = request.param
    return chosen


def prepare(
    broker: str, topic: str, value: bytes, *, name: str | None = None, timeout_ms: int = 60_000
) -> PreparedTransaction:
    """Writes one record in a transaction, and closes the producer."""
    name = name or f"id-{uuid.uuid4()}"
    with Producer(broker, ProducerSettings(transactional_id=name, transaction_timeout_ms=timeout_ms)) as producer:
        producer.init_transactions()
        producer.begin()
        producer.send(topic, value, partition=0)
        return producer.prepare_transaction()


def state(cluster: Cluster, prepared: PreparedTransaction) -> str:
    return TransactionAdmin(cluster).describe_transaction(prepared.transactional_id).state


@pytest.mark.slow
@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_another_client_ends_a_prepared_transaction_as_often_as_it_likes(
    broker: str, cluster: Cluster, topic: str, version: str, is_commit: bool
) -> None:
    prepared = prepare(broker, topic, b"prepared")
    assert (prepared.transaction_version == 0) == (version == "0")
    assert state(cluster, prepared) == "Ongoing"
    assert values(broker, topic) == []
    for _ in range(2):
        end_prepared(cluster, prepared, is_commit=is_commit)
    eventually_equal(lambda: state(cluster, prepared), "CompleteCommit" if is_commit else "CompleteAbort")
    end_prepared(cluster, prepared, is_commit=is_commit)
    with pytest.raises(KafkaError) as refused:
        end_prepared(cluster, prepared, is_commit=not is_commit)
    assert refused.value.code in NOT_OPEN
    assert values(broker, topic) == ([b"prepared"] if is_commit else [])


def test_a_later_producer_aborts_it_and_it_cannot_be_committed_any_more(
    broker: str, cluster: Cluster, topic: str, version: str
) -> None:
    first = prepare(broker, topic, b"first")
    second = prepare(broker, topic, b"second", name=first.transactional_id)
    with pytest.raises(KafkaError, match="another producer with this id was started") as fenced:
        end_prepared(cluster, first, is_commit=True)
    assert fenced.value.code in NOT_OPEN
    end_prepared(cluster, second, is_commit=True)
    eventually_equal(lambda: values(broker, topic), [b"second"])
    with pytest.raises(KafkaError) as still:
        end_prepared(cluster, first, is_commit=True)
    assert still.value.code in NOT_OPEN


@pytest.mark.slow
def test_one_that_timed_out_is_aborted_and_cannot_be_committed(
    broker: str, cluster: Cluster, topic: str, version: str
) -> None:
    prepared = prepare(broker, topic, b"late", timeout_ms=500)
    eventually_equal(lambda: state(cluster, prepared), "CompleteAbort")
    with pytest.raises(KafkaError) as refused:
        end_prepared(cluster, prepared, is_commit=True)
    assert refused.value.code in NOT_OPEN
    assert values(broker, topic) == []


def test_of_many_those_that_failed_are_returned(broker: str, cluster: Cluster, topic: str) -> None:
    prepared = [prepare(broker, topic, b"%d" % number) for number in range(12)]
    prepare(broker, topic, b"later", name=prepared[5].transactional_id)
    failed = end_all_prepared(cluster, prepared, is_commit=True)
    assert list(failed) == [prepared[5]]
    assert failed[prepared[5]].code in NOT_OPEN
    for one in (*prepared[:5], *prepared[6:]):
        assert state(cluster, one) in ("PrepareCommit", "CompleteCommit")
    assert end_all_prepared(cluster, [], is_commit=True) == {}


def test_a_prepared_producer_can_only_be_closed_and_an_empty_transaction_not_prepared(broker: str, topic: str) -> None:
    with Producer(broker, ProducerSettings(transactional_id=f"id-{uuid.uuid4()}")) as producer:
        producer.init_transactions()
        with pytest.raises(TransactionError, match="call begin first"):
            producer.prepare_transaction()
        producer.begin()
        with pytest.raises(TransactionError, match="the transaction is empty"):
            producer.prepare_transaction()
        producer.send(topic, b"prepared", partition=0)
        producer.prepare_transaction()
        for refused in (producer.begin, producer.commit, producer.abort, producer.prepare_transaction):
            with pytest.raises(TransactionError, match="the transaction is prepared: close the producer"):
                refused()
        with pytest.raises(TransactionError, match="the transaction is prepared"):
            producer.send(topic, b"more", partition=0)


def test_offsets_in_a_prepared_transaction_wait_for_its_end(
    broker: str, cluster: Cluster, topic: str, version: str
) -> None:
    group, place = f"group-{uuid.uuid4()}", TopicPartition(topic, 0)
    with Producer(broker, ProducerSettings(transactional_id=f"id-{uuid.uuid4()}")) as producer:
        producer.init_transactions()
        producer.begin()
        producer.send_offsets({place: 7}, group, metadata="seven")
        prepared = producer.prepare_transaction()
    assert GroupAdmin(cluster).committed(group, [place]) == {}
    with Cluster(broker, ClientSettings(api_timeout_ms=300)) as hasty:

        def is_unstable() -> bool:
            with pytest.raises(DeadlineExceeded) as late:
                GroupAdmin(hasty).committed(group, [place], require_stable=True)
            return "UNSTABLE_OFFSET_COMMIT" in str(late.value)

        eventually(is_unstable, "an answer, in the little time of a call, that the offset is not decided")
    end_prepared(cluster, prepared, is_commit=True)
    expected = {place: OffsetAndMetadata(7, "seven")}
    assert eventually(lambda: GroupAdmin(cluster).committed(group, [place], require_stable=True)) == expected
