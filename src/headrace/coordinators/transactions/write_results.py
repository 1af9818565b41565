"""The results of writes: what follows when a state of a transactional id is stored, or could not be.

Initialized        InitProducerId is answered
PartitionsAdded    the transaction's time begins; AddPartitionsToTxn is answered
Prepared           the request is answered, and the markers are sent
Completed          nothing; a failed write is tried again
Expired            the ids are removed
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from headrace.coordinators.runtime import APPEND_ERRORS, Answer
from headrace.coordinators.transactions import markers
from headrace.coordinators.transactions.actions import (
    Actions,
    Completed,
    Expired,
    Initialized,
    PartitionsAdded,
    Prepared,
    Then,
)
from headrace.coordinators.transactions.requests import Ended, Initial, TransactionProducer
from headrace.coordinators.transactions.transactional_ids import (
    RETRY_MS,
    TransactionalIds,
    TransactionTimer,
    TransactionTimerKind,
)
from headrace.errors import ErrorCode

OfOneId: TypeAlias = Initialized | PartitionsAdded | Prepared | Completed


def appended(ids: TransactionalIds, then: Then, error: ErrorCode, now_ms: int) -> Actions:
    """Takes in the end of a write."""
    if isinstance(then, Expired):
        return _expired(ids, then, error)
    entry = then.entry
    if ids.entries.get(then.transaction.transactional_id) is not entry:
        return _refused(then, ErrorCode.NOT_COORDINATOR)  # another broker coordinates the id by now
    entry.pending = None
    if error is not ErrorCode.NONE:
        return _failed(ids, then, APPEND_ERRORS.get(error, error), now_ms)
    entry.transaction = transaction = then.transaction
    match then:
        case Initialized():
            producer = TransactionProducer(transaction.producer_id, transaction.producer_epoch)
            return [Answer(then.reply, Initial(ErrorCode.NONE, producer))]
        case PartitionsAdded():
            ids.set_timeout(transaction)
            return [Answer(then.reply, ErrorCode.NONE)]
        case Prepared():
            return _prepared(ids, then, now_ms)
        case Completed():
            return []


def _prepared(ids: TransactionalIds, then: Prepared, now_ms: int) -> Actions:
    entry, transaction = then.entry, then.transaction
    entry.has_failed_fence = False
    ids.deadlines.cancel(TransactionTimer(TransactionTimerKind.TIMEOUT, transaction.transactional_id))
    answers: Actions = []
    if then.reply is not None and then.is_fence:
        answers.append(Answer(then.reply, Initial(ErrorCode.CONCURRENT_TRANSACTIONS)))
    elif then.reply is not None:
        after = transaction.completed(now_ms)
        answers.append(Answer(then.reply, Ended(ErrorCode.NONE, after.producer_id, after.producer_epoch)))
    return answers + markers.send(ids, entry, now_ms)


def _expired(ids: TransactionalIds, then: Expired, error: ErrorCode) -> Actions:
    for entry in then.entries:
        transactional_id = entry.transaction.transactional_id
        if ids.entries.get(transactional_id) is not entry:
            continue
        entry.pending = None
        if error is ErrorCode.NONE:
            ids.drop(transactional_id)
    return []


def _failed(ids: TransactionalIds, then: OfOneId, error: ErrorCode, now_ms: int) -> Actions:
    entry = then.entry
    transactional_id = then.transaction.transactional_id
    if isinstance(then, Completed):
        ids.deadlines.set(TransactionTimer(TransactionTimerKind.RETRY_COMPLETE, transactional_id), now_ms + RETRY_MS)
        return []
    if isinstance(then, Prepared) and then.is_fence:
        if not then.transaction.bumps_epoch:
            # The record may be in the log all the same: the producer must not continue with its old epoch.
            entry.transaction = replace(entry.transaction, producer_epoch=then.transaction.producer_epoch)
            entry.has_failed_fence = True
        if then.reply is None:
            ids.deadlines.set(TransactionTimer(TransactionTimerKind.TIMEOUT, transactional_id), now_ms + RETRY_MS)
    if entry.transaction.is_new:
        ids.drop(transactional_id)
    return _refused(then, error)


def _refused(then: OfOneId, error: ErrorCode) -> Actions:
    match then:
        case Initialized():
            return [Answer(then.reply, Initial(error))]
        case PartitionsAdded():
            return [Answer(then.reply, error)]
        case Prepared(reply=None) | Completed():
            return []
        case Prepared(reply=reply, is_fence=is_fence):
            return [Answer(reply, Initial(error) if is_fence else Ended(error))]  # type: ignore[arg-type]
