"""The transaction coordinator: serves the transactional ids whose partition of `__transaction_state` this broker leads.

Its input is values of requests, each with a reply token; its output is actions. It is a `Coordinator` of
`coordinators.runtime`. No clock, no IO, no randomness: the caller passes the time and new producer ids.

    InitProducerId          new epoch; an ongoing transaction is aborted first, and the client asks again
    AddPartitionsToTxn      the transaction begins with its first partition
    EndTxn                  the decision is written; then the client is answered, and markers go to every partition
    marker_written          after the last one the new state is written

    client      EndTxn ──────▶ append Prepare ──▶ answer
                                   └─▶ SendMarkers ──▶ marker_written … ──▶ append Complete

At most one write of an id is under way (`TransactionEntry.pending`); requests that come meanwhile, or while markers are
sent, get CONCURRENT_TRANSACTIONS, upon which clients try again. If the coordinator fails after a Prepare record is
written, the next coordinator finds it and sends the markers again; partitions accept a repeated marker.

This module decides what a request leads to. `transactional_ids` is the state, `write_results` what follows a write,
`markers` and `expiry` what follows a marker and a deadline.

Source: Kafka's `TransactionCoordinator`, `TransactionStateManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice

from headrace.coordinators.runtime import Answer, Effect
from headrace.coordinators.transactions import expiry, markers, write_results
from headrace.coordinators.transactions.actions import (
    Actions,
    DropMarkers,
    Initialized,
    PartitionsAdded,
    Prepared,
    Reply,
    Then,
)
from headrace.coordinators.transactions.ending import EndDecision, decide
from headrace.coordinators.transactions.entry import TransactionEntry
from headrace.coordinators.transactions.loading import TransactionLoading
from headrace.coordinators.transactions.requests import Ended, Initial, InitProducer, TransactionProducer
from headrace.coordinators.transactions.settings import TransactionSettings
from headrace.coordinators.transactions.transaction import (
    PREPARED,
    Transaction,
    TransactionState,
    is_epoch_exhausted,
)
from headrace.coordinators.transactions.transactional_ids import TransactionalIds
from headrace.errors import ErrorCode
from headrace.limits import ELEMENTS_PER_SLICE, INT32_MAX
from headrace.types import NO_PRODUCER, TopicPartition


class TransactionCoordinator:
    """The transactional ids of one broker."""

    __slots__ = ("_ids", "_settings", "partitions")

    def __init__(
        self,
        settings: TransactionSettings,
        partition_for: Callable[[str], int],
        now_ms: int,
        *,
        version: Callable[[], int],
    ) -> None:
        """`partition_for` maps a transactional id to its partition of `__transaction_state`. `version` returns the
        cluster's transaction.version."""
        self._settings, self._ids = settings, TransactionalIds(partition_for, version)
        self.partitions = self._ids.partitions
        expiry.schedule(self._ids, settings, now_ms)

    # Partitions of __transaction_state

    def loaded(self, replay: TransactionLoading, now_ms: int) -> Iterator[Actions]:
        """Takes over the ids of a loaded partition, some in each step, and goes on with transactions whose outcome is
        decided."""
        transactions = iter(replay.transactions.values())
        while some := list(islice(transactions, ELEMENTS_PER_SLICE)):
            actions: Actions = []
            for transaction in some:
                if transaction.state is TransactionState.DEAD:
                    continue
                entry = self._ids.put(TransactionEntry(transaction, replay.partition))
                if transaction.state in PREPARED:
                    actions += markers.send(self._ids, entry, now_ms)
                elif transaction.state is TransactionState.ONGOING:
                    self._ids.set_timeout(transaction)
            yield actions

    def unloaded(self, partition: int, now_ms: int) -> Actions:
        """Drops the ids of a partition that another broker leads now."""
        for transactional_id in [key for key, entry in self._ids.entries.items() if entry.partition == partition]:
            self._ids.drop(transactional_id)
        return [Effect(DropMarkers(partition))]

    # Requests

    def count(self, prefix: str) -> int:
        """The number of ids here that begin with a name and a dot."""
        return self._ids.count(prefix)

    def knows(self, transactional_id: str) -> bool:
        """Whether the id is one of those here."""
        return transactional_id in self._ids.entries

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Whether the next InitProducerId or EndTxn of the id needs a new producer id."""
        entry = self._ids.entries.get(transactional_id)
        return entry is None or entry.transaction.is_new or entry.transaction.is_epoch_exhausted

    def init_producer(self, request: InitProducer, new_id: int | None, reply: Reply, now_ms: int) -> Actions:
        """InitProducerId; the reply gets an `Initial`. `new_id` is used if `needs_producer_id`."""
        error = self._init_fault(request)
        if error is not ErrorCode.NONE:
            return [Answer(reply, Initial(error))]
        timeout_ms = INT32_MAX if request.is_two_phase else request.timeout_ms
        entry = self._ids.entries.get(request.transactional_id)
        if entry is None:
            if new_id is None:
                return [Answer(reply, Initial(ErrorCode.CONCURRENT_TRANSACTIONS))]
            entry = self._ids.create(Transaction(request.transactional_id, new_id, timeout_ms, now_ms))
        transaction = entry.transaction
        if entry.pending is not None:
            return [Answer(reply, Initial(ErrorCode.CONCURRENT_TRANSACTIONS))]
        if request.expected is not None and not _may_continue(transaction, request.expected):
            return [Answer(reply, Initial(ErrorCode.PRODUCER_FENCED))]
        if entry.is_busy:
            return [Answer(reply, Initial(ErrorCode.CONCURRENT_TRANSACTIONS))]
        if transaction.state is TransactionState.ONGOING:
            return [self._ids.fence(entry, reply, now_ms)]
        expected_epoch = None if request.expected is None else request.expected.epoch
        wanted: Transaction | None
        if transaction.is_epoch_exhausted and expected_epoch in (None, transaction.producer_epoch):
            if new_id is None:
                return [Answer(reply, Initial(ErrorCode.CONCURRENT_TRANSACTIONS))]
            wanted = transaction.with_new_producer_id(
                new_id, timeout_ms, now_ms, keeps_last_epoch=expected_epoch is not None
            )
        else:
            wanted = transaction.initialized(timeout_ms, expected_epoch, now_ms)
            if wanted is None:
                return [Answer(reply, Initial(ErrorCode.PRODUCER_FENCED))]
        return [self._ids.write(entry, wanted, Initialized(entry, wanted, reply))]

    def _init_fault(self, request: InitProducer) -> ErrorCode:
        settings = self._settings
        if not request.transactional_id:
            return ErrorCode.INVALID_REQUEST
        if request.is_two_phase and not settings.two_phase_commit_enable:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if request.keeps_prepared:
            return ErrorCode.UNSUPPORTED_VERSION
        if not request.is_two_phase and not 0 < request.timeout_ms <= settings.max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return self._ids.unavailable(request.transactional_id)

    def add_partitions(
        self,
        transactional_id: str,
        producer: TransactionProducer,
        added: frozenset[TopicPartition],
        version: int,
        reply: Reply,
        now_ms: int,
    ) -> Actions:
        """AddPartitionsToTxn and AddOffsetsToTxn; the reply gets an error code. `version` is the client's
        transaction.version."""
        entry = self._ids.entries.get(transactional_id)
        error = self._producer_fault(transactional_id, entry, producer)
        if entry is None or error is not ErrorCode.NONE:
            return [Answer(reply, error)]
        if entry.is_busy:
            return [Answer(reply, ErrorCode.CONCURRENT_TRANSACTIONS)]
        transaction = entry.transaction
        if transaction.state is TransactionState.ONGOING and added <= transaction.partitions:
            return [Answer(reply, ErrorCode.NONE)]
        wanted = transaction.with_partitions(added, version, now_ms)
        return [self._ids.write(entry, wanted, PartitionsAdded(entry, wanted, reply))]

    def verify_partitions(
        self, transactional_id: str, producer: TransactionProducer, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Whether these partitions belong to the producer's ongoing transaction: an error code for each."""
        entry = self._ids.entries.get(transactional_id)
        error = self._producer_fault(transactional_id, entry, producer)
        if error is ErrorCode.NONE and entry is not None and entry.transaction.state in PREPARED:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if entry is None or error is not ErrorCode.NONE:
            return dict.fromkeys(partitions, error)
        known = entry.transaction.partitions
        return {each: ErrorCode.NONE if each in known else ErrorCode.TRANSACTION_ABORTABLE for each in partitions}

    def _producer_fault(
        self, transactional_id: str, entry: TransactionEntry | None, producer: TransactionProducer
    ) -> ErrorCode:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        error = self._ids.unavailable(transactional_id)
        if error is not ErrorCode.NONE:
            return error
        if entry is None or entry.transaction.producer_id != producer.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if entry.transaction.producer_epoch == producer.epoch else ErrorCode.PRODUCER_FENCED

    def end(
        self,
        transactional_id: str,
        producer: TransactionProducer,
        is_commit: bool,
        version: int,
        new_id: int | None,
        reply: Reply,
        now_ms: int,
    ) -> Actions:
        """EndTxn; the reply gets an `Ended`. `version` is the client's transaction.version; `new_id` is used if
        `needs_producer_id`."""
        error = self._ids.unavailable(transactional_id) if transactional_id else ErrorCode.INVALID_REQUEST
        entry = self._ids.entries.get(transactional_id)
        if error is ErrorCode.NONE and entry is None:
            error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if entry is None or error is not ErrorCode.NONE:
            return [Answer(reply, Ended(error))]
        transaction = entry.transaction
        decision = decide(transaction, producer.producer_id, producer.epoch, is_commit, version, is_busy=entry.is_busy)
        if isinstance(decision, ErrorCode):
            if decision is not ErrorCode.NONE:
                return [Answer(reply, Ended(decision))]
            return [Answer(reply, Ended(decision, transaction.producer_id, transaction.producer_epoch))]
        next_id: int = NO_PRODUCER
        if decision is EndDecision.PREPARE_WITH_NEXT_ID:
            if new_id is None:
                return [Answer(reply, Ended(ErrorCode.CONCURRENT_TRANSACTIONS))]
            next_id = new_id
        state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
        wanted = transaction.prepared(state, version, now_ms, next_producer_id=next_id)
        return [self._ids.write(entry, wanted, Prepared(entry, wanted, reply, is_fence=False))]

    # Markers

    def marker_written(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partition: TopicPartition, now_ms: int
    ) -> Actions:
        """A partition has its marker, or needs none because it does not exist any more."""
        return markers.written(self._ids, transactional_id, producer_id, producer_epoch, partition, now_ms)

    # Administration

    def describe(self, transactional_id: str) -> tuple[ErrorCode, Transaction | None]:
        """DescribeTransactions of one id."""
        error = self._ids.unavailable(transactional_id) if transactional_id else ErrorCode.INVALID_REQUEST
        if error is not ErrorCode.NONE:
            return error, None
        entry = self._ids.entries.get(transactional_id)
        if entry is None or entry.transaction.is_new:
            return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, None
        return ErrorCode.NONE, entry.transaction

    def overview(self, prefix: str = "") -> tuple[ErrorCode, Collection[Transaction]]:
        """ListTransactions: every id here, or those that begin with a name and a dot; and COORDINATOR_LOAD_IN_PROGRESS
        while partitions are loading."""
        if self.partitions.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ()
        entries = self._ids.with_prefix(prefix) if prefix else self._ids.entries.values()
        return ErrorCode.NONE, [each.transaction for each in entries if not each.transaction.is_new]

    def remove_with(self, prefix: str, now_ms: int) -> tuple[int, Actions]:
        """Removes the ids that begin with `prefix`, as far as that is possible now, and returns how many there are."""
        return expiry.remove_with(self._ids, prefix, now_ms)

    # Writes and timers

    def appended(self, then: Then, error: ErrorCode, record_offset: int, now_ms: int) -> Actions:
        """Takes in the end of a write."""
        return write_results.appended(self._ids, then, error, now_ms)

    def next_deadline_ms(self) -> int | None:
        """The time at which to call `tick`; None without deadlines."""
        return self._ids.deadlines.next_ms()

    def clock_was_set(self, by_ms: int) -> None:
        """Shifts deadlines by a jump of the caller's clock."""
        self._ids.deadlines.shift(by_ms)

    def tick(self, now_ms: int) -> Actions:
        """Handles deadlines that have passed: some, if thousands of transactions time out at once. The next deadline is
        in the past then, so the caller ticks again after other requests."""
        return expiry.tick(self._ids, self._settings, now_ms)


def _may_continue(transaction: Transaction, expected: TransactionProducer) -> bool:
    """Whether a producer that names its id and epoch may be initialized again.

    A new id has no producer to fence. The previous producer id with an exhausted epoch is a retry of a request that
    got a new producer id.
    """
    return (
        transaction.is_new
        or expected.producer_id == transaction.producer_id
        or (expected.producer_id == transaction.previous_producer_id and is_epoch_exhausted(expected.epoch))
    )
