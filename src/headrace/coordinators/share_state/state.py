"""The state of one share partition, as it is stored, and what each record makes of it.

    snapshot    the whole state. Its epoch grows by one with each
    update      what a write has changed since; it has the epoch of the snapshot before it
    tombstone   no state any more

Source: Kafka's `ShareGroupOffset`, `ShareCoordinatorShard`.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.coordinators.share_state.batches import merged
from headrace.coordinators.share_state.persister import NO_COUNT, NO_EPOCH, NO_START_OFFSET, StateBatch


class ShareState(NamedTuple):
    """The state of one share partition."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int = NO_COUNT
    state_batches: tuple[StateBatch, ...] = ()
    created_ms: int = 0
    """When the state was written."""
    written_ms: int = 0
    """When the snapshot was written: later than `created_ms` if nothing had changed for long."""


class ShareChange(NamedTuple):
    """What an update changes."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    state_batches: tuple[StateBatch, ...]


def changed(state: ShareState | None, change: ShareChange) -> ShareState:
    """The state after an update. An update without a snapshot before it stands for itself."""
    if state is None:
        return ShareState(
            change.snapshot_epoch,
            0,
            change.leader_epoch,
            change.start_offset,
            change.delivery_complete_count,
            merged((), change.state_batches, NO_START_OFFSET),
        )
    start_offset = state.start_offset if change.start_offset == NO_START_OFFSET else change.start_offset
    return state._replace(
        start_offset=start_offset,
        leader_epoch=state.leader_epoch if change.leader_epoch == NO_EPOCH else change.leader_epoch,
        delivery_complete_count=change.delivery_complete_count,
        state_batches=merged(state.state_batches, change.state_batches, start_offset),
    )


class CoordinatedState:
    """A share partition of this coordinator."""

    __slots__ = ("is_busy", "leader_epoch", "partition", "snapshot_offset", "state", "state_epoch", "updates")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        """The partition of `__share_group_state`."""
        self.state: ShareState | None = None
        """The newest state in the log; None while the share partition is being initialized."""
        self.leader_epoch = self.state_epoch = NO_EPOCH
        """The highest epochs so far, which fence earlier ones. An initialization begins with leader epoch 0 again."""
        self.updates = 0
        """Updates since the last snapshot that they led to."""
        self.snapshot_offset = -1
        """Where the last snapshot is. Records of this share partition before it are not needed."""
        self.is_busy = False
        """Whether a record of it is being written."""

    def apply(self, record: ShareState | ShareChange, record_offset: int | None, updates_max: int) -> None:
        """Takes in a record that is in the log. `record_offset` is None if it is not known."""
        self.leader_epoch = max(self.leader_epoch, record.leader_epoch)
        if isinstance(record, ShareChange):
            self.state = changed(self.state, record)
            self.updates += 1
            return
        self.state_epoch = max(self.state_epoch, record.state_epoch)
        self.state = record
        if self.updates >= updates_max:
            self.updates = 0
        if record_offset is not None:
            self.snapshot_offset = record_offset
