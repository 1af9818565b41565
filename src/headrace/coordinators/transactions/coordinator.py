"""The transaction coordinator: serves the transactional ids whose partition of `__transaction_state` this broker leads.

Its input is values of requests, each with a reply token; its output is actions. It is a `Coordinator` of
`coordinators.runtime`. No clock, no IO, no randomness: the caller passes the time and new producer ids.

    InitProducerId          new epoch; an ongoing transaction is aborted first, and the client asks again
    AddPartitionsToTxn      the transaction begins with its first partition
    EndTxn                  the decision is written; then the client is answered, and markers go to every partition
    marker_written          after the last one the new state is written

    client      EndTxn ──────▶ append Prepare ──▶ answer
                                   └─▶ SendMarkers ──▶ marker_written … ──▶ append Complete

At most one write of an id is under way (`Entry.pending`); requests that come meanwhile, or while markers are sent, get
CONCURRENT_TRANSACTIONS, upon which clients try again. If the coordinator fails after a Prepare record is written, the
next coordinator finds it and sends the markers again; partitions accept a repeated marker.

Source: Kafka's `TransactionCoordinator`, `TransactionStateManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from enum import Enum, auto
from itertools import islice
from typing import NamedTuple

from headrace.coordinators.deadlines import Deadlines
from headrace.coordinators.runtime import Answer, Append, Effect, OwnedPartitions
from headrace.coordinators.transactions.actions import (
    Action,
    Completed,
    DropMarkers,
    Ended,
    Expired,
    Initialized,
    PartitionsAdded,
    Prepared,
    Reply,
    SendMarkers,
    Then,
)
from headrace.coordinators.transactions.ending import Decision, decide
from headrace.coordinators.transactions.entry import Entry
from headrace.coordinators.transactions.loading import Loading
from headrace.coordinators.transactions.records import FLEXIBLE_FROM, write_key, write_value
from headrace.coordinators.transactions.transaction import (
    IDLE,
    PREPARED,
    Transaction,
    TransactionState,
    is_epoch_exhausted,
)
from headrace.errors import ErrorCode
from headrace.limits import (
    ELEMENTS_PER_SLICE,
    INT32_MAX,
    TIMEOUTS_PER_TICK_MAX,
    TRANSACTIONAL_IDS_PER_EXPIRY_BATCH,
    TRANSACTIONAL_IDS_PER_EXPIRY_TICK,
)
from headrace.types import NO_PRODUCER, TopicPartition

log = logging.getLogger(__name__)

Actions = list[Action]

APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The client's error for a failed write."""

COMPLETE_RETRY_MS = 100
"""The time after which a failed write of a complete state is tried again, and after which the next unused ids of many
are removed."""


class Settings(NamedTuple):
    """The broker settings of transactions. Times are in milliseconds."""

    max_timeout_ms: int
    id_expiration_ms: int
    expiration_check_interval_ms: int
    two_phase_commit_enable: bool


class Producer(NamedTuple):
    """A producer id and epoch."""

    producer_id: int = NO_PRODUCER
    epoch: int = -1


class InitProducer(NamedTuple):
    """InitProducerId with a transactional id."""

    transactional_id: str
    timeout_ms: int
    expected: Producer | None = None
    """The id and epoch of a producer that continues after an error."""
    is_two_phase: bool = False
    keeps_prepared: bool = False


class Initial(NamedTuple):
    """The answer to InitProducerId."""

    error: ErrorCode
    producer: Producer = Producer()


class TimerKind(Enum):
    """The kinds of deadlines."""

    TIMEOUT = auto()
    RETRY_COMPLETE = auto()
    EXPIRY = auto()


class Timer(NamedTuple):
    """The key of a deadline."""

    kind: TimerKind
    transactional_id: str = ""


class TransactionCoordinator:
    """The transactional ids of one broker."""

    __slots__ = ("_deadlines", "_entries", "_partition_for", "_settings", "_version", "partitions")

    def __init__(
        self,
        settings: Settings,
        partition_for: Callable[[str], int],
        now_ms: int,
        *,
        version: Callable[[], int],
    ) -> None:
        """`partition_for` maps a transactional id to its partition of `__transaction_state`. `version` returns the
        cluster's transaction.version."""
        self._settings, self._partition_for, self._version = settings, partition_for, version
        self._entries: dict[str, Entry] = {}
        self.partitions = OwnedPartitions(Loading)
        self._deadlines: Deadlines[Timer] = Deadlines()
        self._deadlines.set(Timer(TimerKind.EXPIRY), now_ms + settings.expiration_check_interval_ms)

    # Partitions of __transaction_state

    def loaded(self, replay: Loading, now_ms: int) -> Iterator[Actions]:
        """Takes over the ids of a loaded partition, some in each step, and goes on with transactions whose outcome is
        decided."""
        transactions = iter(replay.transactions.values())
        while some := list(islice(transactions, ELEMENTS_PER_SLICE)):
            actions: Actions = []
            for transaction in some:
                if transaction.state is TransactionState.DEAD:
                    continue
                entry = self._entries[transaction.transactional_id] = Entry(transaction, replay.partition)
                if transaction.state in PREPARED:
                    actions += self._send_markers(entry, now_ms)
                elif transaction.state is TransactionState.ONGOING:
                    self._set_timeout(transaction)
            yield actions

    def unloaded(self, partition: int, now_ms: int) -> Actions:
        """Drops the ids of a partition that another broker leads now."""
        for transactional_id in [key for key, entry in self._entries.items() if entry.partition == partition]:
            self._drop(transactional_id)
        return [Effect(DropMarkers(partition))]

    # Requests

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Whether the next InitProducerId or EndTxn of the id needs a new producer id."""
        entry = self._entries.get(transactional_id)
        return entry is None or entry.transaction.is_new or entry.transaction.is_epoch_exhausted

    def init_producer(self, request: InitProducer, new_id: int | None, reply: Reply, now_ms: int) -> Actions:
        """InitProducerId; the reply gets an `Initial`. `new_id` is used if `needs_producer_id`."""
        error = self._init_fault(request)
        if error is not ErrorCode.NONE:
            return [Answer(reply, Initial(error))]
        timeout_ms = INT32_MAX if request.is_two_phase else request.timeout_ms
        entry = self._entries.get(request.transactional_id)
        if entry is None:
            if new_id is None:
                return [Answer(reply, Initial(ErrorCode.CONCURRENT_TRANSACTIONS))]
            created = Transaction(request.transactional_id, new_id, timeout_ms, now_ms)
            entry = Entry(created, self._partition_for(request.transactional_id))
            self._entries[request.transactional_id] = entry
        transaction = entry.transaction
        if entry.pending is not None:
            return [Answer(reply, Initial(ErrorCode.CONCURRENT_TRANSACTIONS))]
        if request.expected is not None and not _may_continue(transaction, request.expected):
            return [Answer(reply, Initial(ErrorCode.PRODUCER_FENCED))]
        if entry.is_busy:
            return [Answer(reply, Initial(ErrorCode.CONCURRENT_TRANSACTIONS))]
        if transaction.state is TransactionState.ONGOING:
            return self._fence(entry, reply, now_ms)
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
        return [self._write(entry, wanted, Initialized(entry, wanted, reply))]

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
        return self._unavailable(request.transactional_id)

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        added: frozenset[TopicPartition],
        version: int,
        reply: Reply,
        now_ms: int,
    ) -> Actions:
        """AddPartitionsToTxn and AddOffsetsToTxn; the reply gets an error code. `version` is the client's
        transaction.version."""
        entry = self._entries.get(transactional_id)
        error = self._producer_fault(transactional_id, entry, producer)
        if entry is None or error is not ErrorCode.NONE:
            return [Answer(reply, error)]
        if entry.is_busy:
            return [Answer(reply, ErrorCode.CONCURRENT_TRANSACTIONS)]
        transaction = entry.transaction
        if transaction.state is TransactionState.ONGOING and added <= transaction.partitions:
            return [Answer(reply, ErrorCode.NONE)]
        wanted = transaction.with_partitions(added, version, now_ms)
        return [self._write(entry, wanted, PartitionsAdded(entry, wanted, reply))]

    def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Whether these partitions belong to the producer's ongoing transaction: an error code for each."""
        entry = self._entries.get(transactional_id)
        error = self._producer_fault(transactional_id, entry, producer)
        if error is ErrorCode.NONE and entry is not None and entry.transaction.state in PREPARED:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if entry is None or error is not ErrorCode.NONE:
            return dict.fromkeys(partitions, error)
        known = entry.transaction.partitions
        return {each: ErrorCode.NONE if each in known else ErrorCode.TRANSACTION_ABORTABLE for each in partitions}

    def _producer_fault(self, transactional_id: str, entry: Entry | None, producer: Producer) -> ErrorCode:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        error = self._unavailable(transactional_id)
        if error is not ErrorCode.NONE:
            return error
        if entry is None or entry.transaction.producer_id != producer.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if entry.transaction.producer_epoch == producer.epoch else ErrorCode.PRODUCER_FENCED

    def end(
        self,
        transactional_id: str,
        producer: Producer,
        is_commit: bool,
        version: int,
        new_id: int | None,
        reply: Reply,
        now_ms: int,
    ) -> Actions:
        """EndTxn; the reply gets an `Ended`. `version` is the client's transaction.version; `new_id` is used if
        `needs_producer_id`."""
        error = self._unavailable(transactional_id) if transactional_id else ErrorCode.INVALID_REQUEST
        entry = self._entries.get(transactional_id)
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
        if decision is Decision.PREPARE_WITH_NEXT_ID:
            if new_id is None:
                return [Answer(reply, Ended(ErrorCode.CONCURRENT_TRANSACTIONS))]
            next_id = new_id
        state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
        wanted = transaction.prepared(state, version, now_ms, next_producer_id=next_id)
        return [self._write(entry, wanted, Prepared(entry, wanted, reply, is_fence=False))]

    def _fence(self, entry: Entry, reply: Reply | None, now_ms: int) -> Actions:
        wanted = entry.transaction.fenced(self._version(), now_ms, is_bumped_already=entry.has_failed_fence)
        return [self._write(entry, wanted, Prepared(entry, wanted, reply, is_fence=True))]

    # Markers

    def marker_written(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partition: TopicPartition, now_ms: int
    ) -> Actions:
        """A partition has its marker, or needs none because it does not exist any more."""
        entry = self._entries.get(transactional_id)
        if entry is None or partition not in entry.missing_markers:
            return []
        transaction = entry.transaction
        if (transaction.producer_id, transaction.producer_epoch) != (producer_id, producer_epoch):
            return []
        entry.missing_markers.discard(partition)
        return self._complete_if_done(entry, now_ms)

    def _send_markers(self, entry: Entry, now_ms: int) -> Actions:
        transaction = entry.transaction
        entry.missing_markers = set(transaction.partitions)
        if not transaction.partitions:
            return self._complete_if_done(entry, now_ms)
        return [
            Effect(
                SendMarkers(
                    transaction.transactional_id,
                    entry.partition,
                    self.partitions.epoch(entry.partition),
                    transaction.producer_id,
                    transaction.producer_epoch,
                    transaction.state is TransactionState.PREPARE_COMMIT,
                    transaction.partitions,
                    transaction.version,
                )
            )
        ]

    def _complete_if_done(self, entry: Entry, now_ms: int) -> Actions:
        if entry.missing_markers or entry.pending is not None or entry.transaction.state not in PREPARED:
            return []
        wanted = entry.transaction.completed(now_ms)
        return [self._write(entry, wanted, Completed(entry, wanted))]

    # Administration

    def describe(self, transactional_id: str) -> tuple[ErrorCode, Transaction | None]:
        """DescribeTransactions of one id."""
        error = self._unavailable(transactional_id) if transactional_id else ErrorCode.INVALID_REQUEST
        if error is not ErrorCode.NONE:
            return error, None
        entry = self._entries.get(transactional_id)
        if entry is None or entry.transaction.is_new:
            return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, None
        return ErrorCode.NONE, entry.transaction

    def overview(self) -> tuple[ErrorCode, Collection[Transaction]]:
        """ListTransactions: every id here, and COORDINATOR_LOAD_IN_PROGRESS while partitions are loading."""
        if self.partitions.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ()
        return ErrorCode.NONE, [each.transaction for each in self._entries.values() if not each.transaction.is_new]

    # Writes and timers

    def appended(self, then: Then, error: ErrorCode, record_offset: int, now_ms: int) -> Actions:
        """Takes in the end of a write."""
        if isinstance(then, Expired):
            return self._expired(then, error)
        entry = then.entry
        if self._entries.get(then.transaction.transactional_id) is not entry:
            return self._refused(then, ErrorCode.NOT_COORDINATOR)  # another broker coordinates the id by now
        entry.pending = None
        if error is not ErrorCode.NONE:
            return self._failed(then, APPEND_ERRORS.get(error, error), now_ms)
        entry.transaction = transaction = then.transaction
        match then:
            case Initialized():
                producer = Producer(transaction.producer_id, transaction.producer_epoch)
                return [Answer(then.reply, Initial(ErrorCode.NONE, producer))]
            case PartitionsAdded():
                self._set_timeout(transaction)
                return [Answer(then.reply, ErrorCode.NONE)]
            case Prepared():
                return self._prepared(then, now_ms)
            case Completed():
                return []

    def _prepared(self, then: Prepared, now_ms: int) -> Actions:
        entry, transaction = then.entry, then.transaction
        entry.has_failed_fence = False
        self._deadlines.cancel(Timer(TimerKind.TIMEOUT, transaction.transactional_id))
        answers: Actions = []
        if then.reply is not None and then.is_fence:
            answers.append(Answer(then.reply, Initial(ErrorCode.CONCURRENT_TRANSACTIONS)))
        elif then.reply is not None:
            after = transaction.completed(now_ms)
            answers.append(Answer(then.reply, Ended(ErrorCode.NONE, after.producer_id, after.producer_epoch)))
        return answers + self._send_markers(entry, now_ms)

    def _failed(
        self, then: Initialized | PartitionsAdded | Prepared | Completed, error: ErrorCode, now_ms: int
    ) -> Actions:
        entry = then.entry
        transactional_id = then.transaction.transactional_id
        if isinstance(then, Completed):
            self._deadlines.set(Timer(TimerKind.RETRY_COMPLETE, transactional_id), now_ms + COMPLETE_RETRY_MS)
            return []
        if isinstance(then, Prepared) and then.is_fence:
            if not then.transaction.bumps_epoch:
                # The record may be in the log all the same: the producer must not continue with its old epoch.
                entry.transaction = replace(entry.transaction, producer_epoch=then.transaction.producer_epoch)
                entry.has_failed_fence = True
            if then.reply is None:
                self._deadlines.set(Timer(TimerKind.TIMEOUT, transactional_id), now_ms + COMPLETE_RETRY_MS)
        if entry.transaction.is_new:
            self._drop(transactional_id)
        return self._refused(then, error)

    def _refused(self, then: Initialized | PartitionsAdded | Prepared | Completed, error: ErrorCode) -> Actions:
        match then:
            case Initialized():
                return [Answer(then.reply, Initial(error))]
            case PartitionsAdded():
                return [Answer(then.reply, error)]
            case Prepared(reply=None) | Completed():
                return []
            case Prepared(reply=reply, is_fence=is_fence):
                return [Answer(reply, Initial(error) if is_fence else Ended(error))]  # type: ignore[arg-type]

    def next_deadline_ms(self) -> int | None:
        """The time at which to call `tick`; None without deadlines."""
        return self._deadlines.next_ms()

    def clock_was_set(self, by_ms: int) -> None:
        """Shifts deadlines by a jump of the caller's clock."""
        self._deadlines.shift(by_ms)

    def tick(self, now_ms: int) -> Actions:
        """Handles deadlines that have passed: some, if thousands of transactions time out at once. The next deadline is
        in the past then, so the caller ticks again after other requests."""
        actions: Actions = []
        while len(actions) < TIMEOUTS_PER_TICK_MAX and (timer := self._deadlines.pop_due(now_ms)) is not None:
            if timer.kind is TimerKind.EXPIRY:
                self._deadlines.set(timer, now_ms + self._settings.expiration_check_interval_ms)
                actions += self._expire(now_ms)
                continue
            entry = self._entries[timer.transactional_id]
            if timer.kind is TimerKind.RETRY_COMPLETE:
                actions += self._complete_if_done(entry, now_ms)
            elif entry.pending is not None:
                self._deadlines.set(timer, now_ms + COMPLETE_RETRY_MS)  # the write may end the transaction, or fail
            elif entry.transaction.state is TransactionState.ONGOING:
                log.info(
                    "transactional id %s: the transaction of producer %d exceeded its time-out of %d ms and is aborted",
                    timer.transactional_id,
                    entry.transaction.producer_id,
                    entry.transaction.timeout_ms,
                )
                actions += self._fence(entry, None, now_ms)
        return actions

    def _set_timeout(self, transaction: Transaction) -> None:
        if not transaction.never_times_out:
            timer = Timer(TimerKind.TIMEOUT, transaction.transactional_id)
            self._deadlines.set(timer, transaction.started_ms + transaction.timeout_ms)

    def _expire(self, now_ms: int) -> Actions:
        """Removes ids that were not used for `transactional.id.expiration.ms`."""
        oldest_ms = now_ms - self._settings.id_expiration_ms
        unused: dict[int, list[Entry]] = {}
        count = 0
        for entry in self._entries.values():
            transaction = entry.transaction
            if entry.pending is None and transaction.state in IDLE and transaction.updated_ms <= oldest_ms:
                unused.setdefault(entry.partition, []).append(entry)
                count += 1
                if count == TRANSACTIONAL_IDS_PER_EXPIRY_TICK:
                    self._deadlines.set(Timer(TimerKind.EXPIRY), now_ms + COMPLETE_RETRY_MS)
                    break
        actions: Actions = []
        for partition, entries in unused.items():
            for start in range(0, len(entries), TRANSACTIONAL_IDS_PER_EXPIRY_BATCH):
                some = tuple(entries[start : start + TRANSACTIONAL_IDS_PER_EXPIRY_BATCH])
                for entry in some:
                    entry.pending = replace(entry.transaction, state=TransactionState.DEAD)
                tombstones = tuple((write_key(entry.transaction.transactional_id), None) for entry in some)
                actions.append(Append(partition, tombstones, now_ms, Expired(some)))
        return actions

    def _expired(self, then: Expired, error: ErrorCode) -> Actions:
        for entry in then.entries:
            transactional_id = entry.transaction.transactional_id
            if self._entries.get(transactional_id) is not entry:
                continue
            entry.pending = None
            if error is ErrorCode.NONE:
                self._drop(transactional_id)
        return []

    def _write(self, entry: Entry, wanted: Transaction, then: Then) -> Append[Then]:
        value = write_value(wanted, is_flexible=self._version() >= FLEXIBLE_FROM)
        entry.pending = wanted
        return Append(entry.partition, ((write_key(wanted.transactional_id), value),), wanted.updated_ms, then)

    def _drop(self, transactional_id: str) -> None:
        del self._entries[transactional_id]
        for kind in (TimerKind.TIMEOUT, TimerKind.RETRY_COMPLETE):
            self._deadlines.cancel(Timer(kind, transactional_id))

    def _unavailable(self, transactional_id: str) -> ErrorCode:
        return self.partitions.availability(self._partition_for(transactional_id))


def _may_continue(transaction: Transaction, expected: Producer) -> bool:
    """Whether a producer that names its id and epoch may be initialized again.

    A new id has no producer to fence. The previous producer id with an exhausted epoch is a retry of a request that
    got a new producer id.
    """
    return (
        transaction.is_new
        or expected.producer_id == transaction.producer_id
        or (expected.producer_id == transaction.previous_producer_id and is_epoch_exhausted(expected.epoch))
    )
