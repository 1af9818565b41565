"""Loading: builds transactional ids from the records of one partition of `__transaction_state`.

The last record of a key counts; a tombstone removes it. Source: Kafka's
`TransactionStateManager.loadTransactionMetadata`.
"""

from dataclasses import dataclass, field

from headrace.coordinators.transactions.records import read_key, read_value
from headrace.coordinators.transactions.transaction import Transaction
from headrace.types import NO_PRODUCER


@dataclass(slots=True)
class TransactionLoading:
    """The state of one partition while its records are read."""

    partition: int
    transactions: dict[str, Transaction] = field(default_factory=dict)

    def record(self, key: bytes, value: bytes | None, record_offset: int, producer_id: int = NO_PRODUCER) -> None:
        """Replays one record. Raises `CorruptMessage`."""
        transactional_id = read_key(key)
        if transactional_id is None:
            return
        if value is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = read_value(transactional_id, value)

    def marker(self, producer_id: int, committed: bool) -> None:
        """The topic has no transactions of its own."""
