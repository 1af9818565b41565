"""The actions of the transaction coordinator: its requests to other brokers, and the second step of its writes.

`coordinators.runtime` defines the actions; this module defines their payload.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from headrace.coordinators import runtime

if TYPE_CHECKING:
    from headrace.coordinators.transactions.entry import TransactionEntry
    from headrace.coordinators.transactions.transaction import Transaction
    from headrace.types import TopicPartition

Reply: TypeAlias = "Callable[[Any], None]"


class SendMarkers(NamedTuple):
    """Write a marker into each of these partitions, and report each with `TransactionCoordinator.marker_written`."""

    transactional_id: str
    coordinator_partition: int
    """The partition of `__transaction_state` that the id belongs to."""
    coordinator_epoch: int
    producer_id: int
    producer_epoch: int
    is_commit: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int


class DropMarkers(NamedTuple):
    """Stop sending the markers of every transactional id in this partition of `__transaction_state`."""

    coordinator_partition: int


class Initialized(NamedTuple):
    """A producer was initialized: InitProducerId is answered."""

    entry: TransactionEntry
    transaction: Transaction
    reply: Reply


class PartitionsAdded(NamedTuple):
    """Partitions were added: the reply gets an error code."""

    entry: TransactionEntry
    transaction: Transaction
    reply: Reply


class Prepared(NamedTuple):
    """The outcome is decided: the markers are sent, and EndTxn is answered. Without `reply` it timed out."""

    entry: TransactionEntry
    transaction: Transaction
    reply: Reply | None
    is_fence: bool
    """Whether the producer was fenced, so that its successor is told to try again."""


class Completed(NamedTuple):
    """Every marker is written, and so is the new state."""

    entry: TransactionEntry
    transaction: Transaction


class Expired(NamedTuple):
    """The tombstones of unused ids were written: the ids are removed."""

    entries: tuple[TransactionEntry, ...]


Then: TypeAlias = Initialized | PartitionsAdded | Prepared | Completed | Expired
Action: TypeAlias = "runtime.Answer | runtime.Append[Then] | runtime.Effect[SendMarkers | DropMarkers]"
Actions: TypeAlias = list[Action]
