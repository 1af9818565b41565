"""The persister: where share partitions and share groups keep durable state. Its values, and its interface.

A share partition is a partition of a topic as one share group consumes it. Its state is

    state_epoch      grows with every initialization; the group coordinator issues it. An older one is fenced
    leader_epoch     of the topic partition's leader, the only writer. An older one is fenced
    start_offset     the first record that is not finished; -1 until the partition is initialized from the log
    state_batches    ranges of records from there on, each with a delivery state and a delivery count

A write names what has changed: its batches lie over those that are stored, and batches below the start offset end.
`broker.share.persister_client` implements the interface: it asks the share coordinator of each share partition.
Source: Kafka's `Persister`, `PartitionFactory`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from enum import IntEnum
from typing import NamedTuple, Protocol

from headrace.errors import ErrorCode

NO_START_OFFSET = -1
"""The start offset of a share partition that is initialized, but whose first record is not known yet; in a write, the
start offset that stays."""
NO_COUNT = -1
"""The delivery-complete count where it is unknown: there is no lag then."""
NO_EPOCH = -1
"""The epoch of a caller that is not to be fenced."""


class DeliveryState(IntEnum):
    """The delivery states that are stored. A record that is acquired is stored as available."""

    AVAILABLE = 0
    ACKNOWLEDGED = 2
    ARCHIVED = 4


class TopicIdPartition(NamedTuple):
    """A partition of a topic, by the topic's 16-byte id."""

    topic_id: bytes
    partition: int


class SharePartitionKey(NamedTuple):
    """A share partition: a partition of a topic in a share group."""

    group_id: str
    topic_id: bytes
    partition: int


class StateBatch(NamedTuple):
    """Records from `first_offset` to `last_offset`, both inclusive, of one delivery state (a `DeliveryState`)."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class InitialState(NamedTuple):
    """What a share partition begins with, also when its offset is altered. `NO_START_OFFSET`: its leader finds the
    start offset by share.auto.offset.reset."""

    state_epoch: int
    start_offset: int


class StateUpdate(NamedTuple):
    """What has changed in a share partition."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    """`NO_START_OFFSET` if it stays."""
    delivery_complete_count: int
    """Records at or above the start offset that are finished (acknowledged or archived)."""
    state_batches: tuple[StateBatch, ...]


class PersisterOutcome(NamedTuple):
    """The result for one share partition. `message` explains an error."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class SharePartitionState(NamedTuple):
    """The state of a share partition, as its leader reads it. Only `error` and `message` count after an error."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state_epoch: int = 0
    start_offset: int = NO_START_OFFSET
    state_batches: tuple[StateBatch, ...] = ()


class Summary(NamedTuple):
    """The state of a share partition without its batches. A partition that was never initialized has no error, and the
    start offset `NO_START_OFFSET`."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NO_START_OFFSET
    delivery_complete_count: int = NO_COUNT


class Persister(Protocol):
    """Keeps the state of share partitions. No call raises: each partition that was asked for has its result, with an
    error code if it failed. Transient errors have been retried by then."""

    def close(self) -> None:
        """Ends the tasks that wait for a result."""
        ...

    def initialize(
        self, group_id: str, partitions: Mapping[TopicIdPartition, InitialState]
    ) -> Awaitable[Mapping[TopicIdPartition, PersisterOutcome]]:
        """Begins share partitions, or begins them anew: state batches end."""
        ...

    def read(
        self, group_id: str, leader_epochs: Mapping[TopicIdPartition, int]
    ) -> Awaitable[Mapping[TopicIdPartition, SharePartitionState]]:
        """Reads share partitions for their leader, whose leader epoch is stored and fences earlier leaders."""
        ...

    def write(
        self, group_id: str, updates: Mapping[TopicIdPartition, StateUpdate]
    ) -> Awaitable[Mapping[TopicIdPartition, PersisterOutcome]]:
        """Stores changes. FENCED_LEADER_EPOCH and FENCED_STATE_EPOCH: the caller's state is out of date."""
        ...

    def delete(
        self, group_id: str, partitions: frozenset[TopicIdPartition]
    ) -> Awaitable[Mapping[TopicIdPartition, PersisterOutcome]]:
        """Removes share partitions. A partition without state is removed already."""
        ...

    def read_summary(
        self, group_id: str, leader_epochs: Mapping[TopicIdPartition, int]
    ) -> Awaitable[Mapping[TopicIdPartition, Summary]]:
        """Reads the start offsets of share partitions."""
        ...
