"""Deadlines: transactions that exceed their time-out are aborted, and unused transactional ids are removed.

A third kind of deadline tries a failed write of a complete state again. Unused ids are removed from the log with
tombstones; `write_results` removes their entries when the tombstones are stored.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.coordinators.runtime import Append
from headrace.coordinators.transactions import markers
from headrace.coordinators.transactions.actions import Actions, Expired
from headrace.coordinators.transactions.records import write_key
from headrace.coordinators.transactions.transaction import IDLE, TransactionState
from headrace.coordinators.transactions.transactional_ids import (
    RETRY_MS,
    TransactionalIds,
    TransactionTimer,
    TransactionTimerKind,
)
from headrace.limits import (
    TIMEOUTS_PER_TICK_MAX,
    TRANSACTIONAL_IDS_PER_EXPIRY_BATCH,
    TRANSACTIONAL_IDS_PER_EXPIRY_TICK,
)

if TYPE_CHECKING:
    from headrace.coordinators.transactions.entry import TransactionEntry
    from headrace.coordinators.transactions.settings import TransactionSettings

log = logging.getLogger(__name__)


def schedule(ids: TransactionalIds, settings: TransactionSettings, now_ms: int) -> None:
    """Sets the time of the next search for unused ids."""
    ids.deadlines.set(TransactionTimer(TransactionTimerKind.EXPIRY), now_ms + settings.expiration_check_interval_ms)


def tick(ids: TransactionalIds, settings: TransactionSettings, now_ms: int) -> Actions:
    """Handles deadlines that have passed: at most `TIMEOUTS_PER_TICK_MAX`, and the rest in the next tick."""
    actions: Actions = []
    while len(actions) < TIMEOUTS_PER_TICK_MAX and (timer := ids.deadlines.pop_due(now_ms)) is not None:
        if timer.kind is TransactionTimerKind.EXPIRY:
            schedule(ids, settings, now_ms)
            actions += _remove_unused(ids, settings, now_ms)
            continue
        entry = ids.entries[timer.transactional_id]
        if timer.kind is TransactionTimerKind.RETRY_COMPLETE:
            actions += markers.complete_if_done(ids, entry, now_ms)
        elif entry.pending is not None:
            ids.deadlines.set(timer, now_ms + RETRY_MS)  # the write may end the transaction, or fail
        elif entry.transaction.state is TransactionState.ONGOING:
            log.info(
                "transactional id %s: the transaction of producer %d exceeded its time-out of %d ms and is aborted",
                timer.transactional_id,
                entry.transaction.producer_id,
                entry.transaction.timeout_ms,
            )
            actions.append(ids.fence(entry, None, now_ms))
    return actions


def _remove_unused(ids: TransactionalIds, settings: TransactionSettings, now_ms: int) -> Actions:
    """Removes ids that were not used for `transactional.id.expiration.ms`."""
    oldest_ms = now_ms - settings.id_expiration_ms
    unused: list[TransactionEntry] = []
    for entry in ids.entries.values():
        if _is_idle(entry) and entry.transaction.updated_ms <= oldest_ms:
            unused.append(entry)
            if len(unused) == TRANSACTIONAL_IDS_PER_EXPIRY_TICK:
                ids.deadlines.set(TransactionTimer(TransactionTimerKind.EXPIRY), now_ms + RETRY_MS)
                break
    return _remove(unused, now_ms)


def remove_with(ids: TransactionalIds, prefix: str, now_ms: int) -> tuple[int, Actions]:
    """Removes the ids that begin with `prefix`, and aborts their open transactions. Returns how many there are: those
    that end meanwhile, and all beyond `TRANSACTIONAL_IDS_PER_EXPIRY_TICK`, are removed by a later call."""
    found = [entry for name, entry in ids.entries.items() if name.startswith(prefix)]
    some = found[:TRANSACTIONAL_IDS_PER_EXPIRY_TICK]
    actions = _remove([each for each in some if _is_idle(each)], now_ms)
    for entry in some:
        if entry.pending is None and entry.transaction.state is TransactionState.ONGOING:
            actions.append(ids.fence(entry, None, now_ms))
    return len(found), actions


def _is_idle(entry: TransactionEntry) -> bool:
    return entry.pending is None and entry.transaction.state in IDLE


def _remove(unused: Iterable[TransactionEntry], now_ms: int) -> Actions:
    """Writes the tombstones of ids."""
    by_partition: dict[int, list[TransactionEntry]] = {}
    for entry in unused:
        by_partition.setdefault(entry.partition, []).append(entry)
    actions: Actions = []
    for partition, entries in by_partition.items():
        for start in range(0, len(entries), TRANSACTIONAL_IDS_PER_EXPIRY_BATCH):
            some = tuple(entries[start : start + TRANSACTIONAL_IDS_PER_EXPIRY_BATCH])
            for entry in some:
                entry.pending = replace(entry.transaction, state=TransactionState.DEAD)
            tombstones = tuple((write_key(entry.transaction.transactional_id), None) for entry in some)
            actions.append(Append(partition, tombstones, now_ms, Expired(some)))
    return actions
