"""The requests to the share coordinator, each for one share partition, and the actions that follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from headrace.coordinators import runtime
from headrace.coordinators.runtime import KeyValue
from headrace.coordinators.share_state.persister import (
    InitialState,
    PersisterOutcome,
    SharePartitionKey,
    SharePartitionState,
    StateUpdate,
    Summary,
)
from headrace.coordinators.share_state.state import CoordinatedState, ShareChange, ShareState
from headrace.errors import ErrorCode

Result: TypeAlias = PersisterOutcome | SharePartitionState | Summary


class ReadState(NamedTuple):
    """ReadShareGroupState: the leader of the topic partition begins with it; the reply gets a `SharePartitionState`."""

    leader_epoch: int


class ReadSummary(NamedTuple):
    """ReadShareGroupStateSummary; the reply gets a `Summary`."""


class DeleteState(NamedTuple):
    """DeleteShareGroupState; the reply gets a `PersisterOutcome`."""


class Forget(NamedTuple):
    """The topic was deleted; the reply gets a `PersisterOutcome`."""


class SnapshotCold(NamedTuple):
    """A new snapshot is due, since the last one is old; the reply gets a `PersisterOutcome`."""


What: TypeAlias = InitialState | StateUpdate | ReadState | ReadSummary | DeleteState | Forget | SnapshotCold
"""`InitialState`: InitializeShareGroupState. `StateUpdate`: WriteShareGroupState. Both get a `PersisterOutcome`."""


class Request(NamedTuple):
    """A request for one share partition."""

    key: SharePartitionKey
    what: What
    reply: Callable[[Any], None]

    def failed(self, error: ErrorCode, message: str | None) -> runtime.Answer:
        """The answer that names an error."""
        result: Result
        if isinstance(self.what, ReadState):
            result = SharePartitionState(error, message)
        elif isinstance(self.what, ReadSummary):
            result = Summary(error, message)
        else:
            result = PersisterOutcome(error, message)
        return runtime.Answer(self.reply, result)


class RecordWrite(NamedTuple):
    """A record that is being written, and the request that it is for."""

    request: Request
    entry: CoordinatedState
    content: ShareState | ShareChange | None
    """None: a tombstone."""
    result: Result


class RecordsWritten(NamedTuple):
    """The second step of a batch: its records are in the log, or are not."""

    writes: tuple[RecordWrite, ...]


class Prune(NamedTuple):
    """Delete the records before this offset of a partition of `__share_group_state`: none of them is needed."""

    partition: int
    before_offset: int


class ShareStateDecision(NamedTuple):
    """What a request leads to: an answer at once, or a record and then an answer."""

    result: Result
    content: ShareState | ShareChange | None = None
    record: KeyValue | None = None


Action: TypeAlias = "runtime.Answer | runtime.Append[RecordsWritten] | runtime.Effect[Prune]"
Actions: TypeAlias = list[Action]
