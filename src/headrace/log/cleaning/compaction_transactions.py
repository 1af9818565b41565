"""Transactions in compaction: decides which transactional batches and markers can be removed, in log order.

    a batch of an aborted transaction       removed
    its marker                              removed, with its transaction index entry, once an earlier cleaning has
                                            removed all batches of the transaction
    the marker of a committed transaction   removed once no batch of the transaction is left
    a marker that was emptied               removed

The caller delays the removal of markers by `delete.retention.ms`: a reader that has seen the transaction's records must
also see its marker. Source: Kafka's CleanedTransactionMetadata.
"""

from collections import deque
from collections.abc import Callable, Iterable

from headrace.log.segment.txn_index import AbortedTransaction
from headrace.records.codecs.compression import Bytes
from headrace.records.format2.control import read_marker
from headrace.records.format2.header import BatchHeader


class PassedTransactions:
    """The open transactions at the current position, which moves through the log in order."""

    def __init__(
        self, aborted: Iterable[AbortedTransaction], keep_aborted: Callable[[AbortedTransaction], object] | None = None
    ) -> None:
        """`aborted` are all aborted transactions with a batch or the marker in the cleaned part of the log.

        `keep_aborted` is called with each of them that still has batches.
        """
        self._coming = deque(sorted(set(aborted), key=lambda each: each.first_offset))
        self._keep_aborted = keep_aborted
        self._aborted: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()  # producers whose open transaction has a batch

    def is_needless(self, batch: Bytes, header: BatchHeader) -> bool:
        """Whether consumers do not need this batch, the next of the log. Raises CorruptMessage."""
        while self._coming and self._coming[0].first_offset <= header.last_offset:
            transaction = self._coming.popleft()
            self._aborted.setdefault(transaction.producer_id, transaction)
        if header.is_control:
            return self._is_needless_marker(batch, header)
        if not header.is_transactional:
            return False
        self._seen.add(header.producer_id)
        return header.producer_id in self._aborted

    def _is_needless_marker(self, batch: Bytes, header: BatchHeader) -> bool:
        if header.record_count == 0:
            return True
        marker = read_marker(batch)
        if not (marker.is_abort or marker.is_commit):
            return False
        was_seen = header.producer_id in self._seen
        self._seen.discard(header.producer_id)
        if marker.is_commit:
            return not was_seen
        transaction = self._aborted.pop(header.producer_id, None)
        if transaction is None or not was_seen:
            return True
        if self._keep_aborted is not None:
            self._keep_aborted(transaction)
        return False
