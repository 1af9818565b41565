"""The rules of EndTxn: whether a transaction may be committed or aborted, or was already.

                        transaction.version 0, 1                    transaction.version 2
    Ongoing             prepared                                    prepared
    Empty               INVALID_TXN_STATE                           an abort is prepared, to get the next epoch
    Complete…           NONE if the outcome is the same             of the previous epoch a retry: NONE if the outcome
                                                                    is the same; of this epoch a transaction without
                                                                    partitions, which may only be aborted
    Prepare…            CONCURRENT_TRANSACTIONS                     CONCURRENT_TRANSACTIONS

A commit in the previous epoch of an abort comes from a producer whose transaction timed out, since a producer repeats
what it asked for. It is fenced. Apache Kafka up to 4.3 answers INVALID_TXN_STATE, after which Kafka Streams gives up.
Source: Kafka's `TransactionCoordinator.endTransaction`, KIP-890, KAFKA-20785.
"""

from enum import Enum, auto

from headrace.coordinators.transactions.transaction import (
    COMPLETE,
    EPOCH_BUMPED_FROM,
    Transaction,
    TransactionState,
)
from headrace.errors import ErrorCode
from headrace.limits import INT16_MAX


class EndDecision(Enum):
    """What EndTxn leads to, where it is neither refused nor done already."""

    PREPARE = auto()
    PREPARE_WITH_NEXT_ID = auto()
    """The epoch is exhausted: the next transaction needs a new producer id."""


def decide(
    transaction: Transaction, producer_id: int, epoch: int, is_commit: bool, version: int, *, is_busy: bool
) -> EndDecision | ErrorCode:
    """The decision, or the error code to answer with (NONE for a request that was done already).

    `is_busy`: an earlier transition is under way.
    """
    if version >= EPOCH_BUMPED_FROM:
        return _with_epoch_bump(transaction, producer_id, epoch, is_commit, is_busy=is_busy)
    if transaction.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.producer_epoch != epoch:
        return ErrorCode.PRODUCER_FENCED
    if is_busy:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.state is TransactionState.ONGOING:
        return EndDecision.PREPARE
    is_same = transaction.state in COMPLETE and _is_committed(transaction) == is_commit
    return ErrorCode.NONE if is_same else ErrorCode.INVALID_TXN_STATE


def _with_epoch_bump(
    transaction: Transaction, producer_id: int, epoch: int, is_commit: bool, *, is_busy: bool
) -> EndDecision | ErrorCode:
    if is_busy:  # first, since the producer may use a producer id that is not in force yet
        return ErrorCode.CONCURRENT_TRANSACTIONS
    is_complete = transaction.state in COMPLETE
    is_retry_of_last_epoch = (
        is_complete
        and transaction.previous_producer_id == producer_id
        and epoch == INT16_MAX - 1
        and transaction.producer_epoch == 0
    )
    if transaction.producer_id != producer_id and not is_retry_of_last_epoch:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    is_retry = is_retry_of_last_epoch or (is_complete and transaction.producer_epoch == epoch + 1)
    if not is_retry and transaction.producer_epoch != epoch:
        return ErrorCode.PRODUCER_FENCED
    if transaction.state is not TransactionState.ONGOING:
        if is_retry and _is_committed(transaction) == is_commit:
            return ErrorCode.NONE
        if is_retry:
            return ErrorCode.PRODUCER_FENCED if is_commit else ErrorCode.INVALID_TXN_STATE
        if is_commit:
            return ErrorCode.INVALID_TXN_STATE
    return EndDecision.PREPARE_WITH_NEXT_ID if transaction.is_epoch_exhausted else EndDecision.PREPARE


def _is_committed(transaction: Transaction) -> bool:
    return transaction.state is TransactionState.COMPLETE_COMMIT
