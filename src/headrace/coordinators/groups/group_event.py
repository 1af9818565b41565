"""One event of the group coordinator: its time, the settings, the deadlines, and the actions that result.

Every function of the state machine takes the group and a `GroupEvent`, and adds its actions to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from headrace.coordinators.runtime import Answer, Append, Effect
from headrace.limits import GROUP_BATCH_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from headrace.config import BrokerConfig
    from headrace.coordinators.deadlines import Deadlines
    from headrace.coordinators.runtime import KeyValue, TransactionalProducer
    from headrace.errors import ErrorCode


class Then(Protocol):
    """The second step of a write. A value, so that tests can compare it and logs can print it."""

    def stored(self, error: ErrorCode, record_offset: int, group_event: GroupEvent) -> None:
        """Takes in the end of the write: its batch is at `record_offset`, or it failed with `error`."""


Action: TypeAlias = "Answer | Append[Then] | Effect[Any]"
Actions: TypeAlias = "list[Action]"


class Addressed(Protocol):
    """A group, as far as an event needs it: its id, and its partition of `__consumer_offsets`."""

    @property
    def group_id(self) -> str: ...

    @property
    def partition(self) -> int: ...


class HasSession(Protocol):
    """A member with a session time-out of its own."""

    @property
    def member_id(self) -> str: ...

    @property
    def session_timeout_ms(self) -> int: ...


class TimerKind(IntEnum):
    """The kind of a deadline. Each kind of group uses those that it needs."""

    SESSION = 0  # a member's next heartbeat, or a pending member's JoinGroup
    JOIN = 1  # the end of PreparingRebalance
    SYNC = 2  # every member's SyncGroup after a join; in a consumer group, one classic member's
    RETENTION = 3  # the next check for expired offsets
    REBALANCE = 4  # a member's revocation of partitions
    REJOIN = 5  # a classic member of a consumer group must join again
    INITIAL_DELAY = 6  # the first assignment of a group

    __hash__ = int.__hash__  # that of an enum is Python, for each look at a deadline


class Timer(NamedTuple):
    """The key of a deadline."""

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


@dataclass(slots=True)
class GroupEvent:
    """The input and the output of one event."""

    now_ms: int
    config: BrokerConfig
    deadlines: Deadlines[Timer]
    actions: Actions = field(default_factory=list)

    def answer(self, reply: Callable[[Any], None] | None, message: object) -> None:
        """Answers an open request; does nothing if `reply` is None."""
        if reply is not None:
            self.actions.append(Answer(reply, message))

    def append(
        self,
        group: Addressed,
        records: list[KeyValue],
        then: Then | None = None,
        producer: TransactionalProducer | None = None,
    ) -> None:
        """Writes to the group's partition, in the producer's transaction if there is one. `then.stored` is called when
        the write is done or has failed."""
        self.actions.append(Append(group.partition, tuple(records), self.now_ms, then, producer))

    def append_in_parts(self, group: Addressed, records: list[KeyValue]) -> None:
        """As `append`, in several batches if the records are more than one may have. For records of which the first few
        may be in the log without the others: the log refuses a batch that is too large at every try."""
        part: list[KeyValue] = []
        size = 0
        for record in records:
            key, value = record
            own = len(key) + len(value or b"")
            if part and size + own > GROUP_BATCH_BYTES_MAX:
                self.append(group, part)
                part, size = [], 0
            part.append(record)
            size += own
        self.append(group, part)

    def effect(self, what: object) -> None:
        """Has the coordinator's service do something outside the topic."""
        self.actions.append(Effect(what))

    def touch(self, group: Addressed, member: HasSession, timeout_ms: int | None = None) -> None:
        """Restarts the session time-out of a member that sent a request."""
        wait_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self.start(TimerKind.SESSION, group, wait_ms, member.member_id)

    def start(self, kind: TimerKind, group: Addressed, wait_ms: int, member_id: str = "") -> None:
        self.deadlines.set(Timer(kind, group.group_id, member_id), self.now_ms + wait_ms)

    def stop(self, kind: TimerKind, group: Addressed, member_id: str = "") -> None:
        self.deadlines.cancel(Timer(kind, group.group_id, member_id))
