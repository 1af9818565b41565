"""The state of one transactional id, as it is stored, and its transitions.

    Empty ──▶ Ongoing ──▶ PrepareCommit ──▶ CompleteCommit ──▶ Ongoing …
                 └──────▶ PrepareAbort ───▶ CompleteAbort ───▶ Ongoing …

    PrepareCommit, PrepareAbort     the outcome is decided; the markers are being written
    CompleteCommit, CompleteAbort   every partition has its marker

Every transition returns a new value: the coordinator keeps the old one until the new one is in the log.

An epoch is exhausted at 32766, so that 32767 is left for fencing. With transaction.version 2 (KIP-890) the epoch is
incremented when a transaction is prepared; the markers carry the incremented epoch, and a batch that arrives late is
fenced. If the epoch is exhausted by then, the next transaction uses a new producer id, which is stored as
`next_producer_id` until the markers are written.

Source: Kafka's `TransactionMetadata` and `TransactionState`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

from headrace.limits import INT16_MAX, INT32_MAX
from headrace.types import NO_PRODUCER, TopicPartition

NO_EPOCH = -1
NO_TIMESTAMP = -1
EPOCH_BUMPED_FROM = 2
"""The transaction.version from which on every transaction has an epoch of its own."""


class TransactionState(IntEnum):
    """The state of a transactional id, with the number that is stored and the name that Kafka's tools print."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name in protocol and tools: `PrepareCommit`."""
        return _LABELS[self]


_LABELS = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in TransactionState}
BY_LABEL = {label: state for state, label in _LABELS.items()}
PREPARED = frozenset((TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT))
COMPLETE = frozenset((TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT))
IDLE = COMPLETE | {TransactionState.EMPTY}


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id. Times are in milliseconds since the epoch; -1 stands for an id, epoch or time not set."""

    transactional_id: str
    producer_id: int
    timeout_ms: int
    updated_ms: int
    producer_epoch: int = NO_EPOCH
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER
    next_producer_id: int = NO_PRODUCER
    version: int = 0
    """The transaction.version of the client in its last transition."""
    last_producer_epoch: int = NO_EPOCH
    """The epoch before the last increment that the producer asked for; not stored."""

    @property
    def is_new(self) -> bool:
        """Whether no producer has been initialized yet."""
        return self.producer_epoch == NO_EPOCH

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the next producer needs a new producer id."""
        return is_epoch_exhausted(self.producer_epoch)

    @property
    def bumps_epoch(self) -> bool:
        """Whether the last client was one of transaction.version 2."""
        return self.version >= EPOCH_BUMPED_FROM

    @property
    def never_times_out(self) -> bool:
        """Whether an external coordinator decides the transaction (two-phase commit), so that it has no time-out."""
        return self.timeout_ms == INT32_MAX

    def initialized(self, timeout_ms: int, expected_epoch: int | None, now_ms: int) -> Transaction | None:
        """The state for a producer that begins or continues; None if `expected_epoch` is fenced.

        `expected_epoch` is the epoch that a continuing producer names. The previous epoch is a retry of a request
        whose response was lost: the epoch is returned again.
        """
        epoch, last_epoch = self.producer_epoch + 1, NO_EPOCH
        if expected_epoch is not None:
            if self.is_new or expected_epoch == self.producer_epoch:
                last_epoch = self.producer_epoch
            elif expected_epoch == self.last_producer_epoch:
                epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
            else:
                return None
        return self._emptied(self.producer_id, epoch, last_epoch, timeout_ms, now_ms)

    def with_new_producer_id(
        self, producer_id: int, timeout_ms: int, now_ms: int, *, keeps_last_epoch: bool
    ) -> Transaction:
        """The state with a new producer id and epoch 0, after the epochs of the old one are exhausted."""
        last_epoch = self.producer_epoch if keeps_last_epoch else NO_EPOCH
        return self._emptied(producer_id, 0, last_epoch, timeout_ms, now_ms)

    def _emptied(self, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        return replace(
            self,
            producer_id=producer_id,
            previous_producer_id=self.producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            started_ms=NO_TIMESTAMP,
            updated_ms=now_ms,
        )

    def with_partitions(self, added: frozenset[TopicPartition], version: int, now_ms: int) -> Transaction:
        """The state with partitions added, which begins a transaction if none is ongoing."""
        return replace(
            self,
            state=TransactionState.ONGOING,
            previous_producer_id=self.producer_id,
            partitions=self.partitions | added,
            started_ms=now_ms if self.state in IDLE else self.started_ms,
            updated_ms=now_ms,
            version=version,
        )

    def prepared(
        self, state: TransactionState, version: int, now_ms: int, *, next_producer_id: int = NO_PRODUCER
    ) -> Transaction:
        """The state with the outcome decided. A client of transaction.version 2 gets the next epoch.

        No transaction should begin in the last epoch. One that a faulty coordinator stored ends in that epoch, as in
        Apache Kafka.
        """
        epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        if version >= EPOCH_BUMPED_FROM:
            epoch, last_epoch = min(epoch + 1, INT16_MAX), epoch
        return replace(
            self,
            state=state,
            previous_producer_id=self.producer_id,
            next_producer_id=next_producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            started_ms=now_ms if self.state in IDLE else self.started_ms,
            updated_ms=now_ms,
            version=version,
        )

    def fenced(self, version: int, now_ms: int, *, is_bumped_already: bool) -> Transaction:
        """The state in which the ongoing transaction is aborted and its producer fenced by the next epoch.

        `version` is the cluster's transaction.version. From 2 on, the fenced producer may still continue with
        InitProducerId, if it names its epoch before another producer does. `is_bumped_already`: an earlier try could
        not be written and left the epoch incremented, which no client got.
        """
        aborted = self.prepared(TransactionState.PREPARE_ABORT, version, now_ms)
        if version >= EPOCH_BUMPED_FROM:
            return aborted
        epoch = min(self.producer_epoch + (not is_bumped_already), INT16_MAX)
        return replace(aborted, producer_epoch=epoch, last_producer_epoch=NO_EPOCH)

    def completed(self, now_ms: int) -> Transaction:
        """The state after the last marker."""
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        is_rotated = self.bumps_epoch and self.next_producer_id != NO_PRODUCER
        return replace(
            self,
            state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
            previous_producer_id=self.producer_id,
            producer_id=self.next_producer_id if is_rotated else self.producer_id,
            producer_epoch=0 if is_rotated else self.producer_epoch,
            next_producer_id=NO_PRODUCER,
            partitions=frozenset(),
            updated_ms=now_ms,
        )


def is_epoch_exhausted(epoch: int) -> bool:
    """Whether no producer may get an epoch after this one."""
    return epoch >= INT16_MAX - 1
