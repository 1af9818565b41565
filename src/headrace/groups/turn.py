"""One event's turn: the clock it happened at, the settings, the deadlines it may move, and what it decided.

Every function of the machine takes the group and a `Turn`; when the event is done, `actions` is the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from headrace.groups.actions import Action, Answer, Append, Then

if TYPE_CHECKING:
    from headrace.config import BrokerConfig
    from headrace.groups.actions import KeyValue, Reply, Response
    from headrace.groups.deadlines import Deadlines
    from headrace.groups.group import Group
    from headrace.groups.members import Member


class TimerKind(IntEnum):
    """What a deadline is for."""

    SESSION = 0  # a member's next sign of life, or a pending member's JoinGroup
    JOIN = 1  # the end of PreparingRebalance
    SYNC = 2  # every member's SyncGroup after a join
    RETENTION = 3  # the next look for expired offsets


class Timer(NamedTuple):
    """The key of a deadline."""

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


@dataclass(slots=True)
class Turn:
    """What one event may use, and what comes out of it."""

    now_ms: int
    config: BrokerConfig
    deadlines: Deadlines[Timer]
    actions: list[Action] = field(default_factory=list)

    def answer(self, reply: Reply | None, message: Response) -> None:
        """Nothing when nobody asks."""
        if reply is not None:
            self.actions.append(Answer(reply, message))

    def append(self, group: Group, records: list[KeyValue], then: Then | None = None) -> None:
        """Write to the group's partition; `then` comes back when that is done or has failed."""
        self.actions.append(Append(group.partition, tuple(records), self.now_ms, then))

    def touch(self, group: Group, member: Member, timeout_ms: int | None = None) -> None:
        """The member has shown life: its session starts anew."""
        wait_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self.start(TimerKind.SESSION, group, wait_ms, member.member_id)

    def start(self, kind: TimerKind, group: Group, wait_ms: int, member_id: str = "") -> None:
        self.deadlines.set(Timer(kind, group.group_id, member_id), self.now_ms + wait_ms)

    def stop(self, kind: TimerKind, group: Group, member_id: str = "") -> None:
        self.deadlines.cancel(Timer(kind, group.group_id, member_id))
