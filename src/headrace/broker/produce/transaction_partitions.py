"""Asks the transaction coordinator before a transaction's first append to a partition (KIP-890).

    batch ─▶ begin_verification ─▶ its transaction is open here: append
                                └▶ ask the coordinator of the transactional id ─▶ append with the verification
                                                                               └▶ the batch's error

A batch that the coordinator does not know of would keep its transaction open forever. So a client of
`transaction.version` 2 (Produce 12, TxnOffsetCommit 5) adds the partition to its transaction with the batch itself; the
partition of an older client, which has added it before, is verified. Between the answer and the append the log's
verification holds: if a marker comes in between, the append is refused.

The coordinator is the leader of the id's partition of `__transaction_state`. Transactions that wait for one broker
share its next request. While the coordinator completes the previous transaction of a producer, it adds no partition;
this is asked again for a short while, since to send the batch again costs the producer more. Source: Kafka's
`AddPartitionsToTxnManager`, `ReplicaManager.handleProduceAppend`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from headrace.broker.partitions.replica_manager import ReplicaManager
from headrace.coordinators.groups.partitioning import partition_for
from headrace.errors import ErrorCode, KafkaError, known_code
from headrace.limits import ADDED_TRANSACTIONS_PER_REQUEST_MAX
from headrace.log.producers.verification import NOT_REQUIRED, Verification
from headrace.metadata.metadata_cache import MetadataCache
from headrace.network.peers.broker_addresses import BrokerAddresses
from headrace.network.peers.peers import Peers
from headrace.protocol import messages as m
from headrace.topics import TRANSACTIONS_TOPIC
from headrace.types import BrokerId, TopicPartition

log = logging.getLogger(__name__)

LANE = "transaction-partitions"

Codes = Mapping[TopicPartition, ErrorCode]

_RETRIED_AS_NOT_ENOUGH_REPLICAS = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class PartitionVerifier(Protocol):
    """The transaction coordinator of this broker."""

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
    ) -> asyncio.Future[Codes]:
        """Adds partitions to a transaction, or verifies that they belong to it; an error code for each. The future
        never fails, and is done on return if the outcome is known at once."""
        ...


class ClientKind(Enum):
    """What a client's version of Produce or TxnOffsetCommit says about it."""

    OLD = "adds partitions itself"
    KNOWS_ABORTABLE = "adds partitions itself, and knows TRANSACTION_ABORTABLE"
    ADDS_IMPLICITLY = "adds a partition with the first batch for it"

    @classmethod
    def of_produce(cls, version: int) -> ClientKind:
        """The client of a Produce."""
        return cls.OLD if version < 11 else cls.KNOWS_ABORTABLE if version < 12 else cls.ADDS_IMPLICITLY

    @classmethod
    def of_offset_commit(cls, version: int) -> ClientKind:
        """The client of a TxnOffsetCommit."""
        return cls.OLD if version < 4 else cls.KNOWS_ABORTABLE if version < 5 else cls.ADDS_IMPLICITLY


class TransactionalProducerId(NamedTuple):
    """A transactional producer."""

    transactional_id: str
    producer_id: int
    epoch: int


class Verified(NamedTuple):
    """The outcome for the batches of one request. A partition in neither mapping has its transaction open."""

    errors: Mapping[TopicPartition, KafkaError]
    verifications: Mapping[TopicPartition, Verification]


class TransactionPartitions:
    """The verifications of one broker."""

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        replicas: ReplicaManager,
        addresses: BrokerAddresses,
        peers: Peers,
        local: PartitionVerifier,
        spawn: Callable[[Coroutine[object, object, None]], object],
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        is_enabled: Callable[[], bool],
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
        request_timeout_ms: int,
    ) -> None:
        """`local` is this broker's transaction coordinator. `is_enabled` returns
        transaction.partition.verification.enable. Adding a partition is tried again every `retry_backoff_ms` for
        `retry_backoff_max_ms`. Another broker's answer is awaited for `request_timeout_ms`."""
        self._broker_id, self._replicas, self._local = broker_id, replicas, local
        self._remote = _Remote(addresses, peers, spawn, loop, request_timeout_ms)
        self._loop, self._now_ms, self._is_enabled = loop, now_ms, is_enabled
        self._retry_s, self._retry_max_s = retry_backoff_ms / 1000, retry_backoff_max_ms / 1000

    def begin(
        self, producer: TransactionalProducerId, sequences: Mapping[TopicPartition, int], client: ClientKind
    ) -> asyncio.Future[Verified]:
        """Begins to verify batches, which have these first sequences. The future never fails, and is done on return if
        the outcome is known at once."""
        if not self._is_enabled() and client is not ClientKind.ADDS_IMPLICITLY:
            skipped: asyncio.Future[Verified] = self._loop.create_future()
            skipped.set_result(Verified({}, dict.fromkeys(sequences, NOT_REQUIRED)))
            return skipped
        verifying = _Verifying(self, producer, sequences, client, self._loop)
        verifying.ask()
        return verifying.verified

    def verification(
        self, key: TopicPartition, producer: TransactionalProducerId, first_sequence: int, client: ClientKind
    ) -> Verification | None:
        """Begins a verification in the log; None if the transaction is open there. Raises `KafkaError`."""
        return self._replicas.leader(*key).log.begin_verification(
            producer.producer_id,
            first_sequence,
            producer.epoch,
            supports_epoch_bump=client is ClientKind.ADDS_IMPLICITLY,
            now_ms=self._now_ms(),
        )

    def ask(
        self, producer: TransactionalProducerId, partitions: Sequence[TopicPartition], client: ClientKind
    ) -> asyncio.Future[Codes]:
        """Asks the coordinator of the transactional id; an error code for each partition."""
        metadata = self._replicas.metadata
        coordinator = _coordinator_of(producer.transactional_id, metadata)
        if coordinator is None:
            unknown: asyncio.Future[Codes] = self._loop.create_future()
            unknown.set_result(dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return unknown
        verify_only = client is not ClientKind.ADDS_IMPLICITLY
        if coordinator == self._broker_id:
            return self._local.add_or_verify(*producer, partitions, verify_only=verify_only)
        return self._remote.ask(coordinator, _Asked(producer, partitions, verify_only, self._loop.create_future()))

    @property
    def retry_s(self) -> float:
        """The pause before a partition is added again."""
        return self._retry_s

    @property
    def retry_max_s(self) -> float:
        """How long adding a partition is tried again."""
        return self._retry_max_s


class _Verifying:
    """The verification of one request's batches."""

    __slots__ = ("_client", "_deadline", "_errors", "_loop", "_partitions", "_producer", "_sequences", "verified")

    def __init__(
        self,
        partitions: TransactionPartitions,
        producer: TransactionalProducerId,
        sequences: Mapping[TopicPartition, int],
        client: ClientKind,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._partitions, self._producer, self._sequences = partitions, producer, sequences
        self._client, self._loop = client, loop
        self._deadline = 0.0
        self.verified: asyncio.Future[Verified] = loop.create_future()

    def ask(self) -> None:
        """Asks about the partitions without an open transaction."""
        errors: dict[TopicPartition, KafkaError] = {}
        verifications: dict[TopicPartition, Verification] = {}
        for key, first_sequence in self._sequences.items():
            try:
                verification = self._partitions.verification(key, self._producer, first_sequence, self._client)
            except KafkaError as error:
                errors[key] = error
                continue
            if verification is not None:
                verifications[key] = verification
        if not verifications:
            self._end(Verified(errors, verifications))
            return
        asked = self._partitions.ask(self._producer, list(verifications), self._client)
        if asked.done():
            self._answered(errors, verifications, asked)
        else:
            asked.add_done_callback(lambda done: self._answered(errors, verifications, done))

    def _answered(
        self,
        errors: dict[TopicPartition, KafkaError],
        verifications: dict[TopicPartition, Verification],
        asked: asyncio.Future[Codes],
    ) -> None:
        codes = {} if asked.cancelled() else asked.result()
        if self._client is ClientKind.ADDS_IMPLICITLY and ErrorCode.CONCURRENT_TRANSACTIONS in codes.values():
            now = self._loop.time()
            self._deadline = self._deadline or now + self._partitions.retry_max_s
            if now < self._deadline:
                self._loop.call_later(self._partitions.retry_s, self.ask)
                return
        for key in list(verifications):
            code = _for_client(codes.get(key, ErrorCode.NETWORK_EXCEPTION), self._client)
            if code is not ErrorCode.NONE:
                errors[key] = KafkaError(f"{key} could not be verified in the transaction: {code.name}", code)
                del verifications[key]
        self._end(Verified(errors, verifications))

    def _end(self, verified: Verified) -> None:
        if not self.verified.done():
            self.verified.set_result(verified)


def _for_client(code: ErrorCode, client: ClientKind) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and client is ClientKind.OLD:
        return ErrorCode.INVALID_TXN_STATE
    return code


def error_of_produce(error: KafkaError, client: ClientKind) -> KafkaError:
    """The error of a Produce whose batch could not be verified.

    Older clients do not repeat a batch after an error of the coordinator. NOT_ENOUGH_REPLICAS makes them do so, without
    a refresh of their metadata.
    """
    code = error.code
    if code is ErrorCode.INVALID_TXN_STATE:
        return KafkaError("Partition was not added to the transaction", code)
    if code in _RETRIED_AS_NOT_ENOUGH_REPLICAS or (
        code is ErrorCode.CONCURRENT_TRANSACTIONS and client is not ClientKind.ADDS_IMPLICITLY
    ):
        text = f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}"
        return KafkaError(text, ErrorCode.NOT_ENOUGH_REPLICAS)
    return error


def _coordinator_of(transactional_id: str, metadata: MetadataCache) -> BrokerId | None:
    """The leader of the id's partition of `__transaction_state`; None while there is none."""
    topic = metadata.topic(TRANSACTIONS_TOPIC)
    if topic is None or not topic.partitions:
        return None
    partition = topic.partitions.get(partition_for(transactional_id, len(topic.partitions)))
    return None if partition is None or partition.leader < 0 else partition.leader


# Other brokers


class _Asked(NamedTuple):
    """One transaction's question to another broker."""

    producer: TransactionalProducerId
    partitions: Sequence[TopicPartition]
    verify_only: bool
    answer: asyncio.Future[Codes]


class _Remote:
    """The questions to other brokers. Each broker has one request in flight; the next one carries what came
    meanwhile."""

    def __init__(
        self,
        addresses: BrokerAddresses,
        peers: Peers,
        spawn: Callable[[Coroutine[object, object, None]], object],
        loop: asyncio.AbstractEventLoop,
        request_timeout_ms: int,
    ) -> None:
        self._addresses, self._peers, self._spawn, self._loop = addresses, peers, spawn, loop
        self._request_timeout_ms = request_timeout_ms
        self._waiting: dict[BrokerId, list[_Asked]] = {}

    def ask(self, broker: BrokerId, asked: _Asked) -> asyncio.Future[Codes]:
        """Asks `broker` with its next request."""
        waiting = self._waiting.get(broker)
        if waiting is None:
            self._waiting[broker] = [asked]
            self._spawn(self._send(broker))
        else:
            waiting.append(asked)
        return asked.answer

    async def _send(self, broker: BrokerId) -> None:
        waiting = self._waiting[broker]
        sending: list[_Asked] = []
        try:
            while waiting:
                sending, waiting = _one_of_each(waiting)
                self._waiting[broker] = waiting
                await self._request(broker, sending)
                waiting = self._waiting[broker]
        finally:
            del self._waiting[broker]
            for each in (*sending, *waiting):
                _answer(each, {})

    async def _request(self, broker: BrokerId, sending: Sequence[_Asked]) -> None:
        address = self._addresses.address_of(broker)
        try:
            if address is None:
                raise KafkaError(f"broker {broker} has no known address", ErrorCode.NETWORK_EXCEPTION)
            response = await self._peers.send(
                address,
                m.AddPartitionsToTxnRequest(transactions=[_wire(each) for each in sending]),
                m.AddPartitionsToTxnResponse,
                timeout_ms=self._request_timeout_ms,
                lane=LANE,
            )
        except KafkaError as error:
            log.warning("transactions could not be verified at broker %d: %s", broker, error)
            # The other questions must not wait for the time-out of one more request: their clients ask again.
            waiting, self._waiting[broker] = self._waiting[broker], []
            for each in (*sending, *waiting):
                _answer(each, {})
            return
        if response.error_code:
            code = known_code(response.error_code)
            log.error("broker %d refused to verify transactions: %s", broker, code.name)
            if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                code = ErrorCode.INVALID_TXN_STATE  # the client is not to blame, and must not stop for good
            for each in sending:
                _answer(each, dict.fromkeys(each.partitions, code))
            return
        by_id = {result.transactional_id: result.topic_results for result in response.results_by_transaction}
        for each in sending:
            results = by_id.get(each.producer.transactional_id, ())
            _answer(
                each,
                {
                    TopicPartition(topic.name, result.partition_index): known_code(result.partition_error_code)
                    for topic in results
                    for result in topic.results_by_partition
                },
            )


def _one_of_each(waiting: Iterable[_Asked]) -> tuple[list[_Asked], list[_Asked]]:
    """The first question of each transactional id, and the others: a response names transactions by their id only."""
    first: dict[str, _Asked] = {}
    others = []
    for each in waiting:
        transactional_id = each.producer.transactional_id
        if transactional_id in first or len(first) == ADDED_TRANSACTIONS_PER_REQUEST_MAX:
            others.append(each)
        else:
            first[transactional_id] = each
    return list(first.values()), others


def _answer(asked: _Asked, codes: Codes) -> None:
    if not asked.answer.done():
        asked.answer.set_result(codes)


def _wire(asked: _Asked) -> m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for key in asked.partitions:
        topics.setdefault(key.topic, []).append(key.partition)
    return m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=asked.producer.transactional_id,
        producer_id=asked.producer.producer_id,
        producer_epoch=asked.producer.epoch,
        verify_only=asked.verify_only,
        topics=[
            m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=numbers)
            for name, numbers in topics.items()
        ],
    )
