"""The rules of the share coordinator: what a request makes of a share partition.

    Initialize      a snapshot with the given start offset; batches end. In the state epoch that the share partition
                    has: nothing, it is a repetition that may come when the state is in use
    Write           an update, or a snapshot after so many updates
    ReadState            an answer; of a leader, after an update that has its epoch if that is new
    DeleteState          a tombstone

A leader or state epoch that is older than the highest known one is fenced; -1 never is. Only a read raises the leader
epoch: a leader reads before it writes. Source: Kafka's `ShareCoordinatorShard`.

Two rules differ from Apache Kafka's. There, a second initialization in one state epoch begins anew, also a late
duplicate; here the group coordinator takes a new epoch for each. There, a leader whose epoch is known already is
answered from memory, also by a coordinator that has been replaced and does not know it; here the update tells it.
"""

from __future__ import annotations

from headrace.coordinators.share_state.batches import merged
from headrace.coordinators.share_state.persister import (
    NO_COUNT,
    NO_EPOCH,
    NO_START_OFFSET,
    InitialState,
    PersisterOutcome,
    SharePartitionKey,
    SharePartitionState,
    StateUpdate,
    Summary,
)
from headrace.coordinators.share_state.records import write_snapshot, write_tombstone, write_update
from headrace.coordinators.share_state.requests import (
    DeleteState,
    Forget,
    ReadState,
    ReadSummary,
    Request,
    ShareStateDecision,
    SnapshotCold,
)
from headrace.coordinators.share_state.state import CoordinatedState, ShareChange, ShareState
from headrace.errors import ErrorCode
from headrace.limits import SHARE_STATE_BATCHES_MAX

_DONE = PersisterOutcome()
_LEADER_FENCED = "The leader epoch in the request is older than the epoch on the broker."
_STATE_FENCED = "The share coordinator rejected the request because the share-group state epoch did not match."
_NO_PARTITION = "This server does not host this topic-partition."


class ShareStateRefused(Exception):
    """A request that the rules refuse: an error code and its explanation."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error, self.message = error, message


def decide(
    request: Request, entry: CoordinatedState | None, partition_count: int, updates_max: int, now_ms: int
) -> ShareStateDecision:
    """What a request makes of a share partition; `entry` is None if it has no state. `partition_count` is that of its
    topic, 0 if there is none. Raises `ShareStateRefused`."""
    key, what = request.key, request.what
    state = entry.state if entry is not None else None
    if isinstance(what, Forget):
        return _removed(key, state)
    if isinstance(what, SnapshotCold):
        if state is None:
            return ShareStateDecision(_DONE)
        cold = state._replace(snapshot_epoch=state.snapshot_epoch + 1, written_ms=now_ms)
        return ShareStateDecision(_DONE, cold, write_snapshot(key, cold))
    if key.partition < 0:
        raise ShareStateRefused(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")
    if isinstance(what, ReadState | StateUpdate) and state is None:
        verb = "Read" if isinstance(what, ReadState) else "Write"
        raise ShareStateRefused(
            ErrorCode.INVALID_REQUEST, f"{verb} operation on uninitialized share partition not allowed."
        )
    if entry is not None:
        _check_epochs(what, entry)
    if key.partition >= partition_count:
        raise ShareStateRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _NO_PARTITION)
    if isinstance(what, InitialState):
        if state is not None and what.state_epoch == state.state_epoch:
            return ShareStateDecision(_DONE)
        return _initialized(key, what, state, now_ms)
    if isinstance(what, DeleteState):
        return _removed(key, state)
    if isinstance(what, ReadSummary):
        return ShareStateDecision(_summary(state))
    assert entry is not None
    assert state is not None
    if isinstance(what, StateUpdate):
        batches = len(what.state_batches)
        if batches + len(state.state_batches) > 2 * SHARE_STATE_BATCHES_MAX or batches > SHARE_STATE_BATCHES_MAX:
            text = f"{batches} state batches beside {len(state.state_batches)} of the share partition are too many."
            raise ShareStateRefused(ErrorCode.INVALID_REQUEST, text)
        return _written(key, what, entry, state, state.leader_epoch, _DONE, updates_max, now_ms)
    return _read(key, what, entry, state, updates_max, now_ms)


def _check_epochs(what: object, entry: CoordinatedState) -> None:
    leader_epoch = what.leader_epoch if isinstance(what, StateUpdate | ReadState) else NO_EPOCH
    if leader_epoch != NO_EPOCH and leader_epoch < entry.leader_epoch:
        raise ShareStateRefused(ErrorCode.FENCED_LEADER_EPOCH, _LEADER_FENCED)
    state_epoch = what.state_epoch if isinstance(what, StateUpdate | InitialState) else NO_EPOCH
    if state_epoch != NO_EPOCH and state_epoch < entry.state_epoch:
        raise ShareStateRefused(ErrorCode.FENCED_STATE_EPOCH, _STATE_FENCED)


def _initialized(
    key: SharePartitionKey, initial: InitialState, state: ShareState | None, now_ms: int
) -> ShareStateDecision:
    begun = ShareState(
        snapshot_epoch=0 if state is None else state.snapshot_epoch + 1,
        state_epoch=initial.state_epoch,
        leader_epoch=0,
        start_offset=initial.start_offset,
        delivery_complete_count=NO_COUNT if initial.start_offset == NO_START_OFFSET else 0,
        created_ms=now_ms,
        written_ms=now_ms,
    )
    return ShareStateDecision(_DONE, begun, write_snapshot(key, begun))


def _read(
    key: SharePartitionKey, what: ReadState, entry: CoordinatedState, state: ShareState, updates_max: int, now_ms: int
) -> ShareStateDecision:
    result = SharePartitionState(ErrorCode.NONE, None, state.state_epoch, state.start_offset, state.state_batches)
    if what.leader_epoch == NO_EPOCH:
        return ShareStateDecision(result)
    leader_epoch = state.leader_epoch if what.leader_epoch == entry.leader_epoch else what.leader_epoch
    same = StateUpdate(
        state.state_epoch, leader_epoch, state.start_offset, state.delivery_complete_count, state_batches=()
    )
    return _written(key, same, entry, state, leader_epoch, result, updates_max, now_ms)


def _written(
    key: SharePartitionKey,
    update: StateUpdate,
    entry: CoordinatedState,
    state: ShareState,
    leader_epoch: int,
    result: PersisterOutcome | SharePartitionState,
    updates_max: int,
    now_ms: int,
) -> ShareStateDecision:
    """An update, or a snapshot after `updates_max` of them."""
    if entry.updates < updates_max:
        change = ShareChange(
            state.snapshot_epoch,
            leader_epoch,
            update.start_offset,
            update.delivery_complete_count,
            merged((), update.state_batches, update.start_offset),
        )
        return ShareStateDecision(result, change, write_update(key, change))
    start_offset = state.start_offset if update.start_offset == NO_START_OFFSET else update.start_offset
    whole = ShareState(
        state.snapshot_epoch + 1,
        state.state_epoch,
        leader_epoch,
        start_offset,
        update.delivery_complete_count,
        merged(state.state_batches, update.state_batches, start_offset),
        created_ms=now_ms,
        written_ms=now_ms,
    )
    return ShareStateDecision(result, whole, write_snapshot(key, whole))


def _removed(key: SharePartitionKey, state: ShareState | None) -> ShareStateDecision:
    return ShareStateDecision(_DONE) if state is None else ShareStateDecision(_DONE, None, write_tombstone(key))


def _summary(state: ShareState | None) -> Summary:
    if state is None:
        return Summary()
    return Summary(
        ErrorCode.NONE,
        None,
        state.state_epoch,
        state.leader_epoch,
        state.start_offset,
        state.delivery_complete_count,
    )
