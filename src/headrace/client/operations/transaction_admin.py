"""Administration of transactions: list, describe, find hanging ones, abort.

    list            ListTransactions of every broker
    describe        DescribeTransactions of the id's coordinator
    find hanging    DescribeProducers of every leader; then the coordinators, about the producers found
    abort           WriteTxnMarkers to the partition's leader

A transaction hangs if it is open in a partition, but not known to any coordinator: nothing will ever end it, and it
stops readers of committed records and the cleaner. A transaction is a candidate once its last record is older than the
longest time-out, since a younger one may still be ended. Source: Kafka's `TransactionsCommand`, KIP-664.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import groupby
from typing import NamedTuple

from headrace.client.core.cluster import Cluster
from headrace.client.core.connection import Connection
from headrace.client.core.coordinator_link import TRANSACTION, CoordinatorLink
from headrace.client.core.failures import error_for
from headrace.client.core.timing import Deadline
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.types import NO_LEADER, BrokerId, TopicPartition

_DURATION_FROM, _PATTERN_FROM = 1, 2
"""The versions of ListTransactions from which on it has these filters."""

_PARTITIONS_PER_REQUEST = 500


class TransactionFilter(NamedTuple):
    """The transactions to list. Empty filters pass every transaction."""

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    longer_than_ms: int = -1
    pattern: str | None = None
    """A regular expression (RE2) that the whole id matches."""


class TransactionListing(NamedTuple):
    """One transactional id as its coordinator lists it."""

    transactional_id: str
    coordinator: BrokerId
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """One transactional id. `started_ms` is -1 while no transaction has begun."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_ms: int
    partitions: tuple[TopicPartition, ...]


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition. `coordinator_epoch` is -1 before the producer's first marker."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


class TransactionAdmin:
    """Calls about transactions on one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def list_transactions(self, wanted: TransactionFilter) -> list[TransactionListing]:
        """The transactional ids of the cluster that pass the filter, by id."""
        deadline = self._cluster.deadline()
        return self._cluster.retry(lambda: self._list(wanted, deadline), deadline)

    def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """One transactional id. Raises TRANSACTIONAL_ID_NOT_FOUND."""

        def ask(connection: Connection, limit: Deadline) -> TransactionDescription:
            request = m.DescribeTransactionsRequest(transactional_ids=[transactional_id])
            (found,) = connection.call(request, m.DescribeTransactionsResponse, limit).transaction_states
            if found.error_code:
                raise error_for(found.error_code, f"transactional id {transactional_id}")
            return TransactionDescription(
                found.transactional_id,
                found.producer_id,
                found.producer_epoch,
                found.transaction_state,
                found.transaction_timeout_ms,
                found.transaction_start_time_ms,
                tuple(
                    sorted(TopicPartition(each.topic, number) for each in found.topics for number in each.partitions)
                ),
            )

        link = CoordinatorLink(self._cluster, transactional_id, TRANSACTION)
        try:
            return link.call(ask, self._cluster.deadline())
        finally:
            link.close()

    def open_transactions(
        self, partitions: Iterable[TopicPartition], broker: BrokerId | None = None
    ) -> list[OpenTransaction]:
        """The transactions that are open in these partitions, as their leaders know them, or this replica."""
        wanted, deadline = sorted(set(partitions)), self._cluster.deadline()
        return self._cluster.retry(lambda: self._open(wanted, broker, deadline), deadline)

    def find_hanging(
        self, partitions: Iterable[TopicPartition], older_than_ms: int, now_ms: int, broker: BrokerId | None = None
    ) -> list[OpenTransaction]:
        """The open transactions whose last record is older than `older_than_ms`, and that no coordinator knows."""
        candidates = [
            each
            for each in self.open_transactions(partitions, broker)
            if now_ms - each.last_timestamp_ms > older_than_ms
        ]
        if not candidates:
            return []
        producer_ids = tuple(sorted({each.producer_id for each in candidates}))
        described = {
            listed.producer_id: self._described(listed.transactional_id)
            for listed in self.list_transactions(TransactionFilter(producer_ids=producer_ids))
        }
        known = {
            (producer_id, partition)
            for producer_id, one in described.items()
            if one is not None and one.producer_id == producer_id
            for partition in one.partitions
        }
        return [each for each in candidates if (each.producer_id, each.partition) not in known]

    def abort(self, transaction: OpenTransaction) -> None:
        """Aborts an open transaction in one partition, without its coordinator."""
        partition = transaction.partition
        request = m.WriteTxnMarkersRequest(
            markers=[
                m.WriteTxnMarkersRequest.WritableTxnMarker(
                    producer_id=transaction.producer_id,
                    producer_epoch=transaction.producer_epoch,
                    transaction_result=False,
                    topics=[
                        m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(
                            name=partition.topic, partition_indexes=[partition.partition]
                        )
                    ],
                    # A producer without a marker has -1, and 0 is not above the epoch of any coordinator.
                    coordinator_epoch=max(transaction.coordinator_epoch, 0),
                )
            ]
        )
        deadline = self._cluster.deadline()

        def attempt() -> None:
            leader = self._cluster.leader(partition, deadline)
            answer = self._cluster.call(leader, request, m.WriteTxnMarkersResponse, deadline)
            for result in answer.markers:
                for topic in result.topics:
                    for part in topic.partitions:
                        if part.error_code:
                            raise error_for(
                                part.error_code, f"abort of producer {transaction.producer_id}, {partition}"
                            )

        self._cluster.retry(attempt, deadline)

    def _described(self, transactional_id: str) -> TransactionDescription | None:
        try:
            return self.describe_transaction(transactional_id)
        except KafkaError as error:
            if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return None  # expired since it was listed
            raise

    def _list(self, wanted: TransactionFilter, deadline: Deadline) -> list[TransactionListing]:
        found: set[TransactionListing] = set()
        request = m.ListTransactionsRequest(
            state_filters=list(wanted.states),
            producer_id_filters=list(wanted.producer_ids),
            duration_filter=wanted.longer_than_ms,
            transactional_id_pattern=wanted.pattern,
        )
        for broker in self._cluster.refresh([], deadline).brokers:
            self._check_filters(broker, wanted, deadline)
            answer = self._cluster.call(broker, request, m.ListTransactionsResponse, deadline)
            if answer.error_code:
                raise error_for(answer.error_code, f"transactions of broker {broker}")
            if answer.unknown_state_filters:
                unknown = ", ".join(answer.unknown_state_filters)
                raise KafkaError(f"broker {broker} knows no transaction state {unknown}", ErrorCode.INVALID_REQUEST)
            found |= {
                TransactionListing(each.transactional_id, broker, each.producer_id, each.transaction_state)
                for each in answer.transaction_states
            }
        return sorted(found)

    def _check_filters(self, broker: BrokerId, wanted: TransactionFilter, deadline: Deadline) -> None:
        """Raises UNSUPPORTED_VERSION for a filter that the broker would ignore."""
        needed = _PATTERN_FROM if wanted.pattern else _DURATION_FROM if wanted.longer_than_ms >= 0 else 0
        version = self._cluster.connection(broker, deadline).versions.choose(ApiKey.LIST_TRANSACTIONS)
        if version < needed:
            name = "pattern" if wanted.pattern else "duration"
            raise KafkaError(f"broker {broker} cannot filter transactions by {name}", ErrorCode.UNSUPPORTED_VERSION)

    def _open(
        self, partitions: Collection[TopicPartition], broker: BrokerId | None, deadline: Deadline
    ) -> list[OpenTransaction]:
        by_broker: dict[BrokerId, list[TopicPartition]] = {}
        for each in partitions:
            asked = self._cluster.leader(each, deadline) if broker is None else broker
            by_broker.setdefault(asked, []).append(each)
        found: list[OpenTransaction] = []
        for asked, some in (
            (asked, of_broker[start : start + _PARTITIONS_PER_REQUEST])
            for asked, of_broker in by_broker.items()
            for start in range(0, len(of_broker), _PARTITIONS_PER_REQUEST)
        ):
            request = m.DescribeProducersRequest(
                topics=[
                    m.DescribeProducersRequest.TopicRequest(
                        name=topic, partition_indexes=[each.partition for each in group]
                    )
                    for topic, group in groupby(some, lambda each: each.topic)
                ]
            )
            answer = self._cluster.call(asked, request, m.DescribeProducersResponse, deadline)
            for topic in answer.topics:
                for part in topic.partitions:
                    partition = TopicPartition(topic.name, part.partition_index)
                    if part.error_code:
                        raise error_for(part.error_code, f"producers of {partition} at broker {asked}")
                    found += (_open(partition, each) for each in part.active_producers if _is_open(each))
        return sorted(found)


def partitions_of(
    cluster: Cluster, topics: Collection[str] | None, broker: BrokerId | None = None
) -> list[TopicPartition]:
    """The partitions of some topics (None: all) that have a leader or, if given, a replica on this broker."""
    view = cluster.refresh(topics)
    if broker is not None and broker not in view.brokers:
        raise KafkaError(f"broker {broker} is not in the metadata of the cluster", ErrorCode.BROKER_NOT_AVAILABLE)
    found: list[TopicPartition] = []
    for name in sorted(view.topics if topics is None else topics):
        topic = view.topics[name] if topics is None else cluster.topic(name)
        found += (
            TopicPartition(name, each.partition)
            for each in topic.partitions
            if (each.leader != NO_LEADER if broker is None else broker in each.replicas)
        )
    return found


def _is_open(producer: m.DescribeProducersResponse.ProducerState) -> bool:
    return producer.current_txn_start_offset >= 0


def _open(partition: TopicPartition, producer: m.DescribeProducersResponse.ProducerState) -> OpenTransaction:
    return OpenTransaction(
        partition,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.current_txn_start_offset,
        producer.last_timestamp,
    )
