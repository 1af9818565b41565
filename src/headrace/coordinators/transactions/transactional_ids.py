"""The transactional ids of a coordinator: the state that its requests, markers, deadlines and ends of writes share.

`write` and `fence` begin a write. The caller returns their `Append` to the runtime; `write_results` takes in its end.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from headrace.coordinators.deadlines import Deadlines
from headrace.coordinators.prefixes import prefix_of
from headrace.coordinators.runtime import Append, OwnedPartitions
from headrace.coordinators.transactions.actions import Prepared, Reply, Then
from headrace.coordinators.transactions.entry import TransactionEntry
from headrace.coordinators.transactions.loading import TransactionLoading
from headrace.coordinators.transactions.records import FLEXIBLE_FROM, write_key, write_value
from headrace.coordinators.transactions.transaction import Transaction
from headrace.errors import ErrorCode

RETRY_MS = 100
"""The time after which a failed write is tried again, and after which the next unused ids of many are removed."""


class TransactionTimerKind(Enum):
    """The kinds of deadlines."""

    TIMEOUT = auto()
    RETRY_COMPLETE = auto()
    EXPIRY = auto()


class TransactionTimer(NamedTuple):
    """The key of a deadline."""

    kind: TransactionTimerKind
    transactional_id: str = ""


class TransactionalIds:
    """The transactional ids of one broker, the partitions that they belong to, and their deadlines."""

    __slots__ = ("_in_prefixes", "_partition_for", "_version", "deadlines", "entries", "partitions")

    def __init__(self, partition_for: Callable[[str], int], version: Callable[[], int]) -> None:
        """`partition_for` maps a transactional id to its partition of `__transaction_state`. `version` returns the
        cluster's transaction.version."""
        self._partition_for, self._version = partition_for, version
        self.entries: dict[str, TransactionEntry] = {}
        self._in_prefixes: dict[str, dict[str, None]] = {}
        self.partitions = OwnedPartitions(TransactionLoading)
        self.deadlines: Deadlines[TransactionTimer] = Deadlines()

    def unavailable(self, transactional_id: str) -> ErrorCode:
        """NONE if this broker coordinates the id, else the error code for its clients."""
        return self.partitions.availability(self._partition_for(transactional_id))

    def create(self, transaction: Transaction) -> TransactionEntry:
        """The entry of a new id, which is not stored yet."""
        return self.put(TransactionEntry(transaction, self._partition_for(transaction.transactional_id)))

    def put(self, entry: TransactionEntry) -> TransactionEntry:
        """Takes an entry, in place of an earlier one of its id."""
        transactional_id = entry.transaction.transactional_id
        if transactional_id not in self.entries:
            self._in_prefixes.setdefault(prefix_of(transactional_id), {})[transactional_id] = None
        self.entries[transactional_id] = entry
        return entry

    def count(self, prefix: str) -> int:
        """The number of ids that have this before their first dot, and the dot."""
        return len(self._in_prefixes.get(prefix, ()))

    def with_prefix(self, prefix: str) -> list[TransactionEntry]:
        """These ids."""
        return [self.entries[each] for each in self._in_prefixes.get(prefix, ())]

    def drop(self, transactional_id: str) -> None:
        """Removes an id and its deadlines."""
        del self.entries[transactional_id]
        prefix = prefix_of(transactional_id)
        del self._in_prefixes[prefix][transactional_id]
        if not self._in_prefixes[prefix]:
            del self._in_prefixes[prefix]
        for kind in (TransactionTimerKind.TIMEOUT, TransactionTimerKind.RETRY_COMPLETE):
            self.deadlines.cancel(TransactionTimer(kind, transactional_id))

    def set_timeout(self, transaction: Transaction) -> None:
        """Sets the deadline of an ongoing transaction."""
        if not transaction.never_times_out:
            timer = TransactionTimer(TransactionTimerKind.TIMEOUT, transaction.transactional_id)
            self.deadlines.set(timer, transaction.started_ms + transaction.timeout_ms)

    def write(self, entry: TransactionEntry, wanted: Transaction, then: Then) -> Append[Then]:
        """Begins to write a new state. No other write of the id may be under way."""
        value = write_value(wanted, is_flexible=self._version() >= FLEXIBLE_FROM)
        entry.pending = wanted
        return Append(entry.partition, ((write_key(wanted.transactional_id), value),), wanted.updated_ms, then)

    def fence(self, entry: TransactionEntry, reply: Reply | None, now_ms: int) -> Append[Then]:
        """Begins to abort an ongoing transaction and to fence its producer. Without `reply` it timed out."""
        wanted = entry.transaction.fenced(self._version(), now_ms, is_bumped_already=entry.has_failed_fence)
        return self.write(entry, wanted, Prepared(entry, wanted, reply, is_fence=True))
