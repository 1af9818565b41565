"""One event of the group coordinator: its time, the settings, the deadlines, and the actions that result.

Every function of the state machine takes the group and a `GroupEvent`, and adds its actions to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from headrace.coordinators.runtime import Answer, Append

if TYPE_CHECKING:
    from headrace.config import BrokerConfig
    from headrace.coordinators.deadlines import Deadlines
    from headrace.coordinators.groups.actions import Action, Then
    from headrace.coordinators.groups.group import Group
    from headrace.coordinators.groups.members import Member
    from headrace.coordinators.groups.replies import Reply, Response
    from headrace.coordinators.runtime import KeyValue, TransactionalProducer


class TimerKind(IntEnum):
    """The kind of a deadline."""

    SESSION = 0  # a member's next heartbeat, or a pending member's JoinGroup
    JOIN = 1  # the end of PreparingRebalance
    SYNC = 2  # every member's SyncGroup after a join
    RETENTION = 3  # the next check for expired offsets


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
    actions: list[Action] = field(default_factory=list)

    def answer(self, reply: Reply | None, message: Response) -> None:
        """Answers an open request; does nothing if `reply` is None."""
        if reply is not None:
            self.actions.append(Answer(reply, message))

    def append(
        self,
        group: Group,
        records: list[KeyValue],
        then: Then | None = None,
        producer: TransactionalProducer | None = None,
    ) -> None:
        """Writes to the group's partition, in the producer's transaction if there is one. `then` is passed to
        `appended` when the write is done or has failed."""
        self.actions.append(Append(group.partition, tuple(records), self.now_ms, then, producer))

    def touch(self, group: Group, member: Member, timeout_ms: int | None = None) -> None:
        """Restarts the session time-out of a member that sent a request."""
        wait_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self.start(TimerKind.SESSION, group, wait_ms, member.member_id)

    def start(self, kind: TimerKind, group: Group, wait_ms: int, member_id: str = "") -> None:
        self.deadlines.set(Timer(kind, group.group_id, member_id), self.now_ms + wait_ms)

    def stop(self, kind: TimerKind, group: Group, member_id: str = "") -> None:
        self.deadlines.cancel(Timer(kind, group.group_id, member_id))
