"""The transactions of a producer: which one is open, what belongs to it, and its requests to the coordinators.

    uninitialized ──init──▶ ready ──begin──▶ open ──commit, abort──▶ ready
                                              └──error──▶ failed ──abort──▶ ready
                                              └──prepare──▶ prepared, ended by `end_prepared`
    any ──fenced──▶ fatal

    transaction.version     a partition joins the transaction         after commit and abort
    0, 1                    AddPartitionsToTxn before its first batch the producer keeps its epoch
    2 (KIP-890)             the broker adds it with its first batch   EndTxn returns the next epoch

The version is that of the coordinator's broker: brokers of one cluster agree on it. It may change between transactions,
when Apache Kafka's brokers join or leave a cluster of headrace. The producer's thread calls `init`, `begin`, `commit`
and so on; the sender's thread calls `add` before a partition's first batch, and reports failures (`failed`). Source:
Kafka's `TransactionManager`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from enum import Enum, auto

from headrace.client.core.cluster import Cluster
from headrace.client.core.connection import Connection
from headrace.client.core.coordinator_link import GROUP, TRANSACTION, CoordinatorLink
from headrace.client.core.group_metadata import GroupMetadata
from headrace.client.core.timing import Deadline
from headrace.client.producer.prepared import (
    EPOCH_BUMPED_FROM,
    PreparedTransaction,
    check,
    request_end,
    version_for,
)
from headrace.client.producer.producer_identity import ProducerIdentity
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.types import TopicPartition

FATAL = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""Errors after which the producer can only be closed: most often another producer has the same transactional id."""
_NOT_ADDED = frozenset({ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE})
"""Errors of a batch for a partition that the producer left to the broker to add, and that the broker did not add."""


class TransactionState(Enum):
    """The state of a producer's transactions."""

    UNINITIALIZED = auto()
    READY = auto()
    OPEN = auto()
    PREPARED = auto()
    FAILED = auto()
    FATAL = auto()


class TransactionError(KafkaError):
    """A call that the state of the transaction does not allow, or a transaction that can only be aborted."""

    code = ErrorCode.INVALID_TXN_STATE


class Transactions:
    """The transactions of one transactional id."""

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._cluster = cluster
        self._coordinator = CoordinatorLink(cluster, transactional_id, TRANSACTION)
        self._group_links: dict[str, CoordinatorLink] = {}
        self._lock = threading.Lock()
        self._partitions: set[TopicPartition] = set()
        self._number = 0
        """Counts the transactions, so that a late answer is not taken for one of the next transaction."""
        self._has_begun = False
        self._needs_new_epoch = False
        self._is_in_doubt = False
        """Whether a commit was asked for, and its answer is not known."""
        self.is_left_open: bool = False
        """Whether `Producer.transaction` could not end the transaction of its last block."""
        self.state: TransactionState = TransactionState.UNINITIALIZED
        self.error: KafkaError | None = None
        self.identity: ProducerIdentity = ProducerIdentity()
        self.version: int = 0

    # -- of the producer's thread

    def init(self, deadline: Deadline) -> None:
        """Gets the producer id and epoch, which fences earlier producers and aborts their open transaction."""
        self._require(TransactionState.UNINITIALIZED, "init_transactions may be called once")
        self.identity = self._initialized(ProducerIdentity(), deadline)
        self.state = TransactionState.READY

    def begin(self) -> None:
        """Begins a transaction. Nothing is sent yet."""
        self._require(TransactionState.READY, "begin needs init_transactions, and the end of the last transaction")
        with self._lock:
            self._partitions.clear()
            self._number += 1
            self._has_begun = False
            self.state = TransactionState.OPEN

    def left(self) -> None:
        """The end of a block of `Producer.transaction` could not abort what is open."""
        self.is_left_open = self.state in (TransactionState.OPEN, TransactionState.FAILED)

    def check_open(self) -> None:
        """Raises `TransactionError` if no record may be sent."""
        if self.state is not TransactionState.OPEN:
            self._refuse("a record of a transactional producer belongs to a transaction: call begin first")

    def send_offsets(
        self, offsets: Mapping[TopicPartition, int], group: GroupMetadata, metadata: str, deadline: Deadline
    ) -> None:
        """Commits offsets of a group when the transaction commits. Raises `KafkaError`."""
        self.check_open()
        if not offsets:
            return
        try:
            if self.version < EPOCH_BUMPED_FROM:
                self._add_offsets(group, deadline)
            self._has_begun = True
            link = self._group_links.setdefault(group.group_id, CoordinatorLink(self._cluster, group.group_id, GROUP))
            link.call(lambda to, limit: self._commit_offsets(to, limit, offsets, group, metadata), deadline)
        except KafkaError as cause:
            self.failed(cause)
            raise

    def commit(self, deadline: Deadline) -> ProducerIdentity:
        """Commits; everything was sent and acknowledged. Returns the identity of the next transaction."""
        self.check_open()
        return self._end(True, deadline)

    def prepare(self) -> PreparedTransaction:
        """Leaves the transaction open for `end_prepared`; everything was sent and acknowledged."""
        self.check_open()
        if not self._has_begun:
            raise TransactionError("the transaction is empty, so there is nothing to prepare: commit or abort it")
        self.state = TransactionState.PREPARED
        return self._prepared()

    def give_up(self, *, has_unsent: bool) -> TransactionError:
        """Fails an open transaction with records that were not sent. Returns their error. `abort` is next."""
        cause = TransactionError("the transaction was aborted before the record was sent")
        if self.state is TransactionState.OPEN and has_unsent:
            self.failed(cause)
        return cause

    def abort(self, deadline: Deadline) -> ProducerIdentity:
        """Aborts; nothing is in flight. Returns the identity of the next transaction."""
        if self.state not in (TransactionState.OPEN, TransactionState.FAILED):
            self._refuse("there is no transaction to abort")
        return self._end(False, deadline)

    def close(self) -> None:
        """Closes the connections. An open transaction is aborted by the coordinator when it times out."""
        for link in (self._coordinator, *self._group_links.values()):
            link.close()

    # -- of the sender's thread

    def produce_version(self, connection: Connection) -> int:
        """The version of Produce that matches the transaction's version."""
        return version_for(connection, ApiKey.PRODUCE, self.version)

    def add(self, partitions: Collection[TopicPartition], deadline: Deadline) -> bool:
        """Adds partitions to the transaction before their first batch is sent. Returns False if the transaction has
        failed or was aborted meanwhile: a partition that joins after EndTxn would begin a transaction that nobody
        ends. Raises `KafkaError`."""
        number = self._number
        missing = [each for each in partitions if each not in self._partitions]
        if not missing or self.version >= EPOCH_BUMPED_FROM:
            return self._begin_at_broker(number)

        def ask(to: Connection, limit: Deadline) -> bool:
            if not self._begin_at_broker(number):
                return False
            self._add_partitions(to, limit, missing)
            self._partitions.update(missing)
            return True

        try:
            return self._coordinator.call(ask, deadline)
        except KafkaError:
            if not self._begin_at_broker(number):
                return False
            raise

    def _begin_at_broker(self, number: int) -> bool:
        """Notes that the broker knows of the transaction from now on. Returns False if it has ended or failed."""
        with self._lock:
            if self._number != number or self.state is not TransactionState.OPEN:
                return False
            self._has_begun = True
            return True

    def failed(self, cause: KafkaError) -> None:
        """Notes an error: the transaction can only be aborted, or the producer only be closed."""
        with self._lock:
            if self.state is TransactionState.FATAL:
                return
            self._needs_new_epoch = True
            self.error = cause
            self.state = TransactionState.FATAL if cause.code in FATAL else TransactionState.FAILED

    def lost(self) -> None:
        """Notes that sequence numbers were given to records that will not be sent."""
        self._needs_new_epoch = True

    # -- requests

    def _initialized(self, known: ProducerIdentity, deadline: Deadline) -> ProducerIdentity:
        request = m.InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=known.producer_id,
            producer_epoch=known.epoch,
        )

        def ask(connection: Connection, limit: Deadline) -> ProducerIdentity:
            self.version = connection.versions.transaction_version
            answer = connection.call(request, m.InitProducerIdResponse, limit)
            self._check(answer.error_code, "initialization")
            return ProducerIdentity(answer.producer_id, answer.producer_epoch)

        return self._calling(ask, deadline)

    def _calling(self, ask: Callable[[Connection, Deadline], ProducerIdentity], deadline: Deadline) -> ProducerIdentity:
        try:
            return self._coordinator.call(ask, deadline)
        except KafkaError as cause:
            if cause.code in FATAL:
                self.failed(cause)
            raise

    def _end(self, is_commit: bool, deadline: Deadline) -> ProducerIdentity:
        if self.error is not None and self.error.code in _NOT_ADDED and self.version >= EPOCH_BUMPED_FROM:
            self._coordinator.close()  # its next connection says whether the cluster still has this level
        before, has_level_0 = self.identity, self.version < EPOCH_BUMPED_FROM
        if self._is_in_doubt and not is_commit:
            # The commit may have been done, or be done yet, so there may be nothing to abort. A new epoch ends what is
            # open, one way or the other, and keeps a late request for the commit from ending the next transaction.
            self.identity = self._initialized(self.identity, deadline)
        elif self._has_begun:
            self._is_in_doubt = is_commit
            self.identity = self._calling(lambda to, limit: self._ended(to, limit, is_commit), deadline)
            # Level 0 answers before the markers are written. The first batch of level 2 could arrive before them and
            # count for the transaction that has ended, so it needs an epoch of its own. Java's producer does the same.
            self._needs_new_epoch |= has_level_0 and self.version >= EPOCH_BUMPED_FROM
        if self._needs_new_epoch and self.identity == before and (self._has_begun or has_level_0):
            self.identity = self._initialized(self.identity, deadline)
        self._needs_new_epoch = self._is_in_doubt = self.is_left_open = False
        self.error = None
        self.state = TransactionState.READY
        return self.identity

    def _ended(self, connection: Connection, limit: Deadline, is_commit: bool) -> ProducerIdentity:
        answer = request_end(connection, limit, self._prepared(), is_commit=is_commit)
        self.version = connection.versions.transaction_version  # of the next transaction
        # Only EndTxn 5 returns an identity. Apache Kafka 3.9 serves up to 4, and may be the coordinator by now.
        return ProducerIdentity(answer.producer_id, answer.producer_epoch) if answer.producer_id >= 0 else self.identity

    def _prepared(self) -> PreparedTransaction:
        return PreparedTransaction(self.transactional_id, *self.identity, self.version)

    def _add_partitions(self, connection: Connection, limit: Deadline, partitions: Collection[TopicPartition]) -> None:
        topics: dict[str, list[int]] = {}
        for each in partitions:
            topics.setdefault(each.topic, []).append(each.partition)
        request = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=[
                m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=numbers)
                for name, numbers in topics.items()
            ],
        )
        answer = connection.call(request, m.AddPartitionsToTxnResponse, limit)
        codes = {
            each.partition_error_code: TopicPartition(topic.name, each.partition_index)
            for topic in answer.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        }
        codes.pop(ErrorCode.OPERATION_NOT_ATTEMPTED, None)  # the reason stands at another partition
        for code, partition in codes.items():
            self._check(code, f"{partition} cannot join the transaction")

    def _add_offsets(self, group: GroupMetadata, deadline: Deadline) -> None:
        request = m.AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            group_id=group.group_id,
        )

        def ask(connection: Connection, limit: Deadline) -> None:
            answer = connection.call(request, m.AddOffsetsToTxnResponse, limit)
            self._check(answer.error_code, f"offsets of group {group.group_id} cannot join the transaction")

        self._coordinator.call(ask, deadline)

    def _commit_offsets(
        self,
        connection: Connection,
        limit: Deadline,
        offsets: Mapping[TopicPartition, int],
        group: GroupMetadata,
        metadata: str,
    ) -> None:
        topics: dict[str, list[m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition]] = {}
        for (topic, number), offset in offsets.items():
            topics.setdefault(topic, []).append(
                m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                    partition_index=number, committed_offset=offset, committed_metadata=metadata
                )
            )
        request = m.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            generation_id=group.generation,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=[
                m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        version = version_for(connection, ApiKey.TXN_OFFSET_COMMIT, self.version)
        for answered in connection.call(request, m.TxnOffsetCommitResponse, limit, version).topics:
            for part in answered.partitions:
                where = TopicPartition(answered.name, part.partition_index)
                self._check(part.error_code, f"offset of group {group.group_id} for {where}")

    # -- checks

    def _check(self, code: int, what: str) -> None:
        check(code, self.transactional_id, what)

    def _require(self, state: TransactionState, rule: str) -> None:
        if self.state is not state:
            self._refuse(rule)

    def _refuse(self, rule: str) -> None:
        if self.state is TransactionState.FATAL:
            raise TransactionError(f"the producer must be closed after: {self.error}") from self.error
        if self.state is TransactionState.FAILED:
            raise TransactionError(f"the transaction must be aborted after: {self.error}") from self.error
        if self.state is TransactionState.PREPARED:
            raise TransactionError("the transaction is prepared: close the producer, and end it with end_prepared")
        raise TransactionError(f"{rule} (the producer is {self.state.name.lower()})")
