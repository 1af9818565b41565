"""The records of `__transaction_state`: keys and values in Kafka's schema.

    key      version 0: the transactional id
    value    version 1, or 0 below transaction.version 1; None removes the id

Partitions are grouped by topic; an empty transactional id has null instead. Source: Kafka's `TransactionLog`,
TransactionLogKey.json, TransactionLogValue.json.
"""

from __future__ import annotations

from struct import Struct

from headrace.coordinators.transactions.transaction import Transaction, TransactionState
from headrace.errors import CorruptMessage
from headrace.protocol import messages as m
from headrace.types import NO_PRODUCER, TopicPartition

KEY_VERSION = 0
VALUE_VERSIONS = range(2)
FLEXIBLE_FROM = 1
"""The transaction.version from which on values have version 1."""

_VERSION = Struct(">h")


def write_key(transactional_id: str) -> bytes:
    """The key of a transactional id."""
    key = m.TransactionLogKey(transactional_id=transactional_id)
    return _VERSION.pack(KEY_VERSION) + key.encode(KEY_VERSION)


def read_key(key: bytes) -> str | None:
    """The transactional id of a key; None for a key of another version. Raises `CorruptMessage`."""
    if _version(key) != KEY_VERSION:
        return None
    decoded, _ = m.TransactionLogKey.decode(KEY_VERSION, key, 2)
    return decoded.transactional_id


def write_value(transaction: Transaction, *, is_flexible: bool = True) -> bytes:
    """The value of a transactional id. A value that is not flexible can be read by Kafka before 4.0."""
    version = 1 if is_flexible else 0
    partitions: dict[str, list[int]] = {}
    for each in sorted(transaction.partitions):
        partitions.setdefault(each.topic, []).append(each.partition)
    value = m.TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        transaction_partitions=None
        if transaction.state is TransactionState.EMPTY
        else [
            m.TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=numbers)
            for topic, numbers in partitions.items()
        ],
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
    )
    if is_flexible:
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
        value.client_transaction_version = transaction.version
    return _VERSION.pack(version) + value.encode(version)


def read_value(transactional_id: str, value: bytes) -> Transaction:
    """Raises `CorruptMessage` on a version or a state that is not known."""
    version = _version(value)
    if version not in VALUE_VERSIONS:
        raise CorruptMessage(f"a value of __transaction_state has version {version}, known are 0 and 1")
    decoded, _ = m.TransactionLogValue.decode(version, value, 2)
    try:
        state = TransactionState(decoded.transaction_status)
    except ValueError:
        raise CorruptMessage(f"transactional id {transactional_id!r} has state {decoded.transaction_status}") from None
    has_tags = version > 0
    return Transaction(
        transactional_id,
        decoded.producer_id,
        decoded.transaction_timeout_ms,
        decoded.transaction_last_update_timestamp_ms,
        decoded.producer_epoch,
        state,
        frozenset(
            TopicPartition(topic.topic, number)
            for topic in decoded.transaction_partitions or ()
            for number in topic.partition_ids
        ),
        decoded.transaction_start_timestamp_ms,
        decoded.previous_producer_id if has_tags else NO_PRODUCER,
        decoded.next_producer_id if has_tags else NO_PRODUCER,
        decoded.client_transaction_version if has_tags else 0,
    )


def _version(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise CorruptMessage(f"{len(data)} bytes are too short for a versioned key or value of __transaction_state")
    version: int = _VERSION.unpack_from(data)[0]
    return version
