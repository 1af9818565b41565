"""Which batches and markers of transactions a log can do without, found out while it is gone through in order.

    a batch of an aborted transaction       goes
    its marker                              goes once no batch of the transaction is left, which then was so when the
                                            log was last gone through; and so does its entry of the transaction index
    the marker of a committed transaction   goes once no batch of the transaction is left
    a marker that was emptied               goes

What goes with the markers is put off by the caller, by `delete.retention.ms`: a reader that saw the transaction's
records must also come to its end. Source: Kafka's CleanedTransactionMetadata.
"""

from collections import deque
from collections.abc import Callable, Iterable

from headrace.log.txn_index import AbortedTransaction
from headrace.records.compression import Bytes
from headrace.records.control import read_marker
from headrace.records.header import BatchHeader


class PassedTransactions:
    """The transactions that are open at one place of the log, which moves up."""

    def __init__(
        self, aborted: Iterable[AbortedTransaction], keep_aborted: Callable[[AbortedTransaction], object] | None = None
    ) -> None:
        """`aborted` are all that reach into what is gone through; `keep_aborted` hears which still have batches."""
        self._coming = deque(sorted(set(aborted), key=lambda each: each.first_offset))
        self._keep_aborted = keep_aborted
        self._aborted: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()  # producers of open transactions of which there is a batch

    def is_needless(self, batch: Bytes, header: BatchHeader) -> bool:
        """Whether readers can do without this batch, the next of the log. Raises CorruptMessage."""
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
