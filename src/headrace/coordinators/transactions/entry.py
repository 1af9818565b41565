"""A transactional id as its coordinator keeps it: the stored state, the one that is being written, and the markers."""

from __future__ import annotations

from headrace.coordinators.transactions.transaction import PREPARED, Transaction
from headrace.types import TopicPartition


class TransactionEntry:
    """A transactional id of this coordinator."""

    __slots__ = ("has_failed_fence", "missing_markers", "partition", "pending", "transaction")

    def __init__(self, transaction: Transaction, partition: int) -> None:
        self.transaction = transaction
        """The newest state in the log."""
        self.partition = partition
        """The partition of `__transaction_state`."""
        self.pending: Transaction | None = None
        """The state that is being written."""
        self.has_failed_fence = False
        self.missing_markers: set[TopicPartition] = set()

    @property
    def is_busy(self) -> bool:
        """Whether a transition is under way, so that the next one has to wait."""
        return self.pending is not None or self.transaction.state in PREPARED
