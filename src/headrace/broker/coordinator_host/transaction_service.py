"""The transaction service: the interface of handlers to this broker's transaction coordinator.

    handler ─request, reply─▶ TransactionService ─▶ TransactionCoordinator (pure) ─actions─▶ CoordinatorRuntime
                                                                                  └─effects─▶ MarkerSender

New producer ids come from the metadata store, so the service gets one before a request that needs it.
Source: Kafka's `TransactionCoordinator`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Protocol

from headrace.broker.coordinator_host.coordinator_runtime import Appends, CoordinatorRuntime
from headrace.coordinators.transactions.actions import Reply, SendMarkers, Then
from headrace.coordinators.transactions.coordinator import TransactionCoordinator
from headrace.coordinators.transactions.loading import TransactionLoading
from headrace.coordinators.transactions.requests import Ended, InitProducer, TransactionProducer
from headrace.coordinators.transactions.settings import TransactionSettings
from headrace.coordinators.transactions.transaction import EPOCH_BUMPED_FROM, Transaction
from headrace.errors import ErrorCode
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.broker.coordinator_host.internal_topic import InternalTopic
    from headrace.broker.coordinator_host.marker_sender import MarkerSender, Report
    from headrace.config import BrokerConfig


class Ids(Protocol):
    """The producer ids that a service gives."""

    async def next(self) -> int:
        """A new one. Raises `KafkaError`."""


class TransactionService:
    """The transactional ids that this broker coordinates."""

    def __init__(
        self,
        config: BrokerConfig,
        topic: InternalTopic,
        *,
        producer_ids: Ids,
        appends: Appends,
        make_markers: Callable[[Report], MarkerSender],
        spawn: Callable[[Coroutine[object, object, None]], object],
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        version: Callable[[], int],
    ) -> None:
        """`topic` is `__transaction_state`; `make_markers` creates the sender, which reports to the given function.
        `version` returns the cluster's transaction.version."""
        self.topic = topic
        self._producer_ids, self._loop = producer_ids, loop
        settings = TransactionSettings(
            max_timeout_ms=config.transaction_max_timeout_ms,
            id_expiration_ms=config.transactional_id_expiration_ms,
            expiration_check_interval_ms=config.transaction_expiration_check_interval_ms,
            two_phase_commit_enable=config.transaction_two_phase_commit_enable,
        )
        self._coordinator = TransactionCoordinator(settings, topic.partition_for, now_ms(), version=version)
        self.markers = make_markers(self._marker_written)
        self.runtime: CoordinatorRuntime[TransactionLoading, Then] = CoordinatorRuntime(
            topic.name,
            self._coordinator,
            appends=appends,
            append_timeout_ms=config.request_timeout_ms,
            spawn=spawn,
            loop=loop,
            now_ms=now_ms,
            perform=self.markers.perform,
        )

    def close(self) -> None:
        """Stops timers and markers."""
        self.markers.close()
        self.runtime.close()

    def _marker_written(self, sent: SendMarkers, partition: TopicPartition) -> None:
        self.runtime.run(
            self._coordinator.marker_written(
                sent.transactional_id, sent.producer_id, sent.producer_epoch, partition, self.runtime.now_ms()
            )
        )

    def with_producer_ids(self, ids: Ids) -> TransactionService:
        """The same service with other producer ids."""
        other = copy(self)
        other._producer_ids = ids
        return other

    # requests

    def count(self, prefix: str) -> int:
        """The number of ids here that begin with a name and a dot."""
        return self._coordinator.count(prefix)

    def knows(self, transactional_id: str) -> bool:
        """Whether the id is one of those here."""
        return self._coordinator.knows(transactional_id)

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Whether a request of this id needs a new producer id, for which the metadata store may be asked."""
        return self._coordinator.needs_producer_id(transactional_id)

    async def new_producer_id(self) -> int:
        """A new producer id. Raises `KafkaError`."""
        return await self._producer_ids.next()

    def init_producer(self, request: InitProducer, new_id: int | None, reply: Reply) -> None:
        """InitProducerId; `reply` gets an `Initial` when the producer's epoch is stored."""
        self.runtime.run(self._coordinator.init_producer(request, new_id, reply, self.runtime.now_ms()))

    def add_partitions(
        self,
        transactional_id: str,
        producer: TransactionProducer,
        added: Iterable[TopicPartition],
        version: int,
        reply: Callable[[ErrorCode], None],
    ) -> None:
        """AddPartitionsToTxn and AddOffsetsToTxn; `reply` gets an error code when the partitions are stored."""
        now_ms = self.runtime.now_ms()
        self.runtime.run(
            self._coordinator.add_partitions(transactional_id, producer, frozenset(added), version, reply, now_ms)
        )

    def verify_partitions(
        self, transactional_id: str, producer: TransactionProducer, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Whether these partitions belong to the producer's ongoing transaction: an error code for each."""
        return self._coordinator.verify_partitions(transactional_id, producer, partitions)

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
    ) -> asyncio.Future[Mapping[TopicPartition, ErrorCode]]:
        """Adds partitions to a transaction of a client of transaction.version 2, or verifies that they belong to it.
        The future never fails, and is done on return if the outcome is known at once."""
        outcome: asyncio.Future[Mapping[TopicPartition, ErrorCode]] = self._loop.create_future()
        producer = TransactionProducer(producer_id, producer_epoch)
        if verify_only:
            outcome.set_result(self.verify_partitions(transactional_id, producer, partitions))
            return outcome

        def reply(code: ErrorCode) -> None:
            if not outcome.done():
                outcome.set_result(dict.fromkeys(partitions, code))

        self.add_partitions(transactional_id, producer, partitions, EPOCH_BUMPED_FROM, reply)
        return outcome

    def end(
        self,
        transactional_id: str,
        producer: TransactionProducer,
        is_commit: bool,
        version: int,
        new_id: int | None,
        reply: Callable[[Ended], None],
    ) -> None:
        """EndTxn; `reply` gets an `Ended` when the decision is stored."""
        now_ms = self.runtime.now_ms()
        self.runtime.run(self._coordinator.end(transactional_id, producer, is_commit, version, new_id, reply, now_ms))

    # administration

    def describe(self, transactional_id: str) -> tuple[ErrorCode, Transaction | None]:
        """DescribeTransactions of one id."""
        return self._coordinator.describe(transactional_id)

    def overview(self, prefix: str = "") -> tuple[ErrorCode, Collection[Transaction]]:
        """ListTransactions: every id that this broker coordinates; those of an instance, by the prefix of its names."""
        return self._coordinator.overview(prefix)

    def remove_with(self, prefix: str) -> int:
        """Removes the ids that begin with `prefix`, as far as that is possible now, and returns how many there are."""
        found, actions = self._coordinator.remove_with(prefix, self.runtime.now_ms())
        self.runtime.run(actions)
        return found
