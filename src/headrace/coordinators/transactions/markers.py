"""The markers of a transaction whose outcome is stored: one for each partition, then the complete state is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.coordinators.runtime import Effect
from headrace.coordinators.transactions.actions import Actions, Completed, SendMarkers
from headrace.coordinators.transactions.transaction import PREPARED, TransactionState

if TYPE_CHECKING:
    from headrace.coordinators.transactions.entry import TransactionEntry
    from headrace.coordinators.transactions.transactional_ids import TransactionalIds
    from headrace.types import TopicPartition


def send(ids: TransactionalIds, entry: TransactionEntry, now_ms: int) -> Actions:
    """Sends the markers of a prepared transaction to all of its partitions."""
    transaction = entry.transaction
    entry.missing_markers = set(transaction.partitions)
    if not transaction.partitions:
        return complete_if_done(ids, entry, now_ms)
    return [
        Effect(
            SendMarkers(
                transaction.transactional_id,
                entry.partition,
                ids.partitions.epoch(entry.partition),
                transaction.producer_id,
                transaction.producer_epoch,
                transaction.state is TransactionState.PREPARE_COMMIT,
                transaction.partitions,
                transaction.version,
            )
        )
    ]


def written(
    ids: TransactionalIds,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partition: TopicPartition,
    now_ms: int,
) -> Actions:
    """A partition has its marker, or needs none because it does not exist any more."""
    entry = ids.entries.get(transactional_id)
    if entry is None or partition not in entry.missing_markers:
        return []
    transaction = entry.transaction
    if (transaction.producer_id, transaction.producer_epoch) != (producer_id, producer_epoch):
        return []
    entry.missing_markers.discard(partition)
    return complete_if_done(ids, entry, now_ms)


def complete_if_done(ids: TransactionalIds, entry: TransactionEntry, now_ms: int) -> Actions:
    """Writes the complete state if no marker is missing and no write is under way."""
    if entry.missing_markers or entry.pending is not None or entry.transaction.state not in PREPARED:
        return []
    wanted = entry.transaction.completed(now_ms)
    return [ids.write(entry, wanted, Completed(entry, wanted))]
